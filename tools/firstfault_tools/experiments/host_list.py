"""Which hosts does a list name? Names by commas or lines, and Slurm's ranges: node-[01-08,11]."""

from __future__ import annotations

import re

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.triage.transports import check_name

MOST = 4096
_RANGE = re.compile(r"^(?P<before>[^\[\]]*)\[(?P<inside>[0-9,-]{1,200})\](?P<after>[^\[\]]*)$")


def expand_hosts(text: str) -> tuple[str, ...]:
    """All names in order. Raises InvalidParameter."""
    found: dict[str, None] = {}
    for part in re.split(r",(?![^\[]*\])|\s+", text):
        for name in _expand(part.strip()) if part.strip() else ():
            found[check_name(name)] = None
            if len(found) > MOST:
                raise InvalidParameter("hosts", f"are more than {MOST}")
    if not found:
        raise InvalidParameter("hosts", "names none; is a variable of your shell unset?")
    return tuple(found)


def _expand(part: str) -> list[str]:
    match = _RANGE.match(part)
    if match is None:
        return [part]
    names = []
    for piece in match["inside"].split(","):
        first, _, last = piece.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise InvalidParameter("hosts", f"{part!r} is no range; write node-[01-08]")
        ends = int(first), int(last or first)
        if not 0 <= ends[1] - ends[0] < MOST:
            raise InvalidParameter("hosts", f"{part!r} runs backwards or is too long")
        names += [f"{match['before']}{n:0{len(first)}d}{match['after']}" for n in range(ends[0], ends[1] + 1)]  # fmt: skip
    return names
