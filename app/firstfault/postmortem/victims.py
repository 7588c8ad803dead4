"""Which ranks tell of trouble after the first fault? All of them, where the chain of events keeps a few of each kind."""

from __future__ import annotations

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.postmortem.evidence import Artefacts
from firstfault_tools.expressions import expression
from firstfault_tools.log.prefix import read_prefix

_TROUBLE = expression(
    r"(?i)error|exception|fatal|killed|abort|timed? ?out|watchdog caught|out of memory|\blost\b|refused|closed by|found (?:nan|inf)"
)


def ranks_in_trouble(diagnosis: Diagnosis, artefacts: Artefacts) -> tuple[int, ...]:
    """Ranks whose own lines tell of trouble from the first fault on, without the one at fault."""
    first, own = diagnosis.first_line, diagnosis.first_failing_rank
    if first is None:
        return ()
    start = artefacts.time_at(first.file, first.line, first.text)[0]
    found: set[int] = set()
    for line in artefacts.lines:
        if _TROUBLE.search(line.text) is None:
            continue
        if line.time is not None and start is not None:
            later = line.time >= start - 1
        else:
            later = line.file == first.file and line.line >= first.line
        rank = read_prefix(line.text)[0].rank if later else None
        if rank is not None:
            found.add(rank)
    return tuple(sorted(found - {own}))
