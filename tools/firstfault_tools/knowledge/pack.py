"""How are hundreds of small knowledge files loaded in milliseconds? Parsed once, kept as one JSON file.

The pack is rebuilt when any source file's name, size or modification time changes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACK_FORMAT = 5

type_row = dict[str, Any]


def load_rows(
    folder: Path, suffix: str, read: Callable[[Path], type_row], pack: Path | None
) -> list[type_row]:
    """Rows of every `*suffix` file below `folder`, in path order, from `pack` where it is fresh."""
    files = sorted(folder.rglob(f"*{suffix}"))
    stamp = [[str(f.relative_to(folder)), f.stat().st_mtime_ns, f.stat().st_size] for f in files]
    rows = _read_pack(pack, stamp)
    if rows is None:
        rows = [read(file) for file in files]
        _write_pack(pack, stamp, rows)
    return rows


def read_yaml(text: str) -> Any:
    """Content of a YAML document, with the C parser where it is there. Plain data only."""
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _read_pack(pack: Path | None, stamp: list[list[Any]]) -> list[type_row] | None:
    if pack is None or not pack.is_file():
        return None
    try:
        content = json.loads(pack.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if content.get("format") != PACK_FORMAT or content.get("stamp") != stamp:
        return None
    rows: list[type_row] = content["rows"]
    return rows


def _write_pack(pack: Path | None, stamp: list[list[Any]], rows: list[type_row]) -> None:
    if pack is None:
        return
    try:
        pack.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=pack.parent, prefix=".pack-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({"format": PACK_FORMAT, "stamp": stamp, "rows": rows}, stream)
        os.replace(name, pack)
    except OSError:
        return  # a read-only home must not stop a diagnosis; the next start parses again
