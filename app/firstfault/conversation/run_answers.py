"""What do the steps, checkpoints and ends of the run answer? Cost, where to resume, whether to restart, when it went wrong, how to lose less.

Every figure is read from lines (postmortem/lost_work.py), stands beside the line it comes from, and is left
out where no line tells it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import pairwise

from firstfault.conversation.blocks import write_block, write_quote
from firstfault.conversation.telling import Telling
from firstfault.incidents.records import Related
from firstfault.incidents.restart import (
    ALONE_SOLVES,
    FOLLOWS,
    STAYS,
    Pattern,
    find_pattern,
    starts_again,
)
from firstfault.incidents.verdicts import say_related
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault.postmortem.attempts import count_meetings
from firstfault.postmortem.lost_work import LoggedStep, Onset
from firstfault_tools.averages import median
from firstfault_tools.checkpoint.saves import SaveEvent, SaveState
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict

_STEP = expression(
    r"(?i)\b(?:step|iteration|iter|checkpoint|ckpt)[s]?[ _-]{0,3}(\d{1,9})\b|\b(\d{3,9})\b"
)
_SAVE_SECONDS = expression(
    r"(?i)\b(?:in|took|\(|, )\s?(\d{1,5}(?:\.\d{1,3})?) ?s(?:ec(?:onds?)?)?\b"
)
_WHEN = expression(r"(?i)^\W*(?:and |so )?when\b(?! (?:can|should|do) )")
_GRACE = expression(r"(?i)\bgrace(?:_?time|_?period)?(?:seconds)?\b[^\d\n]{0,12}(\d{1,5})")
SHORT_GRACE = (
    "; that is shorter than a save, so a save begun by the signal is not finished: ask for a longer one, or a signal "
    "ahead (`sbatch --signal=B:USR1@300`), or save faster and locally."
)


def clock(at: float) -> str:
    """Time of day of the evidence, UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(at))


def at_time(t: Telling) -> str:
    """', at 11:46:39 UTC' for the first fault; '' where no line tells it."""
    at = t.record.fault_time
    return f", at {clock(at)} UTC" if at is not None else ""


def at_event(t: Telling, event: SaveEvent) -> str:
    """'i3.log:4 [2]'."""
    quote = Citation(0, CitationKind.LOG, event.text[:600], file=event.file, line=event.line)
    return f"{event.file}:{event.line} {t.sources.add(quote)}"


def at_line(t: Telling, file: str, line: int, text: str) -> str:
    quote = Citation(0, CitationKind.LOG, text[:600], file=file, line=line)
    return f"{file}:{line} {t.sources.add(quote)}"


def steps_lost(t: Telling) -> str:
    """' (370 steps)', where both ends are told."""
    last, saved = t.record.last_step, t.record.resume_from
    if last is None or saved is None or saved.step is None or last.step <= saved.step:
        return ""
    return f" ({last.step - saved.step:,} steps, {saved.step + 1} to {last.step})"


_SAVE_FAILS = expression(r"(?i)error|exception|fail|no space|quota|denied|incomplete|corrupt")
_ASKS_BACK = expression(
    r"(?i)\b(?:should|must|need|have to|do) (?:i|we)\b[^?\n]{0,20}\b(?:roll|go|rewind|resume|restart)"
)


