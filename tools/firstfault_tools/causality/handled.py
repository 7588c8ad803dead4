"""Did the program say that it dealt with a fault, and go on? Such a line is no first fault."""

from __future__ import annotations

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

LINES_AFTER = 3
"""Lines of the same speaker in which a program says what it did about the fault before them."""

_DEALT = expression(
    r"(?i)\bskip(?:ped|ping)\b|\bfall(?:ing|s)? ?back\b|\bfallback\b|\bretr(?:y|ies|ying)\b|\bre-?trying\b|"
    r"\bignor(?:ed|ing)\b|\breplaced (?:by|with)\b|\bsubstitut(?:ed|ing)\b|\busing .{1,40} instead\b|"
    r"\bnot found, using\b|\bdropp(?:ed|ing) (?:the )?(?:sample|batch|record|row)|\bcaught and\b|\brecovered\b|\bresuming normal\b"
)
_GIVES_UP = expression(
    r"(?i)giv(?:es|e|ing) up|exhausted|abort|fatal|exceeded|all (?:\d+ )?(?:retries|attempts)|no more|last attempt|"
    r"too many|every sample|all samples"
)


def is_handled(incident: LogIncident, line: Line) -> bool:
    """The line, or its speaker right after it, says it was dealt with, and a training step follows."""
    if not _dealt(line.text) and not _dealt_after(incident, line):
        return False
    after = incident.progress[line.file].after(line.number)
    return any(p.training for p in after)


def _dealt(text: str) -> bool:
    return _DEALT.search(text) is not None and _GIVES_UP.search(text) is None


def _dealt_after(incident: LogIncident, line: Line) -> bool:
    digest = incident.digest_of(line.file)
    left = LINES_AFTER
    for number, text in digest.lines_after(line.number, 4 * LINES_AFTER):
        other = make_line(digest.file, number, text, digest.year)
        if other.place.key != line.place.key:
            continue
        if _dealt(other.text):
            return True
        left -= 1
        if left == 0 or other.message.startswith(("Traceback", "  File")):
            return False
    return False
