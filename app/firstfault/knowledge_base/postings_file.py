"""Where are postings kept between starts? Lists as one JSON file, arrays as one .npz beside it.

A file is a cache: one that does not fit, or is damaged, is built again and says nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

from firstfault.knowledge_base.postings import ArrayPostings, ListPostings, Postings

_ARRAYS = ("ends", "numbers", "values")
_HEAD = "head"


def write_postings(
    file: Path, identity: str, head: Mapping[str, Any], parts: Mapping[str, Postings]
) -> None:
    """Keep `head` (plain JSON) and `parts` under `identity` at `file`, or beside it as .npz."""
    row: dict[str, Any] = {"identity": identity, "head": dict(head), "lists": {}, "arrays": {}}
    arrays: dict[str, Any] = {}
    for name, part in parts.items():
        if isinstance(part, ArrayPostings):
            row["arrays"][name] = [part.size, list(part.tokens)]
            arrays |= {f"{name}.{field}": getattr(part, field) for field in _ARRAYS}
        elif isinstance(part, ListPostings):
            row["lists"][name] = [part.size, part.entries]
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
    target, other = (_packed(file), file) if arrays else (file, _packed(file))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".lexical-")
        try:
            with os.fdopen(handle, "wb") as stream:
                _write(stream, text, arrays)
            os.replace(name, target)
        finally:
            Path(name).unlink(missing_ok=True)
        other.unlink(missing_ok=True)
    except OSError:
        return  # a read-only home must not stop a search; the next start builds again


def _write(stream: IO[bytes], text: bytes, arrays: dict[str, Any]) -> None:
    if not arrays:
        stream.write(text)
        return
    import numpy as np

    arrays[_HEAD] = np.frombuffer(text, dtype=np.uint8)
    np.savez(stream, **arrays)


def read_postings(file: Path, identity: str) -> tuple[dict[str, Any], dict[str, Postings]] | None:
    """(head, parts) kept under `identity`; None where nothing fits."""
    try:
        if file.is_file():
            return _unpack(json.loads(file.read_bytes()), identity, {})
        if _packed(file).is_file():
            import numpy as np

            with np.load(_packed(file), allow_pickle=False) as content:
                row = json.loads(content[_HEAD].tobytes())
                return _unpack(row, identity, content)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, BadZipFile):
        return None
    return None


def _unpack(
    row: Any, identity: str, content: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Postings]] | None:
    if row["identity"] != identity:
        return None
    parts: dict[str, Postings] = {
        name: ListPostings(size, entries) for name, (size, entries) in row["lists"].items()
    }
    for name, (size, tokens) in row["arrays"].items():
        ends, numbers, values = (content[f"{name}.{field}"] for field in _ARRAYS)
        total = int(ends[-1]) if len(ends) else 0
        if len(ends) != len(tokens) or not len(numbers) == len(values) == total:
            return None
        parts[name] = ArrayPostings(size, tokens, ends, numbers, values)
    return row["head"], parts


def _packed(file: Path) -> Path:
    return file.with_suffix(".npz")
