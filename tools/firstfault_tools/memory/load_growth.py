"""What had grown before a process ran out of memory? Sizes of the work in the lines before it.

An out-of-memory message names the block that did not fit, not why it was so large. Where the program
logs the size of its work (tokens, sequence lengths, tokens per expert, images, samples of a batch), a
value far above the earlier ones, or above those of the other ranks, is the reason to look at first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.memory.leak import LEAK, find_end

KIND = "memory.load_growth"
MAX_LINES = 600
MIN_ROWS = 4
RATIO = 1.5
SMALLEST = 8.0
"""A count below this is a number of layers or of ranks rather than a size of the work."""

_LOAD = expression(
    r"(?i)tokens?\b|tokens_|_tokens|seq[_ ]?len|sequence|\blength|_len\b|expert|samples? in|batch[_ ]?size|max_len|"
    r"\bimages?\b|frames|pixels|patches|\bboxes|\bnodes\b|\bpoints\b|prompt|response|num_seqs|packed|routed"
)
_ROOTS = (
    *(
        "token",
        "seq",
        "len",
        "expert",
        "sample",
        "batch",
        "image",
        "frame",
        "pixel",
        "patch",
        "boxes",
    ),
    *("node", "point", "prompt", "response", "packed", "routed"),
)
_NUMBERS = b"0123456789.+- "
"""What the key of a group of lines leaves out."""

_NOT_LOAD = expression(
    r"(?i)step|iter|epoch|consumed|elapsed|time|_ms|\bms\b|sec|mem|alloc|reserved|loss|norm|\blr\b|rate|"
    r"speed|per[_ ]s|throughput|/s\b|mfu|tflop|total|pid|port|seed|layer\b|\brank|score|reward|acc\b|ppl|\bgpu\b"
)
_NUMBER = expression(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]*\w)")
_EXPERTS = expression(r"(?i)expert|\bmoe\b|router|\bEP\b")
_RANK = expression(r"(?i)\brank[ =:]{0,2}(\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    text: str
    rank: int | None
    labels: tuple[str, ...]
    values: tuple[float, ...]


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> Iterable[Finding]:
    """One finding where a logged size of the work had grown before the first out-of-memory message."""
    end = find_end(lines)
    if end is None or end == 0:
        return []
    speaker, _ = read_prefix(lines[end][1])
    groups: dict[bytes, list[tuple[int, str]]] = defaultdict(list)
    for number, text in lines[max(0, end - MAX_LINES) : end]:
        if len(text) <= 600 and _may_tell(text) and "Traceback" not in text:
            groups[text.encode(errors="replace").translate(None, _NUMBERS)].append((number, text))
    best: tuple[float, Finding] | None = None
    for texts in groups.values():
        if len(texts) < MIN_ROWS or not _LOAD.search(texts[-1][1]) or not _may_have_grown(texts):
            continue
        found = _grown(texts, speaker.rank, file)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    return [best[1]] if best is not None else []


def _may_tell(text: str) -> bool:
    """A cheap look for the roots of the words that name a size of the work."""
    lower = text.lower()
    return any(root in lower for root in _ROOTS)


def _may_have_grown(texts: list[tuple[int, str]]) -> bool:
    """Some number of the last line of any rank is well above its like of the first and the middle line.

    Read only from a few lines, since most logs print the same sizes in every step.
    """
    probes = [texts[0], texts[len(texts) // 2], *texts[-8:]]
    columns = zip(*([float(x) for x in _NUMBER.findall(t)] for _, t in probes), strict=False)
    return any(max(c[2:]) >= RATIO * max(min(c[:2]), 1e-9) and max(c) >= SMALLEST for c in columns)


def join_growth(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What had grown becomes part of the out-of-memory finding it explains; alone it means nothing."""
    grown = [f for f in findings if f.kind in (LEAK, KIND)]
    rest = [f for f in findings if f not in grown]
    if not grown:
        return tuple(rest)
    growth = next((f for f in grown if f.kind == KIND), grown[0])
    order = sorted(range(len(rest)), key=lambda i: not rest[i].has(FindingRole.OOM_PLAIN))
    for index in order:
        finding = rest[index]
        gpu = finding.kind.startswith("signature.") and finding.level in (
            Level.CAUSE,
            Level.FAILURE,
        )
        if (
            not gpu
            or finding.category is not Category.OOM
            or finding.has(FindingRole.OOM_FRAGMENTED)
        ):
            continue
        if growth.rank is not None and finding.rank not in (None, growth.rank):
            continue
        facts = dict(finding.facts)
        if growth.kind == LEAK:
            # the step that found no room is the last of many: where the growth began comes first
            facts["starts_at"] = growth.evidence[0].line
        rest[index] = replace(
            finding,
            title=f"{finding.title}; {growth.title}",
            evidence=(*finding.evidence[:2], *growth.evidence),
            page=growth.page,
            facts=facts,
        )
        break
    return tuple(rest)


