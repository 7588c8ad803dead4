"""What interesting lines does a log hold? One pass over the bytes, signatures and structure together.

The file is read in blocks cut at line ends; each block is tried as a whole against one google-re2
set, and only blocks with a match are looked at line by line.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from firstfault_tools.log import secrets
from firstfault_tools.log.clock import find_year, read_time
from firstfault_tools.log.digest import COMPLETE_BYTES, FileDigest, Hit, Line, Mark, RankTrace
from firstfault_tools.log.line import is_plain, normalise, strip_ansi
from firstfault_tools.log.signature import Signature, SignatureSet
from firstfault_tools.log.speaker import read_speaker

BLOCK = 64 * 1024
OFFSET_EVERY = 1024 * 1024
HITS_PER_SIGNATURE = 96
MARKS_PER_KIND = 20_000
WINDOW_BEFORE, WINDOW_AFTER = 12, 80
HEAD_LINES, TAIL_LINES, KEPT_LINES = 4_000, 6_000, 60_000

STRUCTURE: tuple[tuple[Mark, str], ...] = (
    (Mark.TRACEBACK, r"Traceback \(most recent call last\)|Original Traceback"),
    (
        Mark.WORK,
        r"Timeout\(ms\)=\d|last enqueued work|last completed (?:NCCL )?work|"
        r"collective operation timeout|OpType=[A-Z_]+",
    ),
    (
        Mark.EXIT,
        r"exitcode\s*:?\s*-?\d|[Ee]xit(?:s|ed)? (?:with )?(?:return |exit )?(?:code|status)|"
        r"Signal \d+ \(SIG|[Kk]illed by signal|Exit Code:\s+\d|return code = -?\d",
    ),
    (
        Mark.SEAT,
        r"cudaDev \d+ .{0,30}busId [0-9a-f]|(?i:rank[ =:]+\d+.{0,60}pid[ =:]+\d|pid[ =:]+\d+.{0,60}rank[ =:]+\d)|(?i:rank\W{0,3}\d+.{0,80}\b[0-9a-f]{2}:[0-9a-f]{2}\.0)",
    ),
    (Mark.WORLD, r"(?i)world[_ ]?size|nranks \d+|--nnodes|num_nodes|nproc_per_node"),
)
_CENSUS = re.compile(
    rb"\[(?:rank|default|Rank )(\d{1,6})\]|\bRank (\d{1,6})\]|\[\d+,(\d+)\]<std|\"(?:global_)?rank\": ?\"?(\d{1,6})"
)
_NAME_RANK = re.compile(
    r"(?i)(?:^|[^a-z])(?:global_)?rank[-_.=]?(\d{1,6})(?!\d)|(?:^|[/_.-])(?:worker|proc|task)[-_.]?(\d{1,6})(?=[./_-]|$)"
)


def build_set(signatures: tuple[Signature, ...]) -> SignatureSet:
    """Signature set with the scanner's own marks and the secret patterns added."""
    return SignatureSet(signatures, (*(p for _, p in STRUCTURE), *secrets.scan_patterns()))


@dataclass(slots=True)
class _Scan:
    """State of one pass; everything that grows is bounded."""

    name: str
    signatures: SignatureSet
    complete: bool
    year: int
    kept: dict[int, str] = field(default_factory=dict)
    hits: list[Hit] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    per_rank: Counter[tuple[int, int | None]] = field(default_factory=Counter)
    conditions: set[int] = field(default_factory=set)
    marked: dict[Mark, list[int]] = field(default_factory=lambda: defaultdict(list))
    redactions: Counter[str] = field(default_factory=Counter)
    recent: list[tuple[int, bytes]] = field(default_factory=list)
    window_until: int = 0


def rank_of_name(name: str) -> int | None:
    """Rank that a file name tells, or None."""
    match = _NAME_RANK.search(name)
    return int(next(g for g in match.groups() if g is not None)) if match else None


def read_blocks(path: Path) -> Iterator[bytes]:
    """Blocks of a file, each cut at a line end; a line longer than 16 blocks is split."""
    rest = b""
    with path.open("rb") as stream:
        while chunk := stream.read(BLOCK):
            data = rest + chunk
            cut = data.rfind(b"\n") + 1
            if cut == 0 and len(data) < 16 * BLOCK:
                rest = data
                continue
            cut = cut or len(data)
            rest = data[cut:]
            yield data[:cut]
    if rest:
        yield rest


