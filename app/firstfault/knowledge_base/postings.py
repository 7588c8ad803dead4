"""Which documents hold a word, and what does the word add to each one's score?

A small index is lists and imports nothing heavy; a large one is arrays, which add up whole postings at
once. Both give the same scores to the last bit: the numbers and the order of adding are the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

from firstfault_tools.dataclass import dataclass

K1 = 1.6
PACK_FROM = 500_000
"""Postings from which arrays are used. The shipped index holds a tenth; numpy takes 0.1 s to import."""
_CLOSE = 1 - 1e-9
"""What lies this close below a floor stays: later arithmetic may round it up to a tie."""

Entries = Mapping[str, tuple[Sequence[int], Sequence[float]]]
"""token -> (document numbers, ascending; what the token adds to each one's score)."""


class Postings(ABC):
    """`size` documents, by token. Document numbers ascend within a token."""

    size: int

    @abstractmethod
    def score(self, weights: Mapping[str, float]) -> dict[int, float]:
        """Document number -> score, for the documents that share a token with the query."""

    @abstractmethod
    def score_some(self, weights: Mapping[str, float], numbers: Iterable[int]) -> dict[int, float]:
        """The scores of `numbers`, as `score` gives them; without those that share no token."""

    @abstractmethod
    def narrow(
        self,
        weights: Mapping[str, float],
        limit: int,
        share: float = 1.0,
        also: Iterable[int] = (),
        keep: Callable[[int], bool] | None = None,
    ) -> dict[int, float]:
        """Scores of every document that can matter to a ranking of `limit`, and perhaps of more.

        Those are the documents that reach `share` (above 0, at most 1) of the score of the `limit`-th
        best one that `keep` accepts, and those of `also` that share a token with the query. What is
        left out scores less than `limit` accepted documents, even after theirs shrink to `share`.
        """

    @abstractmethod
    def count(self, tokens: Iterable[str], numbers: Iterable[int]) -> Mapping[int, int]:
        """Document number -> how many of the tokens it holds; of `numbers`, and perhaps of more."""

    @abstractmethod
    def holders(self, token: str) -> int:
        """How many documents hold the token."""

    def best(self, weights: Mapping[str, float], limit: int) -> list[tuple[int, float]]:
        """The `limit` highest (document number, score), best first; equal ones by number."""
        ranked = sorted(self.score(weights).items(), key=lambda item: (-item[1], item[0]))
        return ranked[:limit]

    def rarity(self, token: str) -> float:
        """Inverse document frequency, above 0."""
        return rarity(self.size, self.holders(token))

    def ceiling(self, weights: Mapping[str, float]) -> float:
        """Score of a document in which every token stands at full weight; unknown tokens count too."""
        return (K1 + 1) * sum(weight * self.rarity(token) for token, weight in weights.items())


@dataclass(frozen=True)
class ListPostings(Postings):
    """Postings as lists."""

    size: int
    entries: Entries

    def score(self, weights: Mapping[str, float]) -> dict[int, float]:
        scores: dict[int, float] = defaultdict(float)
        for token, weight in weights.items():
            numbers, values = self.entries.get(token, ((), ()))
            for number, value in zip(numbers, values, strict=True):
                scores[number] += weight * value
        return scores

    def score_some(self, weights: Mapping[str, float], numbers: Iterable[int]) -> dict[int, float]:
        wanted = list(numbers)
        scores: dict[int, float] = defaultdict(float)
        for token, weight in weights.items():
            holders, values = self.entries.get(token, ((), ()))
            for number in wanted:
                at = bisect_left(holders, number)
                if at < len(holders) and holders[at] == number:
                    scores[number] += weight * values[at]
        return scores

    def narrow(
        self,
        weights: Mapping[str, float],
        limit: int,
        share: float = 1.0,
        also: Iterable[int] = (),
        keep: Callable[[int], bool] | None = None,
    ) -> dict[int, float]:
        return self.score(weights)  # so few that choosing costs more than ranking them

    def count(self, tokens: Iterable[str], numbers: Iterable[int]) -> Mapping[int, int]:
        return Counter(n for token in tokens for n in self.entries.get(token, ((), ()))[0])

    def holders(self, token: str) -> int:
        return len(self.entries.get(token, ((), ()))[0])


@dataclass(frozen=True)
class ArrayPostings(Postings):
    """Postings of all tokens end to end, token after token in the order of `tokens`."""

    size: int
    tokens: Sequence[str]
    ends: Any
    """Shape (tokens,), int64: where each token's postings end."""
    numbers: Any
    """Shape (postings,), int32: document numbers."""
    values: Any
    """Shape (postings,), float64: what a token adds to the document's score."""

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        ends = self.ends.tolist()
        return dict(zip(self.tokens, pairwise([0, *ends]), strict=True))

    def _of(self, token: str) -> tuple[Any, Any]:
        start, end = self._places.get(token, (0, 0))
        return self.numbers[start:end], self.values[start:end]

    def _add_up(self, weights: Mapping[str, float]) -> tuple[Any, Any]:
        """(documents that share a token, ascending; scores of all documents)."""
        import numpy as np

        scores = np.zeros(self.size)
        shares = np.zeros(self.size, dtype=bool)
        for token, weight in weights.items():
            numbers, values = self._of(token)
            scores[numbers] += weight * values
            shares[numbers] = True
        return np.flatnonzero(shares), scores

    def score(self, weights: Mapping[str, float]) -> dict[int, float]:
        shared, scores = self._add_up(weights)
        return dict(zip(shared.tolist(), scores[shared].tolist(), strict=True))

    def score_some(self, weights: Mapping[str, float], numbers: Iterable[int]) -> dict[int, float]:
        import numpy as np

        wanted = np.fromiter(numbers, dtype=np.int32)
        scores = np.zeros(len(wanted))
        shares = np.zeros(len(wanted), dtype=bool)
        for token, weight in weights.items():
            holders, values = self._of(token)
            if not len(holders):
                continue
            at = np.minimum(np.searchsorted(holders, wanted), len(holders) - 1)
            here = holders[at] == wanted
            scores[here] += weight * values[at[here]]
            shares |= here
        return dict(zip(wanted[shares].tolist(), scores[shares].tolist(), strict=True))

    def best(self, weights: Mapping[str, float], limit: int) -> list[tuple[int, float]]:
        import numpy as np

        shared, scores = self._add_up(weights)
        found = scores[shared]
        if 0 < limit < len(found):
            # everything that ties with the last place stays in, so that the order decides among them
            high = found >= np.partition(found, len(found) - limit)[len(found) - limit]
            shared, found = shared[high], found[high]
        order = np.lexsort((shared, -found))[:limit]
        return list(zip(shared[order].tolist(), found[order].tolist(), strict=True))

    def narrow(
        self,
        weights: Mapping[str, float],
        limit: int,
        share: float = 1.0,
        also: Iterable[int] = (),
        keep: Callable[[int], bool] | None = None,
    ) -> dict[int, float]:
        import numpy as np

        shared, scores = self._add_up(weights)
        found = scores[shared]
        if keep is None:
            kept = found
        else:
            order = np.argsort(-found, kind="stable")
            accepted = islice((i for i in order.tolist() if keep(int(shared[i]))), limit)
            kept = found[list(accepted)]
        if 0 < limit <= len(kept):
            floor = np.partition(kept, len(kept) - limit)[len(kept) - limit] * share * _CLOSE
            chosen = found >= floor
            chosen |= np.isin(shared, np.fromiter(also, dtype=np.int64))
            shared, found = shared[chosen], found[chosen]
        return dict(zip(shared.tolist(), found.tolist(), strict=True))

    def count(self, tokens: Iterable[str], numbers: Iterable[int]) -> Mapping[int, int]:
        import numpy as np

        wanted = np.fromiter(numbers, dtype=np.int64)
        counts = np.zeros(self.size, dtype=np.int64)
        for token in tokens:
            counts[self._of(token)[0]] += 1
        return dict(zip(wanted.tolist(), counts[wanted].tolist(), strict=True))

    def holders(self, token: str) -> int:
        return len(self._of(token)[0])


def choose_postings(size: int, entries: Entries) -> Postings:
    """Lists below PACK_FROM postings, else arrays."""
    total = sum(len(numbers) for numbers, _ in entries.values())
    return ListPostings(size, entries) if total < PACK_FROM else pack_postings(size, entries)


def pack_postings(size: int, entries: Entries) -> ArrayPostings:
    """The same postings as arrays."""
    import numpy as np

    lengths = [len(numbers) for numbers, _ in entries.values()]
    total = sum(lengths)
    return ArrayPostings(
        size,
        tuple(entries),
        np.cumsum(lengths, dtype=np.int64),
        np.fromiter((n for ns, _ in entries.values() for n in ns), dtype=np.int32, count=total),
        np.fromiter((v for _, vs in entries.values() for v in vs), dtype=np.float64, count=total),
    )


def rarity(size: int, holders: int) -> float:
    """Inverse document frequency of a token that `holders` of `size` documents hold, above 0."""
    return math.log(1 + (size - holders + 0.5) / (holders + 0.5))