def _read_row(number: int, text: str) -> _Row:
    speaker, body = read_prefix(text)
    message = text[body:]
    labels, values = [], []
    at = 0
    for match in _NUMBER.finditer(message):
        labels.append(message[at : match.start()][-32:].strip(" :=|,([{'\""))
        values.append(float(match[0]))
        at = match.end()
    named = _RANK.search(message)
    rank = speaker.rank if speaker.rank is not None else speaker.task
    if named is not None:
        rank = int(named[1])
    return _Row(number, text, rank, tuple(labels), tuple(values))


def _find_last(texts: Sequence[tuple[int, str]], rank: int | None) -> _Row | None:
    """The last row of the rank that failed, of any rank where it printed none."""
    last: _Row | None = None
    for number, text in reversed(texts):
        row = _read_row(number, text)
        if row.values and (rank is None or row.rank == rank):
            return row
        if row.values and last is None:
            last = row
    return last


def _is_load(label: str) -> bool:
    whole_line_counts = re.fullmatch(r"(?i).{0,24}\b(?:max|mean|avg|largest|peak)\w*", label)
    return not _NOT_LOAD.search(label) and bool(_LOAD.search(label) or whole_line_counts)


def _grown(
    texts: Sequence[tuple[int, str]], rank: int | None, file: str
) -> tuple[float, Finding] | None:
    """(ratio, finding) of the column that is largest at the end, seen from the rank that failed."""
    last = _find_last(texts, rank)
    columns = [c for c, label in enumerate(last.labels) if _is_load(label)] if last else []
    if last is None or not columns:
        return None
    rows = [r for number, text in texts if (r := _read_row(number, text)).values]
    if len(rows) < MIN_ROWS:
        return None
    others = [r for r in rows if r.number != last.number]
    for column in columns:
        beside = [r for r in others if column < len(r.values)]
        before = [r.values[column] for r in beside]
        if before and _towers(last.values[column], before):
            usual = median(before)
            made = _describe(last, beside[0], column, usual, rank, file)
            return last.values[column] / usual, made
    return None


def _towers(value: float, before: Sequence[float]) -> bool:
    """The value lies far above the usual one, and no earlier one lies above it."""
    usual = median(before)
    return usual > 0 and value >= max(SMALLEST, RATIO * usual, max(before))


def _describe(
    last: _Row, first: _Row, column: int, usual: float, rank: int | None, file: str
) -> Finding:
    value = last.values[column]
    who = f"rank {last.rank}" if last.rank is not None else "the process"
    name = re.sub(r"\s+", " ", last.labels[column])[-32:] or "the size"
    experts = _EXPERTS.search(last.text) is not None
    why = (
        "the router sends ever more tokens to the same experts, so the load is unbalanced"
        if experts
        else "this batch is unusually large or the load is unevenly spread over the ranks"
    )
    return Finding(
        kind=KIND,
        title=f"the work of {who} had grown before: {_say_what(last.text, name)}{name} {value:g} "
        f"against usually {usual:g} ({value / usual:.1f} times); {why}",
        level=Level.FAILURE,
        category=Category.OOM,
        evidence=tuple(Evidence(file, r.number, r.text, r.rank) for r in (last, first)),
        rank=rank if rank is not None else last.rank,
        page="moe-load-imbalance" if experts else "oom-long-sequences",
        facts={"value": value, "usual": usual, "starts_at": last.number},
    )


def _say_what(text: str, name: str) -> str:
    """The word of the line that says what is counted, where the column's name does not."""
    what = _LOAD.search(text)
    word = what[0].strip("_ ") if what is not None and what[0].lower() not in name.lower() else ""
    return f"{word}, " if word else ""
