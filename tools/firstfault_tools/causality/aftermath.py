"""Which failures belong to an attempt that is over, or to the clean-up of a stop from outside?

A preemption that the job came back from is not why its later attempt fails. What processes complain of
while they are being stopped (broken links, contained CUDA errors, lost peers) follows from the stop, where
the steps went on until it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from firstfault_tools.averages import median
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.progress import ProgressReader
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.scan import make_line
from firstfault_tools.roles import Role

_DEEP = (Level.CAUSE, Level.FAILURE)
_BEGINS = expression(
    r"torch/distributed/run\.py:\d+\]|\b[Rr]esum(?:ing|ed) (?:training )?(?:from|at|with)\b|\b[Rr]estor(?:ing|ed) (?:\w+ ){0,3}(?:from|checkpoint)\b|"
    r"\b[Ll]oad(?:ing|ed) (?:\w{1,20} )?checkpoint (?:from|at)\b|\b[Aa]ttempting to resume from\b|will restart worker group|\battempt[ =:#]{1,2}[2-9]\b|"
    r"\b[Rr]estart(?:ing)? (?:count|attempt|the job)\b"
)
_WORDS = ("run.py", "esum", "estor", "oad", "restart", "estart", "attempt")
"""What a job writes when it begins anew."""

_VICTIMS = (Category.HARDWARE, Category.COMMUNICATION, Category.CODE_BUG, None)
"""What a driver, a kernel or a scheduler reports is no process's complaint."""

_FOUND_NONE = expression(
    r"(?i)\bcheckpoint\b.{0,80}\b(?:not found|(?:does|do) not exist|missing)\b|\bno checkpoint\b|\bfrom scratch\b"
)
"""What a job writes that was to resume and finds nothing."""

FIRST_STAMP = 60
_HEAD_LINES = 2_000
"""Kept lines in which a trainer says what it starts from: after arguments and imports, before its steps."""

_STEP_NUMBER = expression(
    r"(?<![A-Za-z_-])(?:[A-Za-z][A-Za-z_-]{1,40}|(?:step|iteration|iter)s?[ =:]{1,3})0{0,9}([1-9]\d{1,8})\b"
)
"""`checkpoint-2000`, `iter_0041000`, `global_step2000`, `at iteration 41000`; a date or a path of figures is none."""

_STEPS, LEAST_STEPS = 40, 3
LATE_STEPS, LATE_S = 3.0, 60.0
"""The last step lies no further before the stop than so many usual steps, or so many seconds: the run went on."""


PAST = Rule(
    "attempt-that-is-over",
    Relation.CONTRADICTS,
    "the job began anew after it and failed then of something else",
)
STOOD_STILL = Rule(
    "cancelled-after-a-standstill",
    Relation.EXPLAINS,
    "ranks had waited in vain before somebody ended the job: why they waited is the fault",
)
STOPPED = Rule(
    "complaint-during-a-stop",
    Relation.EXPLAINS,
    "the steps went on until the stop from outside, and it is told after that",
)


def weigh_aftermath(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail | None = None
) -> list[Finding]:
    """The findings, those of an attempt that is over as context, those of a stop from outside as symptoms."""
    trail = trail or Trail()
    stops = [f for f in findings if _is_stop(f)]
    if not stops:
        return list(findings)
    past = [f for f in stops if _is_past(incident, f, findings)]
    still = [f for f in stops if f not in past and _waited_before(f, findings) is not None]
    current = [f for f in stops if f not in (*past, *still) and _went_on_until(incident, f)]
    out = []
    for finding in findings:
        stop = next((s for s in current if _is_victim(finding) and _follows(finding, s)), None)
        if finding in past:
            out.append(replace(finding, level=Level.CONTEXT))
            trail.note(PAST, finding, out[-1])
        elif finding in still:
            out.append(replace(finding, level=Level.CONTEXT))
            trail.note(STOOD_STILL, finding, out[-1], _waited_before(finding, findings))
        elif stop is not None:
            out.append(replace(finding, level=Level.SYMPTOM))
            trail.note(STOPPED, finding, out[-1], stop)
        else:
            out.append(finding)
    return out


def _is_stop(finding: Finding) -> bool:
    """A scheduler, a launcher or a person ended the processes."""
    stops = finding.category is Category.SCHEDULER or finding.has(FindingRole.TOLD_TO_STOP)
    return _is_live(finding) and stops and bool(finding.evidence)


def _is_past(incident: LogIncident, stop: Finding, findings: Sequence[Finding]) -> bool:
    """The job began anew after it and failed then of something else, or goes on in another log."""
    return (
        _failed_anew(incident, stop, findings)
        or _goes_on_elsewhere(incident, stop, findings)
        or _tried_again_later(incident, stop, findings)
    )


def _tried_again_later(incident: LogIncident, stop: Finding, findings: Sequence[Finding]) -> bool:
    """Another log begins after the stop with a word of the checkpoint it resumes from, or does not find, and fails for itself."""
    files = {e.file for e in stop.evidence}
    if stop.time is None:
        return False
    later = {
        file
        for file in incident.progress
        if file not in files
        and incident.role_of(file) is Role.RUN
        and _begins_later(incident, file, stop.time)
    }
    return any(
        _is_live(f) and f.category is not Category.SCHEDULER and e.file in later
        for f in findings
        for e in f.evidence
    )


