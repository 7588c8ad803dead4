"""Did the answer name the right category, rank and cause? Exact or by the case's own regexes.

The cause counts where the verdict's own sentence says it. An answer that only quotes the deciding line, or
names the cause among other things, has it `anywhere`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from evals.answer import Answer
from evals.cases import Case


@dataclass(frozen=True, slots=True)
class Score:
    """What was right, and the category to count under in the confusion table.

    healthy: of a healthy case, whether it was called so. missed: a broken run was called healthy.
    left_open: of a case that the evidence does not decide, whether it was left open.
    """

    category: bool
    rank: bool
    cause: bool
    anywhere: bool
    healthy: bool | None
    missed: bool
    left_open: bool | None
    confirmed: bool
    predicted: str
    expected: str
    why: str

    @property
    def right(self) -> bool:
        """Category, rank and cause are all right."""
        return self.category and self.rank and self.cause


def score_triple(case: Case, answer: Answer) -> Score:
    """Score of one answer. A case that accepts several categories counts under the one it was given."""
    ok = case.expect.severity == "ok"
    accepted = {c or "none" for c in case.expect.accept_categories}
    given = answer.category or "none"
    healthy = (answer.verdict == "healthy") if ok else None
    if ok:
        expected, predicted = "healthy", "healthy" if answer.verdict == "healthy" else given
    elif answer.verdict == "healthy":
        expected, predicted = case.expect.category or "none", "healthy"
    else:
        expected = given if given in accepted else (case.expect.category or "none")
        predicted = given
    hit = expected == predicted
    missing = _missing(case, answer.said)
    wrong = _claimed(case, answer.said)
    why = "; ".join([*(f"does not say /{m}/" for m in missing), *(f"claims /{w}/" for w in wrong)])
    undecided = case.expect.kind == "undecided"
    return Score(
        category=hit,
        rank=answer.rank == case.expect.first_failing_rank,
        cause=hit and not missing and not wrong,
        anywhere=hit
        and not _missing(case, f"{answer.said} {answer.text}")
        and not _claimed(case, answer.claim),
        healthy=healthy,
        missed=not ok and answer.verdict == "healthy",
        left_open=answer.verdict == "unknown" if undecided else None,
        confirmed=answer.confidence == "confirmed",
        predicted=predicted,
        expected=expected,
        why=why,
    )


def _missing(case: Case, text: str) -> list[str]:
    return [m for m in case.expect.must_mention if not re.search(m, text, re.I)]


def _claimed(case: Case, text: str) -> list[str]:
    return [m for m in case.expect.must_not_claim if re.search(m, text, re.I)]


def macro_f1(pairs: list[tuple[str, str]]) -> float:
    """Macro-averaged F1 over the expected classes of (expected, predicted) pairs."""
    classes = sorted({e for e, _ in pairs})
    total = 0.0
    for name in classes:
        true = sum(1 for e, p in pairs if e == p == name)
        said = sum(1 for _, p in pairs if p == name)
        there = sum(1 for e, _ in pairs if e == name)
        total += 2 * true / (said + there) if said + there else 0.0
    return total / len(classes) if classes else 0.0