def tell_checkpoint(t: Telling) -> str:
    """Which checkpoint to resume from, and why not the newest."""
    record = t.record
    if _WHEN.match(t.asked.text):
        return tell_last_save(t)
    asked = _STEP.search(t.asked.text)
    named = int(asked[1] or asked[2]) if asked is not None else None
    best, spoiled, torn = record.resume_from, record.spoiled, record.checkpoints.unusable()
    if t.diagnosis.verdict is Verdict.HEALTHY and _ASKS_BACK.search(t.asked.text):
        newest = f" The newest whole checkpoint is {best.name}, {at_event(t, best)}." if best is not None else ""  # fmt: skip
        return f"Nothing that was read shows a fault, and none has to be left for another; if the numbers are wrong, take one from before that.{newest} {t.cause} {t.main}."
    if named is not None and (said := _about_step(t, named, best)):
        return said
    if best is None:
        return _no_checkpoint(t, torn)
    saved = next((e for e in record.checkpoints.events if e.name == best.name and e.state is SaveState.SAVED), best)  # fmt: skip
    place = f" ({best.path})" if best.path and best.path not in best.name else ""
    head = f"Resume from {best.name}{place}: the newest checkpoint that is whole by the lines read, {at_event(t, saved)}."  # fmt: skip
    rows = []
    if spoiled is not None and record.onset is None:
        head = f"Resume from {best.name}{place}, not from {spoiled.name}: {at_event(t, saved)}."
        rows.append(
            f"{spoiled.name.capitalize()} was saved at {at_event(t, spoiled)}, after the numbers had gone wrong {t.main}, and holds the damage."
        )
        rows.append(
            f"Where the run still goes on, copy {best.name} elsewhere first: a limit on kept checkpoints may delete it with a later save."
        )
    if spoiled is not None and record.onset is not None:
        head = f"Resume from {best.name}{place}, not from {spoiled.name}: {at_event(t, saved)}."
        rows.append(
            f"{spoiled.name.capitalize()} was saved at {at_event(t, spoiled)}, after the numbers had gone wrong: {_say_onset(t, record.onset)}."
        )
        rows.append(
            f"A tracker file that names {spoiled.name} as the latest has to be set back first."
        )
    if torn is not None:
        rows.append(f"{torn.name.capitalize()} is newer and not whole: {at_event(t, torn)}.")
    rows += _again(t)
    if t.diagnosis.category is Category.NUMERICAL and (fixes := t.diagnosis.fixes[2:5]):
        rows.append("Change something before, or it goes the same way: " + " ".join(f"{x.text} {t.sources.marks(x.citations, t.diagnosis)}" for x in fixes))  # fmt: skip
    return "\n\n".join([head, " ".join(rows)]).strip()


def tell_before_stop(t: Telling) -> str:
    """What to secure before a run whose numbers went wrong is stopped; '' where no checkpoint is older than that."""
    best = t.record.resume_from
    if best is None:
        return ""
    return (
        f"Copy the checkpoint of {best.name} ({best.path or best.name}) elsewhere first, {at_event(t, best)}: it is the newest from before the numbers "
        f"went wrong {t.main}, later saves hold the damage, and a limit on kept checkpoints may delete it while the run goes on.\n\n"
        "Then keep the whole log, the configuration, the versions, and the batch that was read at that step. After that stop the run: "
        "while the numbers stay wrong nothing is learned, and no stacks are needed for that."
    )


def _again(t: Telling) -> list[str]:
    lost = t.record.repeated
    return [f"{lost.seconds / 60:.0f} min of work since then{steps_lost(t)} are to be done again."] if lost is not None and lost.seconds >= 30 else []  # fmt: skip


def _about_step(t: Telling, step: int, best: SaveEvent | None) -> str:
    """What the lines tell of the checkpoint of one step; '' where the number is no checkpoint's."""
    record = t.record
    own = [e for e in record.checkpoints.events if e.step == step]
    spoiled = record.spoiled
    if spoiled is not None and spoiled.step == step:
        return ""
    instead = f" Resume from {best.name}, {at_event(t, best)}." if best is not None else ""
    if own and record.is_after_spoiling(own[-1]):
        return f"No: the checkpoint of step {step} was saved after the numbers had gone wrong, {at_event(t, own[-1])}.{instead}"
    if _says_unusable(t, step):
        return f"No: {t.whole_cause} {t.main}.{instead}"
    if not own:
        name = expression(
            rf"(?i)\b(?:step|iter|iteration|checkpoint|ckpt|global_step)[-_ ]?0*{step}\b"
        )
        told = next((x for x in t.evidence.lines if name.search(x.text) and _SAVE_FAILS.search(x.text)), None)  # fmt: skip
        if told is not None:
            return f"No: {at_line(t, told.file, told.number, told.text)} tells of trouble with it: `{told.text.strip()[:200]}`.{instead} {t.cause} {t.main}."
        if not record.checkpoints.events and best is None:
            return ""
        return f"No line tells of a checkpoint of step {step}.{instead}"
    if best is not None and best.step == step:
        return f"Yes: the checkpoint of step {step} is whole by the lines read, {at_event(t, own[-1])}; check its files before you resume from it."
    bad = next((e for e in reversed(own) if e.state in (SaveState.FAILED, SaveState.REFUSED)), None)
    if bad is not None:
        return f"No: the checkpoint of step {step} is not whole, {at_event(t, bad)}.{instead}"
    if all(e.state is SaveState.BEGUN for e in own):
        return f"No: its save was begun and no line says that it was finished, {at_event(t, own[-1])}.{instead}"
    return f"Yes, step {step} was saved, {at_event(t, own[-1])}, but a newer one is whole too.{instead}"