def _begins_later(incident: LogIncident, file: str, time: float) -> bool:
    """The first stamp of a log lies after `time`, and its head tells of a resume."""
    digest = incident.digest_of(file)
    head = list(islice(digest.kept, _HEAD_LINES))
    stamps = (make_line(file, n, t, digest.year).time for n, t in head[:FIRST_STAMP])
    first = next((t for t in stamps if t is not None), None)
    if first is None or first <= time:
        return False
    return any(_BEGINS.search(t[:400]) or _FOUND_NONE.search(t[:400]) for _, t in head)


def _waited_before(stop: Finding, findings: Sequence[Finding]) -> Finding | None:
    """Ranks that waited in vain, told in the same log ahead of the line by which somebody ended the job."""
    if not stop.has(FindingRole.STOPPED):
        return None
    first = min(stop.evidence, key=lambda e: e.line)
    return next(
        (
            f
            for f in findings
            if f.has(FindingRole.WAITING)
            and not f.survived
            and any(e.file == first.file and e.line < first.line for e in f.evidence)
        ),
        None,
    )


def _goes_on_elsewhere(incident: LogIncident, stop: Finding, findings: Sequence[Finding]) -> bool:
    """Another log of the run takes up a step of this one, and trains on or fails for itself there."""
    files = {e.file for e in stop.evidence}
    before = [incident.progress[f] for f in files if f in incident.progress]
    steps = [p.counter for r in before if (p := r.last_training()) is not None and p.counter]
    if not steps:
        return False
    for file, reader in incident.progress.items():
        if file in files or incident.role_of(file) is not Role.RUN:
            continue
        if _takes_up(incident, file, max(steps)) and (
            reader.trained()
            or any(_is_live(f) and any(e.file == file for e in f.evidence) for f in findings)
        ):
            return True
    return False


def _takes_up(incident: LogIncident, file: str, last: int) -> bool:
    """A line of its begin says that it loads a checkpoint of no later step than the `last` one, and not of the first."""
    digest = incident.digest_of(file)
    lines = (text for _, text in islice(digest.kept, _HEAD_LINES) if _BEGINS.search(text[:400]))
    numbers = (int(n) for text in lines for n in _STEP_NUMBER.findall(text))
    return any(last / 2 < n <= last for n in numbers)


def _is_live(finding: Finding) -> bool:
    """A cause or failure that the run did not get over."""
    return finding.level in _DEEP and not finding.survived


def _failed_anew(incident: LogIncident, stop: Finding, findings: Sequence[Finding]) -> bool:
    """The job began anew after it in the same log and failed then of something else."""
    last = max(stop.evidence, key=lambda e: e.line)
    begins = next(_begins_after(incident, last.file, last.line), None)
    return begins is not None and any(
        f.level is Level.CAUSE
        and f.category not in (Category.SCHEDULER, Category.PERFORMANCE)
        and not f.survived
        and any(e.file == last.file and e.line > begins for e in f.evidence)
        and not any(e.file == last.file and 0 < e.line < last.line for e in f.evidence)
        for f in findings
    )


def _begins_after(incident: LogIncident, file: str, number: int) -> Iterator[int]:
    if file in incident.progress:
        digest = incident.digest_of(file)
        for run in digest.kept.runs:
            if run.first + run.count <= number or not run.holds(_WORDS):
                continue
            for at, text in enumerate(run.texts(), run.first):
                if at > number and _BEGINS.search(text[:400]):
                    yield at


def _went_on_until(incident: LogIncident, stop: Finding) -> bool:
    """Steps were taken until the stop came: nothing stood still or had failed before."""
    first = min(stop.evidence, key=lambda e: e.line)
    reader = incident.progress.get(first.file)
    if reader is None:
        return False
    stamps = _times_before(reader, first.line)
    when = first.time or _time_near(incident, first.file, first.line)
    if len(stamps) < LEAST_STEPS or when is None:
        return False
    usual = median(a - b for a, b in pairwise(stamps))
    return 0 <= when - stamps[0] <= max(LATE_STEPS * usual, LATE_S)


def _times_before(reader: ProgressReader, number: int) -> list[float]:
    """Times of the last steps before a line, latest first."""
    steps = [p.number for p in islice((p for p in reader.before(number) if p.training), _STEPS)]
    if len(steps) < LEAST_STEPS:
        steps = [n for n in reader.recognised_steps()[0] if n < number][-_STEPS:][::-1]
    digest = reader.digest
    rows = (digest.kept[digest.position(n)] for n in steps)
    times = (make_line(digest.file, n, text, digest.year).time for n, text in rows)
    return [t for t in times if t is not None]


def _time_near(incident: LogIncident, file: str, number: int) -> float | None:
    digest = incident.digest_of(file)
    at = digest.position(number)
    rows = digest.kept[max(0, at - 2) : at + 3]
    times = (make_line(file, n, t, digest.year).time for n, t in rows)
    return next((t for t in times if t is not None), None)


def _is_victim(finding: Finding) -> bool:
    """A process's own complaint of a link, a peer or its GPU."""
    own = not finding.has(FindingRole.OF_MACHINE)
    return _is_live(finding) and own and finding.category in _VICTIMS and bool(finding.evidence)


def _follows(finding: Finding, stop: Finding) -> bool:
    """All that it quotes stands after the stop in the same log."""
    first = min(stop.evidence, key=lambda e: e.line)
    return all(e.file == first.file and e.line > first.line for e in finding.evidence)
