"""How does what is asked follow from the amounts of a sentence? Equations (relations.yaml) are chained until it is reached.

Of several ways the one is taken that uses most of the numbers given; a number that no way uses is told.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product

from firstfault.conversation.amounts import Reading, read_amounts
from firstfault.conversation.formulas import evaluate, find_peak, shape_of_model
from firstfault.conversation.quantities import Quantities
from firstfault.conversation.relations import Ask, Relation, load_table
from firstfault_tools.dataclass import dataclass

USUAL = frozenset({"per_node"})
"""Assumed without doubt: eight GPUs a node."""
ROUNDS, WAYS = 6, 3
"""How far equations are chained, and how many ways to one quantity are kept."""
WHOLE_OF_CARD = 1e9


@dataclass(frozen=True, slots=True)
class Known:
    """A quantity with its value and where it comes from. used: places of the numbers in it; path: names on the way."""

    name: str
    value: float
    used: frozenset[int] = frozenset()
    assumed: frozenset[str] = frozenset()
    path: frozenset[str] = frozenset()
    by: Relation | None = None
    inputs: tuple[Known, ...] = ()
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Derived:
    """The answers to a sentence. results: of each quantity asked, its values (more than one where a number is told twice).

    left: numbers that none of them uses.
    """

    reading: Reading
    results: tuple[tuple[Known, ...], ...]
    left: tuple[int, ...]

    @property
    def assumed(self) -> frozenset[str]:
        return frozenset(a for group in self.results for k in group for a in k.assumed)


@lru_cache(maxsize=64)
def derive(text: str, quantities: Quantities) -> Derived | None:
    """The answers to what a sentence asks; None where it asks for nothing that its numbers give."""
    reading = read_amounts(text)
    if not reading.mentions:
        return None
    asked = _find_asks(reading)
    ways = Ways(reading, quantities)
    groups: list[tuple[Known, ...]] = []
    for ask in sorted(asked, key=lambda a: a.beside):
        best = ways.best(ask.of)
        told = {g[0].name for g in groups}
        if (
            best is None
            or not best.used
            or best.name in told
            or (ask.beside and not best.path & told)
        ):
            continue
        whole = next(
            (
                k
                for k in best.inputs
                if k.name in ask.of
                and not _is_given(k)
                and not _is_same(best)
                and k.name not in told
            ),
            None,
        )
        groups.append(ways.variants(best))
        groups += [(whole,)] if whole is not None else []
    if not groups and (only := _find_only(ways, text)) is not None:
        groups = [(only,)]
    if not groups:
        return None
    used = frozenset(i for g in groups for k in g for i in k.used)
    groups, used = _extend(ways, groups, used)
    used = frozenset(j for i in used for j in reading.twins(i)) | _covered(reading, used, groups)
    left = tuple(i for i in range(len(reading.mentions)) if i not in used)
    return Derived(reading, tuple(groups), left)


LEAST_OF_ALL = 2
"""Numbers from which on a result that takes in all of them is meant though no word names it as we do."""


def _find_only(ways: Ways, text: str) -> Known | None:
    """The result that takes in every number without an assumption, where its name or unit stands in the sentence."""
    places = range(len(ways.reading.mentions))
    if len(places) < LEAST_OF_ALL:
        return None
    same, plain = load_table().same_words, load_table().plain_words
    words = {same.get(w, w) for w in re.findall(r"[a-z%]+", text.lower())} - plain
    found = []
    for name, out in load_table().outputs.items():
        named = {
            w.rstrip("s") for w in re.findall(r"[a-z]+", f"{out.unit} {out.name}".lower())
        } - plain
        shared = len(named & {w.rstrip("s") for w in words})
        for k in ways.table.get(name, ()) if shared and not out.only else ():
            if (
                not _is_given(k)
                and not k.assumed
                and all(set(ways.reading.twins(i)) & k.used for i in places)
            ):
                found.append((-shared, k.depth, name, k))
    return min(found, key=lambda f: f[:3])[3] if found else None


def _covered(
    reading: Reading, used: frozenset[int], groups: list[tuple[Known, ...]]
) -> frozenset[int]:
    """Numbers that need not enter, since another one that does stands for them."""
    covers = load_table().covers
    taken = {a.name for a in reading.amounts if a.at in used} | {g[0].name for g in groups}
    names = {n for name in taken for n in covers.get(name, ())}
    return frozenset(a.at for a in reading.amounts if a.name in names)


def _find_asks(reading: Reading) -> list[Ask]:
    """What is asked for, in the order of the sentence; words within those of a longer ask, or of an amount, are not asked."""
    found: list[tuple[int, int, int, Ask]] = []
    for order, ask in enumerate(load_table().asks):
        if ask.unless is not None and ask.unless.search(reading.text):
            continue
        for m in ask.say.finditer(reading.text):
            if not any(a <= m.start() < b or a < m.end() <= b for a, b in reading.claimed):
                found.append((m.start(), m.end(), order, ask))
    kept = [
        f
        for f in found
        if not any(g[0] <= f[0] and f[1] <= g[1] and (g[1] - g[0]) > (f[1] - f[0]) for g in found)
    ]
    asks = [f[3] for f in sorted(kept, key=lambda f: f[:3])]
    if all(a.beside for a in asks):
        return []
    return list(dict.fromkeys(asks))


def _extend(
    ways: Ways, groups: list[tuple[Known, ...]], used: frozenset[int]
) -> tuple[list[tuple[Known, ...]], frozenset[int]]:
    """Results that take in a number which what is asked leaves aside: a price, a bandwidth, a number of GPUs."""
    for at in range(len(ways.reading.mentions)):
        if at in used or any(j in used for j in ways.reading.twins(at)):
            continue
        targets = {g[0].name for g in groups}
        assumed = USUAL.union(*(g[0].assumed for g in groups))
        more = [
            k
            for name, out in load_table().outputs.items()
            if not out.only
            for k in ways.table.get(name, ())
            if at in k.used
            and k.used & used
            and k.by is not None
            and k.path & targets
            and name not in targets
            and k.assumed <= assumed
        ]
        if more:
            best = min(more, key=lambda k: (len(k.assumed), -len(k.used), k.depth))
            groups = [*groups, (best,)]
            used |= best.used
    return groups, used


class Ways:
    """Every quantity that follows from a sentence, with the ways to it."""

    def __init__(
        self, reading: Reading, quantities: Quantities, fixed: Mapping[str, int] | None = None
    ) -> None:
        self.reading, self.quantities = reading, quantities
        self.fixed = dict(fixed or {})
        self.table: dict[str, list[Known]] = {}
        for known in self._given():
            self.table[known.name] = [known]
        self.told = frozenset(self.table)
        sharding = reading.shardings[self._index("sharding", len(reading.shardings))]
        self.flags = reading.flags | {sharding}
        self._chain()

    def _index(self, name: str, count: int) -> int:
        return min(self.fixed.get(name, 0), count - 1)

    def _given(self) -> Iterator[Known]:
        """Amounts of the sentence, and what the model and card that it names are known for."""
        names = dict.fromkeys(a.name for a in self.reading.amounts)
        parameters = self.reading.values("parameters")
        of_model = frozenset(a.at for a in parameters[:1])
        for name, value in shape_of_model(self.quantities).items():
            assumed = frozenset(
                {"shape"} if self.quantities.model is None and name != "parameters" else ()
            )
            yield Known(name, value, of_model, assumed, frozenset({name}))
        if (peak := find_peak(self.quantities.card)) is not None:
            yield Known("peak", peak * 1e12, path=frozenset({"peak"}))
        if self.quantities.card and (gb := re.search(r"(\d{2,3}) ?G", self.quantities.card)):
            yield Known(
                "card_memory", float(gb[1]) * WHOLE_OF_CARD, path=frozenset({"card_memory"})
            )
        if self.reading.widths:
            width = self.reading.widths[self._index("width", len(self.reading.widths))]
            yield Known("width", width, path=frozenset({"width"}))
        for name, width in self.reading.parts.items():
            yield Known(name, width, path=frozenset({name}))
        if self.quantities.gpus == 1 and "gpus" not in names:
            yield Known("gpus", 1.0, path=frozenset({"gpus"}))
        for name in names:
            values = self.reading.values(name)
            if name == "parameters" and len(values) > 1 and self.quantities.model is not None:
                exact = values[-1]  # "qwen2.5-14b (14.8B params)": the name, then the number
                yield Known(
                    name, exact.value, frozenset(a.at for a in values), path=frozenset({name})
                )
                continue
            first = values[self._index(name, len(values))]
            yield Known(name, first.value, frozenset({first.at}), path=frozenset({name}))
            if len(values) > 1:
                yield Known(
                    f"{name}_2",
                    values[1].value,
                    frozenset({values[1].at}),
                    path=frozenset({f"{name}_2"}),
                )

    def _chain(self) -> None:
        relations = [
            r
            for r in load_table().relations
            if r.when <= self.flags and not r.unless & self.flags and r.of not in self.told
        ]
        fresh = set(self.table)
        for _ in range(ROUNDS):
            changed: set[str] = set()
            for relation in relations:
                if relation.inputs and not fresh & set(relation.inputs):
                    continue
                changed |= self._apply(relation)
            if not changed:
                return
            fresh = changed

    def _apply(self, relation: Relation) -> set[str]:
        pools = [self._pool(name, relation) for name in relation.inputs]
        added = False
        for inputs in product(*pools) if all(pools) else ():
            if any(relation.of in k.path for k in inputs):
                continue
            known = _compute(relation, inputs)
            added = (known is not None and self._add(known)) or added
        return {relation.of} if added else set()

    def _pool(self, name: str, relation: Relation) -> list[Known]:
        if name in self.table:
            return self.table[name][:2]
        if name in relation.neutral:
            return [Known(name, relation.neutral[name])]
        if name in relation.assume:
            return [Known(name, relation.assume[name], assumed=frozenset({name}))]
        return []

    def _add(self, known: Known) -> bool:
        ways = self.table.setdefault(known.name, [])
        if any(w.used >= known.used and len(w.assumed) <= len(known.assumed) for w in ways):
            return False
        kept = [
            w for w in ways if not (known.used >= w.used and len(known.assumed) <= len(w.assumed))
        ]
        ways[:] = sorted([*kept, known], key=lambda k: (len(k.assumed), -len(k.used), k.depth))[
            :WAYS
        ]
        return known in ways

    def best(self, names: tuple[str, ...]) -> Known | None:
        """The way to one of several quantities that takes in most of the numbers."""
        ways = [(k, order) for order, n in enumerate(names) for k in self.table.get(n, ()) if not _is_given(k)]  # fmt: skip
        found = min(
            ways,
            key=lambda w: (-len(w[0].used), len(w[0].assumed - USUAL), w[1], w[0].depth),
            default=None,
        )
        return found[0] if found is not None else None

    def variants(self, known: Known) -> tuple[Known, ...]:
        """The result, and those of the other values where one quantity of it is told more than once."""
        for name, count in self._several():
            if self.fixed or not _depends(known, name, self.flags, self.reading):
                continue
            others = [
                Ways(self.reading, self.quantities, {name: i}).best((known.name,))
                for i in range(1, count)
            ]
            return (known, *(k for k in others if k is not None))
        return (known,)

    def _several(self) -> Iterator[tuple[str, int]]:
        """Quantities that are told more than once, and how often."""
        if len(self.reading.shardings) > 1:
            yield "sharding", len(self.reading.shardings)
        if len(self.reading.widths) > 1:
            yield "width", len(self.reading.widths)
        for name in dict.fromkeys(a.name for a in self.reading.amounts):
            named = name == "parameters" and self.quantities.model is not None
            if len(values := self.reading.values(name)) > 1 and not named:
                yield name, len(values)


def _depends(known: Known, name: str, flags: frozenset[str], reading: Reading) -> bool:
    """The value would be another with another `name`; a second value that takes part itself is none to vary."""
    if f"{name}_2" in known.path:
        return False
    if name == "sharding":
        return any(
            k.by is not None and (k.by.when | k.by.unless) & set(reading.shardings)
            for k in _all(known)
        )
    return name in known.path


def _is_same(known: Known) -> bool:
    """The same quantity by another name."""
    return (
        known.by is not None
        and len(known.inputs) == 1
        and known.by.expression == known.inputs[0].name
    )


def _is_given(known: Known) -> bool:
    """A number of the sentence, be it by another name."""
    return known.by is None or (_is_same(known) and _is_given(known.inputs[0]))


def _all(known: Known) -> Iterator[Known]:
    yield known
    for k in known.inputs:
        yield from _all(k)


def _compute(relation: Relation, inputs: tuple[Known, ...]) -> Known | None:
    try:
        value = evaluate(relation.tree, {k.name: k.value for k in inputs} | {"pi": math.pi})
    except (ZeroDivisionError, ValueError, OverflowError):
        return None
    if isinstance(value, complex) or not math.isfinite(value):
        return None
    used = frozenset(i for k in inputs for i in k.used)
    assumed = frozenset(a for k in inputs for a in k.assumed)
    path = frozenset({relation.of}).union(*(k.path for k in inputs))
    return Known(relation.of, value, used, assumed, path, relation, inputs, 1 + max((k.depth for k in inputs), default=0))  # fmt: skip
