"""What stands round the first fault? Checks the user pasted, and warnings just before it.

Both are quoted, never interpreted: they are what an engineer would point at with a finger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstfault.investigation.examination import Examination
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.log.clock import NO_YEAR, read_time
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MAX_CHECKS, MAX_OUTPUT, MAX_WARNINGS = 2, 4, 2
LOOK_BACK = 400
_PROMPT = expression(
    r"^\s*(?:\[?[\w.-]+@[\w.-]+[^$#]{0,60}[$#]|\$|#)\s+(?P<command>[a-z][\w./-]*(?:\s.*)?)$"
)
_WARNING = expression(
    r"\b(?:WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|\b[Ww]arning:|\bNOTE\b|\b[Hh]int\b"
)
_NOISE = expression(
    r"ProcessGroupNCCL|OMP_NUM_THREADS|FutureWarning|DeprecationWarning|closing signal|TCPStore|"
    r"Traceback|File \"|errors\.py|elastic|^\s*frame #"
)

_STARTS = expression(
    r"\b(?:docker|podman|nerdctl) run\b|\b(?:torchrun|sbatch|accelerate launch|torch\.distributed\.(?:run|launch))\s"
)
"""Commands that start the job: what follows them is its log and no answer to a question."""


def pasted_checks(examination: Examination) -> Iterator[tuple[str, list[Line]]]:
    """(command, lines of its output) of shell snippets that the user pasted beside the log."""
    found = 0
    for digest in examination.logs.digests:
        rows = list(digest.kept)
        for index in range(len(rows)):
            number, text = rows[index]
            match = _PROMPT.match(text) if text.lstrip()[:1] in "$#[" or "@" in text[:40] else None
            if match is None or _STARTS.search(match["command"]) is not None or _is_heading(text):
                continue
            output: list[Line] = []
            for later in range(index + 1, min(index + 1 + MAX_OUTPUT, len(rows))):
                if not rows[later][1].strip() or _PROMPT.match(rows[later][1]):
                    break
                output.append(make_line(digest.file, *rows[later], digest.year))
            if output and number:
                found += 1
                yield match["command"][:160], output
            if found >= MAX_CHECKS:
                return


def _is_heading(text: str) -> bool:
    """A comment above a table, and no command of root's: it says when the table was taken, or ends as titles do."""
    line = text.strip()
    dated = read_time(line, NO_YEAR) is not None and " -" not in line
    return line.startswith("# ") and (line.endswith(":") or dated)


def warnings_before(examination: Examination, finding: Finding) -> list[Line]:
    """Warnings that precede the first fault in its file, nearest first, one of each kind."""
    place = finding.evidence[0] if finding.evidence else None
    if place is None or place.line == 0 or place.file not in examination.logs.progress:
        return []
    quoted = {(e.file, e.line) for f in examination.findings for e in f.evidence}
    digest = examination.logs.digest_of(place.file)
    out: dict[str, Line] = {}
    end = digest.position(place.line)
    for position in range(end - 1, max(end - LOOK_BACK, -1), -1):
        number, text = digest.kept[position]
        if (place.file, number) in quoted or not _WARNING.search(text) or _NOISE.search(text):
            continue
        line = make_line(digest.file, number, text, digest.year)
        if examination.logs.survived(line):
            break
        out.setdefault(re.sub(r"[\d\W]+", "", line.message)[:40], line)
        if len(out) >= MAX_WARNINGS:
            break
    return list(out.values())
