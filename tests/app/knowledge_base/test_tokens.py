from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault.knowledge_base.tokens import MAX_CHARS, stem, tokenize


@each_row(
    ("text", "wanted"),
    [
        ("NCCL_IB_GID_INDEX", {"nccl_ib_gid_index", "nccl", "gid", "index"}),
        ("torch.OutOfMemoryError", {"torch.outofmemoryerror", "memory", "error"}),
        ("NVRM: Xid (PCI:0000:c1:00): 79, pid=1", {"xid", "xid#79"}),
        ("exitcode : -9 (pid: 88)", {"exitcode#9"}),
        ("exit code 137", {"exitcode#137"}),
        ("[Errno 28] No space", {"errno#28"}),
        ("caching caches cache", {"cach"}),
        ("stopped stopping stops", {"stop"}),
        ("显存不足", {"显存不足"}),
    ],
)
def test_tokens_hold_wholes_and_parts(text: str, wanted: set[str]) -> None:
    assert wanted <= set(tokenize(text))


@each_row("noise", ["0x7f3b5c0a1d10", "10.4.1.23", "1843221", "deadbeefdeadbeef00", "the"])
def test_noise_is_dropped(noise: str) -> None:
    assert noise not in tokenize(f"xid {noise} error")


def test_identifiers_and_short_words_are_not_stemmed() -> None:
    assert [stem(w) for w in ("loss", "gas", "ddp", "status", "nccl_ib_hca")] == [
        "loss", "gas", "ddp", "status", "nccl_ib_hca",
    ]  # fmt: skip


@given(st.text(max_size=400))
@example("a\u1680b")
def test_any_text_gives_lower_case_tokens_without_spaces(text: str) -> None:
    assert all(t and not any(c.isspace() for c in t) for t in tokenize(text))


def test_only_the_beginning_of_a_huge_text_counts() -> None:
    assert "needle" not in tokenize("hay " * (MAX_CHARS // 4) + "needle")
