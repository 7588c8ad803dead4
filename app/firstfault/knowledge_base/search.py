"""Which passages answer a question? Shared words, vectors and known signatures, joined by page.

Vectors are optional: without an embedder the lexical ranking stands alone. Signatures count for pasted
lines only. Pages are ranked; each is shown by its passage that fits best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path

from firstfault.knowledge_base.lexical import LexicalIndex, build_lexical, kept_lexical
from firstfault.knowledge_base.passages import Passage, cut_passages
from firstfault.knowledge_base.query import Query, read_query
from firstfault.knowledge_base.recognition import Recogniser
from firstfault.knowledge_base.rulings import Ruling, load_rulings
from firstfault.knowledge_base.shipped_store import ShippedStore
from firstfault.knowledge_base.shipping import index_file, read_shipped
from firstfault.knowledge_base.snapshot import open_vectors
from firstfault.knowledge_base.statements import Statement, cut_all
from firstfault.knowledge_base.store import Entry, Kind, Progress, VectorStore
from firstfault.knowledge_base.vectors import Embedder, embedder_name, load_embedder
from firstfault.knowledge_base.vocabulary import Vocabulary, load_vocabulary
from firstfault.paths import cache_folder, knowledge_folder
from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.page import load_pages

POOL = 150
"""Nearest passages and nearest phrases asked for, each: those of some dozens of pages."""
QUESTIONS, STATEMENTS = 20, 400
"""Nearest ways of asking, and statements, that are looked at."""
FLOOR_RANK = 40
"""Similarity of the page at this place counts 0: all cosines of this family of models lie close."""
VECTOR_SHARE, PHRASE_BONUS = 0.4, 0.5
"""Share of the vectors in a score, and what a phrase with the query's words adds; chosen on dev."""


class Method(StrEnum):
    """How to rank."""

    FUSED = "fused"
    LEXICAL = "lexical"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class Found:
    """One answer of a search. `score` is comparable within one search only; near: greatest cosine of
    the page's passages and phrases with the question, 0 without vectors, which is comparable between searches."""

    page: str
    heading: str
    passage: str
    url: str | None
    score: float
    title: str
    near: float = 0.0


