from __future__ import annotations

import math
from pathlib import Path

import pytest

from firstfault.knowledge_base.lexical import B, build_cosines, build_lexical, build_postings
from firstfault.knowledge_base.passages import Passage
from firstfault.knowledge_base.postings import K1
from firstfault.knowledge_base.tokens import tokenize
from firstfault.knowledge_base.vocabulary import Vocabulary
from firstfault_tools.knowledge.kept_file import read_kept


def _passage(page: str, heading: str, text: str) -> Passage:
    return Passage(f"{page}#{heading}", page, page, heading, text, "oom", ("any",), (), None)


PASSAGES = (
    _passage("gpu-lost", "Summary", "The card vanished."),
    _passage("gpu-lost", "What it is not", "A full disk."),
    _passage("disk-full", "Summary", "No space is left on the disk."),
)


def test_score_is_the_formula_worked_by_hand() -> None:
    postings = build_postings([{"t": ["a", "b"]}, {"t": ["a", "a", "c", "d"]}], {"t": 2.0})
    rarity = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    frequency = 2.0 * 1 / (1 - B + B * 2 / 3)
    wanted = 0.5 * rarity * (K1 + 1) * frequency / (K1 + frequency)
    assert postings.score({"b": 0.5, "unknown": 1.0}) == {0: pytest.approx(wanted, abs=1e-4)}


def test_ceiling_bounds_every_score_and_counts_unknown_words() -> None:
    postings = build_postings([{"t": ["a"] * 50}, {"t": ["b"]}], {"t": 3.0})
    assert max(postings.score({"a": 1.0}).values()) < postings.ceiling({"a": 1.0})
    assert postings.ceiling({"a": 1.0, "zzz": 1.0}) > 2 * postings.ceiling({"a": 1.0})


def test_cosine_of_a_phrase_with_itself_is_one() -> None:
    phrases = [["disk", "full"], ["gpu", "lost"]]
    index = build_lexical(PASSAGES, Vocabulary({"disk-full": ("quota used",)}))
    assert index.compare_phrases(dict.fromkeys(tokenize("quota used"), 1.0))[
        "disk-full"
    ] == pytest.approx(1, abs=1e-3)
    assert build_cosines(phrases).score({"disk": 1.0}).keys() == {0}


def test_what_a_page_is_not_counts_less_than_what_it_is() -> None:
    scores = build_lexical(PASSAGES, Vocabulary()).score_pages({"disk": 1.0}, 9)
    assert scores["disk-full"] > 2 * scores["gpu-lost"]


def test_kept_index_gives_the_same_scores_and_is_rebuilt_after_a_change(tmp_path: Path) -> None:
    file = tmp_path / "lexical.pack"
    built = build_lexical(PASSAGES, Vocabulary(), file)
    stamp = read_kept(file)["identity"]
    kept = build_lexical(PASSAGES, Vocabulary(), file)
    assert kept.score_pages({"disk": 1.0}, 9) == built.score_pages({"disk": 1.0}, 9)
    build_lexical((*PASSAGES, _passage("new", "Summary", "x")), Vocabulary(), file)
    assert read_kept(file)["identity"] != stamp


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"identity": 1}', "\x00"])
def test_a_damaged_file_is_rebuilt(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "lexical.pack"
    file.write_text(damage)
    assert build_lexical(PASSAGES, Vocabulary(), file).score_pages({"disk": 1.0}, 9)
