"""Markers are found alike by the first reader of a text and by all together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from firstfault_tools.hardware.excerpt import WORTH_A_SET, keep_marked

WORDS = st.text("abcé.[|", min_size=1, max_size=3)


@given(
    st.lists(st.text("abcdé.[|", max_size=8), min_size=1, max_size=6),
    st.lists(
        st.tuples(WORDS, WORDS), min_size=WORTH_A_SET + 2, max_size=WORTH_A_SET + 4, unique=True
    ),
)
def test_same_lines_for_every_reader(texts: list[str], readers: list[tuple[str, str]]) -> None:
    for copy in (list(enumerate(texts, 1)), list(enumerate(texts, 1))):
        for markers in readers:
            expected = [(n, t) for n, t in copy if any(m in t for m in markers)]
            assert keep_marked(copy, markers) == expected
