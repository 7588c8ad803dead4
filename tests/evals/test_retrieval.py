from __future__ import annotations

from collections import Counter

import pytest
from evals.retrieval.floor import measure_floor, suggest_pages
from evals.retrieval.run import (
    Outcome,
    Question,
    ask,
    load_questions,
    make_rankers,
    mean_reciprocal_rank,
    recall,
)

from firstfault.knowledge_base.search import open_index
from firstfault.paths import knowledge_folder
from firstfault_tools.knowledge.page import load_pages

QUESTIONS = load_questions()


def test_questions_are_many_distinct_and_about_existing_pages() -> None:
    pages = load_pages(knowledge_folder() / "pages").keys()
    unknown = {q.id: sorted(q.pages - pages) for q in QUESTIONS if not q.pages <= pages}
    assert not unknown, "pages were renamed or removed: correct questions.yaml"
    assert len(QUESTIONS) >= 160
    assert len({q.id for q in QUESTIONS}) == len({q.text for q in QUESTIONS}) == len(QUESTIONS)
    kinds = Counter((q.kind, q.split) for q in QUESTIONS)
    assert min(kinds[k, s] for k in ("exact", "plain") for s in ("dev", "held")) >= 40


def test_measures_by_hand() -> None:
    question = Question("q", "text", frozenset({"a"}), "plain", "dev", "en")
    outcomes = [Outcome(question, rank, None, 0.0) for rank in (1, 2, 8, None)]
    assert (recall(outcomes, 1), recall(outcomes, 5)) == (0.25, 0.5)
    assert mean_reciprocal_rank(outcomes) == pytest.approx((1 + 1 / 2 + 1 / 8) / 4)
    found = ask(lambda text: ["b", "a"], [question])
    assert (found[0].rank, found[0].first) == (2, "b")


def test_words_and_signatures_alone_stay_above_the_bar(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTFAULT_CACHE", str(tmp_path))
    ranker = make_rankers(open_index(vectors=False))["all, with signatures"]
    held = ask(ranker, [q for q in QUESTIONS if q.split in ("held", "public")])
    assert recall(held, 1) >= 0.80
    assert recall(held, 5) >= 0.95


def test_a_suggestion_of_the_diagnosis_is_mostly_right() -> None:
    from firstfault.investigation.diagnose import SEARCH_FLOOR

    precision, _, shown = measure_floor(suggest_pages(), SEARCH_FLOOR)
    assert precision >= 0.75
    assert shown
