"""Which part of the step takes long on one rank only, so that all others wait for it?

Reads the parts of a step that ranks print (`rank 5 data 0.04 fwd 0.30 bwd+allreduce 0.54`, a table with
a heading, `rank 0: 3170 rank 1: 3168` below a heading). Where the ranks compute alike, rank_times.py has
nothing to say: the odd rank waits for its input, copies to the host, saves, or runs on a slow host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from functools import cache
from typing import Any

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Evidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import join_lines, quote_line
from firstfault_tools.placement.rank_table import (
    RANK,
    RankTable,
    find_host,
    is_ruled,
    read_heading,
    read_values,
)

MAX_RANKS, MAX_LINES, MAX_LINE = 65_536, 8_192, 1_000
HEAD_BYTES, TAIL_BYTES = 128 * 1024, 256 * 1024
LEAST = 3
LONG, SHARE, WAITS_LITTLE = 2.0, 0.15, 0.6
"""A part that is this many times the usual, and that much of the step; the wait of a late rank."""
HOST_SLOW, ALIKE = 1.12, 1.1

_PARTS = {
    "input data": r"data|dataload\w*|input|load(?:er|ing)?|fetch|read|io|decode|tokeniz\w*|preproc\w*|collate|augment\w*|batch[_ ]gen\w*|get[_ ]batch|next[_ ]batch",
    "copies between host and GPU": r"h2d|d2h|htod|dtoh|copy|offload|prefetch|swap|pcie",
    "checkpoint": r"ckpt|checkpoint|save",
    "optimizer": r"opt|optim|optimizer|adam|update",
    "host code": r"cpu|python|gc|host|callback|log(?:ging)?|hook",
    "evaluation": r"eval|validation",
}
_WORK = {what: expression(rf"(?i)(?<![a-z])(?:{words})(?![a-z])") for what, words in _PARTS.items()}
_WAIT = expression(
    r"(?i)(?<![a-z])(?:all[-_ ]?reduce|reduce[-_ ]?scatter|all[-_ ]?gather|all[-_ ]?to[-_ ]?all|comm|communication|nccl|"
    r"wait|waiting|sync|barrier|collective|grad[-_ ]?sync)(?![a-z])"
)
_WHOLE = expression(r"^(?:m?s (?:step|iter|total)|(?:step|iter|total) time|total)$")
"""The whole step as a name without its underscores, after the unit of the value before."""

_FOR_DATA = expression(
    r"(?i)(?<![a-z])(?:data|input|load(?:er)?|batch|fetch)[_ -]?(?:wait|stall)|(?<![a-z])wait(?:ing)?[_ -](?:for[_ -])?(?:data|input|batch|loader)"
)
"""A wait for its own input, which is no wait for others."""
_COMPUTE = expression(r"(?i)(?<![a-z])(?:compute|fwd|bwd|forward|backward|gemm|kernels?)(?![a-z])")
_HOST = expression(r"(?i)(?<![a-z])(?:host(?:name)?|node)[ =:]{1,2}([a-z][\w.-]{0,62})")
_STEP = expression(r"(?i)\b(?:step|iter(?:ation)?)s?[ :=#]{0,3}(\d{1,9})\b")
_ROW = expression(r"(?i)\brank\s{0,3}(\d{1,6})\s?[:=]\s{0,4}(\d+(?:\.\d+)?)(?![\w.:])")
_TIMED = expression(r"(?i)\b(?:ms|sec(?:onds?)?|time)\b")


@dataclass(slots=True)
class RankParts:
    """Parts of the step of one rank: values of each name in the order of the log.

    called, file: of a source that is no single rank, and of one with a log of its own.
    """

    rank: int
    host: str | None = None
    parts: dict[str, list[float]] = field(default_factory=dict)
    lines: list[tuple[int, str]] = field(default_factory=list)
    called: str = ""
    file: str = ""


@cache
def _gate() -> Any:
    """Lines with a named part of one rank, headings with a column of waits, rows of ranks and times."""
    import re2

    words = (
        "data|input|load|fetch|h2d|d2h|copy|offload|prefetch|read|decode|collate|ckpt|save|opt|"
        "eval|cpu|io"
    )
    return re2.compile(
        rf"(?im)\brank[ =:_#]{{0,3}}\d{{1,6}}\b[^\n]*\b(?:{words})[a-z0-9_+]*(?: ?\((?:ms|s)\))?[ =:_]{{1,3}}\d[^\n]*"
        r"|(?:^|[ \t|,:])rank[ \t]*[|, \t][ \t|]*[a-z][^\n]*(?:wait|comm|reduce|sync)"
        r"|\brank {0,3}\d+: {0,4}[\d.]+ +rank {0,3}\d+:".encode()
    )


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The rank, or the host, whose part of the step takes long while the others wait."""
    if len(lines) < LEAST:
        return ()
    places = _candidates(lines)
    if not places:
        return ()
    ranks, listed = read_parts(lines, places)
    found = judge_parts(ranks, file) if len(ranks) >= LEAST else None
    if found is None and len(listed) >= 2 * LEAST:
        found = judge_hosts(listed, file)
    return (found,) if found is not None else ()


