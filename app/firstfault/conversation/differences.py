"""Why this one and not the others? Lines that only one rank, host or pod has, and numbers in which it differs from its like."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from firstfault.conversation.blocks import write_quote
from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.named_events import TROUBLE
from firstfault.conversation.spoken_of import quote_lines
from firstfault_tools.averages import median
from firstfault_tools.checkpoint.saves import SaveState
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

MOST_LINES, LEAST_GAP = 2, 0.03
"""Lines of its own that are shown, and how far a number must be from the others', as a share of theirs."""
LEAST_LIKE = 2
"""Others of its kind from which on a difference means something."""
_NAME = expression(
    r"(?i)\brank[ _]?#?\d{1,6}\b|\b(?=[a-z])[a-z][a-z-]{0,30}-?\d{1,5}\b|\br\d{1,5}\b"
)
_ONLY = expression(r"(?i)\b(?:only|just) (?:the )?(?:(?P<kind>rank|node|host|gpu|pod|worker) ?)?#?(?P<number>\d{1,6})\b")  # fmt: skip
_STAMP = expression(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?|\b[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d|\b\d\d:\d\d:\d\d(?:[.,]\d+)?"
)
_NUMBER = expression(r"(?<![\w.])\d{1,12}(?:\.\d{1,6})?")
_RANK_VALUE = expression(r"\b(?:r|rank ?)(?P<rank>\d{1,6})\s?[=:]\s?(?P<value>\d+(?:\.\d+)?)\b")
_RANK_FORM = expression(r"(?i)\[?\brank[ _]?#?(\d{1,6})\b\]?")


@dataclass(frozen=True, slots=True)
class Like:
    """One of its kind. name: as people say it; lines: those that it wrote or that begin with it."""

    name: str
    lines: tuple[Line, ...]


def tell_difference(f: Facts) -> str:
    """What sets the one that is asked about apart; '' where the lines tell nothing of it or of others."""
    one = _find_one(f)
    if not one:
        return ""
    rows = _say_listed(f, one) or []
    likes = _find_likes(f, one)
    own = likes.pop(one, None)
    if own is not None and len(likes) >= LEAST_LIKE:
        rows += _say_own_lines(f, own, likes) + _say_numbers(f, own, likes)
    if not rows:
        return ""
    return f"What sets {one} apart, by what was read:\n\n" + "\n".join(rows[:3]) + f"\n\nThe fault: {f.cause} {f.main}."  # fmt: skip


def _find_one(f: Facts) -> str:
    """The rank, host or pod that is asked about: behind "only", else the first that is named, else that of the verdict."""
    only = _ONLY.search(f.text)
    if only is not None:
        number = only["number"]
        named = (only["kind"] or "rank").lower()
        return f"rank {number}" if named in ("rank", "gpu") else f"{named}-{number}"
    texts = " ".join(x.text.lower() for x in f.evidence.lines[:4000])
    for m in _NAME.finditer(f.text):
        name = m[0].lower()
        rank = _RANK_FORM.fullmatch(name)
        if rank is not None:
            return f"rank {rank[1]}"
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w])", texts):
            return name
    d = f.diagnosis
    if f.host:
        return f.host
    return f"rank {d.first_failing_rank}" if d.first_failing_rank is not None else ""


def _find_likes(f: Facts, one: str) -> dict[str, Like]:
    """Every one of the kind with its lines up to the fault."""
    first = f.first_line
    lines = [x for x in f.evidence.lines if first is None or x.file != first.file or x.number < first.number]  # fmt: skip
    pattern = _shape(one)
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        match = pattern.search(line.text[:160])
        if match is not None:
            found[_spell(match[0], one)].append(line)
        elif one.startswith("rank ") and line.place.rank is not None:
            found[f"rank {line.place.rank}"].append(line)
    return {n: Like(n, tuple(x)) for n, x in found.items()}


