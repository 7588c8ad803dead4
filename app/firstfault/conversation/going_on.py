"""Did it go on, is it well again, and can one leave it alone? By the steps after the restart and by what was changed."""

from __future__ import annotations

from itertools import pairwise

from firstfault.conversation.blocks import write_quote
from firstfault.conversation.evidence import Line
from firstfault.conversation.evidence_lines import find_names
from firstfault.conversation.facts import Facts
from firstfault.conversation.named_events import relate, say_relation
from firstfault.conversation.run_answers import at_line, clock, tell_resumed
from firstfault.conversation.soundness import tell_nothing_wrong
from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.knowledge_base.statements import cut_statements
from firstfault.postmortem.lost_work import LoggedStep
from firstfault_tools.averages import median
from firstfault_tools.checkpoint.saves import SaveState
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict

_WELL = expression(r"(?i)\bOK\b|\bready\b|\bactive\b|recover|restored|\bback (?:up|online)\b|\blink up\b|\bresponding again\b|reachable again|\bhealthy\b|reconnected")  # fmt: skip
_NOT_WELL = expression(
    r"(?i)\bnot (?:ready|ok|healthy|respond\w*|active)|\bdown\b|unreachable|inactive|still trying"
)
_LATER_FAILS = frozenset({Category.CHECKPOINT, Category.ENVIRONMENT, Category.DATA})


def tell_well_again(f: Facts) -> str:
    """Whether a line says that a thing, host or service is well again; '' where the question names none of the evidence."""
    names = [n for n in find_names(f.text) if any(n in x.text.lower() for x in f.evidence.lines)]
    names = [n for n in names if not n.isdigit()]
    if not names:
        return ""
    name = names[0]
    own = [x for x in f.evidence.lines if name in x.text.lower()]
    bad = [x for x in own if _NOT_WELL.search(x.text)]
    well = [x for x in own if _WELL.search(x.text) and not _NOT_WELL.search(x.text)]
    if not bad and not well:
        return ""
    newest, at = (well or bad)[-1], None
    if well and (not bad or _after(well[-1], bad[-1])):
        at = _time(f, newest)
        when = f" at {clock(at)} UTC" if at is not None else ""
        end = _since_end(f, at)
        return (
            f"Yes, by its own word{when}: {f.at(newest)} says so{end}.\n\n{write_quote(newest.text.strip()[:300])}\n\n"
            f"Check it before you start again; that the line is there does not show why it failed: {f.cause} {f.main}."
        )
    newest = bad[-1]
    at = _time(f, newest)
    when = f", of {clock(at)} UTC" if at is not None else ""
    return f"Not shown: the last line about {name} is {f.at(newest)}{when}, and none after it says that it is well again.\n\n{write_quote(newest.text.strip()[:300])}"


def _after(one: Line, other: Line) -> bool:
    return one.file != other.file or one.number > other.number


def _time(f: Facts, line: Line) -> float | None:
    return f.record.artefacts.time_at(line.file, line.number, line.text)[0]


def _since_end(f: Facts, at: float | None) -> str:
    fault = f.record.fault_time
    return f", {(at - fault) / 60:.0f} min after the first fault" if at is not None and fault is not None and at - fault >= 60 else ""  # fmt: skip


def steps_after(f: Facts) -> list[LoggedStep]:
    """Steps that were logged after the run had loaded a checkpoint again."""
    fault = f.record.fault_time
    loads = [e for e in f.record.checkpoints.events if e.state is SaveState.LOADED and e.time and fault and e.time > fault]  # fmt: skip
    if loads:
        return [s for s in f.record.steps if s.file == loads[0].file and s.line > loads[0].line]
    first = f.diagnosis.first_line
    back = [
        s
        for s in f.record.steps
        if first is not None and s.file == first.file and s.line > first.line
    ]
    last = f.record.last_step
    return [s for s in back if last is not None and s.step <= last.step] if back else []