def _candidates(lines: Sequence[tuple[int, str]]) -> list[int]:
    """Indices of the lines that may be a rank's own, a heading or a row; at most MAX_LINES.

    Of large logs the beginning and the end: such lines come again and again, or are pasted at the end.
    """
    joined = join_lines(lines)
    places: list[int] = []
    spans = [(0, len(joined))]
    if len(joined) > HEAD_BYTES + TAIL_BYTES:
        tail = joined.rfind(b"\n", 0, len(joined) - TAIL_BYTES) + 1
        spans = [(0, HEAD_BYTES), (tail, len(joined))]
    at = index = 0
    for start, stop in spans:
        for match in _gate().finditer(joined, start, stop):
            index += joined.count(b"\n", at, match.start())
            at = match.start()
            if not places or places[-1] != index:
                places.append(index)
                if len(places) >= MAX_LINES:
                    return places
    return places


def read_parts(
    lines: Sequence[tuple[int, str]], places: Sequence[int]
) -> tuple[list[RankParts], list[RankParts]]:
    """(ranks with named parts, ranks with one listed value each). places: lines that may matter."""
    named: dict[int, RankParts] = {}
    listed: dict[int, RankParts] = {}
    timed = -9
    done = -1
    for place in places:
        number, text = lines[place]
        if place <= done or len(text) > MAX_LINE:
            continue
        rows = _ROW.findall(text)
        if len(rows) >= 2:
            above = lines[place - 1][1] if place else ""
            if timed == place - 1 or (_TIMED.search(above) and _COMPUTE.search(above)):
                timed = place
                _read_rows(number, text, rows, listed)
            continue
        table = read_heading(text)
        if table is not None and table.columns(_WAIT.search) and len(table.names) >= 3:
            done = place
            while done + 1 < len(lines) and _read_cells(table, *lines[done + 1], named):
                done += 1
        else:
            _read_pairs(number, text, named)
    return (
        [r for r in named.values() if len(r.parts) >= 2],
        sorted(listed.values(), key=lambda r: r.rank),
    )


def _read_rows(
    number: int, text: str, rows: Sequence[tuple[str, str]], listed: dict[int, RankParts]
) -> None:
    host = _HOST.search(text)
    for rank, value in rows:
        one = listed.setdefault(int(rank), RankParts(int(rank)))
        one.parts.setdefault("time", []).append(float(value))
        one.host = one.host or (host[1] if host else None)
        one.lines.append((number, text))


_NO_PARTS = ("rank", "global_rank", "gpu", "step", "node", "host", "hostname")


def _read_cells(table: RankTable, number: int, text: str, found: dict[int, RankParts]) -> bool:
    row = table.read_row(text)
    if row is None:
        return is_ruled(text)
    one = found.setdefault(row.rank, RankParts(row.rank))
    for name, value in zip(table.names, row.numbers, strict=True):
        if value is not None and name not in _NO_PARTS:
            one.parts.setdefault(name.replace("_", " "), []).append(value)
    one.host = row.host or one.host
    one.lines.append((number, text))
    return True


