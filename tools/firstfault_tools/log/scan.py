"""What interesting lines does a log hold? One pass over the bytes, signatures and structure together.

The log is read in blocks cut at line ends. A gate of literals (gate.py) lets ordinary lines pass; what
it stops at is tried against one google-re2 set, line by line. Of what so many lines match that more of
them tell nothing (an error storm), the rest is counted by samples of each block, and said to be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.log import secrets
from firstfault_tools.log.blocks import LineCounter, read_blocks
from firstfault_tools.log.census import Census, read_label
from firstfault_tools.log.clock import read_time
from firstfault_tools.log.digest import (
    MARKS_PER_KIND,
    FileDigest,
    Hit,
    Line,
    Mark,
    merge_parts,
    trim_hits,
)
from firstfault_tools.log.gate import Gate, OpenGate
from firstfault_tools.log.keeper import Keeper
from firstfault_tools.log.line import cut_line, normalise, strip_ansi
from firstfault_tools.log.owner import name_owner
from firstfault_tools.log.plan import HEAD_BYTES, Budget, Part, cut_log, describe_log, share_budget
from firstfault_tools.log.prefix import read_file_name, read_prefix
from firstfault_tools.log.progress import PartReached
from firstfault_tools.log.signature import Matches, Signature, SignatureSet

OFFSET_EVERY = 1024 * 1024
SETTLED_HITS = 10
"""Matching lines per kept one after which a signature is settled: counted by samples from then on."""

SETTLED_MARKS = 4_000
UNGATED_BYTES = 384 * 1024
"""A log up to this size is tried without a gate, as building one takes longer; many logs share one."""

SAMPLE_BYTES = 4 * 1024

_counter = LineCounter()

STRUCTURE: tuple[tuple[Mark, str], ...] = (
    (Mark.TRACEBACK, r"Traceback \(most recent call last\)|Original Traceback"),
    (
        Mark.WORK,
        r"Timeout\(ms\)=\d|last enqueued work|last completed (?:NCCL )?work|"
        r"collective operation timeout|OpType=[A-Z_]+|EI000[26]: ",
    ),
    (
        Mark.EXIT,
        r"exitcode\s*:?\s*-?\d|[Ee]xit(?:s|ed)? (?:with )?(?:return |exit )?(?:code|status)|"
        r"-- Process \d+ terminated with|process \d+ terminated with (?:exit code|signal)|exited on signal \d|died with <Signals|Main process exited, code=|Failed with result|"
        r"Signal \d+ \(SIG|[Kk]illed by signal|Exit Code:\s+\d|return code = -?\d|trainer process with rank=\[|Container rank \d+ status failed",
    ),
    (Mark.SEAT, r"cudaDev \d+ .{0,30}busId [0-9a-f]"),
    (
        Mark.SEAT,
        # A pattern that begins with the rank of "[rank0]" would cost every line: its host comes first.
        r"(?i)\brank[ =:]{1,3}\d+.{0,60}\bpid[ =:]{1,3}\d|\bpid[ =:]{1,3}\d+.{0,60}\brank(?:_?id)?[ =:]{1,3}\d|"
        r"\bhost[ =:]{1,2}\S{1,60} pid[ =:]{1,3}\d|\bpid[ =:]{1,3}\d+.{0,40}\bhost\b",
    ),
    # A PCI address with its domain; the rank before it is read by the placement table. Without the domain every
    # time of day begins like one, which costs a third of the speed.
    (Mark.SEAT, r"(?i)[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b"),
    (
        Mark.WORLD,
        r"(?i)world[_ ]?size|world info dict|nranks \d+|--nnodes|num_nodes|nproc_per_node|num_gpus|num_processes|device mesh with|local[_-]rank[= ][1-9]|\bprocess \d+/\d+",
    ),
)


def build_set(signatures: Sequence[Signature]) -> SignatureSet:
    """Signature set with the scanner's own marks and the secret patterns added."""
    return SignatureSet(signatures, (*(p for _, p in STRUCTURE), *secrets.scan_patterns()))