@dataclass(frozen=True)
class SearchIndex:
    """Lexical and vector index over one knowledge folder; each part is opened when first needed."""

    passages: tuple[Passage, ...]
    store_folder: Path | None = None
    progress: Progress | None = None
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    recogniser: Recogniser | None = None
    lexical_file: Path | None = None
    lexical_identity: str = ""
    """What the kept lexical index was made of; without it the texts themselves are compared."""
    shipped_folder: Path | None = None
    rulings: tuple[Ruling, ...] = ()
    statements: tuple[tuple[Statement, str], ...] = ()
    in_memory: bool = False
    """Vectors stay in memory: ready at once for one question, where a store would first be opened."""

    @cached_property
    def lexical(self) -> LexicalIndex:
        return build_lexical(
            self.passages, self.vocabulary, self.lexical_file, self.lexical_identity
        )

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """What gets a vector: passages, page titles, and the phrases that lead to pages."""
        of_passages = [Entry(p.id, p.page, Kind.PASSAGE, p.indexed) for p in self.passages]
        of_phrases = [
            Entry(f"{p.page}?{n}", p.page, Kind.PHRASE, phrase)
            for p in self._first.values()
            for n, phrase in enumerate((p.title, *self.vocabulary.phrases.get(p.page, ())))
        ]
        of_questions = [
            Entry(i, r.page, Kind.QUESTION, text)
            for r in self.rulings
            for i, text in r.phrases.items()
        ]
        of_statements = [
            Entry(s.id, s.page, Kind.STATEMENT, s.indexed(title)) for s, title in self.statements
        ]
        return (*of_passages, *of_phrases, *of_questions, *of_statements)

    @cached_property
    def _first(self) -> dict[str, Passage]:
        """Page id -> its first passage, the summary."""
        first: dict[str, Passage] = {}
        for passage in self.passages:
            first.setdefault(passage.page, passage)
        return first

    @cached_property
    def _parts(self) -> dict[str, list[int]]:
        parts: dict[str, list[int]] = defaultdict(list)
        for number, passage in enumerate(self.passages):
            parts[passage.page].append(number)
        return parts

    @cached_property
    def vectors(self) -> VectorStore | ShippedStore | None:
        """Vectors, brought up to date; None without a folder to keep them or an embedder."""
        name = embedder_name() if self.store_folder is not None else None
        if name is None or self.store_folder is None:
            return None
        if self.in_memory:
            return ShippedStore(self.entries, self._read_shipped(name), name)
        return open_vectors(
            self.store_folder,
            name,
            self.entries,
            _must_load,
            lambda: self._read_shipped(name),
            self.progress,
        )

    def _read_shipped(self, name: str) -> Mapping[str, list[float]]:
        return read_shipped(index_file(self.shipped_folder, name)) if self.shipped_folder else {}

    def search(
        self,
        query: str,
        limit: int = 8,
        method: Method = Method.FUSED,
        category: str | None = None,
        framework: str | None = None,
        signatures: bool = True,
    ) -> list[Found]:
        """Best passages, at most one a page, best first. Filters by category and framework."""
        asked = read_query(query)
        if not asked.text:
            return []
        words = self.vocabulary.weigh_words(asked.text)
        near = {} if method is Method.LEXICAL else self._score_near(asked)
        scores = self._score_by_vectors({**near, **self._score_asked(asked)} if near else near)

        def passes(page: str) -> bool:
            return page in self._first and self._passes(page, category, framework)

        if method is not Method.VECTOR:
            share = VECTOR_SHARE if near else 0.0
            phrases = self.lexical.compare_phrases(words)
            known: Mapping[str, float] = {}
            if signatures and self.recogniser is not None:
                known = self.recogniser.weigh_pages(asked.lines)
            # a page that nothing but its words speaks for can lead only if its words do
            of_words = self.lexical.score_pages(
                words,
                limit,
                also={*scores, *phrases, *known},
                keep=passes if category or framework else None,
            )
            scores = _add(share, scores, 1 - share, _of_best(of_words))
            scores = _add(1.0, scores, PHRASE_BONUS, phrases)
            scores = _add(1.0, scores, 1.0, known)
        pages = [p for p in scores if passes(p)]
        pages.sort(key=lambda p: (-scores[p], p))
        shown = [p for p in pages[:limit] if scores[p] > 0]
        parts = [number for p in shown for number in self._parts[p]]
        fit = self.lexical.passages.score_some(words, parts)
        closest = _best_by_page(near, "#"), _best_by_page(near, "?")
        return [
            replace(self._show(p, scores[p], fit, near), near=max(c.get(p, 0.0) for c in closest))
            for p in shown
        ]

    def knows_words(self, query: str) -> bool:
        """Some word of the query stands in some passage or search phrase."""
        words = self.vocabulary.weigh_words(read_query(query).text)
        return any(self.lexical.pages.holders(word) for word in words)

    def near_questions(self, query: str) -> dict[str, float]:
        """Entry id of a ruling's phrase -> cosine, of the nearest ones; empty without vectors."""
        return self._nearest(query, QUESTIONS, Kind.QUESTION)

    def near_statements(self, query: str) -> dict[str, float]:
        """Statement id -> cosine, of the nearest ones; empty without vectors."""
        return self._nearest(query, STATEMENTS, Kind.STATEMENT)

    def _nearest(self, query: str, limit: int, kind: Kind) -> dict[str, float]:
        asked, store = read_query(query).text, self.vectors
        if store is None or not asked:
            return {}
        return dict(store.nearest(_embed_query(asked), limit, kind))

    def _score_near(self, asked: Query) -> dict[str, float]:
        store = self.vectors
        if store is None:
            return {}
        vector = _embed_query(asked.text)
        kinds = (Kind.PASSAGE, Kind.PHRASE)
        return {i: s for kind in kinds for i, s in store.nearest(vector, POOL, kind)}

    def _score_asked(self, asked: Query) -> dict[str, float]:
        """The same of the ways in which people ask for a plain answer: they lead to its page as its phrases do."""
        store, pages = self.vectors, self._answered_on
        if store is None:
            return {}
        nearest = store.nearest(_embed_query(asked.text), POOL, Kind.QUESTION)
        return {f"{pages[i]}?{i}": s for i, s in nearest if i in pages}

    @cached_property
    def _answered_on(self) -> dict[str, str]:
        """Entry id of a ruling's phrase -> the page that holds more of its answer."""
        return {i: r.page for r in self.rulings if r.page for i in r.phrases}

    def _score_by_vectors(self, near: Mapping[str, float]) -> dict[str, float]:
        """Page id -> 0..1: mean of its best passage and its best phrase, stretched above the floor."""
        passages, phrases = _best_by_page(near, "#"), _best_by_page(near, "?")
        if not passages or not phrases:
            return {}
        low = min(passages.values()), min(phrases.values())
        means = {
            page: (passages.get(page, low[0]) + phrases.get(page, low[1])) / 2
            for page in {*passages, *phrases}
        }
        ordered = sorted(means.values(), reverse=True)
        floor = ordered[min(FLOOR_RANK, len(ordered) - 1)]
        height = max(ordered[0] - floor, 1e-6)
        return {page: max(0.0, (value - floor) / height) for page, value in means.items()}

    def _passes(self, page: str, category: str | None, framework: str | None) -> bool:
        passage = self._first[page]
        return (not category or passage.category == category) and (
            not framework
            or "any" in passage.frameworks
            or framework.lower() in (f.lower() for f in passage.frameworks)
        )

    def _show(
        self, page: str, score: float, words: Mapping[int, float], near: Mapping[str, float]
    ) -> Found:
        """The page's passage with most in common with the query; its summary where none has."""

        def fit(number: int) -> float:
            return words.get(number, 0.0) * (1 + max(0.0, near.get(self.passages[number].id, 0.0)))

        passage = self.passages[max(self._parts[page], key=fit)]
        return Found(
            page, passage.heading, passage.text, passage.url, round(score, 6), passage.title
        )


