"""Is a question of another field told from one of this one? On all of evals/questions/fields.yaml."""

from __future__ import annotations

from pathlib import Path

import evals.questions
import pytest

from firstfault.conversation.page_search import PageSearch
from firstfault.knowledge_base.vectors import embedder_name
from firstfault.knowledge_base.warm import WarmSearch
from firstfault.workspace import Workspace
from firstfault_tools.knowledge.pack import read_yaml

FIELDS = Path(evals.questions.__file__).with_name("fields.yaml")


@pytest.mark.skipif(embedder_name() is None, reason="no embedder is installed")
def test_questions_of_other_fields_find_no_page_and_those_of_this_one_do() -> None:
    warm = WarmSearch(at_once=True)
    warm.load()
    search, pages = PageSearch(warm), Workspace().knowledge.pages
    rows = read_yaml(FIELDS.read_text(encoding="utf-8"))

    def found(text: str) -> bool:
        nearest = max(search.near_questions(text).values(), default=0.0)
        return bool(search.find(text, pages, asked=nearest))

    assert [q for q in rows["others"] if found(q)] == []
    assert [q for q in rows["ours"] if not found(q)] == []
