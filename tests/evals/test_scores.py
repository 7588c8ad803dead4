"""A cause counts where the verdict says it; a quote of the deciding line is not enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evals.answer import of_diagnosis
from evals.cases import Case, Expectation, Split
from evals.rules import count_support, name_source, write_table
from evals.scorers.table import HEAD, Row, write_line
from evals.scorers.triple import Score, score_triple
from tests.rows import each_row

DIAGNOSIS: dict[str, Any] = {
    "verdict": "fault", "category": "oom", "root_cause": "Rank 3 ran out of GPU memory: «batch 64»",
    "first_failing_rank": 3, "host": "n4", "gpu": None, "confidence": "confirmed",
    "explanation": "It says «tried to allocate 2 GiB».", "fixes": [], "next_artefacts": [],
}  # fmt: skip


def make_case(category: str | None = "oom", severity: str = "critical", **more: Any) -> Case:
    wanted = {"must_mention": (), "must_not_claim": (), **more}
    expect = Expectation(category, (category,), "", 3, severity=severity, **wanted)
    return Case("a", "https://x.org/1", "", "", (Path("log.txt"),), Split.DEV, (), expect)


def score(case: Case, **more: Any) -> Score:
    return score_triple(case, of_diagnosis({**DIAGNOSIS, **more}))


@each_row(
    ("words", "said", "anywhere"),
    [
        ("out of GPU memory", True, True),
        ("rank 3", True, True),
        ("n4", True, True),
        ("tried to allocate", False, True),
        ("batch 64", False, True),
        ("NCCL", False, False),
    ],
)
def test_cause_is_what_the_verdict_says(words: str, said: bool, anywhere: bool) -> None:
    found = score(make_case(must_mention=(words,)))
    assert (found.cause, found.anywhere) == (said, anywhere)
    assert score(make_case(must_not_claim=(words,))).cause is not said


def test_a_right_cause_needs_the_right_category() -> None:
    assert not score(make_case("data", must_mention=("memory",))).cause
    assert not score(make_case("data", must_mention=("memory",))).anywhere


@each_row("verdict", ["fault", "warning", "healthy", "unknown"])
def test_healthy_and_undecided_are_counted_by_the_verdict(verdict: str) -> None:
    category = "oom" if verdict in ("fault", "warning") else None
    healthy = score(make_case(None, "ok"), verdict=verdict, category=category)
    assert healthy.healthy is healthy.category is healthy.cause is (verdict == "healthy")
    assert not healthy.missed
    broken = score(make_case(), verdict=verdict, category=category)
    assert broken.missed is (verdict == "healthy")
    undecided = score(make_case(None), verdict=verdict, category=category)
    assert undecided.left_open is (verdict == "unknown")
    assert broken.left_open is broken.healthy is None


def test_a_line_of_the_table_counts_what_was_confirmed() -> None:
    answer = of_diagnosis(DIAGNOSIS)
    cases = [make_case(), make_case("data"), make_case(must_mention=("NCCL",))]
    line = write_line("x", [Row(c, answer, score_triple(c, answer)) for c in cases])
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    heads = [cell.strip() for cell in HEAD[0].strip("|").split("|")]
    told = dict(zip(heads, cells, strict=True))
    assert told["confirmed: wrong, half right"] == "3: 1, 1"
    assert told["broken called healthy"] == "0"
    assert told["fixes grounded"] == "-"


def test_sources_are_counted_once() -> None:
    assert name_source("https://github.com/A/b/issues/1#issuecomment-2; seen 2024") == "https://github.com/a/b/issues/1"  # fmt: skip
    assert name_source("own incident") == "own incident"
    assert "0, 0 of them" in write_table(count_support([]))
