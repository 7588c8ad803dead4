"""Is it proven that nothing is wrong? Healthy is an explanation like any other and needs evidence.

All of its conditions are needed: the run's own end is clean or its progress goes on to the last line, and what it
prints beside it does not end worse than it began; every file was understood; nothing that reads like an error
stands unexplained; what the person complains of or states in any other words was seen and is fine. Where one fails the answer is `unknown`, with what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import StrEnum

from firstfault.investigation.clauses import is_against_another
from firstfault.investigation.diagnosis import SkippedInput
from firstfault.investigation.examination import Examination
from firstfault.investigation.stated import (
    TOLD_WAIT,
    find_unexplained,
    is_paused,
    is_quantity_steady,
    was_start,
)
from firstfault.investigation.steadiness import tell_worse
from firstfault.investigation.suspicion import suspicious_lines
from firstfault.investigation.vetoes import Statement, not_shown, read_statement
from firstfault_tools.causality.advance import Advance
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.other_jobs import are_tied, lies_apart, read_span
from firstfault_tools.causality.progress import ProgressReader
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Complaint, Evidence, Finding, Level
from firstfault_tools.log.digest import STOPPED, FileDigest, Line
from firstfault_tools.log.scan import make_line
from firstfault_tools.registry import EMPTY_FILE
from firstfault_tools.roles import Role

LAGGING_STRIDES = 3.0
"""A log whose last counter is so many of its strides behind another's stops before it."""

NOTICE_SHARE = 3
"""Where at least one line in so many is a notice known to be harmless, the input is about the notice."""

OF_NCCL = 0.95
"""Share of the lines of a log from which on it is NCCL's own."""

_SPOKEN = expression(r"^(?P<host>[\w.-]+):(?P<pid>\d+):\d+ \[\d+\] NCCL ")
_TESTED = expression(r"^#\s+Rank\s+\d+ .*\bPid\s+(?P<pid>\d+) on\s+(?P<host>[\w.-]+)\s")


class Condition(StrEnum):
    """What must be shown before a run is called healthy."""

    END = "end"
    UNDERSTOOD = "understood"
    QUIET = "quiet"
    STEADY = "steady"
    ANSWERED = "answered"


class Ground(StrEnum):
    """What the first condition rests on. reported: only a launcher says that it ended well, after steps were seen."""

    FINISHED = "finished"
    REPORTED = "reported"
    GOES_ON = "goes_on"
    TEST_PASSED = "test_passed"
    NOTICE = "notice"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Check:
    """One condition: whether it holds, the lines that show it, and the reason where it does not.

    complaint: what is complained of and was not seen to be fine; words: what is stated in other words.
    """

    condition: Condition
    holds: bool
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""
    complaint: Complaint | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class HealthProof:
    """All conditions of one incident. `ground` says how the run stands, `step` where it stood last.

    suspicious: lines that read like an error and that nothing explains.
    """

    checks: tuple[Check, ...]
    ground: Ground
    step: int | None = None
    suspicious: tuple[Line, ...] = ()

    @property
    def holds(self) -> bool:
        """Every condition is shown."""
        return all(check.holds for check in self.checks)

    @property
    def missing(self) -> tuple[Check, ...]:
        """Conditions that are not shown."""
        return tuple(check for check in self.checks if not check.holds)

    def lacks_only(self, condition: Condition) -> bool:
        """Nothing but this one is missing."""
        return {check.condition for check in self.missing} == {condition}

    @property
    def quiet(self) -> bool:
        """Nothing that reads like an error stands unexplained."""
        return all(c.holds for c in self.checks if c.condition is Condition.QUIET)

    @property
    def shows_progress(self) -> bool:
        """The run's own end is clean or its steps go on to the last line, every file understood.

        Two of the four conditions: those that no opinion on a single line changes.
        """
        own = self.ground in (Ground.FINISHED, Ground.REPORTED, Ground.GOES_ON)
        seen = (Condition.END, Condition.UNDERSTOOD)
        return own and all(c.holds for c in self.checks if c.condition in seen)

    @property
    def not_shown(self) -> str:
        """What the answer without this proof does not show, in words."""
        asked = [not_shown(c.complaint) for c in self.missing if c.complaint is not None]
        stated = [f"what the question states: «{c.words}»" for c in self.missing if c.words]
        return next(iter((*asked, *stated)), "that the run is well")

    @property
    def shown_by(self) -> tuple[Evidence, ...]:
        """The line that shows how the run stands."""
        return self.checks[0].evidence