def _says_unusable(t: Telling, step: int) -> bool:
    """The verdict itself says that the checkpoint of the step is not whole."""
    name = rf"(?i)\b(?:step|iter|iteration|checkpoint|global_step)[-_ ]?0*{step}\b"
    broken = rf"{name}[^;]{{0,40}}\b(?:incomplete|truncated|not whole|broken|corrupt)"
    return re.search(broken, t.diagnosis.root_cause) is not None


def _no_checkpoint(t: Telling, torn: SaveEvent | None) -> str:
    last = t.record.last_step
    until = f" up to step {last.step} ({at_line(t, last.file, last.line, last.text)})" if last is not None else ""  # fmt: skip
    if torn is not None:
        return (
            f"None that is known to be whole: the save of {torn.name} was begun and no line says that it was finished, "
            + f"{at_event(t, torn)}. Look for the newest complete one in the folder."
        )
    kept, onset = t.record.checkpoints.kept, t.record.onset
    if kept and onset is not None:
        return (
            f"None of those that are kept ({', '.join(map(str, kept))}): each was saved after step {onset.row.step}, where the "
            f"numbers first went wrong, and holds the damage. Start from an archived one before it, else from scratch, "
            f"with the cause mended: {t.cause} {t.main}."
        )
    return f"Not shown: no line that was read tells of a saved checkpoint{until}. Look into the output folder; without one there, that work is lost. The fault: {t.cause} {t.main}."


def tell_restart(t: Telling) -> str:
    """Whether the job may simply be started again, where, and from what; earlier attempts count."""
    if _AGAIN.search(t.asked.text):
        return _say_again(t)
    if _FROM_STEP.search(t.asked.text):
        return _from_step(t)
    met = count_meetings(t.diagnosis, t.record.artefacts)
    return _advise_restart(t) + say_attempts(t.question.related, t.diagnosis, met)


_AGAIN = expression(
    r"(?i)\b(?:will|would|does|is) (?:it|this|that|the (?:run|job))\b[^?\n]{0,30}\bagain\b|\bagain\b[^?\n]{0,24}\bsame (?:place|step|point|way|spot)|"
    r"\balways (?:happen|fail|crash|die|at)|\bhappen\w* (?:always|every time)|\breproducib|\bdeterministic"
)


def _say_again(t: Telling) -> str:
    """Whether an unchanged restart meets the same fault, and what has to change first."""
    d, best = t.diagnosis, t.record.resume_from
    fix = f" First: {d.fixes[0].text} {t.sources.marks(d.fixes[0].citations, d)}" if d.fixes and not t.waited else ""  # fmt: skip
    start = f" Then resume from {best.name} ({at_event(t, best)})." if best is not None else ""
    last = t.record.last_trained
    where = f", at about the same place (the last logged step is {last.step}, {at_line(t, last.file, last.line, last.text)})" if last is not None else ""  # fmt: skip
    if d.verdict is not Verdict.FAULT:
        return _advise_restart(t)
    if d.category in STAYS:
        head = f"Yes, most likely{where}: nothing of it lies in a node or a moment, and a restart changes nothing of it"
    elif t.waited:
        head = "Only if what it waited for goes away again: a restart on a node that reaches it goes on"
    elif d.category is Category.HARDWARE:
        head = f"Yes on {t.host or 'the same node'}, whose hardware is at fault; not on other nodes"
    elif d.category in ALONE_SOLVES:
        head = "Not by itself: the scheduler ended it, and it comes back only if the scheduler does that again"
    else:
        head = "It may: a restart alone removes no cause"
    met = count_meetings(d, t.record.artefacts)
    return f"{head}. {t.cause} {t.main}.{fix}{start}{say_attempts(t.question.related, d, met)}"


_FROM_STEP = expression(r"(?i)\bfrom (?:the )?(?:step|iteration|iter|checkpoint|ckpt)?[ _-]{0,2}\d{2,9}\b")  # fmt: skip


