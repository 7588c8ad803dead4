"""How does a set of scored answers look in one line of a table?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evals.answer import Answer
from evals.cases import Case
from evals.scorers.triple import Score, macro_f1

HEAD = (
    "| system | cases | category macro-F1 | category | rank | cause said | cause anywhere | broken called healthy "
    "| healthy called healthy | undecided left open | confirmed: wrong, half right | fixes grounded | median s |",
    "| --- |" + " ---: |" * 12,
)
LEGEND = (
    "Rank is exact; null counts where no rank is singled out. Cause: category right, every essential word there, no "
    "wrong claim; said: in the verdict's own sentence and place, anywhere: in the whole answer, quotes and advice "
    "included. Half right: the category, but not rank and cause."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One case, one answer, its score."""

    case: Case
    answer: Answer
    score: Score


def write_line(name: str, rows: Sequence[Row]) -> str:
    """One line below `HEAD`."""
    if not rows:
        return f"| {name} | 0 |" + " |" * 11
    scores = [r.score for r in rows]
    healthy = [s.healthy for s in scores if s.healthy is not None]
    open_ = [s.left_open for s in scores if s.left_open is not None]
    sure = [s for s in scores if s.confirmed]
    wrong = sum(not s.category for s in sure)
    half = sum(s.category and not s.right for s in sure)
    shown = sum(r.answer.fixes_shown for r in rows)
    grounded = [r.answer.fixes_grounded for r in rows if r.answer.fixes_grounded is not None]
    cells = (
        name,
        len(rows),
        f"{macro_f1([(s.expected, s.predicted) for s in scores]):.3f}",
        _share(s.category for s in scores),
        _share(s.rank for s in scores),
        _share(s.cause for s in scores),
        _share(s.anywhere for s in scores),
        sum(s.missed for s in scores),
        f"{sum(healthy)}/{len(healthy)}",
        f"{sum(open_)}/{len(open_)}",
        f"{len(sure)}: {wrong}, {half}",
        f"{sum(grounded)}/{shown}" if grounded else "-",
        f"{sorted(r.answer.seconds for r in rows)[len(rows) // 2]:.3f}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _share(values: Iterable[bool]) -> str:
    items = list(values)
    return f"{sum(items) / len(items):.3f}"
