"""Which host, switch, port or group of hosts makes pairs slow? Tomography from pairwise figures.

A pair is slow where something on its path is. Explanations are each host, each component of the routes,
each single path and, where no routes are known, each group of hosts that is only slow towards the others;
those that no pair tells apart are one. The smallest set that explains the slow pairs and lies on no good
path is what boolean network tomography looks for (Duffield, IEEE Trans. Information Theory 52 (2006)
5373-5388, https://doi.org/10.1109/TIT.2006.885460); here with a chance of error for every figure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter, UnreadableArtefact
from firstfault_tools.experiments.search import Space, Subject
from firstfault_tools.experiments.trial import Outcome, Trial
from firstfault_tools.knowledge.pack import read_yaml

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOW = 0.8
"""Share of the usual figure below which a pair is slow, as for nccl-tests (hardware/network/nccl_tests.py)."""
NOISE = 0.02
"""Share of figures that fall on the wrong side of it: other traffic, a short measurement."""
MOST_NODES = 512
_SHARES = {"host": 0.4, "component": 0.4, "group": 0.1, "path": 0.05, "all": 0.03, "none": 0.02}
_NAME = re.compile(r"[A-Za-z0-9][\w.:-]{0,120}")
_NUMBER = re.compile(r"^-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?$")
_PORT = re.compile(r"^(?P<switch>.{1,120}?)[ :/]{1,4}(?:port|eth|swp|ib)[ -]?\S+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured pair; `rate` in the unit of the table (more is better)."""

    a: str
    b: str
    rate: float
    line: int = 0

    @property
    def pair(self) -> Subject:
        return (self.a, self.b) if self.a <= self.b else (self.b, self.a)


@dataclass(frozen=True, slots=True)
class Routes:
    """What lies on the paths. by_host: components every path of a host takes; by_pair: those between two,
    whose names stand in order with a blank between."""

    by_host: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_pair: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def between(self, a: str, b: str) -> frozenset[str]:
        """Components on the path of a pair, with the switches that its ports belong to."""
        named = (*self.by_host.get(a, ()), *self.by_host.get(b, ()), *self.by_pair.get(" ".join(sorted((a, b))), ()))  # fmt: skip
        owners = (m["switch"] for n in named if (m := _PORT.match(n)) is not None)
        return frozenset((*named, *owners))


