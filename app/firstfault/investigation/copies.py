"""Which artefacts are copies of another one? The same file dropped twice tells nothing twice.

A copy would double what one process said and make one rank two. Logs of different ranks are no copies of each other,
even if they say the same; nor are states at two times, of which a reader tells that nothing moved.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from firstfault_tools.artefact import HEAD_BYTES, Artefact
from firstfault_tools.log.prefix import read_file_name
from firstfault_tools.registry import readers_for

LEAST_BYTES = 256
"""Below it files may be alike by chance: an exit code, one setting."""

SAME_AS = "the same content as "
"""Begins the reason for which a copy is left out."""


def find_copies(artefacts: Sequence[Artefact]) -> dict[str, str]:
    """Names of the copies, each with the name of the artefact that it repeats."""
    by_size: dict[int, list[Artefact]] = {}
    out: dict[str, str] = {}
    for artefact in artefacts:
        try:
            size = artefact.path.stat().st_size
            same = next((a for a in by_size.get(size, ()) if _is_copy(a, artefact)), None)
        except OSError:
            continue
        if size < LEAST_BYTES:
            continue
        if same is not None:
            out[artefact.name] = same.name
        else:
            by_size.setdefault(size, []).append(artefact)
    return out


def _is_copy(one: Artefact, other: Artefact) -> bool:
    if read_file_name(one.name) != read_file_name(other.name):
        return False
    head = one.head()
    same = head == other.head() and _tail(one) == _tail(other)
    return same and not any(reader.series for reader in readers_for(one.name, head))


def _tail(artefact: Artefact) -> bytes:
    with artefact.path.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - HEAD_BYTES))
        return stream.read(HEAD_BYTES)
