"""Which difference between a good and a bad run can explain what is worse?

Settings, variables, versions, data and hosts of both runs are laid beside each other; each difference is
weighed by what it can change (relevance.yaml, with the page that says so) against what is seen to be
worse or what the person says. A weight is an order in which to look, no proof: the proof is a trial.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import cache
from itertools import islice
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.metrics.series import StepSeries
from firstfault_tools.metrics.sources.steps import parse_steps
from firstfault_tools.profile.trace import RankTrace, looks_like_trace, read_trace
from firstfault_tools.registry import Artefact
from firstfault_tools.run_comparison.diffs import read_diff
from firstfault_tools.run_comparison.effects import (
    Change,
    Effect,
    compare_bandwidth,
    compare_columns,
    compare_kernels,
    compare_tables,
)
from firstfault_tools.run_comparison.settings import (
    Kind,
    Setting,
    normalise_value,
    quote_setting,
    read_all,
)

TABLE = Path(__file__).with_name("relevance.yaml")
UNKNOWN_WEIGHT = 0.1
"""Weight of a difference that no row knows: last, but not left out."""

NO_EFFECT_WEIGHT = 0.05
"""The same of a known difference whose row does not name the effect that is seen."""

ONE_SIDED = 0.7
"""Factor where only one run states the setting: the other may have it without printing it."""

MOST_TEXT = 64 * 1024 * 1024
MOST_HOSTS_TOLD = 12
_COLOUR = expression(r"\x1b\[[0-9;]{0,16}m")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of relevance.yaml."""

    name: re.Pattern[str]
    effects: Mapping[Effect, float]
    page: str
    why: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that differs. good, bad: None where a run does not state it. weight: 0 to 1."""

    kind: Kind
    name: str
    good: Setting | None
    bad: Setting | None
    weight: float
    explains: tuple[Effect, ...]
    page: str | None
    why: str

    def tell(self) -> str:
        """The difference in words."""
        return f"{self.kind} {self.name}: {quote_setting(self.good)} -> {quote_setting(self.bad)}"


@dataclass(frozen=True, slots=True)
class Nodes:
    """Hosts that only one of the runs used, and how many both did."""

    only_good: tuple[str, ...] = ()
    only_bad: tuple[str, ...] = ()
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs beside each other. effects: what is worse, worst stated first."""

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    differences: tuple[Difference, ...]
    nodes: Nodes
    alike: int
    stated_good: int
    stated_bad: int
    notes: tuple[str, ...] = field(default=())

    @property
    def sentence(self) -> str:
        """What is worse, and the difference to look at first."""
        worse = [c for c in self.changes if c.worse]
        if worse:
            first = worse[0]
            times = f" ({first.bad / first.good:.2f} times)" if first.good else ""
            seen = f"{first.what.capitalize()} is {_number(first.bad)} {first.unit}".rstrip() + f" against {_number(first.good)}{times}"  # fmt: skip
        elif self.changes:
            seen = "No measured column of the second run is worse"
        else:
            seen = "The runs print no column that both have"
        able = [d for d in self.differences if d.explains]
        if able:
            count = len(self.differences)
            which = f"of {count} differences, look first at" if count > 1 else "one thing differs:"
            return f"{seen}; {which} {able[0].tell()}; {able[0].why}."
        if self.nodes.only_bad:
            return f"{seen}; no setting explains it, but the second run has {len(self.nodes.only_bad)} hosts of its own."
        if self.differences:
            return f"{seen}; {len(self.differences)} settings differ, none known to explain it."
        if not self.stated_good or not self.stated_bad:
            neither = not self.stated_good and not self.stated_bad
            who = "neither run states" if neither else "one run does not state"
            return f"{seen}; settings cannot be compared, as {who} any."
        return f"{seen}; {self.alike} settings are alike and none differs: look at hosts, data and code."


@cache
def _rows() -> tuple[tuple[Row, ...], re.Pattern[str]]:
    table = read_yaml(TABLE.read_text(encoding="utf-8"))
    rows = tuple(
        Row(
            re.compile(row["name"]),
            {Effect(k): float(v) for k, v in row["effects"].items()},
            row["page"],
            row["why"],
        )
        for row in table["rows"]
    )
    return rows, re.compile("|".join(table["volatile"]))


def pages_named() -> frozenset[str]:
    """Every page that relevance.yaml cites."""
    return frozenset(row.page for row in _rows()[0])


