"""Which host is slow, by a table that lists all hosts in one line or in a block of lines?

`node07 launch 1.35 wait 0.03 | node08 launch 0.56 wait 0.84 | ...` and `su1-h01 2684  su1-h02 2671 ...`.
The host with the long part and the short wait is the one that the others wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked
from firstfault_tools.hardware.host_sections import looks_like_host
from firstfault_tools.metrics.pace.rank_parts import usual_late

GATE = (" | ",)
LEAST, MOST_LINES = 4, 4_096
LONG, ALIKE = 1.3, 1.12
_CELL = expression(
    r"^(?:.*[:)]\s+)?(?P<host>[A-Za-z][\w-]*\d[\w.-]{0,40})[ :=(]+(?P<parts>[A-Za-z]\w{0,30}[ =:]\s?\d.*)$"
)
_PART = expression(
    r"(?P<name>[A-Za-z][A-Za-z0-9_+-]{0,30})[ =:]{1,2}(?P<value>\d{1,9}(?:\.\d{1,6})?)(?![\w.]*:)"
)
_WAIT = expression(r"(?i)wait|comm|reduce|sync|barrier|nccl|idle")
_NOT_TIME = expression(r"(?i)^(?:rank|step|iter\w*|loss|gpu|mem\w*|temp|port|sm|power|clock|util\w*|rx|tx|ok|err\w*|epoch|free|used)$")  # fmt: skip
_STEP = expression(r"(?i)\b(?:step|iter(?:ation)?)s?[ :=#]{0,3}(\d{1,9})\b")
_STAMP = expression(r"\b(\d\d:\d\d:\d\d)\b")


TRIED = 60
"""Lines with bars after which a log without any cell of a host is given up."""


@dataclass(slots=True)
class HostRow:
    """One host: values of each part in the order of the log."""

    host: str
    parts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The host whose own part is long while all other hosts wait."""
    kept = [(n, t) for n, t in keep_marked(lines, GATE) if t.count(" | ") >= LEAST - 1]
    rows: dict[str, HostRow] = {}
    places: list[tuple[int, str]] = []
    for index, (number, text) in enumerate(kept[:MOST_LINES]):
        if index >= TRIED and not places:
            break  # such lines come from the first step on
        cells = [_CELL.match(c.strip()) for c in text.split("|")] if len(text) < 20_000 else []
        named = [c for c in cells if c is not None and looks_like_host(c["host"])]
        if len(named) < LEAST:
            continue
        places.append((number, text))
        for cell in named:
            row = rows.setdefault(cell["host"], HostRow(cell["host"]))
            for part in _PART.finditer(cell["parts"]):
                if not _NOT_TIME.match(part["name"]):
                    row.parts[part["name"].lower()].append(float(part["value"]))
    if len(rows) < LEAST:
        return ()
    found = judge_hosts(list(rows.values()), places, file)
    return (found,) if found is not None else ()


def judge_hosts(
    rows: Sequence[HostRow], places: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    """One host that is late in one part; its wait, where printed, must be short."""
    level = _read_levels(rows)
    waits = {n: by for n, by in level.items() if _WAIT.search(n)}
    late = _find_late({n: by for n, by in level.items() if n not in waits})
    waited = _find_wait(waits, late[1]) if late is not None else None
    if late is None or waited is None:
        return None
    name, host = late
    own, usual = level[name][host], median(_of_others(level[name], host))
    series = next(r for r in rows if r.host == host).parts[name]
    at = next((i for i, v in enumerate(series) if v >= usual + 0.5 * (own - usual)), 0)
    at = min(at, len(places) - 1)
    stamp = _STAMP.search(places[at][1])
    since = f" since {stamp[1]}" if at and stamp else ""
    quoted = dict.fromkeys([*places[max(at - 1, 0) : at + 1], places[-1]])
    return Finding(
        kind="metrics.host_waits",
        title=f"host {host} holds up every step: '{name}' takes {own:g} there against {usual:g} on the other {len(rows) - 1} hosts{since}; "
        f"the others wait for it ('{waited[0]}' {waited[2]:g} against its own {waited[1]:g})",
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        evidence=tuple(Evidence(file, n, _excerpt(t, host), host=host) for n, t in quoted),
        host=host,
        facts={"part": name, "value": own, "others": usual, "starts_at": 1},
    )


def _read_levels(rows: Sequence[HostRow]) -> dict[str, dict[str, float]]:
    """Usual late value by part and host, of parts that enough hosts print."""
    levels: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        for name, values in row.parts.items():
            if values:
                levels[name][row.host] = usual_late(values)
    return {name: by for name, by in levels.items() if len(by) >= LEAST}


def _of_others(by_host: Mapping[str, float], host: str) -> list[float]:
    return [v for h, v in by_host.items() if h != host]


def _find_late(level: Mapping[str, Mapping[str, float]]) -> tuple[str, str] | None:
    """(part, host) where one host takes longer than all others, who take about equally long."""
    best: tuple[float, str, str] | None = None
    for name, by_host in level.items():
        worst = max(by_host, key=lambda h: by_host[h])
        rest = _of_others(by_host, worst)
        usual = median(rest)
        if usual <= 0 or by_host[worst] < LONG * usual or max(rest) > ALIKE * usual:
            continue
        excess = by_host[worst] - usual
        if best is None or excess > best[0]:
            best = (excess, name, worst)
    return best[1:] if best is not None else None


def _find_wait(
    waits: Mapping[str, Mapping[str, float]], host: str
) -> tuple[str, float, float] | None:
    """(name, own value, that of the others) of the last wait that is short on this host and long on the others."""
    found = None
    for name, by_host in waits.items():
        own, usual = by_host.get(host), median(_of_others(by_host, host))
        if own is not None and own < 0.6 * usual:
            found = (name, own, usual)
    return found


def _excerpt(text: str, host: str) -> str:
    """The piece of a long line that holds the host, as it stands there."""
    if len(text) <= 400:
        return text.strip()
    at = text.find(host)
    return text[max(0, at - 80) : at + 200].strip()
