from __future__ import annotations

from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault.errors import CannotAnalyse
from firstfault.knowledge_base.vocabulary import (
    NUMBER_WEIGHT,
    SAID_WEIGHT,
    Vocabulary,
    load_vocabulary,
)
from firstfault.paths import knowledge_folder
from firstfault_tools.knowledge.page import load_pages

WORDS = Vocabulary(
    words=(("frozen", "hang"), ("picked up", "resume"), ("显存", "gpu memory"), ("ram", "host"))
)


@each_row(
    ("query", "token", "weight"),
    [
        ("it is Frozen", "hang", SAID_WEIGHT),
        ("picked \n up", "resum", SAID_WEIGHT),
        ("我的显存满了", "memory", SAID_WEIGHT),
        ("frozen hang", "hang", 1.0),
        ("step 79", "79", NUMBER_WEIGHT),
    ],
)
def test_said_words_stand_for_page_words(query: str, token: str, weight: float) -> None:
    assert WORDS.weigh_words(query)[token] == weight


def test_single_words_match_whole_words_only() -> None:
    assert "host" not in WORDS.weigh_words("program")


def test_phrases_name_existing_pages() -> None:
    pages = load_pages(knowledge_folder() / "pages")
    assert load_vocabulary(knowledge_folder() / "search").phrases.keys() <= pages.keys()


@pytest.mark.parametrize("content", ["a: b", "- x", "- {said: [a]}", "3"])
def test_malformed_files_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "broken.yaml").write_text(content)
    with pytest.raises(CannotAnalyse, match=r"broken\.yaml"):
        load_vocabulary(tmp_path)


def test_without_a_folder_only_the_query_itself_counts(tmp_path: Path) -> None:
    assert load_vocabulary(tmp_path / "none").weigh_words("frozen") == {"frozen": 1.0}