@dataclass(slots=True)
class _Scan:
    """State of one pass; everything that grows is bounded."""

    part: Part
    signatures: SignatureSet
    opened: OpenGate | None
    keeper: Keeper
    hits: list[Hit] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    estimates: Counter[int] = field(default_factory=Counter)
    ranks: set[tuple[int, int | None]] = field(default_factory=set)
    conditions: set[int] = field(default_factory=set)
    marked: dict[Mark, list[int]] = field(default_factory=lambda: defaultdict(list))
    secret_lines: int = 0
    secret: bool = False
    """The block in hand holds a secret."""

    @property
    def enough(self) -> int:
        return SETTLED_HITS * self.part.budget.hits


def scan_file(
    path: Path, name: str, signatures: SignatureSet, budget: Budget | None = None
) -> FileDigest:
    """Scan one log in this process. `name` is what citations call it."""
    with path.open("rb") as stream:
        log = describe_log(name, path, stream.read(HEAD_BYTES))
    parts = cut_log(log, budget or share_budget(log.size, log.size, 1))
    digest = scan_part(parts[0], signatures)
    for part in parts[1:]:
        digest = merge_parts(digest, scan_part(part, signatures))
    return digest


def scan_part(
    part: Part, signatures: SignatureSet, reached: PartReached | None = None
) -> FileDigest:
    """Scan one part of a log; line numbers count from the part's first line. reached: told after every block."""
    gated = part.size > UNGATED_BYTES or not part.budget.complete
    redactions: Counter[str] = Counter()
    keeper = Keeper(part.budget, part.wrapped, part.start == 0, part.end >= part.size, redactions)
    scan = _Scan(part, signatures, OpenGate(signatures.gates) if gated else None, keeper)
    census = Census(part.budget.complete)
    number = 0
    offsets: list[tuple[int, int]] = []
    for offset, raw in read_blocks(part.path, part.start, part.end):
        if not offsets or offset - offsets[-1][1] >= OFFSET_EVERY:
            offsets.append((number, offset))
        block = strip_ansi(raw)
        count = _counter.count(block)
        # once secrets are settled every kept line is looked through for them
        scan.secret = scan.secret_lines >= SETTLED_MARKS
        _scan_block(scan, block, number)
        keeper.keep(block, number, count, scan.secret)
        census.count(block, number, count)
        number += count
        if reached is not None:
            reached(offset + len(raw) - part.start, number, scan.counts)
    scan.counts.update(scan.estimates)
    sampled = {i for i in scan.estimates if scan.estimates[i] > 0}
    kept, ranks = keeper.close(), census.traces()
    return FileDigest(
        file=part.name,
        bytes_total=part.end - part.start,
        lines_total=number,
        kept=kept,
        complete=part.budget.complete,
        year=part.year,
        hits=trim_hits(sorted(scan.hits, key=lambda h: h.line.number), part.budget.hits),
        hit_counts={i: n for i, n in scan.counts.items() if n > 0},
        conditions=frozenset(scan.conditions),
        marked={mark: tuple(sorted(set(lines))) for mark, lines in scan.marked.items()},
        ranks=ranks,
        redactions=dict(redactions),
        locals=census.local_traces(),
        name_place=name_owner(read_file_name(part.name), kept, ranks),
        offsets=offsets,
        sampled=frozenset(sampled),
        hit_limit=part.budget.hits,
    )


def _scan_block(scan: _Scan, block: bytes, number: int) -> None:
    opened = scan.opened
    if opened is None:
        if not scan.part.wrapped and scan.signatures.match(block) is None:
            return
        for at, raw in enumerate(_split(block), number + 1):
            _visit(scan, at, raw)
        return
    if scan.part.wrapped:
        for at, raw in enumerate(_split(block), number + 1):
            # an escape may hide a literal
            if b"\\" in raw:
                _visit(scan, at, raw)
            elif (place := opened.current.search(raw)) is not None:
                _visit(scan, at, raw, raw[place[0] : place[1]])
    else:
        _walk_gate(scan, opened, block, number)
    if opened.settled:
        _sample(scan, opened, block, number)


def _walk_gate(scan: _Scan, opened: OpenGate, block: bytes, number: int) -> None:
    position = counted = 0
    at = number + 1
    while (place := opened.current.search(block, position)) is not None:
        start = block.rfind(b"\n", 0, place[0]) + 1
        end = block.find(b"\n", place[0])
        end = len(block) if end < 0 else end
        at += block.count(b"\n", counted, start)
        counted = start
        _visit(scan, at, block[start:end], block[place[0] : place[1]])
        position = end + 1
        if position >= len(block):
            return


