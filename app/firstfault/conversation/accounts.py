"""How is an incident told to somebody else? To a manager, a newcomer, a ticket, as five whys."""

from __future__ import annotations

from itertools import pairwise

from firstfault.conversation.beside import say_hardware_lines
from firstfault.conversation.blocks import write_block, write_quote
from firstfault.conversation.cost import tell_cost
from firstfault.conversation.glossary import explain_terms
from firstfault.conversation.moments import say_moment
from firstfault.conversation.run_answers import at_event, at_line, clock
from firstfault.conversation.slowing import read_slowing, say_pace
from firstfault.conversation.telling import SURE, Telling
from firstfault.conversation.topics import team_of, topics_in
from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.investigation.headline import say_plainly
from firstfault.postmortem.pace import Pace
from firstfault.postmortem.victims import ranks_in_trouble
from firstfault_tools.averages import median
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log.place import name_ranks

_COST = expression(r"(?i)\bcost(?:s|ed)?\b|\bgpu-?\s?hours?\b|\bdollars?\b|\bmoney\b")


def tell_whys(t: Telling) -> str:
    """The five whys as far as the evidence goes."""
    whys = t.report.whys
    if not whys:
        return f"There is no fault to ask whys about: {t.cause} {t.main}."
    rows = [
        f"{n}. {w.question} "
        + (
            t.cited(w.because)
            if w.because
            else "The evidence stops here; this is for you to fill in."
        )
        for n, w in enumerate(whys, 1)
    ]
    return f"The five whys, as far as the evidence goes, to the cause: {t.cause}.\n\n" + "\n".join(
        rows
    )


def tell_manager(t: Telling) -> str:
    """The incident for somebody who does not know the field."""
    d = t.diagnosis
    kind = {
        Category.OOM: "a GPU or host ran out of memory",
        Category.COMMUNICATION: "the machines lost contact with each other",
        Category.NUMERICAL: "the calculation became unstable",
        Category.HARDWARE: "a piece of hardware failed",
        Category.ENVIRONMENT: "something in the installation of the machines did not fit",
        Category.DATA: "the input data could not be read as expected",
        Category.CHECKPOINT: "saving or loading the training state went wrong",
        Category.PERFORMANCE: "it runs more slowly than it should",
        Category.SCHEDULER: "the cluster's scheduler ended it",
        Category.CODE_BUG: "there is an error in the training code",
    }
    if d.verdict is Verdict.HEALTHY:
        return f"The training run is fine; what looked alarming is harmless. {t.cause} {t.main}."
    parts = [x for x in topics_in(d.root_cause) if d.category in x.categories and x.named_in_causes]
    part = next((_PLAINLY_BY_PART[x.id] for x in parts if x.id in _PLAINLY_BY_PART and x.seen.search(d.root_cause)), "")  # fmt: skip
    what = part or kind.get(d.category, "its cause is still being looked for") if d.category else "its cause is still being looked for"  # fmt: skip
    if d.verdict is Verdict.FAULT:
        rows = _three_sentences(t, what)
    else:
        rows = [f"The training run needs attention because {what}."]
    if _COST.search(t.asked.text) and d.verdict is Verdict.FAULT:
        rows.append(tell_cost(t))
    rows += [f"For the record: {t.cause} {t.main}. {SURE[d.confidence]}."]
    return "\n\n".join(rows)


def _three_sentences(t: Telling, what: str) -> list[str]:
    """What happened, what it cost, what is done next; without a word of the field."""
    d = t.diagnosis
    if d.category is Category.PERFORMANCE and (pace := read_slowing(t)) is not None:
        return [_say_slowed(t, pace)]
    at = f" at {clock(t.record.fault_time)} UTC" if t.record.fault_time is not None else ""
    where = f" on the machine {t.host}" if t.host else ""
    first = f"The training run stopped{at} because {what}{where}."
    told = d.input.world_size or 0
    guessed = told <= max(d.input.ranks_seen, default=-1) + 1 and len(d.input.ranks_seen) < told
    size = f" of {told} processes" if told and not guessed else ""
    lost, saved = t.record.repeated, t.record.resume_from
    cost = f", and about {lost.seconds / 60:.0f} minutes of work since the last saved state have to be repeated" if lost is not None and lost.seconds >= 60 else ""  # fmt: skip
    second = (
        f"The whole run{size} stopped with it, because all of them work on one task together{cost}."
    )
    then = _NEXT_PLAINLY.get(d.category) if d.category else None
    state = ", and the run goes on from its last good saved state" if saved is not None else ""
    third = f"Next, {then or 'the cause is removed'}{state}; it is for {team_of(d.category, d.root_cause)}."
    return [f"{first} {second} {third}"]


