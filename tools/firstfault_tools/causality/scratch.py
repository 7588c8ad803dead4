"""Did a later attempt begin from nothing although an earlier one had got further?

A trainer that finds no checkpoint where it looks starts at its first step without an error: the reward or the
loss is that of the base model again, and nothing in its log says that this was not meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.other_jobs import are_tied
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.scan import make_line
from firstfault_tools.roles import Role

BESIDE = (
    "not found", "Not found", "Not Found", "NOT FOUND", "not exist", "NOT EXIST", "missing", "Missing", "MISSING",
    "o checkpoint", "o Checkpoint", "O CHECKPOINT", "rom scratch", "FROM SCRATCH", "rom random", "FROM RANDOM",
)  # fmt: skip

REACHED, FIRST = 20, 1
"""Step that the earlier attempt must have reached; the highest at which the later one begins."""

HEAD, STAMPED = 2_000, 60
_NONE = expression(
    r"(?i)\b(?P<what>(?:checkpoint|tracker|metadata)\b.{0,60}?)\b(?:not found|(?:does|do) not exist|missing)\b(?:\W{1,4}(?P<path>/\S{1,300}))?|"
    r"\bno checkpoint\b|\b(?:training|starting) from scratch\b|\bwill start from random\b"
)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One log of the run: when it began, its first and last step."""

    file: str
    began: float | None
    first: int
    last: int
    ends: tuple[Evidence, Evidence]


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The later attempt that began from scratch, where one did."""
    if len(incident.digests) < 2:
        return ()
    misses = {d.file: miss for d in incident.digests if (miss := _find_miss(d)) is not None}
    began = (_read_attempt(incident, file) for file in misses)
    anew = [a for a in began if a is not None and a.first <= FIRST]
    if not anew:
        return ()  # the steps of thousands of ranks are read for nobody
    attempts = [a for d in incident.digests if (a := _read_attempt(incident, d.file)) is not None]
    for later in anew:
        before = [
            a
            for a in attempts
            if a.last >= max(REACHED, later.first)
            and _is_before(a, later)
            and _is_same_job(incident, a, later)
        ]
        if before:
            return (_tell(max(before, key=lambda a: a.last), later, misses[later.file]),)
    return ()


def _is_before(one: _Attempt, other: _Attempt) -> bool:
    return one.began is not None and other.began is not None and one.began < other.began


def _is_same_job(incident: LogIncident, one: _Attempt, other: _Attempt) -> bool:
    return are_tied(incident, incident.digest_of(one.file), incident.digest_of(other.file))


def _find_miss(digest: FileDigest) -> tuple[int, str, str] | None:
    """The first line that found no checkpoint, and the path it names."""
    if not digest.kept.holds(BESIDE):
        return None
    head = islice(digest.kept, HEAD)
    return next(((n, t, m["path"] or "") for n, t in head if (m := _NONE.search(t[:600]))), None)


def _read_attempt(incident: LogIncident, file: str) -> _Attempt | None:
    advance = incident.advances[file]
    if incident.role_of(file) is not Role.RUN or advance is None or advance.counter is None:
        return None
    steps = incident.progress[file].recognised_steps()[1]
    digest = incident.digest_of(file)
    head = islice(digest.kept, STAMPED)
    stamps = (make_line(file, n, t, digest.year).time for n, t in head)
    return _Attempt(
        file=file,
        began=next((t for t in stamps if t is not None), None),
        first=steps[0] if steps else advance.counter,
        last=advance.counter,
        ends=(advance.first.evidence(), advance.last.evidence()),
    )


def _tell(before: _Attempt, later: _Attempt, miss: tuple[int, str, str]) -> Finding:
    number, text, path = miss
    quoted = quote_line(later.file, number, text)
    what = f"nothing was found at {path}" if path else "no checkpoint was found"
    return Finding(
        kind="metrics.restarted_from_scratch",
        title=(
            f"the later attempt ({later.file}) did not resume: {what}, so it began from scratch at step {later.first} with the base weights, "
            f"although the run before it ({before.file}) had reached step {before.last}; what was saved is not lost, the tracker or path that "
            "names the latest checkpoint is missing or another one"
        ),
        level=Level.CAUSE,
        category=Category.CHECKPOINT,
        evidence=(quoted, later.ends[0], before.ends[1]),
        facts={"reached": before.last, "restarted_at": later.first},
    )
