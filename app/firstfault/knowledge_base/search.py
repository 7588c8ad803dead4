"""Which passages answer a question? BM25 and vectors fused by reciprocal rank.

Vectors are optional: without an embedder the lexical ranking stands alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path

from firstfault.knowledge_base.lexical import LexicalIndex
from firstfault.knowledge_base.passages import Passage, cut_passages
from firstfault.knowledge_base.store import Progress, VectorStore, open_client
from firstfault.knowledge_base.vectors import load_embedder
from firstfault.paths import cache_folder, knowledge_folder
from firstfault_tools.knowledge.page import load_pages

POOL = 60
RRF_K = 20
LEXICAL_WEIGHT, VECTOR_WEIGHT = 1.0, 1.0
RELATED = 0.35
"""Share of a page's second-best passage that counts on top of its best one."""


class Method(StrEnum):
    """How to rank."""

    FUSED = "fused"
    LEXICAL = "lexical"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class Found:
    """One answer of a search. `score` is comparable within one search only."""

    page: str
    heading: str
    passage: str
    url: str | None
    score: float
    title: str


@dataclass(frozen=True)
class SearchIndex:
    """Lexical and vector index over one knowledge folder."""

    passages: tuple[Passage, ...]
    store_folder: Path | None = None
    progress: Progress | None = None

    @cached_property
    def lexical(self) -> LexicalIndex:
        return LexicalIndex(self.passages)

    @cached_property
    def by_id(self) -> dict[str, Passage]:
        return {p.id: p for p in self.passages}

    @cached_property
    def vectors(self) -> VectorStore | None:
        embedder = load_embedder() if self.store_folder is not None else None
        if embedder is None or self.store_folder is None:
            return None
        store = VectorStore(open_client(self.store_folder), embedder)
        store.update(self.passages, self.progress)
        return store

    def search(
        self,
        query: str,
        limit: int = 8,
        method: Method = Method.FUSED,
        category: str | None = None,
        framework: str | None = None,
    ) -> list[Found]:
        """Best passages, at most one a page, best first. Filters by category and framework."""
        if not query.strip():
            return []
        scores: dict[str, float] = defaultdict(float)
        if method is not Method.VECTOR:
            for rank, passage in enumerate(self._lexical_ranking(query)):
                scores[passage] += LEXICAL_WEIGHT / (RRF_K + rank)
        if method is not Method.LEXICAL and self.vectors is not None:
            for rank, (passage, _) in enumerate(self.vectors.nearest(query, POOL, category)):
                scores[passage] += VECTOR_WEIGHT / (RRF_K + rank)
        return self._best_pages(scores, limit, category, framework)

    def _lexical_ranking(self, query: str) -> list[str]:
        scores = self.lexical.scores(query)
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[:POOL]
        return [self.passages[i].id for i in order if scores[i] > 0]

    def _best_pages(
        self, scores: dict[str, float], limit: int, category: str | None, framework: str | None
    ) -> list[Found]:
        pages: dict[str, list[tuple[float, Passage]]] = defaultdict(list)
        for passage_id, score in scores.items():
            passage = self.by_id.get(passage_id)
            if passage is None or (category and passage.category != category):
                continue
            if (
                framework
                and framework not in passage.frameworks
                and "any" not in passage.frameworks
            ):
                continue
            pages[passage.page].append((score, passage))
        found: list[Found] = []
        for parts in pages.values():
            parts.sort(key=lambda p: -p[0])
            best, passage = parts[0]
            total = best + RELATED * (parts[1][0] if len(parts) > 1 else 0.0)
            found.append(
                Found(
                    passage.page,
                    passage.heading,
                    passage.text,
                    passage.url,
                    round(total, 6),
                    passage.title,
                )
            )
        found.sort(key=lambda f: (-f.score, f.page))
        return found[:limit]


def open_index(vectors: bool = True, progress: Progress | None = None) -> SearchIndex:
    """Index over the installed knowledge; `vectors=False` stays lexical and needs no files."""
    pages = load_pages(knowledge_folder() / "pages", cache_folder() / "pages.json")
    folder = cache_folder() / "chroma" if vectors else None
    return SearchIndex(cut_passages(pages.values()), folder, progress)


@cache
def _lexical_index() -> SearchIndex:
    return open_index(vectors=False)


def search_pages(query: str, limit: int) -> Sequence[tuple[str, float]]:
    """(page id, share of the query's words the page explains) for the diagnosis, lexical only.

    The score is BM25 relative to that of a perfect passage made of the query itself, so that a query
    that shares a few common words with a page stays near zero.
    """
    index = _lexical_index()
    scores = index.lexical.scores(query)
    if not scores or max(scores) <= 0:
        return []
    best: dict[str, float] = {}
    for passage, score in zip(index.passages, scores, strict=True):
        best[passage.page] = max(best.get(passage.page, 0.0), score)
    ranked = sorted(best.items(), key=lambda item: -item[1])[:limit]
    ceiling = index.lexical.ceiling(query)
    return [(page, round(score / ceiling, 4)) for page, score in ranked]
