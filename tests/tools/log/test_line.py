"""Normalising a raw line: what an engineer reads, and nothing else changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.log.line import CUT_MARK, MAX_LINE, is_plain, normalise


@each_row(
    ("raw", "text"),
    [
        (b"\x1b[36m(WorkerDict pid=7)\x1b[0m step 3\r\n", "(WorkerDict pid=7) step 3"),
        (b"[36m(Worker pid=7)[0m step 3", "(Worker pid=7) step 3"),
        (b" 1%|a| 1/9\r 2%|b| 2/9\rRuntimeError: x", "RuntimeError: x  2%|b| 2/9"),
        (
            b'{"log":"[rank1]: Killed\\n","stream":"stderr","time":"2026-01-02T03:04:05Z"}',
            "2026-01-02T03:04:05Z [rank1]: Killed",
        ),
        (b'{"rank": 3, "message": "boom", "level": "ERROR"}', "[rank3]: ERROR boom"),
        (b'{"step": 3, "loss": 2.5}', '{"step": 3, "loss": 2.5}'),
        (b"caf\xe9 \x00nul", "caf\ufffd nul"),
        ("训练步 13".encode(), "训练步 13"),
    ],
)
def test_normalise(raw: bytes, text: str) -> None:
    assert normalise(raw) == text


def test_overlong_line_is_cut_with_a_mark() -> None:
    assert normalise(b"x" * (MAX_LINE * 9)).endswith(CUT_MARK)


@given(st.binary(max_size=400))
def test_any_bytes_become_one_printable_line(raw: bytes) -> None:
    text = normalise(raw.replace(b"\n", b" "))
    assert "\n" not in text
    assert "\x00" not in text


@given(st.text(alphabet="ab {}[]0;m\t\u00e9\u8bad", max_size=60))
def test_plain_blocks_are_what_normalise_leaves_alone(text: str) -> None:
    raw = text.encode()
    if is_plain(raw):
        assert normalise(raw) == text
