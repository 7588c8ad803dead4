from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from firstfault.knowledge_base import postings_file
from firstfault.knowledge_base.postings import Entries, ListPostings, Postings, pack_postings
from firstfault.knowledge_base.postings_file import read_postings, write_postings

ENTRIES: Entries = {"显存": ([0, 4], [0.1, 2.3456]), "nan": ([4], [1.0])}
PARTS: dict[str, Callable[[], Mapping[str, Postings]]] = {
    "lists": lambda: {"p": ListPostings(5, ENTRIES)},
    "arrays": lambda: {"p": pack_postings(5, ENTRIES)},
    "both": lambda: {"p": ListPostings(5, ENTRIES), "q": pack_postings(5, ENTRIES)},
    "empty arrays": lambda: {"p": pack_postings(0, {})},
}


@pytest.mark.parametrize("name", PARTS)
def test_postings_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    parts, file = PARTS[name](), tmp_path / "lexical.pack"
    write_postings(file, "one", {"page_ids": ["é"]}, parts)
    assert [f.suffix for f in tmp_path.iterdir()] == [".pack" if name == "lists" else ".npz"]
    kept = read_postings(file, "one")
    assert kept is not None
    head, back = kept
    assert head == {"page_ids": ["é"]}
    assert back.keys() == parts.keys()
    for key, part in parts.items():
        assert type(back[key]) is type(part)
        assert back[key].size == part.size
        weights = {"nan": 0.7, "显存": 1.0}
        assert back[key].score(weights) == part.score(weights)
    assert read_postings(file, "two") is None


def test_a_grown_index_replaces_the_small_file_and_back(tmp_path: Path) -> None:
    file = tmp_path / "lexical.pack"
    for name in ("lists", "arrays", "lists"):
        write_postings(file, name, {}, PARTS[name]())
        assert read_postings(file, name) is not None
        assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("cut", [0, 10, 200, -40, -1])
def test_a_damaged_array_file_fits_nothing(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "lexical.pack"
    write_postings(file, "one", {}, PARTS["arrays"]())
    packed = file.with_suffix(".npz")
    packed.write_bytes(packed.read_bytes()[:cut])
    assert read_postings(file, "one") is None


def test_flipped_bytes_are_noticed(tmp_path: Path) -> None:
    file = tmp_path / "lexical.pack"
    write_postings(file, "one", {}, PARTS["arrays"]())
    packed = file.with_suffix(".npz")
    content = packed.read_bytes()
    at = content.index(struct.pack("<d", 2.3456))
    packed.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    assert read_postings(file, "one") is None


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    write_postings(tmp_path / "file" / "lexical.pack", "one", {}, PARTS["lists"]())

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(postings_file, "_write", refuse)
    write_postings(tmp_path / "lexical.pack", "one", {}, PARTS["arrays"]())
    assert [f.name for f in tmp_path.iterdir()] == ["file"]