def _from_step(t: Telling) -> str:
    """Whether a restart from the named step is right, and what has to change before it."""
    fix = "".join(f" {x.text} {t.sources.marks(x.citations, t.diagnosis)}" for x in t.diagnosis.fixes[:1])  # fmt: skip
    told, named = tell_checkpoint(t), _STEP.search(t.asked.text)
    other = named is not None and f"not from step {int(named[1] or named[2])}" in told
    return f"{'No. ' if other else ''}{told}\n\nBefore that the cause has to go; another setting alone does not remove it: {t.cause} {t.main}.{fix}"


def say_attempts(related: Sequence[Related], diagnosis: Diagnosis, met_before: int = 0) -> str:
    """What earlier attempts and incidents add: leave the node out where the fault came back there, stop where it follows the job."""
    if met_before >= FOLLOWS:
        return f" The same fault ended {met_before} attempts before within this log, so it goes with the job: stop and fix the cause first."
    seen = say_related(tuple(related), diagnosis)
    if not seen:
        return ""
    pattern = find_pattern(related)
    if pattern is Pattern.SAME_HOST:
        return (
            f" {seen} It came back there, so start without {diagnosis.host}, whatever else is done."
        )
    if pattern is Pattern.FOLLOWS_JOB:
        return f" {seen} It goes with the job from one place to the next, so other nodes do not help: stop and fix the cause first."
    if pattern is Pattern.OTHER_FAULT:
        return f" {seen} Start without {diagnosis.host} where a spare is free."
    return f" {seen}"


def _advise_restart(t: Telling) -> str:
    d = t.diagnosis
    best = t.record.resume_from
    start = f" Resume from {best.name} ({at_event(t, best)})." if best is not None else ""
    fix = f" {d.fixes[0].text} {t.sources.marks(d.fixes[0].citations, d)}" if d.fixes else ""
    if d.verdict is Verdict.HEALTHY:
        return f"Yes: nothing is wrong in what was read. {t.cause} {t.main}."
    if d.verdict is Verdict.UNKNOWN:
        return f"Only after the evidence is saved: the cause is open, and a restart may meet it again. {t.cause} {t.main}.{start}"
    if d.category is Category.HARDWARE and not t.waited:
        host = t.host or "the node that failed"
        return (
            f"No, not with {host}: its hardware failed and a restart there meets the same fault. Take it out, start on the "
            f"other nodes and a spare.{start} Save its logs before it is rebooted. The fault: {t.cause} {t.main}.{_leave_out(t)}"
        )
    if d.category in ALONE_SOLVES:
        return (
            f"Yes: the scheduler ended it, not a fault of the run. {t.cause} {t.main}.{start}{fix}"
        )
    if t.waited:
        return f"Only once what it waited for answers again; look at it on every node first. {t.cause} {t.main}.{start}"
    again = next((f for f in d.fixes[:2] if starts_again(f)), None)
    if again is not None:
        return f"Yes, that is the first thing to do: {again.text} {t.sources.marks(again.citations, d)}{start} The fault: {t.cause} {t.main}."
    return f"No, not unchanged: a restart removes no cause, and it would stop there again. {t.cause} {t.main}.{fix}{start}"


def _leave_out(t: Telling) -> str:
    """The command that keeps the next job off the host, by the scheduler that the lines name."""
    host = t.host
    if not host:
        return ""
    if any(_KUBERNETES.search(x.text) for x in t.evidence.lines):
        return f"\n\n{write_block(f'kubectl cordon {next(iter(t.known_names), host)}')}"
    if any(_SLURM.search(x.text) for x in t.evidence.lines):
        return f"\n\n{write_block(f'sbatch --exclude={host} JOB_SCRIPT')}"
    return ""


_KUBERNETES = expression(r"\bkubectl\b|\bpod/|\bkubelet\b|\bpytorchjob\b")
_SLURM = expression(r"\bsrun\b|\bslurm\w*|\bsbatch\b|\bStepId=")


def tell_lost_steps(t: Telling) -> str:
    """Steps between the checkpoint to resume from and the last one logged."""
    last, best = t.record.last_step, t.record.resume_from
    spoiled = t.diagnosis.category is Category.NUMERICAL and bool(t.record.steps)
    last = t.record.steps[-1] if spoiled else last
    if last is None:
        return ""
    end = at_line(t, last.file, last.line, last.text)
    if best is None or best.step is None:
        return f"All up to step {last.step} ({end}), unless the folder holds a checkpoint: no line that was read tells of one."  # fmt: skip
    steps, since = max(0, last.step - best.step), f"{best.name} ({at_event(t, best)})"
    until = "the last one logged (what was trained after the numbers went wrong is lost too)" if spoiled else "the last one logged before the fault"  # fmt: skip
    return f"About {steps:,} steps: from the checkpoint of {since} to step {last.step}, {until} ({end}).{_until_fault(t, last, best)}"