def _say_slowed(t: Telling, pace: Pace) -> str:
    """Of a run that goes on slowly: since when, by how much, and what is done next."""
    where = f" on the machine {t.host}" if t.host else ""
    return (
        f"The training run goes on, but more slowly since {clock(pace.healthy[-1].time)} UTC because of a fault{where}. {say_pace(pace)} All machines "
        f"work on one task together, so the slowest sets the pace of all; nothing that was trained is lost. Next, "
        f"{_NEXT_PLAINLY[Category.PERFORMANCE]}; it is for {team_of(t.diagnosis.category, t.diagnosis.root_cause)}."
    )


_PLAINLY_BY_PART = {
    "storage": "the storage that it reads from or saves to had no room or did not answer",
    "network": "the network between the machines failed",
}
"""Of a cause that names the part itself."""
_NEXT_PLAINLY = {
    Category.OOM: "the run is given less to hold in memory at once",
    Category.COMMUNICATION: "the machine that dropped out is found and left out",
    Category.NUMERICAL: "what unsettled the calculation is removed",
    Category.HARDWARE: "that machine is taken out and tested",
    Category.ENVIRONMENT: "the installation or storage of that machine is put right",
    Category.DATA: "the input that could not be read is repaired or skipped",
    Category.CHECKPOINT: "saving is repaired before anything else",
    Category.PERFORMANCE: "what slows it down is removed",
    Category.SCHEDULER: "the job is queued again",
    Category.CODE_BUG: "the programming error is corrected",
}


def tell_summary(t: Telling) -> str:
    """The incident in three sentences for somebody of the field: what and where, what followed, what to do."""
    d = t.diagnosis
    if d.verdict is not Verdict.FAULT:
        return f"{t.cause} {t.main}."
    at = f" at {clock(t.record.fault_time)} UTC" if t.record.fault_time is not None else ""
    where = f" ({t.place})" if t.place and t.place not in t.cause else ""
    ranks = ranks_in_trouble(d, t.record.artefacts)
    last, lost, idle, saved = t.record.last_trained, t.record.repeated, t.record.idle, t.record.resume_from  # fmt: skip
    followed = [
        f"the last logged step is {last.step}" if last is not None else "no step was logged",
        f"{name_ranks(ranks)} report trouble as a consequence" if ranks else "",
        f"{idle.seconds / 60:.0f} min passed until the job ended" if idle is not None and idle.seconds >= 60 else "",
        f"{lost.seconds / 60:.0f} min of work since {saved.name if saved is not None else 'the start'} have to be repeated" if lost is not None and lost.seconds >= 60 else "",
    ]  # fmt: skip
    do = (
        f"{d.fixes[0].text} {t.sources.marks(d.fixes[0].citations, d)}"
        if d.fixes
        else "Collect what would settle it first."
    )
    back = f" Then resume from {saved.name} ({at_event(t, saved)})." if saved is not None else ""
    text = ", ".join(x for x in followed if x)
    return f"{t.cause}{where}{at} {t.main} ({d.confidence.value}). {text[:1].upper()}{text[1:]}. {do}{back}"