def tell_back(f: Facts) -> str:
    """Whether the run goes on, from which step and as fast as before."""
    if f.diagnosis.verdict is not Verdict.FAULT:
        return ""
    steps = steps_after(f)
    if not steps:
        return f"No: no step is in what was read after the fault. {tell_resumed(f)}"
    last = steps[-1]
    pace, usual = _pace(steps), _pace([s for s in f.record.steps if s.line < steps[0].line])
    same = ""
    if pace is not None and usual is not None:
        word = "as fast as before" if pace <= 1.05 * usual else "slower than before"
        same = f", {word} ({pace:.2f} s a step, before {usual:.2f} s)"
    when = f" at {clock(last.time)} UTC" if last.time is not None else ""
    before = f.record.last_step
    level = f" It is not yet where it was: step {before.step} was reached before." if before is not None and last.step < before.step else ""  # fmt: skip
    return (
        f"Yes, it trains again: step {last.step}{when}, {at_line(f, last.file, last.line, last.text)}{same}.{level}"
        f"{_down(f, steps[0])} {_capital(tell_resumed(f).removeprefix('Yes: '))}"
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _pace(steps: list[LoggedStep]) -> float | None:
    """Seconds a step between neighbouring step lines."""
    gaps = [(b.time - a.time) / (b.step - a.step) for a, b in pairwise(steps) if a.time and b.time and b.step > a.step and b.time > a.time]  # fmt: skip
    return median(gaps) if gaps else None


def _down(f: Facts, first: LoggedStep) -> str:
    stopped, pace = f.record.stopped_at, _pace(list(f.record.steps))
    if stopped is None or first.time is None or first.time <= stopped:
        return ""
    interval = f" (a logged interval of {pace:.1f} s a step included)" if pace is not None else ""
    return f" Without training: {clock(stopped)} to {clock(first.time)} UTC at most, {(first.time - stopped) / 60:.0f} min{interval}."


def tell_leave_alone(f: Facts) -> str:
    """Whether one may turn away from a run that started again: only where what stopped it is gone."""
    d = f.diagnosis
    if d.verdict is Verdict.HEALTHY:
        return f"Yes: nothing is wrong in what was read. {f.cause} {f.main}."
    if d.verdict is not Verdict.FAULT:
        return f"Not shown: the cause is open. {f.cause} {f.main}."
    fix = f" First: {d.fixes[0].text} {f.sources.marks(d.fixes[0].citations, d)}" if d.fixes else ""
    if d.category is Category.HARDWARE and steps_after(f) and f.host and not _names_again(f):
        return (
            f"Yes, as far as the log goes: it runs without {f.host}, where the fault lay: {f.cause} {f.main}. "
            f"Watch the first saves, and keep {f.host} out until it has passed a test."
        )
    return f"No, not before the cause is removed: nothing that was read says that it is. {f.cause} {f.main}.{_next_time(f)}{fix}"


def tell_stop_now(f: Facts) -> str:
    """Whether a run that goes on is to be stopped, by what it still gains."""
    d = f.diagnosis
    if d.verdict is Verdict.HEALTHY:
        return f"Nothing that was read forces a stop, and it found no fault; whether the numbers are worth going on with is not told by that. {tell_nothing_wrong(f)}"
    if d.verdict is not Verdict.FAULT:
        return f"Not yet: the cause is open, so save stacks and logs of all ranks first. {f.cause} {f.main}."
    fix = f" Then: {d.fixes[0].text} {f.sources.marks(d.fixes[0].citations, d)}" if d.fixes else ""
    if d.category is Category.NUMERICAL:
        return f"Yes, now: steps after the numbers went wrong are lost, and each save may take the place of a sound one. {f.cause} {f.main}.{fix}"
    if (
        d.category is Category.PERFORMANCE
        or steps_after(f)
        or f.record.last_trained != f.record.last_step
    ):
        return f"Yes, but right after the next save, so that nothing has to be repeated: it still trains, and goes on losing time until the cause is gone. {f.cause} {f.main}.{fix}"
    return f"Yes, once stacks and logs of all ranks are saved: it makes no progress, and waiting costs GPU-hours. {f.cause} {f.main}.{fix}"


def _names_again(f: Facts) -> bool:
    """The host at fault is among those of the run that started again."""
    steps, host = steps_after(f), f.host
    return any(host and host in x.text and x.number >= steps[0].line for x in f.evidence.lines if x.file == steps[0].file)  # fmt: skip


def _next_time(f: Facts) -> str:
    """When the run gets to the step of the fault again; '' where steps and their times do not tell."""
    last, steps = f.record.last_step, steps_after(f)
    pace = _pace(steps) or _pace(list(f.record.steps))
    if (
        last is None
        or not steps
        or pace is None
        or steps[-1].time is None
        or steps[-1].step >= last.step
    ):
        return ""
    at = steps[-1].time + (last.step - steps[-1].step) * pace
    saves = (
        f.diagnosis.category in _LATER_FAILS and _SAVES.search(f.diagnosis.root_cause) is not None
    )
    what = "which is where the next save falls" if saves else "where it failed"
    return f" At {pace:.1f} s a step it reaches step {last.step} again, {what}, at about {clock(at)} UTC (now step {steps[-1].step})."


_SAVES = expression(r"(?i)checkpoint|\bsav|disk full|space|quota|write")


_ENOUGH = 3


def tell_notice(f: Facts) -> str:
    """Whether a warning that the question names matters: harmless by its page, or by when it was written."""
    names = find_names(f.text)
    words = [w for w in names if any(w in x.text.lower() for x in f.evidence.lines)]
    line = next((x for x in f.evidence.lines if words and all(w in x.text.lower() for w in words[:_ENOUGH])), None)  # fmt: skip
    if line is None:
        return ""
    pages = f.question.knowledge.pages
    told = say_relation(f, relate(f, f.evidence, line))
    for page in pages.values():
        own = [s for s in cut_statements(page) if any(w in s.words.lower() for w in words)] if page.benign else []  # fmt: skip
        if own:
            best = max(own, key=lambda s: sum(w in s.words.lower() for w in words))
            mark = f.sources.add(Citation(0, CitationKind.PAGE, best.words, page=page.id, heading=best.heading or "Summary", url=page.url))  # fmt: skip
            return f"No, it is harmless and not the cause: {told}. {best.words} {mark}"
    if relate(f, f.evidence, line).is_before is None:
        return ""
    return f"Not as the cause, by what was read: {told}, and nothing ties it to the first fault: {f.cause} {f.main}."