def _until_fault(t: Telling, last: LoggedStep, best: SaveEvent) -> str:
    """Steps that were trained behind the last one logged, by the usual pace, and the minutes of work in all."""
    fault, steps = t.record.stopped_at, t.record.steps
    told = [s for s in steps if s.time is not None and s.step <= last.step][-PACE_OF:]
    if fault is None or last.time is None or len(told) < 2 or fault <= last.time:
        return ""
    span, count = (told[-1].time or 0.0) - (told[0].time or 0.0), told[-1].step - told[0].step
    more = int((fault - last.time) * count / span) if span > 0 and count > 0 else 0
    began = next((s.time for s in steps if s.step == best.step and s.time is not None), best.time)
    work = f" In time that is {(fault - began) / 60:.0f} min of work, {clock(began)} to {clock(fault)} UTC." if began is not None and fault > began else ""  # fmt: skip
    return (
        f" At its pace it had trained about {more:,} more by {clock(fault)} UTC."
        if more >= 1
        else ""
    ) + work


PACE_OF = 6
"""Step lines before the fault by which the pace is told."""


def tell_resumed(t: Telling) -> str:
    """Whether, when and from what the run went on, as the same log tells."""
    fault = t.record.fault_time
    loads = [e for e in t.record.checkpoints.events if e.state is SaveState.LOADED and e.time and fault and e.time > fault]  # fmt: skip
    if not loads:
        return f"No line after the fault tells of a restart. {t.cause} {t.main}."
    load = loads[0]
    steps = [s for s in t.record.steps if s.file == load.file and s.line > load.line]
    first = f" The first step after it is {steps[0].step}, {at_line(t, steps[0].file, steps[0].line, steps[0].text)}." if steps else ""  # fmt: skip
    away = t.record.restart
    gap = ""
    if away is not None and away[0].time and away[1].time:
        gap = f" It was away for {(away[1].time - away[0].time) / 60:.0f} min, from {clock(away[0].time)} to {clock(away[1].time)} (UTC)."
    return f"Yes: it loaded the checkpoint of {load.name} at {clock(load.time or 0.0)} UTC, {at_event(t, load)}.{first}{gap}"


def _say_onset(t: Telling, onset: Onset) -> str:
    name = onset.metric.replace("_", " ")
    row = onset.row
    when = f" ({clock(row.time)} UTC)" if row.time is not None else ""
    mark = at_line(t, row.file, row.line, row.text)
    return f"at step {row.step}{when} the {name} is {onset.value:.3g}, usually {onset.before:.3g}, and does not come back before the fault, {mark}"


def tell_onset(t: Telling) -> str:
    """When the numbers first went wrong, and what was written just before; '' where no curve tells."""
    onset = t.record.onset
    if onset is None:
        return _early_signs(t)
    d = t.diagnosis
    told = _say_onset(t, onset)
    first = d.first_line
    later = ""
    if first is not None and first.line != onset.row.line:
        later = (
            f" The line that decides comes later, {at_line(t, first.file, first.line, first.text)}."
        )
    beside = t.record.written_before(onset.row)
    odd = ""
    if beside:
        rows = "\n".join(f"- {at_line(t, x.file, x.line, x.text)}\n{write_quote(x.text.strip()[:300], 2)}" for x in beside)  # fmt: skip
        odd = f"\n\nWritten shortly before, and no step line (in time beside it, not proven to be the reason):\n\n{rows}"
    return f"{told[:1].upper()}{told[1:]}.{later} {t.cause} {t.main}.{odd}"


_EARLY = expression(
    r"(?i)corrected|warn|error|retry|retries|slow|degrad|throttl|took \d|replay|xid"
)