def tell_newcomer(t: Telling) -> str:
    """The incident with its terms explained."""
    d = t.diagnosis
    verb = {
        Verdict.HEALTHY: "is fine",
        Verdict.WARNING: "goes on, but something is not right",
        Verdict.FAULT: "stopped",
        Verdict.UNKNOWN: "had a problem whose cause is open",
    }[d.verdict]
    where = f" It began at {t.place}." if t.place else ""
    others = " The other messages follow from it: every process waits for all others, so one failure stops them all." if len(d.cascade) > 1 else ""  # fmt: skip
    terms = explain_terms(
        f"{d.root_cause} {' '.join(x.text for x in d.cascade[:4])} {'rank' if t.place else ''}"
    )
    words = "\n\nThe words:\n\n" + "\n".join(f"- {x}" for x in terms) if terms else ""
    do = (
        f"\n\nWhat to do: {d.fixes[0].text} {t.sources.marks(d.fixes[0].citations, d)}"
        if d.fixes
        else ""
    )
    return f"In short: the training {verb}. {t.cause} {t.main}.{where}{others} {SURE[d.confidence]}.{words}{do}"


def tell_ticket(t: Telling) -> str:
    """A ticket to paste: facts with their lines, for the team that is named or that the cause lies with."""
    d = t.diagnosis
    first, onset, saved = d.first_line, t.record.onset, t.record.resume_from
    team = team_of(d.category, d.root_cause) or "the owner of the run"
    asked = next((x.team for x in topics_in(t.asked.text)), team)
    headline, detail = say_plainly(d)
    text = [f"Title: {headline}"]
    text += [f"Detail: {detail[:400]}"] if detail else []
    text += [f"Where: {t.place}"] if t.place else []
    ranks = ranks_in_trouble(d, t.record.artefacts)
    text += [f"Trouble afterwards on: {name_ranks(ranks)}"] if ranks else []
    text.append(f"Certainty: {d.confidence.value}")
    if t.record.fault_time is not None:
        text.append(f"Time of the fault (UTC): {say_moment(t.record.fault_time)}")
    if d.input.time_range:
        text.append(f"Logs (UTC): {d.input.time_range[0]} to {d.input.time_range[1]}")
    if d.input.world_size:
        text.append(f"Size: {d.input.world_size} ranks")
    if onset is not None:
        row = onset.row
        text.append(
            f"First sign: step {row.step}, {onset.metric.replace('_', ' ')} {onset.value:.3g} instead of {onset.before:.3g} ({row.file}:{row.line})"
        )
        text += [
            f"Written shortly before, not proven to be the reason: {x.text.strip()[:240]} ({x.file}:{x.line})"
            for x in t.record.written_before(row)
        ]
    if first is not None:
        text.append(f"Evidence: {first.file}:{first.line}: {first.text.strip()[:300]}")
    text += say_hardware_lines(t)
    text += [f"Resume from: {saved.name} ({saved.file}:{saved.line})"] if saved is not None else []
    text += [f"Asked for: {d.fixes[0].text}"] if d.fixes else []
    text += [f"Still to collect: {a.what}" for a in d.next_artefacts[:2]]
    other = f" (the verdict itself points to {team})" if asked != team else ""
    body = write_quote("\n".join(text))
    return f"A ticket for {asked}{other} {t.main}:\n\n{body}"


_FASTER = expression(
    r"(?i)\b(?:alert|alarm|monitor\w*|detect\w*|catch|caught|notice\w*|faster|earlier|sooner|know more)\b"
)
STALLED = 5
"""Usual step times without a new step after which a run stands still."""


def _say_alarm(t: Telling) -> str:
    """What an alarm on missing steps would have told, and when; '' where the log has no pace or did not stand still."""
    last, end = t.record.last_trained, t.record.ended
    times = [s.time for s in t.record.steps if s.time is not None]
    gaps = [b - a for a, b in pairwise(times) if b > a]
    if last is None or last.time is None or end is None or not gaps:
        return ""
    limit = max(60.0, STALLED * median(gaps))
    fires = last.time + limit
    if fires >= end:
        return f"- An alarm on missing steps (none for {limit:.0f} s) would not have come before the job ended by itself at {clock(end)} UTC."
    return (
        f"- An alarm on missing steps (none for {limit:.0f} s, {STALLED} usual intervals) would have come at {clock(fires)} UTC, {(end - fires) / 60:.0f} min before "
        f"the end of the job; at it, dump the stacks of all ranks (`py-spy dump`) and the flight recorder "
        f"(TORCH_NCCL_TRACE_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1), and end the job."
    )