def _read_pairs(number: int, text: str, found: dict[int, RankParts]) -> None:
    named = RANK.search(text)
    if named is None:
        return
    kept = [(n, v) for n, v in read_values(text, named) if names_part(n)]
    if len(kept) < 2 or len(found) >= MAX_RANKS:
        return
    one = found.setdefault(int(named[1]), RankParts(int(named[1])))
    for name, value in kept:
        one.parts.setdefault(name, []).append(value)
    one.host = one.host or find_host(text, named)
    one.lines.append((number, text))


def names_part(name: str) -> bool:
    """The name is that of a part of the step, or of the whole of it."""
    said = kind_of(name) is not None or _WAIT.search(name) or _COMPUTE.search(name)
    return bool(said or _WHOLE.match(name))


def waits(name: str) -> bool:
    """The part is waiting or communication, or the whole step, and no work of the rank's own."""
    return _FOR_DATA.search(name) is None and bool(_WAIT.search(name) or _WHOLE.match(name))


def read_own_parts(lines: Sequence[tuple[int, str]]) -> list[RankParts]:
    """Ranks with named parts of their step."""
    places = _candidates(lines) if len(lines) >= LEAST else []
    return read_parts(lines, places)[0]


def kind_of(name: str) -> str | None:
    """What kind of work a part is by its name, None for computing, waiting and others."""
    if _FOR_DATA.search(name):
        return "input data"
    if _WAIT.search(name) or _COMPUTE.search(name):
        return None
    return next((what for what, words in _WORK.items() if words.search(name)), None)