def _shape(one: str) -> re.Pattern[str]:
    """How others of its kind are written."""
    if one.startswith("rank "):
        return re.compile(r"(?i)\brank[ _]?#?\d{1,6}\b")
    return re.compile(rf"(?i)(?<![\w.-]){re.sub(r'[0-9]+', r'[0-9]+', re.escape(one))}(?![\w])")


def _spell(name: str, one: str) -> str:
    number = re.search(r"\d+", name)
    return f"rank {number[0]}" if one.startswith("rank ") and number is not None else name.lower()


def _kind(line: Line, name: str) -> str:
    """A line without its time, its own name and its numbers."""
    text = _STAMP.sub(" ", line.text)
    text = _shape(name).sub("@", text)
    return " ".join(_NUMBER.sub("#", re.sub(r"\d+", "#", text)).split())[:160]


def _say_own_lines(f: Facts, own: Like, others: Mapping[str, Like]) -> list[str]:
    """Lines of a kind that none of the others has."""
    theirs = {_kind(x, own.name) for o in others.values() for x in o.lines}
    seen: set[str] = set()
    mine: list[Line] = []
    for line in own.lines:
        kind = _kind(line, own.name)
        if kind not in theirs and kind not in seen and "@" in kind:
            seen.add(kind)
            mine.append(line)
    if not mine or len(mine) > 4 * MOST_LINES:
        return []
    return [f"Only it has:\n\n{quote_lines(f, mine[:MOST_LINES])}"]


def _say_numbers(f: Facts, own: Like, others: Mapping[str, Like]) -> list[str]:
    """The number of lines that all of them have in which it is farthest from the others, at the first and at the last such line."""
    mine, theirs = _by_kind(own), {n: _by_kind(o) for n, o in others.items()}
    best: tuple[float, str] | None = None
    for kind, lines in mine.items():
        like = [t[kind] for t in theirs.values() if kind in t]
        if len(like) < LEAST_LIKE:
            continue
        first, values = _numbers(lines[0]), [_numbers(x[0]) for x in like]
        last = _numbers(lines[-1])
        ends = [_numbers(x[min(len(x), len(lines)) - 1]) for x in like]
        for place, value in enumerate(first):
            rest = [v[place] for v in values if place < len(v)]
            if len(rest) < LEAST_LIKE or not median(rest) or min(rest) <= value <= max(rest):
                continue
            gap = abs(value - median(rest)) / abs(median(rest))
            if gap >= LEAST_GAP and (best is None or gap > best[0]):
                until = [v[place] for v in ends if place < len(v)]
                grown = f"; at the end {_say(last[place])} against {_say(min(until))} to {_say(max(until))}" if len(lines) > 1 and until and place < len(last) else ""  # fmt: skip
                best = (
                    gap,
                    (
                        f"- {_say(value)} against {_say(min(rest))} to {_say(max(rest))} of the others from the first such line{grown}, {f.at(lines[0])} and {f.at(lines[-1])}:\n"
                        + write_quote(
                            "\n".join(x.text.strip()[:300] for x in (lines[0], like[0][0])), 2
                        )
                    ),
                )
    return [best[1]] if best is not None else []


def _by_kind(like: Like) -> dict[str, list[Line]]:
    out: dict[str, list[Line]] = defaultdict(list)
    for line in like.lines:
        out[_kind(line, like.name)].append(line)
    return out


def _numbers(line: Line) -> list[float]:
    return [float(m[0]) for m in _NUMBER.finditer(_STAMP.sub(" ", line.text))]


