"""How are patterns of `re`, and methods of dataclasses, ready at once? Their compiled form is kept, as bytecode is.

`re` compiles in Python: the patterns that a short log meets took a tenth of a second of the command. What comes
out is a row of numbers, from which the interpreter makes the pattern in no time, after checking them. They
lie beside the bytecode, for one interpreter, with the code of `__init__` methods. Where one compiles
otherwise, patterns are compiled as ever.
"""

from __future__ import annotations

import marshal
import re
import sys
from functools import cache
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any

from firstfault_tools.knowledge.kept_file import read_kept, write_kept

MAX_KEPT = 5_000
"""Patterns of modules are some thousands; those made of what is read must not add up."""

_Key = tuple[str | bytes, int]
_SOURCE = -1
"""In the place of a pattern's flags: the text is source of Python."""

_new: dict[_Key, bytes] = {}


def compile_kept(pattern: Any, flags: int = 0) -> re.Pattern[Any]:
    """What `re.compile` gives, out of the kept form where there is one."""
    key = pattern, int(flags)
    known = _kept().get(key)
    if known is not None:
        made = _restore(pattern, known)
        if made is not None:
            return made
    made = re.compile(pattern, flags)
    _note(key)
    return made


def compile_source(source: str) -> CodeType:
    """What `compile` gives of a module's text, out of the kept form where there is one."""
    known = _kept().get((source, _SOURCE))
    if known is not None:
        kept: CodeType = marshal.loads(known)
        return kept
    _note((source, _SOURCE))
    return compile(source, "<dataclass>", "exec")


def _note(key: _Key) -> None:
    if not sys.dont_write_bytecode and _file() is not None and len(_kept()) + len(_new) < MAX_KEPT:
        _new[key] = b""


def keep_forms() -> None:
    """Keep what was compiled anew since the start; the command calls it at its end."""
    if not _new:
        return
    made = {key: form for key in _new if (form := _take_apart(*key)) is not None}
    _new.clear()
    if made:
        write_kept(_file(), [_interpreter(), {**_kept(), **made}])


@cache
def _kept() -> dict[_Key, bytes]:
    content = read_kept(_file())
    if not isinstance(content, list) or content[0] != _interpreter():
        return {}
    kept: dict[_Key, bytes] = content[1]
    return kept


@cache
def _file() -> Path | None:
    if sys.implementation.name != "cpython":
        return None
    return Path(cache_from_source(__file__)).with_name("forms.pack")


@cache
def _interpreter() -> str:
    return f"{sys.version} {getattr(import_module('_sre'), 'MAGIC', '')}"


def _restore(pattern: Any, form: bytes) -> re.Pattern[Any] | None:
    try:
        made: re.Pattern[Any] = import_module("_sre").compile(pattern, *marshal.loads(form))
    except (TypeError, ValueError, RuntimeError, EOFError, OverflowError):
        return None  # damaged: the interpreter refuses what is no compiled pattern
    return made


def _take_apart(pattern: Any, flags: int) -> bytes | None:
    """The numbers of a pattern; None where this interpreter's `re` is made otherwise than known."""
    if flags == _SOURCE:
        return marshal.dumps(compile(pattern, "<dataclass>", "exec"))
    try:
        parser, compiler = import_module("re._parser"), import_module("re._compiler")
        parsed = parser.parse(pattern, flags)
        names = parsed.state.groupdict
        places: list[str | None] = [None] * parsed.state.groups
        for name, place in names.items():
            places[place] = name
        numbers = [int(n) for n in compiler._code(parsed, flags)]
        form = (
            int(flags | parsed.state.flags),
            numbers,
            len(places) - 1,
            dict(names),
            tuple(places),
        )
    except (ImportError, AttributeError, TypeError, ValueError, LookupError):
        return None
    kept = marshal.dumps(form)
    # patterns are equal where their numbers are
    return kept if _restore(pattern, kept) == re.compile(pattern, flags) else None