def read_figures(text: str, name: str) -> tuple[Figure, ...]:
    """Rows `a b rate`, or a matrix with the hosts above and at the left. Raises UnreadableArtefact."""
    rows = [
        (number, [c.strip() for c in re.split(r"[,;\t|]| +", line.strip().strip("|")) if c.strip()])
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    found = [f for number, cells in rows if (f := _read_row(number, cells)) is not None]
    if not found and rows:
        found = _read_matrix(rows)
    if not found:
        raise UnreadableArtefact(
            f"{name}: no row `host-a host-b figure` and no matrix of hosts; write one pair a line"
        )
    hosts = {h for f in found for h in (f.a, f.b)}
    if len(hosts) > MOST_NODES:
        raise UnreadableArtefact(f"{name}: {len(hosts)} hosts; at most {MOST_NODES} are compared")
    return tuple(found)


def _number(text: str) -> float | None:
    return float(text.replace(",", "")) if _NUMBER.match(text) else None


def _read_row(number: int, cells: Sequence[str]) -> Figure | None:
    cells = [c for c in cells if c not in ("->", "<->", "-", "to", ":")]
    if len(cells) < 3 or not all(_NAME.fullmatch(c.rstrip(":")) and _number(c) is None for c in cells[:2]):  # fmt: skip
        return None
    rate = next((v for c in cells[2:] if (v := _number(c.partition("=")[2] or c)) is not None), None)  # fmt: skip
    a, b = (c.rstrip(":") for c in cells[:2])
    return Figure(a, b, rate, number) if rate is not None and a != b else None


def _read_matrix(rows: Sequence[tuple[int, list[str]]]) -> list[Figure]:
    header = rows[0][1]
    found = []
    for number, cells in rows[1:]:
        names = header if len(header) == len(cells) - 1 else header[1:]
        if len(names) != len(cells) - 1:
            continue
        for other, cell in zip(names, cells[1:], strict=True):
            rate = _number(cell)
            if rate is not None and other != cells[0]:
                found.append(Figure(cells[0], other, rate, number))
    return found


def read_routes(text: str, name: str) -> Routes:
    """YAML: `hosts: {node-00: [leaf-1]}` and `routes: {node-00 node-09: [switch-04 port 17]}`.

    Raises UnreadableArtefact.
    """
    told = read_yaml(text)
    if not isinstance(told, Mapping) or not set(told) <= {"hosts", "routes"}:
        raise UnreadableArtefact(
            f"{name}: write `hosts:` (host: [what all its paths take]) or `routes:` (a b: [between them])"
        )

    def read(section: str) -> dict[str, tuple[str, ...]]:
        rows = told.get(section) or {}
        if not isinstance(rows, Mapping):
            raise UnreadableArtefact(f"{name}: `{section}:` is no table of names")
        return {
            str(k): tuple(str(c) for c in (v if isinstance(v, list) else [v]))
            for k, v in rows.items()
        }

    between = {}
    for key, parts in read("routes").items():
        ends = sorted(key.split())
        if len(ends) != 2:
            raise UnreadableArtefact(f"{name}: route {key!r} must name two hosts")
        between[" ".join(ends)] = parts
    return Routes(read("hosts"), between)


def mark_slow(figures: Sequence[Figure], routes: Routes = Routes()) -> tuple[Trial, ...]:  # noqa: B008  (frozen)
    """Each figure as a trial that failed where it is slow beside those of as long a path.

    The usual figure of a path's length is the upper quartile: slow ones may be the half.
    """
    by_length: dict[int, list[float]] = {}
    for f in figures:
        by_length.setdefault(len(routes.between(f.a, f.b)), []).append(f.rate)
    best = {n: _upper_quartile(rates) for n, rates in by_length.items()}
    told = []
    for f in figures:
        usual = best[len(routes.between(f.a, f.b))]
        slow = f.rate < SLOW * usual
        reason = f"{f.rate:g} against {usual:g} usually" if slow else ""
        told.append(Trial(f.pair, Outcome.FAILED if slow else Outcome.PASSED, None, 0.0, reason, (), f.rate))  # fmt: skip
    return tuple(told)


def _upper_quartile(rates: Sequence[float]) -> float:
    ordered = sorted(rates)
    return median(ordered[len(ordered) // 2 :])


def pair_space(
    hosts: Sequence[str], routes: Routes, trials: Sequence[Trial] = (), paths: bool = True
) -> Space:
    """Explanations of slow pairs. trials: what is known already, for groups where no route is."""
    import numpy as np

    pairs: list[Subject] = [(a, b) if a <= b else (b, a) for a, b in combinations(sorted(hosts), 2)]
    at = {pair: i for i, pair in enumerate(pairs)}
    rows: list[tuple[str, str, NDArray[Any]]] = []
    ends = np.array([[h in p for p in pairs] for h in hosts], dtype=bool).reshape(len(hosts), len(pairs))  # fmt: skip
    rows += [("host", host, ends[i]) for i, host in enumerate(hosts)]
    crossed = [routes.between(a, b) for a, b in pairs]
    for name in sorted(frozenset().union(*crossed)) if crossed else ():
        rows.append(("component", name, np.array([name in c for c in crossed])))
    if not any(crossed):
        rows += _groups(hosts, pairs, trials)
    if paths:
        rows += [("path", f"{a} to {b}", np.arange(len(pairs)) == i) for i, (a, b) in enumerate(pairs)]  # fmt: skip
    rows += [("all", "", np.ones(len(pairs), dtype=bool)), ("none", "", np.zeros(len(pairs), dtype=bool))]  # fmt: skip
    merged = _merge(rows)
    table = np.array([row for *_, row in merged])
    kinds = [kind for kind, _, _ in merged]

    def allows(subjects: Sequence[Subject]) -> NDArray[Any]:
        return np.asarray(table[:, [at[s] for s in subjects]])

    return Space(
        tuple(f"{kind} {name}".strip() for kind, name, _ in merged),
        tuple(_SHARES[kind] / kinds.count(kind) for kind in kinds),
        allows,
        lambda _weights: pairs,
    )


def _merge(rows: Sequence[tuple[str, str, NDArray[Any]]]) -> list[tuple[str, str, NDArray[Any]]]:
    """Explanations that no pair tells apart are one, under all their names."""
    classes: dict[bytes, list[tuple[str, str, NDArray[Any]]]] = {}
    for row in rows:
        classes.setdefault(row[2].tobytes(), []).append(row)
    merged = []
    for alike in classes.values():
        kind, _, table = alike[0]
        merged.append((kind, " or ".join(dict.fromkeys(name for _, name, _ in alike)), table))
    return merged


def _groups(
    hosts: Sequence[str], pairs: Sequence[Subject], trials: Sequence[Trial]
) -> list[tuple[str, str, NDArray[Any]]]:
    """Groups whose pairs with all others may be slow: for each host those with which it is fast."""
    import numpy as np

    fast: dict[str, set[str]] = {h: {h} for h in hosts}
    for t in trials:
        if t.outcome is Outcome.PASSED:
            fast[t.subject[0]].add(t.subject[1])
            fast[t.subject[1]].add(t.subject[0])
    found: dict[frozenset[str], None] = {}
    for host in hosts:
        # one wrong figure adds or drops a host: those whom the fast ones agree on are its group
        votes = {h: sum(h in fast[o] for o in fast[host]) for h in hosts}
        group = frozenset(h for h in hosts if 2 * votes[h] > len(fast[host]))
        if 2 <= len(group) <= len(hosts) // 2:
            found[group] = None
    return [
        (
            "group",
            " ".join(sorted(group)),
            np.array([(a in group) != (b in group) for a, b in pairs]),
        )
        for group in found
    ]


def plan_rounds(hosts: Sequence[str]) -> tuple[tuple[Subject, ...], ...]:
    """Rounds in which every pair is measured once and no host twice in a round (circle method)."""
    ring: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        met = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append(tuple((a, b) if a <= b else (b, a) for a, b in met if a and b))
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return tuple(rounds)


def check_nodes(hosts: Sequence[str]) -> None:
    """Raises InvalidParameter where they cannot be compared in pairs."""
    if len(set(hosts)) != len(hosts) or not 3 <= len(hosts) <= MOST_NODES:
        raise InvalidParameter("hosts", f"must be 3 to {MOST_NODES} different names")
