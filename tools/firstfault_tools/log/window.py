"""What stands at line N of a log? Windows of normalised, redacted lines, read from the file itself.

Citations are checked against this, not against what the scan remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from firstfault_tools.log import secrets
from firstfault_tools.log.blocks import LONGEST
from firstfault_tools.log.line import normalise

MAX_LINES = 2_000


def read_window(
    path: Path, first: int, last: int, offsets: Sequence[tuple[int, int]] = ()
) -> list[tuple[int, str]]:
    """Lines `first` to `last` (1-based, inclusive) as (number, text); fewer at the end of the file."""
    first = max(first, 1)
    last = min(last, first + MAX_LINES - 1)
    before, offset = max(((n, o) for n, o in offsets if n < first), default=(0, 0))
    out: list[tuple[int, str]] = []
    number = before
    with path.open("rb") as stream:
        stream.seek(offset)
        while number < last:
            raw = stream.readline(LONGEST)
            if not raw:
                break
            rest = raw
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(LONGEST)
            number += 1
            if number >= first:
                out.append((number, secrets.redact(normalise(raw))))
    return out