def usual_late(values: Sequence[float]) -> float:
    """The usual value of the second half of the log, where a fault that began has its say."""
    return median(values[len(values) // 2 :])


def judge_parts(ranks: Sequence[RankParts], file: str) -> Finding | None:
    """The one rank whose part is long while its wait is short."""
    levels: dict[str, dict[int, float]] = defaultdict(dict)
    for one in ranks:
        for name, values in one.parts.items():
            levels[name][one.rank] = usual_late(values)
    shared = {n: v for n, v in levels.items() if len(v) >= LEAST}
    whole = sum(median(v.values()) for v in shared.values())
    best: tuple[float, str, list[int]] | None = None
    for name, by_rank in shared.items():
        if kind_of(name) is None:
            continue
        usual = median(by_rank.values())
        high = [r for r, v in by_rank.items() if v >= LONG * max(usual, 1e-9) and v - usual >= SHARE * whole]  # fmt: skip
        if not high or len(high) * 2 >= len(by_rank):
            continue
        excess = max(by_rank[r] for r in high) - usual
        if best is None or excess > best[0]:
            best = (excess, name, sorted(high, key=lambda r: -by_rank[r]))
    if best is None:
        return None
    return _describe(ranks, shared, best[1], best[2], whole, file)


def _describe(
    ranks: Sequence[RankParts],
    levels: dict[str, dict[int, float]],
    name: str,
    high: list[int],
    whole: float,
    file: str,
) -> Finding | None:
    worst, what = high[0], kind_of(name)
    others = [r for r in levels[name] if r not in high]
    usual, own = median(levels[name][r] for r in others), levels[name][worst]
    wait = _find_wait(levels, high)
    if wait is None and (what != "input data" or own < 0.3 * (whole + own)):
        return None
    by_rank = {r.rank: r for r in ranks}
    mine, rest = by_rank[worst], by_rank[others[0]]
    late = [by_rank[r] for r in sorted(high)]
    since, quoted = _onset(mine, name, own)
    whose = "logs" if mine.called else "ranks"
    title = f"{_name_late(mine, late)} holds up every step with {what}: '{name}' takes {own:g} there against {usual:g} on the other {len(others)} {whose}{since}"  # fmt: skip
    if wait is not None:
        title += f"; the others wait for it ('{wait[0]}' {wait[2]:g} against its own {wait[1]:g})"
    return Finding(
        kind="metrics.rank_waits",
        title=title,
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        confidence=Confidence.CONFIRMED if wait is not None else Confidence.LIKELY,
        evidence=(*_quote(mine, quoted, file), *_quote(rest, rest.lines[-1:], file, usual=True)),
        rank=worst if len(high) == 1 and not mine.called else None,
        host=_only_host(late) or mine.host,
        page="dataloader-stall" if what == "input data" else "straggler-domination",
        facts={
            "part": name,
            "value": own,
            "others": usual,
            "ranks": [] if mine.called else sorted(high),
            "starts_at": 1,
        },
        strength=Strength(Together.SERIES),
    )


def _quote(
    one: RankParts, lines: Sequence[tuple[int, str]], file: str, usual: bool = False
) -> tuple[Evidence, ...]:
    """Lines of a rank, in its own log where it has one. usual: it is one that is well."""
    rank = None if one.called else one.rank
    return tuple(
        Evidence(one.file or file, n, t.strip()[:400], rank=rank, usual=usual) for n, t in lines
    )


def _find_wait(
    levels: dict[str, dict[int, float]], high: list[int]
) -> tuple[str, float, float] | None:
    """(name, own value, that of the others) of the last wait that is short on the worst rank and long on the others."""
    found = None
    for name, values in levels.items():
        own = values.get(high[0])
        if own is None or not _WAIT.search(name):
            continue
        theirs = median([v for r, v in values.items() if r not in high] or [0.0])
        if own <= WAITS_LITTLE * theirs:
            found = (name, own, theirs)
    return found


def _only_host(ranks: Sequence[RankParts]) -> str | None:
    """The host that all of them are on."""
    hosts = {r.host for r in ranks}
    return next(iter(hosts)) if len(hosts) == 1 else None


def _name_late(worst: RankParts, late: Sequence[RankParts]) -> str:
    """The late ranks, or the logs they are called by, as a sentence begins with them."""
    names = ", ".join(r.called or str(r.rank) for r in late[:8])
    if worst.called:
        return names if len(late) > 1 else worst.called
    if len(late) == 1:
        return f"Rank {worst.rank}" + (f" ({worst.host})" if worst.host else "")
    host = _only_host(late)
    return f"Ranks {names}" + (f" on {host}" if host else "")


def _onset(one: RankParts, name: str, level: float) -> tuple[str, list[tuple[int, str]]]:
    """(words for the step since when it is so, lines to quote)."""
    values = one.parts[name]
    first = next((i for i, v in enumerate(values) if v >= 0.5 * level), 0)
    if first >= len(one.lines):
        return "", one.lines[-1:]
    if first == 0:
        return "", one.lines[:1]
    step = _STEP.search(one.lines[first][1])
    return (f" since step {step[1]}" if step else "", one.lines[first - 1 : first + 1])


def judge_hosts(listed: Sequence[RankParts], file: str) -> Finding | None:
    """One host all of whose ranks take longer than those of all others."""
    level = {r.rank: median(r.parts["time"]) for r in listed}
    bound = HOST_SLOW * median(level.values())
    slow = [r for r in listed if level[r.rank] >= bound]
    rest = [r for r in listed if level[r.rank] < bound]
    usual = [level[r.rank] for r in rest]
    if not _are_one_host(slow, rest) or max(usual) > ALIKE * min(usual):
        return None
    host, ranks = slow[0].host, [r.rank for r in slow]
    mine, theirs = median(level[r] for r in ranks), median(usual)
    who = f"Host {host} (ranks {ranks[0]}-{ranks[-1]})"
    if len(slow) == 1:
        who = f"Rank {ranks[0]}" + (f" ({host})" if host else "")
    quoted = {line: one.host for one in (slow[0], slow[-1], rest[0]) for line in one.lines[:1]}
    return Finding(
        kind="metrics.rank_straggler",
        title=f"{who} is slow: {mine:g} against {theirs:g} on the median of the other {len(rest)} ranks ({mine / theirs:.2f}x); the whole job runs at its pace",
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        evidence=tuple(quote_line(file, n, t, host=host) for (n, t), host in quoted.items()),
        rank=ranks[0] if len(slow) == 1 else None,
        host=host,
        facts={
            "ranks": list(ranks),
            "ratio": round(mine / theirs, 3),
            "starts_at": 1,
        },
        strength=Strength(Together.SERIES),
    )


def _are_one_host(slow: Sequence[RankParts], rest: Sequence[RankParts]) -> bool:
    """Fewer than half of the ranks are slow: a single one, or all of one host that is named."""
    hosts = {r.host for r in slow}
    if len(hosts) != 1 or len(slow) >= len(rest):
        return False
    return len(slow) == 1 or hosts.isdisjoint({None, *(r.host for r in rest)})