def _split(block: bytes) -> list[bytes]:
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _visit(scan: _Scan, at: int, raw: bytes, opened: bytes | None = None) -> None:
    """Try one line against all patterns. opened: the text at which the gate stopped."""
    text: str | None = None
    if scan.part.wrapped:
        text = normalise(raw)
        found = scan.signatures.match(text.encode())
    else:
        found = scan.signatures.match(cut_line(raw))
    if found is None:
        if opened is not None and scan.opened is not None:
            scan.opened.note_vain(opened, ())
        return
    news = _note_marks(scan, at, found)
    if found.signatures:
        news = _note_hits(scan, at, raw, text, found.signatures) or news
    if not news and opened is not None and scan.opened is not None:
        scan.opened.note_vain(opened, found.patterns)


def _note_marks(scan: _Scan, at: int, found: Matches) -> bool:
    """Note conditions and marks; False where nothing new was learnt."""
    news = not scan.conditions.issuperset(found.conditions)
    scan.conditions.update(found.conditions)
    for mark in found.marks:
        if mark >= len(STRUCTURE):
            scan.secret = True
            scan.secret_lines += 1
            news = news or scan.secret_lines < SETTLED_MARKS
            continue
        numbers = scan.marked[STRUCTURE[mark][0]]
        if len(numbers) < MARKS_PER_KIND:
            numbers.append(at)
        if len(numbers) < SETTLED_MARKS:
            news = True
            scan.keeper.want(at, STRUCTURE[mark][0] not in (Mark.SEAT, Mark.WORLD))
    return news


def _note_hits(
    scan: _Scan, at: int, raw: bytes, text: str | None, signatures: Iterable[int]
) -> bool:
    """Note hits of signatures; False where enough is known of all of them."""
    news = False
    line: Line | None = None
    for index in signatures:
        count = scan.counts[index] = scan.counts[index] + 1
        if count > scan.enough:
            continue
        text = secrets.redact(normalise(raw)) if line is None else line.text
        captures = scan.signatures.captures(index, text)
        if captures is None:
            scan.counts[index] -= 1
            scan.refused[index] += 1
            news = news or scan.refused[index] <= 4 * scan.enough
            continue
        news = True
        line = line or make_line(scan.part.name, at, text, scan.part.year)
        key = (index, line.place.rank)
        if count <= scan.part.budget.hits or key not in scan.ranks:
            scan.hits.append(Hit(index, line, captures))
            scan.ranks.add(key)
            scan.keeper.want(at)
    return news


def _sample(scan: _Scan, opened: OpenGate, block: bytes, number: int) -> None:
    """Count settled signatures in one piece of the block and reckon up from it."""
    owners = scan.signatures.owners
    storm = {owners[i] for i in opened.settled if i < len(owners)}
    if not storm:
        return
    # another place in each block, the same for everyone who scans it
    start = (number * 7919) % max(1, len(block) - SAMPLE_BYTES)
    start = block.find(b"\n", start) + 1
    end = block.find(b"\n", start + SAMPLE_BYTES)
    piece = block[start : end if end > 0 else len(block)]
    if not piece:
        return
    scale = len(block) / len(piece)
    at = number + 1 + block.count(b"\n", 0, start)
    gate: Gate = opened.book.gate()
    seen: Counter[int] = Counter()
    for offset, raw in enumerate(_split(piece)):
        found = scan.signatures.match(raw) if gate.search(raw) is not None else None
        matched = storm.intersection(found.signatures) if found is not None else frozenset()
        seen.update(matched)
        rank = read_label(raw) if matched else None
        fresh = [i for i in matched if rank is not None and (i, rank) not in scan.ranks]
        if not fresh or len(scan.ranks) >= MARKS_PER_KIND:
            continue
        text = secrets.redact(normalise(raw))
        line = make_line(scan.part.name, at + offset, text, scan.part.year)
        for index in fresh:
            scan.ranks.add((index, rank))
            captures = scan.signatures.captures(index, text)
            if captures is not None:
                scan.hits.append(Hit(index, line, captures))
    for index, count in seen.items():
        scan.estimates[index] += round(count * scale)


def make_line(name: str, number: int, text: str, year: int) -> Line:
    """Line with the place of its writer and its time read."""
    place, body = read_prefix(text)
    return Line(name, number, text, place, body, read_time(text, year))
