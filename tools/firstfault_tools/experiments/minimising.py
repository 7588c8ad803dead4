"""Which differences are needed for the failure? Delta debugging with repeated trials.

ddmin of A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions
on Software Engineering 28 (2002) 183-200, https://www.st.cs.uni-saarland.de/papers/tse2002/. The result is
1-minimal: leave any one of its differences out, and the run works. A set that cannot be tried counts as one
that works, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.experiments.sequential import StoppingRule, decide
from firstfault_tools.experiments.trial import Outcome, Trial

Names = tuple[str, ...]
_Test = Callable[[Sequence[str]], bool]


@dataclass(frozen=True, slots=True)
class Minimum:
    """needed: the differences that fail together; () with `reason` where there are none."""

    needed: Names = ()
    reason: str = ""


class _NeedsTrial(Exception):
    """The next set that must be tried."""

    def __init__(self, names: Names) -> None:
        self.names = names


def next_set(names: Sequence[str], trials: Sequence[Trial], rule: StoppingRule) -> Names | Minimum:
    """The set of differences to try next, or the smallest failing one. A function of the trials alone."""
    order = {name: i for i, name in enumerate(names)}

    def fails(subset: Sequence[str]) -> bool:
        chosen = tuple(sorted(subset, key=order.__getitem__))
        mine = [t.outcome for t in trials if t.subject == chosen]
        if Outcome.SKIPPED in mine:
            return False
        told = decide(mine.count(Outcome.FAILED), mine.count(Outcome.PASSED), rule)
        if told is None:
            raise _NeedsTrial(chosen)
        return told

    try:
        if not fails(names):
            return Minimum(reason="the run works with all differences: the failure was not reproduced")  # fmt: skip
        if fails(()):
            return Minimum(reason="the run fails without any difference: it is none of these")
        return Minimum(_minimise(tuple(names), fails))
    except _NeedsTrial as needed:
        return needed.names


def _minimise(names: Names, fails: _Test) -> Names:
    parts = 2
    while len(names) >= 2:
        pieces = _split(names, parts)
        if (piece := next((p for p in pieces if fails(p)), None)) is not None:
            names, parts = piece, 2
            continue
        rests = [tuple(n for n in names if n not in p) for p in pieces]
        if parts > 2 and (rest := next((r for r in rests if fails(r)), None)) is not None:
            names, parts = rest, max(parts - 1, 2)
            continue
        if parts >= len(names):
            break
        parts = min(len(names), 2 * parts)
    return names


def _split(names: Names, parts: int) -> list[Names]:
    size, more = divmod(len(names), parts)
    pieces, start = [], 0
    for k in range(parts):
        end = start + size + (k < more)
        pieces.append(names[start:end])
        start = end
    return [p for p in pieces if p]