def prove_health(
    examination: Examination,
    question: str,
    answer: Finding | None = None,
    skipped: Sequence[SkippedInput] = (),
) -> HealthProof:
    """Proof, or what it lacks. answer: the finding that answers the question, where there is one."""
    said = read_statement(question)
    end, ground, step = _check_end(examination, said, question)
    suspicious = tuple(suspicious_lines(examination))
    checks = (
        end,
        _check_understood(examination, skipped),
        _check_quiet(examination, suspicious),
        *_check_steady(examination, ground),
        *_check_answered(examination, said, ground, answer),
    )
    return HealthProof(checks, ground, step, suspicious)


@dataclass(slots=True)
class _Ends:
    """How the logs of a run end. going: whose work goes on; hollow: whose good end only a launcher reports."""

    finished: list[Evidence] = field(default_factory=list)
    reported: list[Evidence] = field(default_factory=list)
    going: list[tuple[FileDigest, Advance]] = field(default_factory=list)
    halted: list[str] = field(default_factory=list)
    hollow: list[str] = field(default_factory=list)


def _read_ends(logs: LogIncident, runs: Sequence[FileDigest]) -> _Ends:
    ends = _Ends()
    accounts = (d for d in logs.digests if logs.advances[d.file] is None)
    accounted = [f for d in accounts if (f := _finish_line(logs.progress[d.file])) is not None]
    for digest in runs:
        reader = logs.progress[digest.file]
        advance = logs.advances[digest.file]
        finish = _finish_line(reader)
        if finish is None and accounted and advance is not None and reader.full():
            ends.finished += (advance.last.evidence(), accounted[0].evidence())
            continue
        if finish is not None and reader.says_done():
            ends.finished.append(finish.evidence())
        elif advance is not None and advance.halted:
            ends.halted.append(f"{digest.file}: {advance.halted}")
        elif advance is not None and finish is None:
            ends.going.append((digest, advance))
        elif finish is not None and advance is not None and not advance.unfinished:
            ends.reported.append(finish.evidence())
            ends.going.append((digest, advance))
        elif finish is not None:
            ends.hollow.append(f"{digest.file}: a launcher reports a good end, which does not show that the run came to its own")  # fmt: skip
    return ends


def _check_end(
    examination: Examination, said: Statement, question: str
) -> tuple[Check, Ground, int | None]:
    """The run's own end is clean, or its work goes on to the last line."""
    logs = examination.logs
    of_tests = _find_test_processes(examination)
    runs = [
        d
        for d in logs.digests
        if logs.role_of(d.file) is Role.RUN and not _is_log_of_test(d, of_tests)
    ]
    ends = _read_ends(logs, runs)
    halted = ends.halted if ends.finished else [*ends.halted, *_lagging(ends.going)]
    shown = [d for d in runs if logs.advances[d.file] or _finish_line(logs.progress[d.file])]
    halted = [*halted, *_silent_apart(runs, shown), *_untied_faults(examination, shown)]
    last = max((a for _, a in ends.going), key=lambda a: a.counter or 0, default=None)
    step = last.counter if last is not None else None
    if halted:
        return Check(Condition.END, False, reason="; ".join(halted[:3])), Ground.NONE, step
    if ends.finished:
        return Check(Condition.END, True, tuple(ends.finished[:2])), Ground.FINISHED, step
    if ends.reported:
        return Check(Condition.END, True, tuple(ends.reported[:2])), Ground.REPORTED, step
    if last is not None:
        places = (last.last.evidence(), last.first.evidence())
        return Check(Condition.END, True, places), Ground.GOES_ON, step
    if not runs and not said.complaints and (passed := _passed_test(examination)) is not None:
        return Check(Condition.END, True, passed.evidence[:1]), Ground.TEST_PASSED, None
    if question.strip() and not said.complaints and _is_notice(examination):
        return Check(Condition.END, True), Ground.NOTICE, None
    reason = "; ".join(ends.hollow[:2]) or "neither the run's end nor a step that it takes is in what was read"  # fmt: skip
    if not runs:
        reason = "no log of the run itself was read"
        if any(logs.role_of(d.file) is Role.EXPERIMENT for d in logs.digests):
            reason += ", and a test on the same machines does not speak for it"
    return Check(Condition.END, False, reason=reason), Ground.NONE, None


def _finish_line(reader: ProgressReader) -> Line | None:
    """The line that tells of a good end, with no step after it."""
    number = reader.finished_at()
    if number is None:
        return None
    text = next((t for n, t in reader.digest.kept if n == number), "")
    return make_line(reader.digest.file, number, text, reader.digest.year)


def _lagging(going: Sequence[tuple[FileDigest, Advance]]) -> list[str]:
    """Logs of one run whose counter stops well before that of the others."""
    counted = [(d, a) for d, a in going if a.counter is not None and a.stride > 0]
    most = max((a.counter or 0 for _, a in counted), default=0)
    return [
        f"{d.file}: its last step is {a.counter} while another log goes on to {most}"
        for d, a in counted
        if most - (a.counter or 0) > LAGGING_STRIDES * a.stride
        and _alike(a, counted)
        and not _continued(a, counted)
    ]


