"""Patterns out of the kept form are those that `re` compiles."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firstfault_tools import kept_forms
from firstfault_tools.kept_forms import compile_kept, compile_source, keep_forms
from firstfault_tools.knowledge.kept_file import read_kept, write_kept

PATTERNS: tuple[tuple[Any, int], ...] = (
    (r"(?P<year>\d{4})-(?P<month>\d\d)", 0),
    (r"(?i)rank\s*(\d+)|\bRANK[ _:=]*(\d+)", 0),
    (r"^a(?=b)(?<!c)[^\W\d_]+$", re.M | re.S),
    ("[\u4e00-\u9fff]+|é", re.IGNORECASE),
    (rb"\x00{64,}|(?:[\t ]\x00){8,}", 0),
    (r"(?P<q>['\"])x*?(?P=q)", re.VERBOSE),
)
TEXTS = ("2026-11 rank 7", "RANK=3", "ab", "节点é", "'xx'", "")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where patterns are kept, empty at first."""
    kept = tmp_path / "forms.pack"
    monkeypatch.setattr(kept_forms, "_file", lambda: kept)
    monkeypatch.setattr(kept_forms, "_new", {})
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    kept_forms._kept.cache_clear()
    yield kept
    kept_forms._kept.cache_clear()


def _start_again() -> None:
    keep_forms()
    kept_forms._kept.cache_clear()


def test_patterns_come_back_as_re_compiles_them(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pattern, flags in PATTERNS:
        compile_kept(pattern, flags)
    _start_again()
    monkeypatch.setattr(re, "compile", lambda *_: pytest.fail("compiled again"))
    kept = [compile_kept(pattern, flags) for pattern, flags in PATTERNS]
    monkeypatch.undo()
    for found, (pattern, flags) in zip(kept, PATTERNS, strict=True):
        wanted = re.compile(pattern, flags)
        assert found == wanted
        assert (found.groups, dict(found.groupindex)) == (wanted.groups, dict(wanted.groupindex))
        for text in TEXTS if isinstance(pattern, str) else ():
            one, other = found.search(text), wanted.search(text)
            assert (one and (one.span(), one.groupdict())) == (other and (other.span(), other.groupdict()))  # fmt: skip


@pytest.mark.parametrize("form", [b"", b"x", b"\xe9\x01\x00\x00\x00"])
def test_a_damaged_form_is_compiled_again(file: Path, form: bytes) -> None:
    write_kept(file, [kept_forms._interpreter(), {("a+", 0): form}])
    found = compile_kept("a+").search("baa")
    assert found is not None
    assert found[0] == "aa"


def test_forms_of_another_interpreter_are_not_read(file: Path) -> None:
    write_kept(file, ["3.9", {("a+", 0): b""}])
    assert kept_forms._kept() == {}


def test_no_more_are_kept_than_modules_have(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_forms, "MAX_KEPT", 2)
    for number in range(5):
        compile_kept(f"a{{{number}}}")
    _start_again()
    assert len(kept_forms._kept()) == 2


def test_without_bytecode_nothing_is_kept() -> None:
    program = "from firstfault_tools import kept_forms as k; k.compile_kept('a+'); print(k._new)"
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stdout == "{}\n"


def test_source_runs_as_it_stands(file: Path) -> None:
    source = "def add(a, b=2):\n  return a + b"
    for _ in range(2):
        names: dict[str, Any] = {}
        exec(compile_source(source), names)  # noqa: S102  (what the code does is what is tested)
        assert names["add"](3) == 5
        _start_again()
    assert len(kept_forms._kept()) == 1


def test_a_pattern_that_is_none_is_said(file: Path) -> None:
    with pytest.raises(re.error):
        compile_kept("(")
    keep_forms()
    assert read_kept(file) is None
