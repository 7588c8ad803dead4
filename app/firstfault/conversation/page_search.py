"""Which pages, plain answers and statements are near to a question? With vectors once they are there, by words until then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from firstfault.conversation.rulings import is_known
from firstfault.knowledge_base.search import Found
from firstfault.knowledge_base.suggestion import search_pages, word_rarity
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.knowledge.page import Page

FIELD_TERMS = Path(__file__).with_name("field_terms.yaml")

PassageSearch = Callable[[str, int], Sequence[Found]]
LEAST_SHARE = 0.10
"""Share of the question's words that a page must explain where there are no vectors; chosen on evals/questions/dev.yaml."""
OURS, STRANGE, WORDLESS = 0.862, 0.038, 0.014
"""Cosine of the nearest page or plain answer from which a question is of this field; how much more it needs where the
words that nothing here knows weigh MANY of it, and where it has no word of the field. Chosen on 60 questions of other
fields and 343 of this one (evals/questions/opened*, fields.yaml): none of the former passes, all of the latter do. The
more plain answers there are, the nearer the nearest one is to anything: choose again after many new ones."""
MANY = 0.3
WEAK = 0.86
"""Cosine below which a page is only the closest one, unless it has half of the question's words."""
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Nearest:
    """One page found. near: cosine, 0 without vectors; covers: share of the question's words it explains, 0 to 1."""

    page: str
    near: float
    covers: float

    @property
    def is_weak(self) -> bool:
        """It is the closest one and may be about something else."""
        return self.covers < HALF and self.near < WEAK


@dataclass(frozen=True, slots=True)
class PageSearch:
    """What finds pages: passages by the service's index (vectors once warm), and word coverage."""

    passages: PassageSearch

    def find(
        self, text: str, pages: Mapping[str, Page], least: float = LEAST_SHARE, asked: float = 0.0
    ) -> list[Nearest]:
        """Pages, best first; empty where none is about the question. asked: cosine of the nearest ruling."""
        found = [f for f in self.passages(text, 5) if f.page in pages] if tokenize(text) else []
        if not found:
            return []
        near = max(f.near for f in found)
        if near:
            near = max(near, asked)
            if near < _least_cosine(text):
                return []
        elif max(dict(search_pages(text, 10)).values(), default=0.0) < least:
            return []
        seen = {f.page: f.near for f in reversed(found)}
        return [Nearest(p, seen[p], cover(text, pages[p])) for p in dict.fromkeys(f.page for f in found)]  # fmt: skip

    def near_questions(self, text: str) -> Mapping[str, float]:
        """Phrases of rulings near to the question, by vectors; empty where the search has none."""
        return self._near("near_questions", text)

    def near_statements(self, text: str) -> Mapping[str, float]:
        """Statements of pages near to the question, by vectors; empty where the search has none."""
        return self._near("near_statements", text)

    def _near(self, name: str, text: str) -> Mapping[str, float]:
        near: Callable[[str], Mapping[str, float]] | None = getattr(self.passages, name, None)
        return near(text) if near is not None else {}


def names_field(text: str) -> bool:
    """A word that only this field has, or two that it shares: what else is said may be in any language."""
    return _count_field_terms(text) >= 2


def _count_field_terms(text: str) -> int:
    """Words of the field, to 2; one that only this field has counts as two."""
    alone, together = _field_terms()
    return (
        2
        if any(t.search(text) for t in alone)
        else min(2, sum(bool(t.search(text)) for t in together))
    )


def _least_cosine(text: str) -> float:
    """How near the nearest page or plain answer must be for the question to be of this field."""
    terms = _count_field_terms(text)
    if terms >= 2:
        return OURS
    strange = min(1.0, unknown_share(text) / MANY)
    return OURS + STRANGE * strange + (0.0 if terms else WORDLESS)


@cache
def _field_terms() -> tuple[tuple[re.Pattern[str], ...], tuple[re.Pattern[str], ...]]:
    rows = read_yaml(FIELD_TERMS.read_text(encoding="utf-8"))
    return tuple(expression(t, re.I) for t in rows["alone"]), tuple(expression(t, re.I) for t in rows["together"])  # fmt: skip


def unknown_share(text: str) -> float:
    """Share of the words in Latin letters, by weight, that no page and no plain answer holds."""
    words = {w for w in tokenize(text) if w.isascii() and not w[0].isdecimal()}
    whole = sum(map(word_rarity, words))
    return sum(word_rarity(w) for w in words if not is_known(w)) / whole if whole else 0.0


MOSTLY = 0.62
"""Share of unknown words from which a word of the field is only the setting of another question (evals/questions: none of
522 of this field that is looked up reaches it in English)."""
_ENGLISH = expression(r"(?i)\b(?:the|my|is|are|what|can|how|do|i|to|after|a)\b")


def is_of_another_field(text: str) -> bool:
    """An English sentence most of whose words nothing here knows: a term of the field in it is not what is asked."""
    return text.isascii() and len(_ENGLISH.findall(text)) >= 2 and unknown_share(text) > MOSTLY


@cache
def words_of(page: Page) -> frozenset[str]:
    """Every word of a page."""
    return frozenset(tokenize(whole_text(page)))


def whole_text(page: Page) -> str:
    """All that a page says."""
    return " ".join([page.title, *page.tags, page.summary, *(s.text for s in page.sections)])


def cover(text: str, page: Page) -> float:
    """Share of the question's words, by rarity, that stand on the page."""
    words = set(tokenize(text))
    whole = sum(map(word_rarity, words))
    return sum(word_rarity(w) for w in words & words_of(page)) / whole if whole else 0.0