def tell_postmortem(t: Telling) -> str:
    """What would keep it from coming back."""
    rows = [f"- {x}" for x in t.report.prevention[:6]]
    rows = [f"- {f.text} {t.sources.marks(f.citations, t.diagnosis)}" for f in t.diagnosis.fixes if f.kind == "structural"][:4] + rows  # fmt: skip
    if _FASTER.search(t.asked.text) and (alarm := _say_alarm(t)):
        rows.insert(0, alarm)
    head = (
        f"So that it does not come back ({t.cause} {t.main}):" if rows else f"{t.cause} {t.main}."
    )
    return head + ("\n\n" + "\n".join(rows) if rows else "") + "\n\nThe whole post-mortem: the Post-mortem button, or `firstfault postmortem`."  # fmt: skip


_STAY_FINITE = (
    "- Loss and gradient norm stay finite there and the loss is not 0; let the run stop by itself on a value that is "
    "not finite."
)


def _must_and_must_not(t: Telling) -> list[str]:
    """The line that must not come again, and the step that has to be reached for it to count."""
    first, last = t.diagnosis.first_line, t.record.steps[-1] if t.record.steps else None
    sound = {(s.file, s.line) for s in t.record.steps} if first is not None else set()
    main = t.diagnosis.hypotheses[0].for_ if t.diagnosis.hypotheses else ()
    cited = [c for c in t.diagnosis.citations if c.n in main and c.kind is CitationKind.LOG]
    later = next((c.quote for c in cited if first is not None and (c.line or 0) > first.line), "")
    text = later or first.text if first is not None and (first.file, first.line) in sound else first.text if first is not None else ""  # fmt: skip
    quoted = f" Its line: `{text.strip()[:200]}`." if text else ""
    rows = [f"- Must not come again: {t.cause} {t.main}.{quoted}"]
    if t.diagnosis.fixes:
        fix = t.diagnosis.fixes[0]
        rows.insert(0, f"- The fix that is to be shown: {fix.text} {t.sources.marks(fix.citations, t.diagnosis)}")  # fmt: skip
    if last is not None:
        end = at_line(t, last.file, last.line, last.text)
        rows.append(f"- Must appear: a logged step beyond {last.step}, where this log's steps end ({end}), with values like those before the fault.")  # fmt: skip
    return rows


def tell_verify(t: Telling) -> str:
    """How it is proven that a fix holds, for this fault."""
    d = t.diagnosis
    if d.verdict is Verdict.HEALTHY:
        return f"There is nothing to fix: {t.cause} {t.main}."
    step = f" past the point where it failed ({d.first_line.file}, line {d.first_line.line})" if d.first_line else ""  # fmt: skip
    best = t.record.resume_from
    again = f"- Resume from {best.name} ({at_event(t, best)}) with the same data in the same order, and let it run on{step}." if best is not None else ""  # fmt: skip
    finite = _STAY_FINITE if d.category is Category.NUMERICAL else ""
    rows = [
        *(r for r in (again, finite) if r),
        *_must_and_must_not(t),
        "- Run the same case on the same nodes with the fix, then once without it: it must fail again, or the fix proves nothing.",
        "- A fault that comes by chance: with a usual interval T, no failure for 3 T leaves about 5 % chance of luck.",
        "- Nothing else may get worse: compare step time, peak memory and loss with the run before.",
        f"- Let the tool compare the logs:\n{write_block('firstfault verify-fix --help', 2)}",
    ]
    page = t.question.knowledge.pages.get("fix-verification")
    mark = ""
    if page is not None:
        mark = t.sources.add(Citation(0, CitationKind.PAGE, page.summary, page=page.id, heading="Summary", url=page.url))  # fmt: skip
    return f"It is fixed when the run gets{step} where the failure would have been expected, and nothing else got worse {mark}.\n\n" + "\n".join(rows)  # fmt: skip
