from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firstfault.knowledge_base.search import SearchIndex
from firstfault.knowledge_base.shipping import (
    index_file,
    read_shipped,
    update_shipped,
    write_shipped,
)
from firstfault.knowledge_base.store import Entry, Kind, text_key
from firstfault.knowledge_base.vectors import WheelEmbedder
from firstfault.paths import knowledge_folder

MAY_LACK = 40
"""Texts an installed copy may have to embed at its first search: some seconds' work."""


def test_shipped_vectors_cover_the_knowledge(lexical_index: SearchIndex) -> None:
    file = index_file(knowledge_folder(), WheelEmbedder.name)
    known = read_shipped(file)
    lacking = [
        e for e in lexical_index.entries if text_key(e.text, WheelEmbedder.name) not in known
    ]
    assert len(lacking) <= MAY_LACK, f"{len(lacking)} texts have no vector: run `make index`"
    assert file.stat().st_size < 6_000_000  # 385 bytes each; a third are ways of asking


def test_vectors_come_back_as_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(50, 384))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    write_shipped(tmp_path / "v.npz", {f"{i:016x}": row.tolist() for i, row in enumerate(rows)})
    back = read_shipped(tmp_path / "v.npz")
    cosines = [float(np.dot(back[f"{i:016x}"], row)) for i, row in enumerate(rows)]
    assert min(cosines) > 0.999
    write_shipped(tmp_path / "w.npz", back)
    again = read_shipped(tmp_path / "w.npz")
    assert all(np.allclose(again[k], back[k], atol=1e-6) for k in back)


def test_update_embeds_the_new_and_drops_the_unused(tmp_path: Path, hash_embedder: Any) -> None:
    one, two = (Entry(f"{p}#Summary", p, Kind.PASSAGE, f"text of {p}") for p in "ab")
    file = tmp_path / "index" / "v.npz"
    assert update_shipped(file, [one], hash_embedder) == 1
    assert update_shipped(file, [one, two], hash_embedder) == 1
    assert update_shipped(file, [two], hash_embedder) == 0
    assert read_shipped(file).keys() == {text_key(two.text, hash_embedder.name)}


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"\x93NUMPY"])
def test_an_unreadable_file_ships_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "v.npz").write_bytes(content)
    assert read_shipped(tmp_path / "v.npz") == {}
    assert read_shipped(tmp_path / "missing.npz") == {}
