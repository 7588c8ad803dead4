"""Whose log is it? By what its process says of itself when it starts, else by the log's name.

`process index 5 of 8`, `process 5/8`, `process_id=5, num_processes=8`, `RANK=5 WORLD_SIZE=8`: every process
of a job says it once, so a log that says it once, and in which no other rank speaks, is that process's own.
A number in a log's name may count from elsewhere (worker-5 is rank 6 behind a master).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.log.place import Place

HEAD_LINES = 200
"""Lines in which a process introduces itself."""

_LONGEST = 2_000
_WORDS = ("process", "PROCESS", "WORLD_SIZE")
_OWN = expression(
    r"(?i)(?<![a-z])process(?:[ _](?:index|id|idx))?[ =:#]{1,3}(?P<own>\d{1,5})(?:\s?/\s?| of |[ ,;]{1,3}(?:num_processes|process_count|world_size)[ =:]{1,2})(?P<of>\d{1,5})\b|"
    r"(?<![\w$])RANK[=:] ?['\"]?(?P<own2>\d{1,6})['\"]?[ ,;]{1,3}(?:[A-Z_]{1,24}[=:] ?\S{1,60}[ ,;]{1,3}){0,3}WORLD_SIZE[=:] ?['\"]?(?P<of2>\d{1,6})\b"
)


def name_owner(named: Place, lines: Iterable[tuple[int, str]], speakers: Collection[int]) -> Place:
    """Place that the log's name tells, with the rank that its process says of itself.

    speakers: ranks whose labels stand in front of lines.
    """
    told: set[int] = set()
    for number, text in lines:
        if number > HEAD_LINES:
            break
        if len(text) < _LONGEST and any(word in text for word in _WORDS):
            for match in _OWN.finditer(text):
                own, of = match["own"] or match["own2"], match["of"] or match["of2"]
                if int(own) < int(of):
                    told.add(int(own))
    if len(told) != 1 or not set(speakers) <= told:
        return named
    return replace(named, rank=told.pop())