def _silent_apart(runs: Sequence[FileDigest], shown: Sequence[FileDigest]) -> list[str]:
    """Logs of ranks that neither end nor take a step, where every log that does was written days away: another job's
    good end does not speak for them."""
    spans = [read_span(d) for d in shown]
    silent = [(d, read_span(d)) for d in runs if d not in shown and d.ranks]
    return [
        f"{d.file}: it neither ends nor takes a step, and the log that does is of another day"
        for d, span in silent
        if shown and span and all(s and lies_apart(span, s) for s in spans)
    ]


def _untied_faults(examination: Examination, shown: Sequence[FileDigest]) -> list[str]:
    """Causes told without a time in a file that nothing ties to a log that shows the run's end: it may be another's."""
    logs = examination.logs
    read = {d.file: d for d in logs.digests}
    told = {
        e.file: f.title
        for f in examination.chain.survived
        if f.level is Level.CAUSE
        for e in f.evidence[:1]
        if e.time is None and e.file in read and read[e.file] not in shown
    }
    return [
        f"{file}: nothing ties it to the log that goes on: {title[:120]}"
        for file, title in told.items()
        if shown and not any(are_tied(logs, read[file], d) for d in shown)
    ]


def _alike(advance: Advance, counted: Sequence[tuple[FileDigest, Advance]]) -> bool:
    """The others count in strides like its own: they are ranks of one run, not another program."""
    return all(0.2 <= other.stride / advance.stride <= 5 for _, other in counted)


def _continued(advance: Advance, counted: Sequence[tuple[FileDigest, Advance]]) -> bool:
    """Another log takes up where this one ends: an earlier part of the run, as of a chain of jobs."""
    end, most = advance.counter or 0, LAGGING_STRIDES * advance.stride
    return any(other.begun is not None and 0 <= other.begun - end <= most for _, other in counted)


def _passed_test(examination: Examination) -> Finding | None:
    """Nothing ran but tests of the machines, and each printed its last lines and had no wrong value."""
    findings = examination.findings
    wrong = any(f.kind in ("network.nccl_wrong", "network.nccl_slow_node") for f in findings)
    passed = [f for f in findings if f.kind == "network.nccl_passed"]
    files = {e.file for f in passed for e in f.evidence}
    logs = examination.logs
    tests = {d.file for d in logs.digests if logs.role_of(d.file) is Role.EXPERIMENT}
    ended = sum(1 for _ in logs.lines_with(("Out of bounds values",)))
    begun = sum(1 for _, _, text in logs.lines_with(("_perf ",)) if "/" in text)
    whole = files == tests and begun <= ended
    return passed[0] if passed and not wrong and whole else None


def _find_test_processes(examination: Examination) -> frozenset[tuple[str, str]]:
    """(host, pid) of the processes that the tests of the machines list."""
    rows = (_TESTED.search(text) for _, _, text in examination.logs.lines_with((" Pid ",)))
    return frozenset((row["host"], row["pid"]) for row in rows if row is not None)


def _is_log_of_test(digest: FileDigest, processes: frozenset[tuple[str, str]]) -> bool:
    """What NCCL itself wrote in just the processes of a test (NCCL_DEBUG=INFO): it tells of no training."""
    if not processes:
        return False
    lines = [text for _, text in digest.kept if text.strip()]
    spoken = [m for text in lines if (m := _SPOKEN.match(text)) is not None]
    told = {(m["host"], m["pid"]) for m in spoken}
    return bool(told) and told <= processes and len(spoken) >= OF_NCCL * len(lines)


def _is_notice(examination: Examination) -> bool:
    """The input is little more than notices known to be harmless, as when somebody asks about one."""
    lines = sum(1 for d in examination.logs.digests for _, text in d.kept if text.strip())
    quoted = {(e.file, e.line) for f in examination.chain.benign for e in f.evidence}
    return bool(quoted) and len(quoted) * NOTICE_SHARE >= lines


def _check_understood(examination: Examination, skipped: Sequence[SkippedInput]) -> Check:
    """Every file was read, and it is known what each is."""
    logs = examination.logs
    unknown = [
        f"{d.file} is of no kind that is known here"
        for d in logs.digests
        if d.file not in examination.claimed and logs.role_of(d.file) is Role.UNKNOWN
    ]
    files = set(examination.files)
    read = {d.file for d in logs.digests} | examination.claimed
    unread = [
        f"{s.what}: {s.why}"
        for s in examination.skipped
        if s.what in files - read or s.why.startswith(STOPPED)
    ]
    unread += [f"{s.what}: {s.why}" for s in skipped if s.why != EMPTY_FILE]
    reasons = [*unread, *unknown]
    return Check(Condition.UNDERSTOOD, not reasons, reason="; ".join(reasons[:3]))


