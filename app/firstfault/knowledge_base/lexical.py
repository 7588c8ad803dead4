"""Which passages share rare words with the question? BM25 over log-aware tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from firstfault.knowledge_base.passages import Passage
from firstfault.knowledge_base.tokens import tokenize


@dataclass(frozen=True)
class LexicalIndex:
    """BM25 index of passages, held in memory: it is built in a fraction of a second."""

    passages: Sequence[Passage]
    k1: float = 1.4
    b: float = 0.6
    title_weight: int = 2

    @cached_property
    def _retriever(self) -> Any:
        import bm25s

        corpus = [
            tokenize(p.title) * self.title_weight
            + tokenize(p.heading + " " + " ".join(p.tags))
            + tokenize(p.text)
            for p in self.passages
        ]
        retriever = bm25s.BM25(k1=self.k1, b=self.b, method="lucene")
        retriever.index(corpus, show_progress=False)
        return retriever

    def scores(self, query: str) -> list[float]:
        """BM25 score of every passage for one query; zeros where no word is shared."""
        tokens = [t for t in dict.fromkeys(tokenize(query)) if t in self._retriever.vocab_dict]
        if not tokens:
            return [0.0] * len(self.passages)
        return [float(s) for s in self._retriever.get_scores(tokens)]

    def ceiling(self, query: str) -> float:
        """Highest score any passage could reach for this query: every word at full weight."""
        import math

        tokens = list(dict.fromkeys(tokenize(query)))
        count = max(len(self.passages), 1)
        known = self._retriever.vocab_dict
        seen = dict.fromkeys(tokens, 0)
        for frequencies in self._frequencies:
            for token in seen.keys() & frequencies:
                seen[token] += 1
        weights = [
            math.log(1 + (count - n + 0.5) / (n + 0.5))
            for t, n in seen.items()
            if t in known or n == 0
        ]
        return max(sum(weights) * (self.k1 + 1), 1e-9)

    @cached_property
    def _frequencies(self) -> list[set[str]]:
        return [set(tokenize(p.indexed)) for p in self.passages]
