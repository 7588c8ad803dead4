from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from firstfault.knowledge_base.query import MAX_LINE_CHARS, MAX_LINES, read_query


def test_plain_words_have_no_lines_for_signatures() -> None:
    assert read_query("why is my training slow").lines == ()


def test_prefixes_are_taken_off() -> None:
    query = read_query("[rank3]: torch.OutOfMemoryError: CUDA out of memory.")
    assert query.text.startswith("torch.OutOfMemoryError")
    assert query.lines[0].startswith("[rank3]")


def test_of_a_long_paste_the_first_alarms_count() -> None:
    paste = (
        "\n".join(f"step {i} loss 2.{i}" for i in range(500))
        + "\nRuntimeError: first\n"
        + "ok=1\n" * 50
    )
    assert read_query(paste).text == "RuntimeError: first"


@given(st.text(max_size=3_000))
def test_any_paste_is_bounded(raw: str) -> None:
    query = read_query(raw)
    assert len(query.lines) <= MAX_LINES
    assert len(query.text) <= MAX_LINES * (MAX_LINE_CHARS + 2)
