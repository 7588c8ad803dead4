"""Which log is that of another job? One that came to its own good end days apart and has nothing in common with the run.

A person hands over a whole folder, or a log "that went well" of something else. Its good end says nothing of the run
that is asked about, and its numbers are no measure for it, so it is laid aside before anything is weighed. Whatever
ties it to the others keeps it: a host, a number of a job, a path, a setting with its value, the form or the number
of its steps; an earlier attempt or the good run of two shares at least one of these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from firstfault_tools.causality.incident import MOST_SORTED, LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.log.clock import read_time
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.roles import Role

SPAN_LINES, DAYS_APART_S = 60, 86_400.0
"""Lines at both ends of a log in which its times are looked for; seconds between two logs that are no two ranks of one
job, nor its launcher and its ranks."""

LINES, CHARS = 2_000, 400
"""Of a log, and of each line, that are looked at for what it shares with another; two jobs differ from their heads on."""

STEPS = 40
"""Lines of progress whose form is compared."""

_JOB = expression(r"(?i)\bjob(?:[_ -]?id)?[ =:#]{1,3}(\d{3,12})\b")
_OF = expression(r"(?<![\w./-])\d{1,9} ?/ ?(\d{2,9})(?![\w./])")
_IN_NAME = expression(r"\d{4,12}")
_PATH = expression(r"(?<![\w.:/])/[\w.-]{1,80}(?:/[\w.-]{1,80}){1,12}")
_SETTING = expression(r"(?<![\w.])([A-Za-z][\w.-]{3,40})=([\w./+-]{1,60})(?![\w=])")
_DIGITS = expression(r"[-+]?\d[\d.,:]*(?:e[-+]?\d{1,3})?")
_SYSTEM = ("/usr", "/opt", "/lib", "/bin", "/etc", "/proc", "/sys", "/dev", "/tmp")
"""Paths that any two programs share."""

Tie = tuple[str, str]
"""Kind and value: a host, a number of a job, a path, a setting, the form or the number of steps."""


def find_other_jobs(logs: LogIncident) -> frozenset[str]:
    """Logs that came to a good end and are of another job than every log of a run beside them."""
    if not 1 < len(logs.digests) <= MOST_SORTED:
        return frozenset()
    done = [d for d in logs.digests if _came_to_its_end(logs, d)]
    left = [
        d for d in logs.digests if d not in done and logs.role_of(d.file) is not Role.EXPERIMENT
    ]
    if not done or not any(_speaks(logs, d) for d in left):
        return frozenset()
    spans = [span for d in left if (span := read_span(d)) is not None]
    apart = [d for d in done if _lies_apart_from(d, spans)]
    marks = [(d, _marks(logs, d)) for d in left] if apart else []
    return frozenset(d.file for d in apart if not _is_tied(logs, d, marks))


def read_span(digest: FileDigest) -> tuple[float, float] | None:
    """First and last time among the first and the last lines of a log, in seconds since the epoch."""
    ends = (digest.kept[:SPAN_LINES], digest.kept[-SPAN_LINES:])
    times = [t for part in ends for _, text in part if (t := read_time(text, digest.year))]
    return (min(times), max(times)) if times else None


def lies_apart(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """A day and more lies between them."""
    return max(one[0], other[0]) - min(one[1], other[1]) > DAYS_APART_S


def _speaks(logs: LogIncident, digest: FileDigest) -> bool:
    """A log that processes wrote: its lines carry times, ranks or a count of work. A listing of a scheduler, of GPUs or of
    a folder has none of them and is no run of its own."""
    told = bool(digest.ranks) or logs.advances[digest.file] is not None
    return logs.role_of(digest.file) is Role.RUN and (told or read_span(digest) is not None)


def _came_to_its_end(logs: LogIncident, digest: FileDigest) -> bool:
    reader = logs.progress[digest.file]
    return logs.role_of(digest.file) is Role.RUN and reader.trained() and reader.finished_at() is not None and reader.says_done()  # fmt: skip


def _lies_apart_from(digest: FileDigest, spans: Sequence[tuple[float, float]]) -> bool:
    """Where nothing beside it carries a time, only what they share is left to tell them by."""
    own = read_span(digest)
    return own is not None and all(lies_apart(own, span) for span in spans)


def are_tied(logs: LogIncident, one: FileDigest, other: FileDigest) -> bool:
    """Anything that two attempts of one job share."""
    return _is_tied(logs, one, [(other, _marks(logs, other))])


def _is_tied(
    logs: LogIncident, digest: FileDigest, others: Sequence[tuple[FileDigest, frozenset[Tie]]]
) -> bool:
    """The same beside several logs, each of which is read once."""
    own = _marks(logs, digest)
    return any(own & marks or _names(digest, d) or _names(d, digest) for d, marks in others)


def _names(one: FileDigest, other: FileDigest) -> bool:
    """The number in the name of a log, which is its job's (`slurm-55120.out`), stands in the other."""
    numbers = set(_IN_NAME.findall(one.file))
    lines = (text[:CHARS] for _, text in islice(other.kept, LINES)) if numbers else ()
    return any(number in text for text in lines for number in numbers)


def _marks(logs: LogIncident, digest: FileDigest) -> frozenset[Tie]:
    """What tells one job from another."""
    out: set[Tie] = set()
    for _, line in islice(digest.kept, LINES):
        text = line[:CHARS]
        host = read_prefix(text)[0].host
        if host:
            out.add(("host", str(host)))
        out |= {("job", m) for m in _JOB.findall(text)}
        out |= {("path", p) for p in _PATH.findall(text) if not p.startswith(_SYSTEM)}
        out |= {("setting", f"{k}={v}") for k, v in _SETTING.findall(text)}
    for progress in islice((p for p in logs.progress[digest.file].after(0) if p.training), STEPS):
        out.add(("form", _form(progress.text)))
        out |= {("steps", total) for total in _OF.findall(progress.text[:CHARS])}
    return frozenset(out)


def _form(text: str) -> str:
    """A line of progress without its numbers."""
    return re.sub(r"\s+", " ", _DIGITS.sub("#", text[:CHARS]))
