"""How are hundreds of small knowledge files loaded in milliseconds? Parsed once, kept as one file.

The pack is rebuilt when any source file's name, size or modification time changes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from firstfault_tools.knowledge.kept_file import read_kept, share_names, write_kept

PACK_FORMAT = 9

type_row = dict[str, Any]


def load_rows(
    folder: Path, suffix: str, read: Callable[[Path], type_row], pack: Path | None
) -> list[type_row]:
    """Rows of every `*suffix` file below `folder`, in path order, from `pack` where it is fresh."""
    rows: list[type_row] = load_pressed(folder, suffix, read, share_names, pack)
    return rows


def load_pressed(
    folder: Path,
    suffix: str,
    read: Callable[[Path], type_row],
    press: Callable[[list[type_row]], Any],
    pack: Path | None,
) -> Any:
    """What `press` makes of the rows of every `*suffix` file below `folder`: plain data."""
    stamp = stamp_files(folder, suffix)
    return load_made(
        stamp, lambda: press([read(folder / row[0]) for row in stamp]), own_file(folder, pack)
    )


def load_made(made_from: Sequence[Any], make: Callable[[], Any], pack: Path | None) -> Any:
    """What `make` makes, plain data, from `pack` where it was made from the same."""
    stamp = [PACK_FORMAT, list(made_from)]
    kept = read_kept(pack)
    if isinstance(kept, list) and kept[:2] == stamp:
        return kept[2]
    made = make()
    write_kept(pack, [*stamp, made])
    return made


def stamp_files(folder: Path, suffix: str) -> list[list[Any]]:
    """[path below the folder, time of change, size] of every `*suffix` file, in path order."""
    return sorted(_list_files(str(folder), suffix), key=lambda row: row[0].split(os.sep))


def _list_files(folder: str, suffix: str, inside: str = "") -> Iterator[list[Any]]:
    """[path below the folder, time of change, size] of each file; a thousand `Path`s would cost a tenth of a second."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _list_files(entry.path, suffix, f"{inside}{entry.name}{os.sep}")
            elif entry.name.endswith(suffix):
                told = entry.stat()
                yield [inside + entry.name, told.st_mtime_ns, told.st_size]


def own_file(folder: Path, pack: Path | None) -> Path | None:
    """One file for each folder: two installations that shared one would rebuild it in turns."""
    if pack is None:
        return None
    mark = zlib.crc32(str(folder.absolute()).encode())
    return pack.with_name(f"{pack.stem}-{mark:08x}{pack.suffix}")


def read_yaml(text: str) -> Any:
    """Content of a YAML document, with the C parser where it is there. Plain data only."""
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