def compare_runs(
    good: Sequence[Artefact],
    bad: Sequence[Artefact],
    complaint: Collection[Effect] = (),
    hosts: tuple[Collection[str], Collection[str]] = ((), ()),
) -> Comparison:
    """Lay two runs beside each other.

    complaint: what is worse as the person says it, or as the diagnosis found; added to what is measured.
    hosts: host names of the good and of the bad run, where they are known.
    """
    mine, theirs = _load(good), _load(bad)
    changes = (
        *compare_columns(_series(mine), _series(theirs)),
        *compare_bandwidth(mine.texts, theirs.texts),
        *compare_kernels(mine.traces, theirs.traces),
        *compare_tables(mine.texts, theirs.texts),
    )
    changes = tuple(sorted(changes, key=_severity, reverse=True))
    seen = dict.fromkeys([*complaint, *(c.effect for c in changes if c.worse and c.effect)])
    a, b = read_all(mine.texts), read_all(theirs.texts)
    differences, alike = _differ(a, b, tuple(seen))
    return Comparison(
        changes=changes,
        effects=tuple(seen),
        differences=differences,
        nodes=_compare_hosts(*hosts),
        alike=alike,
        stated_good=len(a),
        stated_bad=len(b),
        notes=(*mine.notes, *theirs.notes),
    )


def compare_diff(name: str, text: str, effects: Sequence[Effect]) -> tuple[Difference, ...]:
    """Differences that a diff states, what can explain the effects first; none where the text is no diff.

    name: of the artefact. A removed line states the value before, an added one the value after.
    """
    sides = read_diff(text)
    if sides is None:
        return ()
    before, after = (read_all([(name, side)]) for side in sides)
    return _differ(before, after, tuple(effects))[0]


@dataclass(frozen=True, slots=True)
class _Loaded:
    texts: tuple[tuple[str, str], ...]
    traces: tuple[RankTrace, ...]
    notes: tuple[str, ...]


def _load(artefacts: Sequence[Artefact]) -> _Loaded:
    texts, traces, notes = [], [], []
    for artefact in artefacts:
        head = artefact.head()
        if looks_like_trace(head):
            try:
                traces.append(read_trace(artefact.data(), artefact.name))
            except ToolError as error:
                notes.append(str(error))
        elif b"\0" in head:
            notes.append(f"{artefact.name}: binary, not compared")
        else:
            text = artefact.data(MOST_TEXT).decode("utf-8", errors="replace")
            texts.append((artefact.name, _COLOUR.sub("", text) if "\x1b" in text else text))
    return _Loaded(tuple(texts), tuple(traces), tuple(notes))


def _series(run: _Loaded) -> StepSeries:
    """Step rows of the file with the most of them."""
    every = (parse_steps(enumerate(text.splitlines(), 1)) for _, text in run.texts)
    return max(every, key=len, default=parse_steps(()))


def _severity(change: Change) -> tuple[bool, float]:
    if not change.worse or not change.good or change.bad != change.bad:
        return change.worse, 1e9 if change.worse else 0.0
    return True, max(change.ratio, 1 / change.ratio if change.ratio else 1e9)


def _differ(
    good: Mapping[tuple[Kind, str], Setting],
    bad: Mapping[tuple[Kind, str], Setting],
    effects: tuple[Effect, ...],
) -> tuple[tuple[Difference, ...], int]:
    _, volatile = _rows()
    found, alike = [], 0
    for key in dict.fromkeys((*good, *bad)):
        a, b = good.get(key), bad.get(key)
        if a is not None and b is not None and normalise_value(a.value) == normalise_value(b.value):
            alike += 1
        elif not volatile.fullmatch(key[1]) and not volatile.fullmatch(key[1].rpartition(".")[2]):
            found.append(_weigh(key, a, b, effects))
    return tuple(sorted(found, key=lambda d: (-d.weight, d.name))), alike


def _weigh(
    key: tuple[Kind, str], good: Setting | None, bad: Setting | None, effects: tuple[Effect, ...]
) -> Difference:
    kind, name = key
    row = _find_row(name)
    explains: tuple[Effect, ...] = ()
    if row is None:
        weight = UNKNOWN_WEIGHT
    else:
        explains = tuple(e for e in effects if e in row.effects)
        known = [row.effects[e] for e in explains] if effects else list(row.effects.values())
        weight = max(known, default=NO_EFFECT_WEIGHT)
    if good is None or bad is None:
        weight *= ONE_SIDED
    shown = (bad or good).shown if (bad or good) is not None else name  # type: ignore[union-attr]
    page, why = (row.page, row.why) if row is not None else (None, "")
    return Difference(kind, shown, good, bad, round(weight, 3), explains, page, why)


def _find_row(name: str) -> Row | None:
    last = name.rpartition(".")[2]
    return next((r for r in _rows()[0] if r.name.fullmatch(name) or r.name.fullmatch(last)), None)


def _compare_hosts(good: Collection[str], bad: Collection[str]) -> Nodes:
    mine, theirs = set(good), set(bad)
    if not mine or not theirs:
        return Nodes()
    return Nodes(tuple(sorted(mine - theirs)), tuple(sorted(theirs - mine)), len(mine & theirs))


def name_hosts(hosts: Sequence[str]) -> str:
    """Host names as they are told, the first dozen."""
    told = ", ".join(islice(hosts, MOST_HOSTS_TOLD))
    more = len(hosts) - MOST_HOSTS_TOLD
    return f"{told} and {more} more" if more > 0 else told


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
