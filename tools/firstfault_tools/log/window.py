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
    """Lines `first` to `last` (1-based, inclusive) as (number, text); fewer at the end of the file.

    The line before is read too: a secret's name may stand there.
    """
    first = max(first, 1)
    last = min(last, first + MAX_LINES - 1)
    before, offset = max(((n, o) for n, o in offsets if n < first - 1), default=(0, 0))
    raws: list[bytes] = []
    number = before
    with path.open("rb") as stream:
        stream.seek(offset)
        while number < last:
            raw = stream.readline(LONGEST)
            while len(raw) == LONGEST and not raw.strip(b"\0"):  # passed over, as the scan does
                raw = stream.readline(LONGEST)
            if not raw:
                break
            rest = raw
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(LONGEST)
            number += 1
            if number >= first - 1:
                raws.append(raw)
    start = number - len(raws) + 1
    shown = secrets.redact_lines(map(normalise, raws))
    return [(n, text) for n, text in enumerate(shown, start) if n >= first]
