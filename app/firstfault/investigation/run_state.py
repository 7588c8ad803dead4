"""What became of the run: did it end, does it stand still, does it go on, or was it started again?

The first question of triage (seed 002, phase 1), and what decides what is done with the job itself: what ended is
started again, what stands still is stopped, what goes on is left until it has saved.
"""

from __future__ import annotations

from itertools import islice

from firstfault.investigation.diagnosis import STEPS_GO_ON, RunState
from firstfault.investigation.examination import Examination
from firstfault_tools.causality.progress import SURVIVED_STEPS, ProgressReader
from firstfault_tools.checkpoint.saves import SaveState, read_event
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence, Finding, Verdict
from firstfault_tools.roles import Role

_RAISED = expression(
    r"\b(?:[A-Z]\w{2,60}(?:Error|Exception|Interrupt)|Exception)\b(?:: |$)|\bKilled process \d|\bOOMKilled\b|\bEvicted\b|\bpreempt\w*\b|"
    r"\b(?:Segmentation fault|core dumped|Bus error|CANCELLED AT)\b|\btaking (?:the )?entire process down\b"
)
"""What a process or its keeper says that ends it."""


MOST_LAST_LINES, MOST_CHARS = 400, 2_000


def read_run_state(examination: Examination, finding: Finding | None, verdict: Verdict) -> RunState:
    """By what follows the deciding line: steps above the last one, steps that begin again, an end, or none of these."""
    logs, chain = examination.logs, examination.chain
    ended = bool(logs.exits or chain.teardown)
    place = finding.evidence[0] if finding is not None and finding.evidence else None
    if finding is None or place is None or verdict is Verdict.HEALTHY:
        return RunState.ENDED if ended and verdict is not Verdict.HEALTHY else RunState.UNSHOWN
    runs = [r for file, r in logs.progress.items() if logs.role_of(file) is Role.RUN]
    own = logs.progress.get(place.file)
    # of a deciding line in a log that counts steps its own steps tell, else those of all logs of the run
    followed = [_what_follows(r, place) for r in ([own] if own and own.trained() else runs)]
    for state in (RunState.STARTED_AGAIN, RunState.GOES_ON):
        if state in followed:
            return state
    if ended or any(_RAISED.search(e.text) for e in finding.evidence[:1]):
        return RunState.ENDED
    if any(_raises_at_last(r) or r.finished_at() for r in runs):
        return RunState.ENDED
    if finding.category in STEPS_GO_ON:
        return RunState.GOES_ON
    if verdict is not Verdict.FAULT or not runs:
        return RunState.UNSHOWN
    return RunState.STOPPED if any(r.trained() for r in runs) else RunState.NOT_BEGUN


def _raises_at_last(reader: ProgressReader) -> bool:
    """What ends a process stands after the last step of its log."""
    last = reader.last_training()
    after = reader.digest.lines_after(last.number if last is not None else 0, MOST_LAST_LINES)
    return any(_RAISED.search(text[:MOST_CHARS]) for _, text in after)


def _what_follows(reader: ProgressReader, place: Evidence) -> RunState:
    number = _line_at(reader, place)
    if number is None or reader.dies_after(number):
        return RunState.UNSHOWN
    if reader.goes_on_after(number):
        return RunState.GOES_ON
    # counters that begin again are those of another epoch, unless a checkpoint was loaded before them
    later = list(islice((p for p in reader.after(number) if p.training and p.counter is not None), SURVIVED_STEPS))  # fmt: skip
    if len(later) < SURVIVED_STEPS:
        return RunState.UNSHOWN
    kept = reader.digest.kept
    between = kept[reader.digest.position(number) + 1 : reader.digest.position(later[0].number)]
    events = (read_event(reader.digest.file, n, text) for n, text in between)
    loaded = any(e is not None and e.state is SaveState.LOADED for e in events)
    return RunState.STARTED_AGAIN if loaded else RunState.GOES_ON


def _line_at(reader: ProgressReader, place: Evidence) -> int | None:
    """Line of a log after which the deciding line was written, by its number or its time; None where neither tells."""
    if place.file == reader.digest.file:
        return place.line
    if place.time is None or not reader.steps_after(place.time):
        return None
    timed = ((p, reader.line(p).time) for p in reader.before(2**62) if p.training)
    return next((p.number for p, t in timed if t is not None and t <= place.time), 0)
