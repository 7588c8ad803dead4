"""Which lines of a log decide, where it is too long to be read whole?

The settings and versions it begins with, warnings, the first error of every rank and what stands around
it, rows whose numbers are odd, progress from beginning to end, the last lines, and whatever the diagnosis cites. Lines that differ in
their numbers alone are one kind; of a kind that repeats only the first and the last are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from firstfault.agent.odd_rows import find_odd_rows
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log import secrets
from firstfault_tools.log.line import normalise
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.log.window import read_window

SCAN_BYTES = 8 * 1024 * 1024
"""A file is looked through up to this size; of a larger one the cited lines and the beginning are taken."""
LONGEST = 64 * 1024
HEAD, TAIL, AROUND = 8, 10, 2
RANKS, KIND_AT_ONCE, SAMPLES, SETTINGS = 16, 2, 12, 30

_ERROR = expression(
    r"(?i)\b(?:error|exception|traceback|fatal|fail(?:ed|ure)?|abort(?:ed|ing)?|killed|oom|out of memory|segfault|segmentation|assert(?:ion)?|xid|ecc|nan|inf|timed out|timeout|"
    r"refused|denied|unable|cannot|corrupt\w*|mismatch|signal|panic|unreachable|no space)\b|\w(?:Error|Exception)\b"
)
_WARNING = expression(
    r"(?i)\bwarn(?:ing)?\b|\bdeprecat|\bskipp|\bretry|\bslow\b|\bfallback|\bdegraded"
)
_SETTING = expression(
    r"(?i)\bversion\b|\b(?:torch|cuda|nccl|driver|python|transformers|deepspeed|megatron|world[_ ]?size|batch[_ ]?size|precision|fp16|bf16|learning[_ ]?rate|"
    r"seed|resum\w+|load(?:ed|ing)|checkpoint|args?|config\w*)\b\s?[:=]|(?:^|\s)--[a-z][\w-]+|\b[A-Z][A-Z0-9]+_[A-Z0-9_]+="
)
_PROGRESS = expression(
    r"(?i)\b(?:step|iter(?:ation)?|epoch|batch|loss|grad[_ ]?norm|throughput|tokens/s|samples/s|it/s|elapsed)\b[^\n]{0,12}\d"
)
_NUMBER = expression(r"0x[0-9a-fA-F]+|\d+(?:[.,:]\d+)*")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One line; `alike`: how many lines of its kind are left out."""

    line: int
    text: str
    alike: int = 0


def choose_lines(path: Path, cited: Iterable[int], room: int) -> list[Chosen]:
    """The deciding lines of a file in order, about `room` characters of them."""
    wanted = sorted(set(cited))
    if path.stat().st_size <= SCAN_BYTES:
        lines = [(n, t) for n, t in _read(path) if t.strip()]
    else:
        lines = _read_around(path, wanted)
    order = _order(lines, wanted)
    counts: dict[str, int] = defaultdict(int)
    for _, text in lines:
        counts[_kind(text)] += 1
    by_line = dict(lines)
    taken: dict[int, str] = {}
    used = 0
    for number in order:
        cost = min(len(by_line[number]), 500) + 8
        if number in taken or used + cost > room:
            continue
        taken[number] = by_line[number]
        used += cost
    shown: dict[str, int] = defaultdict(int)
    for text in taken.values():
        shown[_kind(text)] += 1
    out, told = [], set()
    for number in sorted(taken):
        kind = _kind(taken[number])
        more = counts[kind] - shown[kind] if kind not in told else 0
        told.add(kind)
        out.append(Chosen(number, taken[number], more))
    return out


def _order(lines: Sequence[tuple[int, str]], cited: Sequence[int]) -> list[int]:
    """Line numbers, those that decide most first."""
    place = {number: at for at, (number, _) in enumerate(lines)}
    numbers = [n for n, _ in lines]

    def around(number: int, span: int) -> list[int]:
        at = place.get(number)
        return [] if at is None else numbers[max(0, at - span) : at + span + 1]

    errors = _first_of_kind(lines, _ERROR, KIND_AT_ONCE)
    by_rank = _first_of_rank([(n, t) for n, t in lines if _ERROR.search(t)])
    progress = [n for n, t in lines if _PROGRESS.search(t) and not _ERROR.search(t)]
    sampled = [progress[i * (len(progress) - 1) // (SAMPLES - 1)] for i in range(SAMPLES)] if len(progress) > SAMPLES else progress  # fmt: skip
    warnings = _first_of_kind(lines, _WARNING, 1)
    settings = _first_of_kind(lines, _SETTING, 1)[:SETTINGS]
    parts = [
        list(cited),
        errors[:4],
        numbers[-TAIL // 2 :],
        progress[:1] + progress[-2:],
        by_rank[:RANKS],
        find_odd_rows(lines),
        [n for c in cited for n in around(c, AROUND)],
        [n for e in errors[:3] for n in around(e, 4)],
        settings,
        warnings[:10],
        numbers[:HEAD],
        sampled,
        errors[4:30],
        numbers[-TAIL:],
        _first_of_kind(lines, None, 1),
    ]
    return [n for part in parts for n in part if n in place]


def _first_of_kind(lines: Iterable[tuple[int, str]], pattern: object, most: int) -> list[int]:
    seen: dict[str, int] = defaultdict(int)
    out = []
    for number, text in lines:
        if pattern is not None and not pattern.search(text):  # type: ignore[attr-defined]
            continue
        kind = _kind(text)
        seen[kind] += 1
        if seen[kind] <= most:
            out.append(number)
    return out


def _first_of_rank(lines: Iterable[tuple[int, str]]) -> list[int]:
    seen: set[int | None] = set()
    out = []
    for number, text in lines:
        rank = read_prefix(text)[0].rank
        if rank is not None and rank not in seen:
            seen.add(rank)
            out.append(number)
    return out


def _kind(text: str) -> str:
    return _NUMBER.sub("#", text[:300])


def _read(path: Path) -> Iterable[tuple[int, str]]:
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            yield number, secrets.redact(normalise(raw[:LONGEST]))


def _read_around(path: Path, cited: Sequence[int]) -> list[tuple[int, str]]:
    found = dict(read_window(path, 1, HEAD * 4))
    for number in cited[:12]:
        found.update(read_window(path, number - 4, number + 4))
    return sorted((n, t) for n, t in found.items() if t.strip())