def _say(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _say_listed(f: Facts, one: str) -> list[str]:
    """Its place in a list of a value for each rank ("r0=1056946 r1=1056984"), where it is the least or the largest of all, or is held against another that is named."""
    rank = _RANK_FORM.fullmatch(one)
    if rank is None:
        return []
    values, at = _read_listed(f.evidence.lines)
    mine = values.get(int(rank[1]))
    if mine is None or len(values) <= LEAST_LIKE:
        return []
    rest = [v for r, v in values.items() if r != int(rank[1])]
    named = [int(n) for n in _RANK_FORM.findall(f.text) if int(n) != int(rank[1]) and int(n) in values]  # fmt: skip
    if min(rest) <= mine <= max(rest) and not named:
        return []
    edge = "the least of all" if mine < min(rest) else "the most of all" if mine > max(rest) else "not the same"  # fmt: skip
    told = "".join(f"; rank {n} has {_say(values[n])}" for n in named[:2])
    line = at[int(rank[1])]
    text = line.text.strip()[:300]
    return [f"- {one} has {_say(mine)}, {edge} ({_say(min(rest))} to {_say(max(rest))} are the others'){told}, {f.at(line)}:\n{write_quote(text, 2)}"]  # fmt: skip


def _read_listed(lines: Sequence[Line]) -> tuple[dict[int, float], dict[int, Line]]:
    values: dict[int, float] = {}
    at: dict[int, Line] = {}
    for line in lines:
        found = _RANK_VALUE.findall(line.text)
        if len(found) > LEAST_LIKE:
            for rank, value in found:
                values.setdefault(int(rank), float(value))
                at.setdefault(int(rank), line)
    return values, at


MOST_CHANGES = 5
"""Lines of two attempts held against each other that are shown."""
_MAY_DIFFER = expression(
    r"(?i)\b(?:step|iteration|iter|pid|port|elapsed|took|seed|global_step\d+|job)\b|\d ?(?:ms|s|sec|seconds)\b"
)
"""Numbers of such lines differ between any two attempts."""


def tell_attempts_differ(f: Facts) -> str:
    """Which lines of the start of an attempt say something else than those of the one before it; '' where the log holds no two starts."""
    heads = _read_heads(f)
    if len(heads) < 2:
        return ""
    before, now = heads[-2], heads[-1]
    was = {_start_kind(x): x for x in before}
    rows = []
    for line in now:
        old = was.get(_start_kind(line))
        if (
            old is not None
            and not _MAY_DIFFER.search(line.text)
            and _numbers(old) != _numbers(line)
        ):
            rows.append(f"- `{_bare(old)}` ({f.at(old)}), then `{_bare(line)}` ({f.at(line)})")
        elif old is None and TROUBLE.search(line.text):
            rows.append(f"- only now: `{_bare(line)}` ({f.at(line)})")
    if not rows:
        return ""
    return "By the lines of the two starts this differs:\n\n" + "\n".join(rows[:MOST_CHANGES]) + f"\n\nWhat it led to: {f.cause} {f.main}."  # fmt: skip


def _bare(line: Line) -> str:
    return " ".join(_STAMP.sub(" ", line.text).replace("[]", " ").split())[:150]


def _start_kind(line: Line) -> str:
    """The words of a line of a start, without names, numbers and times."""
    return " ".join(re.findall(r"[A-Za-z_]{3,}", _STAMP.sub(" ", line.text)))[:80]


def _read_heads(f: Facts) -> list[list[Line]]:
    """The lines of each start: between the last step of the attempt before and the first of its own, around a load of a checkpoint."""
    loads = [(e.file, e.line) for e in f.record.checkpoints.events if e.state is SaveState.LOADED]
    steps = [(s.file, s.line) for s in f.record.steps]
    spans: list[tuple[str, int, int]] = []
    for file, line in loads:
        own = [n for name, n in steps if name == file]
        begin = max((n for n in own if n < line), default=0)
        end = min((n for n in own if n > line), default=line + NEAR_LOAD)
        if not spans or spans[-1] != (file, begin, end):
            spans.append((file, begin, end))
    return [[x for x in f.evidence.lines if x.file == name and a < x.number < b] for name, a, b in spans]  # fmt: skip


NEAR_LOAD = 40
"""Lines behind a load that still belong to its start, where no step follows."""
