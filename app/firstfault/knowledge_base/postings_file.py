"""Where are postings kept between starts? Lists as one file, unpacked word by word, arrays as one .npz beside it.

A file is a cache: one that does not fit, or is damaged, is built again and says nothing.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

from firstfault.knowledge_base.postings import ArrayPostings, Entries, ListPostings, Postings
from firstfault_tools.knowledge.kept_file import read_kept, replace_file, write_kept

_ARRAYS = ("ends", "numbers", "values")
_HEAD = "head"


class PackedEntries(Mapping[str, tuple[Sequence[int], Sequence[float]]]):
    """Postings as they lie in the file: a question asks for those of a few words out of ten thousand."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    @cached_property
    def _words(self) -> dict[str, bytes]:
        words: dict[str, bytes] = marshal.loads(self._packed)
        return words

    def __getitem__(self, token: str) -> tuple[Sequence[int], Sequence[float]]:
        numbers, values = marshal.loads(self._words[token])
        return numbers, values

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self._words)


def _pack(entries: Entries) -> bytes:
    """What `PackedEntries` unpacks."""
    words = {t: marshal.dumps((list(n), list(v))) for t, (n, v) in entries.items()}
    return marshal.dumps(words)


def write_postings(
    file: Path, identity: str, head: Mapping[str, Any], parts: Mapping[str, Postings]
) -> None:
    """Keep `head` (plain data) and `parts` under `identity` at `file`, or beside it as .npz."""
    row: dict[str, Any] = {"identity": identity, "head": dict(head), "lists": {}, "arrays": {}}
    arrays: dict[str, Any] = {}
    for name, part in parts.items():
        if isinstance(part, ArrayPostings):
            row["arrays"][name] = [part.size, list(part.tokens)]
            arrays |= {f"{name}.{field}": getattr(part, field) for field in _ARRAYS}
        elif isinstance(part, ListPostings):
            row["lists"][name] = [part.size, _pack(part.entries)]
    if not arrays:
        write_kept(file, row)
        other = _packed(file)
    elif replace_file(_packed(file), partial(_write, row=row, arrays=arrays)):
        other = file
    else:
        return
    with suppress(OSError):
        other.unlink(missing_ok=True)


def _write(stream: IO[bytes], row: dict[str, Any], arrays: dict[str, Any]) -> None:
    import numpy as np

    arrays[_HEAD] = np.frombuffer(marshal.dumps(row), dtype=np.uint8)
    np.savez(stream, **arrays)


def read_postings(file: Path, identity: str) -> tuple[dict[str, Any], dict[str, Postings]] | None:
    """(head, parts) kept under `identity`; None where nothing fits."""
    try:
        row = read_kept(file)
        if row is not None:
            return _unpack(row, identity, {})
        return _read_arrays(_packed(file), identity) if _packed(file).is_file() else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError):
        return None


def _read_arrays(file: Path, identity: str) -> tuple[dict[str, Any], dict[str, Postings]] | None:
    from zipfile import BadZipFile

    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as content:
            row = marshal.loads(content[_HEAD].tobytes())
            return _unpack(row, identity, content)
    except BadZipFile:
        return None


def _unpack(
    row: Any, identity: str, content: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Postings]] | None:
    if row["identity"] != identity:
        return None
    parts: dict[str, Postings] = {
        name: ListPostings(size, PackedEntries(packed))
        for name, (size, packed) in row["lists"].items()
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