def scan_file(path: Path, name: str, signatures: SignatureSet) -> FileDigest:
    """Scan one log. `name` is what citations call it."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(256 * 1024).decode("utf-8", errors="replace")
    scan = _Scan(
        name=name,
        signatures=signatures,
        complete=size <= COMPLETE_BYTES,
        year=find_year(head) or datetime.now(UTC).year,
    )
    wrapped = head.lstrip().startswith("{")
    number = offset = 0
    offsets: list[tuple[int, int]] = []
    ranks: dict[int, list[int]] = {}
    for raw in read_blocks(path):
        if not offsets or offset - offsets[-1][1] >= OFFSET_EVERY:
            offsets.append((number, offset))
        offset += len(raw)
        block = strip_ansi(raw)
        count = block.count(b"\n") + (0 if block.endswith(b"\n") else 1)
        _scan_block(scan, block, number, wrapped)
        _count_ranks(ranks, block, number)
        number += count
    _close_tail(scan)
    return FileDigest(
        file=name,
        bytes_total=size,
        lines_total=number,
        kept=sorted(scan.kept.items()),
        complete=scan.complete,
        year=scan.year,
        hits=tuple(scan.hits),
        hit_counts=dict(scan.counts),
        conditions=frozenset(scan.conditions),
        marked={mark: tuple(lines) for mark, lines in scan.marked.items()},
        ranks={r: RankTrace(r, *values) for r, values in sorted(ranks.items())},
        redactions=dict(scan.redactions),
        name_rank=rank_of_name(name),
        offsets=offsets,
    )


def _scan_block(scan: _Scan, block: bytes, number: int, wrapped: bool) -> None:
    found = scan.signatures.match(block)
    if found is not None and not (found.signatures or found.marks):
        # a condition that is known to hold needs no second look
        found = None if scan.conditions.issuperset(found.conditions) else found
    if found is None and scan.complete and not wrapped and is_plain(block):
        for index, text in enumerate(block.decode("utf-8", errors="replace").split("\n")):
            scan.kept[number + index + 1] = text
        if block.endswith(b"\n"):
            del scan.kept[number + block.count(b"\n") + 1]
        return
    if found is None and not scan.complete and number > HEAD_LINES:
        _remember_tail(scan, block, number)
        return
    secret = found is not None and any(m >= len(STRUCTURE) for m in found.marks)
    lines = block.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    for index, raw in enumerate(lines):
        at = number + index + 1
        matched = scan.signatures.match(raw) if found is not None else None
        if wrapped or (matched is None and not scan.complete and at > HEAD_LINES):
            if not wrapped:
                _remember_line(scan, at, raw)
                continue
            matched = scan.signatures.match(normalise(raw).encode())
        text = normalise(raw)
        if secret or (wrapped and matched and any(m >= len(STRUCTURE) for m in matched.marks)):
            text = secrets.redact(text, scan.redactions)
        if matched is not None:
            _note_matches(scan, at, text, matched.signatures, matched.conditions, matched.marks)
        if len(scan.kept) < KEPT_LINES or scan.complete:
            scan.kept[at] = text


def _note_matches(
    scan: _Scan,
    at: int,
    text: str,
    signatures: tuple[int, ...],
    conditions: tuple[int, ...],
    marks: tuple[int, ...],
) -> None:
    scan.conditions.update(conditions)
    for mark in marks:
        if mark < len(STRUCTURE):
            numbers = scan.marked[STRUCTURE[mark][0]]
            if len(numbers) < MARKS_PER_KIND:
                numbers.append(at)
    if (signatures or marks) and not scan.complete:
        for earlier, raw in scan.recent[-WINDOW_BEFORE:]:
            scan.kept.setdefault(earlier, secrets.redact(normalise(raw)))
        scan.window_until = at + WINDOW_AFTER
    if not signatures:
        return
    line: Line | None = None
    for index in signatures:
        scan.counts[index] += 1
        if scan.counts[index] > HITS_PER_SIGNATURE * 40:
            continue
        captures = scan.signatures.captures(index, text)
        if captures is None:
            scan.counts[index] -= 1
            continue
        line = line or make_line(scan.name, at, text, scan.year)
        key = (index, line.speaker.rank)
        scan.per_rank[key] += 1
        if scan.counts[index] <= HITS_PER_SIGNATURE or scan.per_rank[key] == 1:
            scan.hits.append(Hit(index, line, captures))


def make_line(name: str, number: int, text: str, year: int) -> Line:
    """Line with its speaker and time read."""
    speaker, body = read_speaker(text)
    return Line(name, number, text, speaker, body, read_time(text, year))


def _remember_line(scan: _Scan, at: int, raw: bytes) -> None:
    if at <= scan.window_until and len(scan.kept) < KEPT_LINES:
        scan.kept[at] = secrets.redact(normalise(raw))
    scan.recent.append((at, raw))
    if len(scan.recent) > 2 * TAIL_LINES:
        del scan.recent[:TAIL_LINES]


def _remember_tail(scan: _Scan, block: bytes, number: int) -> None:
    for offset, raw in enumerate(block.split(b"\n")):
        if raw:
            _remember_line(scan, number + offset + 1, raw)


def _close_tail(scan: _Scan) -> None:
    for at, raw in scan.recent[-TAIL_LINES:]:
        scan.kept.setdefault(at, secrets.redact(normalise(raw)))


def _count_ranks(ranks: dict[int, list[int]], block: bytes, number: int) -> None:
    seen: dict[int, list[int]] = {}
    for match in _CENSUS.finditer(block):
        rank = int(match[match.lastindex or 1])
        trace = seen.setdefault(rank, [match.start(), match.start(), 0])
        trace[1] = match.start()
        trace[2] += 1
    for rank, (first, last, count) in seen.items():
        first_line = number + block.count(b"\n", 0, first) + 1
        last_line = number + block.count(b"\n", 0, last) + 1
        known = ranks.setdefault(rank, [first_line, last_line, 0])
        known[1] = last_line
        known[2] += count
