"""How often did the same fault end an attempt within one log, where a launcher restarts its workers?"""

from __future__ import annotations

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.postmortem.evidence import Artefacts
from firstfault_tools.expressions import expression

_NEXT_ATTEMPT = expression(r"attempts left; will restart worker group|\brestart_count=[1-9]\d*\b")
"""torch/distributed/elastic/agent/server/api.py: what torchrun's agent prints between two attempts."""
_VARIES = expression(r"0x[0-9a-fA-F]+|\d+")


def count_meetings(diagnosis: Diagnosis, artefacts: Artefacts) -> int:
    """Attempts before the last one, within the file of the first fault, that hold the line of the first fault."""
    first = diagnosis.first_line
    if first is None:
        return 0
    own = [x for x in artefacts.lines if x.file == first.file]
    wanted = _VARIES.sub("#", artefacts.text_of(first.file, first.line) or first.text)
    attempt, met = 0, set()
    for line in own:
        if _NEXT_ATTEMPT.search(line.text):
            attempt += 1
        elif _VARIES.sub("#", line.text) == wanted:
            met.add(attempt)
    return max(len(met) - 1, 0)
