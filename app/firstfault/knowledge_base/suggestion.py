"""Which page fits lines that nothing explains? By their words alone, for the diagnosis.

It runs in a cold command, so that neither pages nor vectors are loaded for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from firstfault.knowledge_base.lexical import LexicalIndex, kept_lexical, read_lexical
from firstfault.knowledge_base.query import read_query
from firstfault.knowledge_base.tokens import tokenize
from firstfault.paths import cache_folder, knowledge_folder


@cache
def _lexical_index() -> LexicalIndex:
    """Words of the installed knowledge. As long as no file changed, no page is read for them."""
    kept = read_lexical(*kept_lexical(knowledge_folder(), cache_folder()))
    if kept is not None:
        return kept
    from firstfault.knowledge_base.search import open_index

    return open_index(vectors=False).lexical


def word_rarity(token: str) -> float:
    """Weight of a token by how few pages hold it."""
    return _lexical_index().pages.rarity(token)


def holds_word(token: str) -> bool:
    """Some page holds the token."""
    return bool(_lexical_index().pages.holders(token))


ENOUGH_WORDS = 3
"""Fewer shared words than these lower the score: one rare word in common is no evidence."""


def search_pages(query: str, limit: int) -> Sequence[tuple[str, float]]:
    """(page id, share of the query's words the page explains) for the diagnosis, lexical only.

    The score is that of the page relative to a perfect page made of the query itself, so that a query
    that shares a few common words with a page stays near zero. Words that no page knows count as rare.
    evals/retrieval/floor.py measures what a score is worth.
    """
    index = _lexical_index()
    words = dict.fromkeys(tokenize(read_query(query).text), 1.0)
    ceiling = index.pages.ceiling(words)
    if ceiling <= 0:
        return []
    enough = min(ENOUGH_WORDS, len(words))
    scores = index.pages.narrow(words, limit, share=1 / enough)
    shared = index.pages.count(words, scores)
    worth = {n: score * min(1.0, shared[n] / enough) for n, score in scores.items()}
    ranked = sorted(worth.items(), key=lambda item: (-item[1], item[0]))
    return [(index.page_ids[n], round(min(1.0, s / ceiling), 4)) for n, s in ranked[:limit]]
