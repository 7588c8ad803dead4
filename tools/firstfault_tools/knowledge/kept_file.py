"""Where is kept what was worked out once? One file, read in a tenth of the time that JSON takes.

A kept file is a cache: one that does not fit, or is damaged, is made again and says nothing. It holds plain
data (numbers, texts, bytes, lists, mappings) in the interpreter's own form, as bytecode does, and lies beside it.
"""

from __future__ import annotations

import json
import marshal
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

_MARK = b"firstfault 7 "
_CHECK = 4
"""Bytes of the checksum behind the mark: the interpreter's form is not read from a damaged file."""


def read_kept(file: Path | None) -> Any | None:
    """What `write_kept` kept there; None where nothing is, or nothing whole."""
    if file is None:
        return None
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except OSError:
        return None
    begin = len(_MARK) + _CHECK
    body = memoryview(data)[begin:]
    if not data.startswith(_MARK) or zlib.crc32(body).to_bytes(_CHECK) != data[len(_MARK) : begin]:
        return None
    try:
        return marshal.loads(body)
    except (ValueError, EOFError, TypeError):
        return None  # another interpreter's form


def write_kept(file: Path | None, value: Any) -> None:
    """Keep plain data."""
    if file is not None:
        body = marshal.dumps(value)
        replace_file(file, lambda s: s.write(_MARK + zlib.crc32(body).to_bytes(_CHECK) + body))


def replace_file(file: Path, fill: Callable[[IO[bytes]], object]) -> bool:
    """Whether the file now holds what `fill` wrote, all of it.

    A folder that cannot be written is no error: the next start works it out again.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".kept-")
        try:
            with os.fdopen(handle, "wb") as stream:
                fill(stream)
            os.replace(name, file)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError:
        return False
    return True


def share_names(value: Any) -> Any:
    """The same plain data as JSON gives it back: equal names of fields are one object, and kept once."""
    return json.loads(json.dumps(value))