@lru_cache(maxsize=64)
def _embed_query(text: str) -> list[float]:
    """Vector of a question; the same one is looked up among rulings, then among pages."""
    return _must_load().embed_query(text)


def _must_load() -> Embedder:
    embedder = load_embedder()
    assert embedder is not None, "asked only where embedder_name() gave one"
    return embedder


def _of_best(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores as shares of the best one."""
    best = max(scores.values(), default=0.0)
    return {key: score / best for key, score in scores.items()} if best > 0 else {}


def _add(
    one_share: float, one: Mapping[str, float], other_share: float, other: Mapping[str, float]
) -> dict[str, float]:
    return {
        key: one_share * one.get(key, 0.0) + other_share * other.get(key, 0.0)
        for key in {*one, *other}
    }


def _best_by_page(near: Mapping[str, float], mark: str) -> dict[str, float]:
    """Best similarity by page of the entries whose id holds `mark` after the page."""
    best: dict[str, float] = {}
    for entry, value in near.items():
        page, found, _ = entry.partition(mark)
        if found:
            best[page] = max(best.get(page, -1.0), value)
    return best


def open_index(
    vectors: bool = True, progress: Progress | None = None, in_memory: bool = False
) -> SearchIndex:
    """Index over the installed knowledge; `vectors=False` stays lexical and needs no files."""
    knowledge, cache_files = knowledge_folder(), cache_folder()
    lexical_file, lexical_identity = kept_lexical(knowledge, cache_files)
    pages = load_pages(knowledge / "pages", cache_files / "pages.pack")
    return SearchIndex(
        passages=cut_passages(pages.values()),
        store_folder=cache_files / "vectors" if vectors else None,
        progress=progress,
        vocabulary=load_vocabulary(knowledge / "search", cache_files / "vocabulary.pack"),
        recogniser=Recogniser(knowledge / "signatures", cache_files / "signatures.pack"),
        lexical_file=lexical_file,
        lexical_identity=lexical_identity,
        shipped_folder=knowledge,
        rulings=load_rulings(knowledge / "rulings", cache_files / "rulings.pack"),
        statements=cut_all(pages.values()),
        in_memory=in_memory,
    )
