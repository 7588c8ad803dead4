from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.knowledge_base import postings as postings_module
from firstfault.knowledge_base.lexical import build_cosines, build_postings
from firstfault.knowledge_base.postings import (
    ArrayPostings,
    Entries,
    ListPostings,
    choose_postings,
    pack_postings,
)

WORDS = ("nan", "loss", "gpu", "rank", "xid#79", "显存", "", "é")
UNKNOWN = "unknown"
Documents = list[list[str]]

documents_of = st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=40)
weights_of = st.dictionaries(
    st.sampled_from((*WORDS, UNKNOWN)), st.sampled_from((0.4, 0.5, 1.0)) | st.floats(0.01, 8)
)
entries_of = st.dictionaries(
    st.sampled_from(WORDS),
    # few values, so that many documents tie; 0.0 is what a word of every document is rounded to
    st.dictionaries(
        st.integers(0, 59), st.sampled_from((0.0, 0.1, 0.2, 0.3)) | st.floats(0, 9), min_size=1
    ).map(lambda held: (sorted(held), [held[n] for n in sorted(held)])),
)


def _both(size: int, entries: Entries) -> tuple[ListPostings, ArrayPostings]:
    return ListPostings(size, entries), pack_postings(size, entries)


def _slow_scores(entries: Entries, weights: Mapping[str, float]) -> dict[int, float]:
    """Document by document: what it holds of the query, added in the query's order."""
    scores: dict[int, float] = {}
    for number in {n for token in weights for n in entries.get(token, ((), ()))[0]}:
        total = 0.0
        for token, weight in weights.items():
            held = dict(zip(*entries.get(token, ((), ())), strict=True))
            if number in held:
                total += weight * held[number]
        scores[number] = total
    return scores


@given(entries=entries_of, weights=weights_of)
def test_arrays_and_lists_score_alike_to_the_last_bit(
    entries: Entries, weights: Mapping[str, float]
) -> None:
    slow = _slow_scores(entries, weights)
    for fast in _both(60, entries):
        found = fast.score(weights)
        assert dict(found) == slow
        assert all(type(n) is int and type(s) is float for n, s in found.items())


@given(entries=entries_of, weights=weights_of, limit=st.integers(0, 70))
def test_best_is_the_head_of_the_whole_ranking(
    entries: Entries, weights: Mapping[str, float], limit: int
) -> None:
    slow = sorted(_slow_scores(entries, weights).items(), key=lambda item: (-item[1], item[0]))
    for fast in _both(60, entries):
        assert fast.best(weights, limit) == slow[:limit]


@given(entries=entries_of, weights=weights_of, numbers=st.sets(st.integers(0, 59)))
def test_scores_of_some_are_those_of_all(
    entries: Entries, weights: Mapping[str, float], numbers: set[int]
) -> None:
    slow = {n: s for n, s in _slow_scores(entries, weights).items() if n in numbers}
    for fast in _both(60, entries):
        assert dict(fast.score_some(weights, numbers)) == slow


@given(
    entries=entries_of,
    weights=weights_of,
    limit=st.integers(1, 12),
    share=st.sampled_from((1.0, 1 / 2, 1 / 3)),
    also=st.sets(st.integers(0, 59), max_size=5),
    kept=st.none() | st.sets(st.integers(0, 59)),
    shrunk=st.sets(st.integers(0, 59)),
    raised=st.floats(0, 5),
)
def test_narrowed_scores_lose_no_place_of_a_ranking(
    entries: Entries,
    weights: Mapping[str, float],
    limit: int,
    share: float,
    also: set[int],
    kept: set[int] | None,
    shrunk: set[int],
    raised: float,
) -> None:
    """Shrink any scores to `share`, raise those of `also`, keep what is kept: the head is the same."""
    slow = _slow_scores(entries, weights)

    def rank(scores: Mapping[int, float]) -> list[tuple[int, float]]:
        worth = {
            n: s * (share if n in shrunk else 1.0) + (raised if n in also else 0.0)
            for n, s in scores.items()
            if kept is None or n in kept
        }
        return sorted(worth.items(), key=lambda item: (-item[1], -item[0]))[:limit]

    for fast in _both(60, entries):
        keep = None if kept is None else kept.__contains__
        narrowed = fast.narrow(weights, limit, share, also, keep)
        assert narrowed.items() <= slow.items()
        assert rank(narrowed) == rank(slow)
        assert max(narrowed.values(), default=0.0) == max(slow.values(), default=0.0)
        assert {n for n in also if n in slow} <= narrowed.keys()


def test_narrowing_leaves_out_what_cannot_lead() -> None:
    entries = {"a": (list(range(1_000)), [float(n) for n in range(1_000)])}
    assert pack_postings(1_000, entries).narrow({"a": 1.0}, 3, also=[7]).keys() == {
        7,
        997,
        998,
        999,
    }


@given(entries=entries_of, weights=weights_of)
def test_counts_holders_and_ceilings_agree(entries: Entries, weights: Mapping[str, float]) -> None:
    lists, arrays = _both(60, entries)
    counted = Counter(n for t in weights for n in entries.get(t, ((), ()))[0])
    for postings in (lists, arrays):
        found = postings.count(weights, range(60))
        assert {n: found.get(n, 0) for n in range(60)} == {n: counted[n] for n in range(60)}
    for token in (*WORDS, UNKNOWN):
        held = len(entries.get(token, ((), ()))[0])
        assert lists.holders(token) == arrays.holders(token) == held
    assert lists.ceiling(weights) == arrays.ceiling(weights)


@given(documents=documents_of, weights=weights_of)
def test_a_built_index_scores_alike_on_both_sides_of_the_size(
    documents: Documents, weights: Mapping[str, float]
) -> None:
    fields = [{"t": words} for words in documents]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings_module, "PACK_FROM", 10**9)
        small = build_postings(fields, {"t": 1.5}), build_cosines(documents)
        patch.setattr(postings_module, "PACK_FROM", 0)
        large = build_postings(fields, {"t": 1.5}), build_cosines(documents)
    for lists, arrays in zip(small, large, strict=True):
        assert isinstance(lists, ListPostings)
        assert isinstance(arrays, ArrayPostings)
        assert lists.score(weights) == arrays.score(weights)
        assert lists.best(weights, 3) == arrays.best(weights, 3)


@pytest.mark.parametrize(("count", "kind"), [(9, ListPostings), (10, ArrayPostings)])
def test_size_decides(monkeypatch: pytest.MonkeyPatch, count: int, kind: type) -> None:
    monkeypatch.setattr(postings_module, "PACK_FROM", 10)
    assert type(choose_postings(count, {"a": (list(range(count)), [1.0] * count)})) is kind


def test_a_hundred_thousand_documents_rank_as_the_slow_way_does() -> None:
    """The real size once: long postings, ties at the cut, a word in every document."""
    dice = np.random.default_rng(3)
    size = 100_000
    entries: dict[str, tuple[list[int], list[float]]] = {"every": (list(range(size)), [0.0] * size)}
    for token, share in (("often", 0.6), ("some", 0.05), ("rare", 0.0002)):
        numbers = np.flatnonzero(dice.random(size) < share).tolist()
        entries[token] = (numbers, np.round(dice.choice([1.0, 2.5, 4.1], len(numbers)), 4).tolist())
    lists, arrays = _both(size, entries)
    weights = {"some": 1.0, "often": 0.5, "every": 1.0, "rare": 0.4, UNKNOWN: 1.0}
    assert lists.best(weights, 100) == arrays.best(weights, 100)
    assert lists.score(weights) == arrays.score(weights)
    assert len(arrays.score(weights)) == size
