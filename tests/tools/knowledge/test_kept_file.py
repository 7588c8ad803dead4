from __future__ import annotations

import marshal
from pathlib import Path

import pytest

from firstfault_tools.knowledge.kept_file import read_kept, share_names, write_kept

VALUE = {"rows": [["é", 1, 2.5, None, True], {"a": b"\x00"}], "stamp": []}


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.pack"
    write_kept(file, VALUE)
    assert read_kept(file) == VALUE
    assert [f.name for f in file.parent.iterdir()] == ["a.pack"]


@pytest.mark.parametrize("damage", ["empty", "cut", "short", "flipped", "foreign", "bare"])
def test_a_damaged_file_holds_nothing(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "a.pack"
    write_kept(file, VALUE)
    whole = file.read_bytes()
    file.write_bytes(
        {
            "empty": b"",
            "cut": whole[:-3],
            "short": whole[:15],
            "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
            "foreign": b'{"format": 6}',
            "bare": marshal.dumps(VALUE),
        }[damage]
    )
    assert read_kept(file) is None


def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_kept(tmp_path / "file" / "a.pack", VALUE)
    write_kept(None, VALUE)
    assert read_kept(tmp_path / "file" / "a.pack") is None
    assert read_kept(None) is None


def test_equal_names_are_one_object() -> None:
    rows = share_names([{"".join(("na", "me")): 1}, {"".join(("nam", "e")): 2}])
    first, second = (next(iter(row)) for row in rows)
    assert first is second