def _early_signs(t: Telling) -> str:
    """Lines of trouble at the place of the fault before it; '' where its time or place is not known or none is there."""
    d, fault = t.diagnosis, t.record.fault_time
    if fault is None or not (t.host or d.first_failing_rank is not None):
        return ""
    own = [
        x
        for x in t.evidence.lines
        if _EARLY.search(x.text)
        and ((t.host and (x.place.host == t.host or f" {t.host} " in x.text)) or (x.place.rank is not None and x.place.rank == d.first_failing_rank))
    ]  # fmt: skip
    timed = [(at, x) for x in own if (at := t.record.artefacts.time_at(x.file, x.number, x.text)[0]) is not None and at < fault - 1]  # fmt: skip
    if not timed:
        return f"No earlier sign at {t.place} is in what was read. The first fault is of {clock(fault)} UTC: {t.cause} {t.main}."
    at, line = min(timed, key=lambda p: p[0])
    rest = f"; {len(timed)} such lines in all" if len(timed) > 1 else ""
    return (
        f"Earlier signs are there: the first at {clock(at)} UTC, {(fault - at) / 60:.0f} min before the fault, "
        f"{at_line(t, line.file, line.number, line.text)}{rest}.\n\n{write_quote(line.text.strip()[:300])}\n\nThe fault itself is of {clock(fault)} UTC: {t.cause} {t.main}."
    )


def tell_lose_less(t: Telling) -> str:
    """How often the run saved, how long a save takes, and what that cost."""
    record = t.record
    saved = [
        e for e in record.checkpoints.events if e.state is SaveState.SAVED and e.time is not None
    ]
    rows = []
    steps = sorted({e.step for e in saved if e.step is not None})
    gaps = [b.time - a.time for a, b in pairwise(saved) if a.time and b.time and b.time > a.time]
    lost = record.repeated
    if gaps:
        every = f", every {median(b - a for a, b in pairwise(steps)):.0f} steps" if len(steps) > 1 else ""  # fmt: skip
        rows.append(
            f"- It saved every {median(gaps) / 60:.0f} min{every}, last at {at_event(t, saved[-1])}."
        )
    took = [(float(m[1]), e) for e in saved if (m := _SAVE_SECONDS.search(e.text)) is not None]
    if took:
        rows.append(f"- A save takes {took[-1][0]:.0f} s, {at_event(t, took[-1][1])}.")
    grace = next(((int(m[1]), x) for x in record.artefacts.lines if (m := _GRACE.search(x.text[:1_000])) is not None), None)  # fmt: skip
    if grace is not None:
        seconds, line = grace
        short = took and seconds < took[-1][0]
        rows.append(
            f"- The grace time before a kill is {seconds} s, {at_line(t, line.file, line.line, line.text)}"
            + (SHORT_GRACE if short else ".")
        )
    torn = record.checkpoints.unusable()
    if torn is not None:
        rows.append(
            f"- The save of {torn.name} was under way and is not whole, {at_event(t, torn)}."
        )
    fixes = [f for f in t.diagnosis.fixes if f.kind == "structural"][:3]
    rows += [f"- {f.text} {t.sources.marks(f.citations, t.diagnosis)}" for f in fixes]
    if lost is None and not rows:
        return ""
    head = f"Save more often: {lost.seconds / 60:.0f} min of work were lost here, since the last whole checkpoint." if lost is not None else "Save more often."  # fmt: skip
    if gaps:
        head += ' The interval for your failure rate is answered by e.g. "a save takes 40 s, it fails every 8 h, which interval?".'
    return head + "\n\n" + "\n".join(rows)


def tell_last_save(t: Telling) -> str:
    """When the last whole checkpoint was written."""
    saved = [e for e in t.record.checkpoints.events if e.state is SaveState.SAVED]
    known = t.record.resume_from
    if not saved and known is not None:
        return f"No save is in what was read: the run had loaded the checkpoint of {known.name}, {at_event(t, known)}, which is the newest that the lines know."
    if not saved:
        return _no_checkpoint(t, t.record.checkpoints.unusable())
    last = saved[-1]
    when = f"At {clock(last.time)} UTC" if last.time is not None else "Without a time in its line"
    fault = t.record.fault_time
    gap = f", {(fault - last.time) / 60:.0f} min before the fault" if fault and last.time and fault > last.time else ""  # fmt: skip
    best = t.record.resume_from
    other = f" Resume from {best.name} ({at_event(t, best)})." if best is not None and best.name != last.name else ""  # fmt: skip
    return f"{when} the checkpoint of {last.name} was written{gap}, {at_event(t, last)}.{other}"
