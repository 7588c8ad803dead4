"""Did the answer name the right category, rank and cause? Exact or by the case's own regexes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from evals.answer import Answer
from evals.cases import Case


@dataclass(frozen=True, slots=True)
class Score:
    """What was right, and the category to count under in the confusion table."""

    category: bool
    rank: bool
    cause: bool
    healthy: bool | None
    predicted: str
    expected: str
    why: str


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
    missing = [m for m in case.expect.must_mention if not re.search(m, answer.text, re.I)]
    wrong = [m for m in case.expect.must_not_claim if re.search(m, answer.claim, re.I)]
    why = "; ".join([*(f"missing /{m}/" for m in missing), *(f"claims /{w}/" for w in wrong)])
    return Score(
        category=expected == predicted,
        rank=answer.rank == case.expect.first_failing_rank,
        cause=not missing and not wrong and expected == predicted,
        healthy=healthy,
        predicted=predicted,
        expected=expected,
        why=why,
    )


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