def _check_quiet(examination: Examination, lines: Sequence[Line]) -> Check:
    """No line that reads like an error stands unexplained after the last progress."""
    left = [e for f in examination.chain.teardown for e in f.evidence[:1]]
    evidence = (*left, *(line.evidence() for line in lines))[:3]
    reason = "a line that reads like an error is not explained" if evidence else ""
    return Check(Condition.QUIET, not evidence, evidence, reason)


def _check_steady(examination: Examination, ground: Ground) -> Iterator[Check]:
    """Steps that go on show health only where what they print does not end worse than it began."""
    if ground is Ground.GOES_ON and (reason := tell_worse(examination)):
        yield Check(Condition.STEADY, False, reason=reason)


def _check_answered(
    examination: Examination, said: Statement, ground: Ground, answer: Finding | None
) -> Iterator[Check]:
    """What the person complains of was seen and is fine: one check a complaint, one for all else that is stated."""
    for complaint in said.complaints or (None,):
        fine = complaint is None or _is_fine(examination, complaint, said, ground, answer)
        reason = "" if fine else "what is complained of was not seen to be fine"
        yield Check(Condition.ANSWERED, fine, reason=reason, complaint=complaint)
    left = find_unexplained(examination, said, answer, ground is Ground.FINISHED)
    if left:
        reason = "nothing that was read explains what the question states"
        yield Check(Condition.ANSWERED, False, reason=reason, words="; ".join(left[:2]))


OF_CLASS: dict[Complaint, tuple[Category, ...]] = {
    Complaint.SLOW: (Category.PERFORMANCE,),
    Complaint.STALLED: (Category.PERFORMANCE, Category.DATA),
    Complaint.DIED: (Category.SCHEDULER,),
    Complaint.DIVERGED: (Category.NUMERICAL,),
    Complaint.UNLEARNED: (Category.NUMERICAL, Category.CODE_BUG, Category.CHECKPOINT),
    Complaint.WRONG: (Category.NUMERICAL, Category.DATA),
    Complaint.SETBACK: (Category.NUMERICAL, Category.CHECKPOINT),
    Complaint.ENDLESS: (Category.DATA,),
    Complaint.MEMORY: (Category.OOM,),
}
"""Category of a harmless finding that shows a complaint's quantity to be fine."""

_MEASURED = (Complaint.SLOW, Complaint.DIVERGED, Complaint.SETBACK)
"""Complaints of numbers that a judged curve answers, whatever its category."""

_SPIKE = "metrics.loss_spike"
"""That a jump of the loss was got over does not show that the model learns."""

_QUOTED_WARNING = "question.warning"
"""That a warning was outlived says nothing of a complaint beside it."""


def _is_fine(
    examination: Examination,
    complaint: Complaint,
    said: Statement,
    ground: Ground,
    answer: Finding | None,
) -> bool:
    """The quantity was seen, in the answer to the question or in what the run is known to have got over."""
    if complaint in (Complaint.DIED, Complaint.STALLED) and ground is Ground.FINISHED:
        return complaint is Complaint.DIED or not said.at_end
    classes = OF_CLASS.get(complaint, ())
    if answer is not None and _answers(answer, classes):
        return True
    if complaint is Complaint.SLOW and is_against_another(said.text):
        return False  # a pace that is steady may still be slower than it was
    if complaint is Complaint.WRONG:
        return False  # scores and outputs that were not read; a level loss says nothing of them
    if complaint is Complaint.STALLED:
        waited = said.wait_s
        return waited is not None and (
            is_paused(examination, TOLD_WAIT * waited) or was_start(examination, waited)
        )
    if complaint is Complaint.DIVERGED and is_quantity_steady(examination, said.text):
        return True
    chain = examination.chain
    if complaint is Complaint.DIED:
        return any(f.category in classes for f in chain.survived)
    return any(accounts_for(f, complaint) for f in (*chain.benign, *chain.survived))


def _answers(finding: Finding, classes: Sequence[Category]) -> bool:
    """The finding shows the very quantity that the question is about, and that it is fine."""
    asked = finding.kind.startswith("question.") and finding.kind != _QUOTED_WARNING
    return asked and finding.level is Level.BENIGN and finding.category in classes


def accounts_for(finding: Finding, complaint: Complaint) -> bool:
    """A harmless or outlived finding shows that what is complained of is fine."""
    if complaint is Complaint.UNLEARNED and finding.kind.startswith(_SPIKE):
        return False
    judged = finding.kind.startswith("metrics.")
    if complaint is Complaint.UNLEARNED:
        return judged and finding.category in OF_CLASS[complaint]
    return (complaint in _MEASURED and judged) or finding.category in OF_CLASS.get(complaint, ())
