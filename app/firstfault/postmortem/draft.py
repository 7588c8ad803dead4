"""How does an incident become a post-mortem? Everything known is filled in, everything else left blank."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from firstfault import __version__
from firstfault.investigation.diagnosis import ChainRole, CitationKind, Diagnosis
from firstfault.investigation.headline import capitalise, lower_first, say_plainly
from firstfault.investigation.next_action import Action as Check
from firstfault.investigation.next_action import ActionKind, choose_action, write_action
from firstfault.plain_text import say_hours
from firstfault.postmortem.document import say_time
from firstfault.postmortem.evidence import Artefacts, Book, TimedLine, timed_steps
from firstfault.postmortem.impact import GivenFigures, measure_impact
from firstfault.postmortem.lost_work import RunRecord
from firstfault.postmortem.pace import Pace, check_fix, read_pace
from firstfault.postmortem.prevention import choose_prevention, choose_safeguard
from firstfault.postmortem.rank_chart import draw_ranks
from firstfault.postmortem.report import (
    Action,
    Cited,
    FixCheck,
    FixState,
    Impact,
    LossKind,
    Report,
    Severity,
    TimelineRow,
    Why,
)
from firstfault.postmortem.timeline import is_action, is_alert, short_text, write_timeline
from firstfault.postmortem.whys import ask_whys
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Confidence, Verdict
from firstfault_tools.hardware.bus import call_gpu
from firstfault_tools.knowledge.page import Page, page_of_row, parse_page

MAJOR_SHARE = 0.2
LEAST_LOUD = 3
"""Ranks or lines from which on it is worth a lesson that they only report what another one names."""

_FILES = expression(r"[^\s,]+\.\w{1,5}(?:, [^\s,]+\.\w{1,5})*(?: and \d+ more)?")


@dataclass(frozen=True, slots=True)
class SaidLine:
    """One statement of a person. time: seconds since the epoch, UTC."""

    time: float
    who: str
    text: str
    did: bool = False
    """The text says what they did, not their words."""


@dataclass(frozen=True)
class Draft:
    """What a report is written from. related: the sentence on earlier incidents, if any."""

    title: str
    incident: str
    diagnosis: Diagnosis
    files: Mapping[str, Path]
    knowledge: Path
    figures: GivenFigures = field(default_factory=GivenFigures)
    related: str = ""
    really: Sequence[str] = ()
    """What people said it really was."""
    said: Sequence[SaidLine] = ()
    """What people said as evidence and did on the way."""


def draft_report(draft: Draft) -> Report:
    """The post-mortem of one incident."""
    diagnosis, book = draft.diagnosis, Book()
    artefacts = Artefacts(draft.files, diagnosis.citations)
    pace = read_pace(timed_steps(artefacts), artefacts.lines)
    title = name_report(draft.title, diagnosis)
    summary = _summary(draft, title, book)
    impact = measure_impact(draft.figures, RunRecord(diagnosis, artefacts), pace, book)
    check = check_fix(pace) if pace is not None else None
    timeline = (*write_timeline(diagnosis, artefacts, book), *_people(draft.said))
    return Report(
        title=title,
        incident=draft.incident,
        status=_status(diagnosis, check),
        severity=_severity(diagnosis, pace),
        summary=(*summary, *impact.throughput, *_say_course(diagnosis, impact)),
        impact=impact,
        timeline=timeline,
        detection=_detection(diagnosis, artefacts, impact, book),
        trigger=_trigger(diagnosis, book),
        root_cause=_root_cause(diagnosis, title, book),
        confidence=diagnosis.confidence.value,
        whys=_ask_whys(draft, artefacts, impact, book),
        contributing=_contributing(draft, book),
        resolution=_resolution(impact.start, artefacts, book),
        fix_check=check,
        went_well=_went_well(diagnosis, artefacts, pace, impact, book),
        went_badly=_went_badly(diagnosis, impact, timeline),
        by_luck=_by_luck(pace, book),
        actions=_actions(draft, book),
        prevention=choose_prevention(
            draft.knowledge, diagnosis.category, diagnosis.signature, _page(draft)
        ),
        lessons=_lessons(diagnosis, draft, book),
        citations=book.citations,
        inputs=_list_inputs(draft),
        version=__version__,
        ranks=draw_ranks(diagnosis, artefacts),
    )


def name_report(title: str, diagnosis: Diagnosis) -> str:
    """The title a person gave; place and cause where it is only a file's name or the cause once more."""
    plain = title.strip()
    cause = diagnosis.root_cause.lower()
    file = _FILES.fullmatch(plain) is not None
    if not plain or file or cause.startswith(plain[:32].lower()):
        return say_plainly(diagnosis)[0]
    return plain


def _people(said: Sequence[SaidLine]) -> tuple[TimelineRow, ...]:
    """What people said and did, in the report's timeline."""
    return tuple(
        TimelineRow(s.time, f"{s.who} {s.text}" if s.did else f'{s.who} said: "{s.text}"', "did" if s.did else "said", ())
        for s in said
    )  # fmt: skip


def _page(draft: Draft) -> Page | None:
    """The knowledge page that the verdict rests on."""
    cited = [c.page for c in draft.diagnosis.citations if c.kind is CitationKind.PAGE and c.page]
    file = next(draft.knowledge.glob(f"pages/**/{cited[0]}.md"), None) if cited else None
    if file is None:
        return None
    return page_of_row(parse_page(file.read_text(encoding="utf-8"), file.name))


def _summary(draft: Draft, title: str, book: Book) -> tuple[Cited, ...]:
    """What it was; the headline stands here only where the report has a name of its own."""
    diagnosis = draft.diagnosis
    quotes = {c.n: c for c in diagnosis.citations}
    main = diagnosis.hypotheses[0].for_[:3] if diagnosis.hypotheses else ()
    marks = tuple(book.again(quotes[n]) for n in main if n in quotes)
    if diagnosis.verdict is Verdict.HEALTHY:
        return (Cited("Nothing was wrong in what was read.", marks),)
    if diagnosis.verdict is Verdict.UNKNOWN:
        return (Cited("The evidence does not reach to a cause; the cause is open.", marks),)
    headline, detail = say_plainly(diagnosis)
    out = [Cited(f"{headline.rstrip('.')}.", marks)] if title != headline else []
    if detail:
        out.append(Cited(f"{detail.rstrip('.')}.", () if out else marks))
    places = [diagnosis.place if diagnosis.place != diagnosis.host else f"host {diagnosis.host}"]
    places.append(call_gpu(diagnosis.gpu))
    told = diagnosis.root_cause.lower()
    where = ", ".join(p for p in places if p and p.lower() not in told and p != "host localhost")
    if where and not _is_told(diagnosis, headline):
        out.append(Cited(f"Place: {where}."))
    if draft.related:
        out.append(Cited(draft.related))
    return tuple(out)


def _is_told(diagnosis: Diagnosis, headline: str) -> bool:
    """The headline names rank, host and GPU, as far as they are known."""
    rank = diagnosis.first_failing_rank
    gpu = call_gpu(diagnosis.gpu).removeprefix("GPU ")
    names = (f"Rank {rank}" if rank is not None else "", diagnosis.host or "", gpu)
    return all(name.lower() in headline.lower() for name in names)


def _status(diagnosis: Diagnosis, check: FixCheck | None) -> str:
    if diagnosis.verdict is Verdict.HEALTHY:
        return "closed: nothing was wrong"
    if check is not None and check.state is FixState.FIXED:
        return "draft; fix verified"
    said = {Confidence.CONFIRMED: "established", Confidence.LIKELY: "likely"}.get(
        diagnosis.confidence
    )
    return f"draft; cause {said}, fix not verified" if said else "draft; cause open"


def _severity(diagnosis: Diagnosis, pace: Pace | None) -> Severity:
    if diagnosis.verdict is Verdict.HEALTHY:
        return Severity.NONE
    if pace is not None:
        return Severity.MAJOR if pace.lost_share >= MAJOR_SHARE else Severity.MINOR
    return Severity.CRITICAL if diagnosis.verdict is Verdict.FAULT else Severity.MINOR


def _detection(
    diagnosis: Diagnosis, artefacts: Artefacts, impact: Impact, book: Book
) -> tuple[Cited, ...]:
    for line in artefacts.lines:
        if is_alert(line):
            after = ""
            if line.time is not None and impact.start is not None and line.time >= impact.start:
                after = f", {_minutes(line.time - impact.start)} after the start"
            mark = (book.line(line.file, line.line, line.text),)
            return (Cited(f"By an alert{after}.", mark),)
    return _first_report(diagnosis, artefacts, impact.start, book)


def _first_report(
    diagnosis: Diagnosis, artefacts: Artefacts, start: float | None, book: Book
) -> tuple[Cited, ...]:
    """Without an alert: the first failure that the job itself reported after the fault."""
    timed = [
        (at, link)
        for link in diagnosis.cascade
        if link.role is not ChainRole.INITIATING and link.file and link.line
        if (at := artefacts.time_at(link.file, link.line, link.text)[0]) is not None
    ]
    timed = [(at, link) for at, link in timed if start is not None and at >= start]
    if not timed or start is None:
        return ()
    at, link = min(timed, key=lambda t: t[0])
    after = f"{_minutes(at - start)} after the start"
    told = sorted({x.rank for _, x in timed if x.rank is not None})
    who = f"rank {link.rank}" if link.rank is not None else "its launcher"
    if link.rank is not None and len(told) > 1:
        who = f"rank {link.rank}, the first of {len(told)} ranks"
    text = f"By the job itself: {who} reported a failure {after}; no alert is in what was read."
    return (Cited(text, (book.line(link.file or "", link.line, link.text),)),)


def _ask_whys(draft: Draft, artefacts: Artefacts, impact: Impact, book: Book) -> tuple[Why, ...]:
    diagnosis, page = draft.diagnosis, _page(draft)
    still = next((x for x in impact.losses if x.kind is LossKind.STOPPED), None)
    slowed = any(x.kind is LossKind.SLOW for x in impact.losses)
    stood = None
    # a run that had become slow was stopped to mend it
    if still is not None and not slowed:
        on = f" on {impact.gpus} GPUs" if impact.gpus else ""
        lasted = _minutes(still.end - still.start)
        stood = Cited(f"Nothing was trained for {lasted}{on}.", still.citations)
    own = choose_safeguard(draft.knowledge, diagnosis.category, diagnosis.signature, page)
    return ask_whys(diagnosis, artefacts, book, draft.figures.whys, page, own, stood)


def _trigger(diagnosis: Diagnosis, book: Book) -> Cited | None:
    first = diagnosis.first_line
    if first is None:
        return None
    text = f"First sign in the evidence: {first.file}, line {first.line}."
    return Cited(text, (book.line(first.file, first.line, first.text),))


def _say_course(diagnosis: Diagnosis, impact: Impact) -> tuple[Cited, ...]:
    """How many ranks it took along, since when, and what that has cost so far."""
    many, hours = len(diagnosis.followers), impact.gpu_hours
    parts = []
    if many:
        other = "" if diagnosis.first_failing_rank is None else "other "
        parts.append(f"{many} {other}rank{'s' if many > 1 else ''} reported what followed")
    if hours is not None:
        parts.append(f"{say_hours(hours)} GPU-hours are lost")
    if not parts:
        return ()
    since = f"since {say_time(impact.start, date=False)} UTC " if impact.start is not None else ""
    return (Cited(f"{capitalise(since + ' and '.join(parts))}."),)


def _root_cause(diagnosis: Diagnosis, title: str, book: Book) -> Cited | None:
    """The lines that it rests on; the cause itself was said, in the title or first in the summary."""
    if diagnosis.verdict not in (Verdict.FAULT, Verdict.WARNING) or not diagnosis.hypotheses:
        return None
    quotes = {c.n: c for c in diagnosis.citations}
    marks = tuple(book.again(quotes[n]) for n in diagnosis.hypotheses[0].for_[:4] if n in quotes)
    sure = diagnosis.confidence in (Confidence.CONFIRMED, Confidence.LIKELY)
    headline, detail = say_plainly(diagnosis, possible=False)
    where = "title" if title == headline else "summary"
    more = f": {lower_first(detail.rstrip('.'))}" if detail and where == "summary" else ""
    said = f"The one that the {where} names{more}; these lines show it."
    return Cited(said, marks, assumed=not sure)


def _contributing(draft: Draft, book: Book) -> tuple[Cited, ...]:
    diagnosis = draft.diagnosis
    quotes = {c.n: c for c in diagnosis.citations}
    main = set(diagnosis.hypotheses[0].for_) if diagnosis.hypotheses else set()
    out = []
    for other in diagnosis.hypotheses[1:4]:
        said = other.root_cause.rstrip(".")
        if set(other.for_) & main or said.lower() in diagnosis.root_cause.lower():
            continue
        marks = tuple(book.again(quotes[n]) for n in other.for_[:2] if n in quotes)
        out.append(Cited(f"Possibly: {said}.", marks, assumed=True))
    out += [Cited(f"Said afterwards: {text}", assumed=True) for text in draft.really]
    return tuple(out)


def _resolution(start: float | None, artefacts: Artefacts, book: Book) -> tuple[Cited, ...]:
    done: list[tuple[float, TimedLine]] = []
    seen: set[str] = set()
    for line in artefacts.lines:
        if line.time is None or not is_action(line) or is_alert(line):
            continue
        words = " ".join(line.text.split())
        if words[30:90] in seen or len(done) >= 8:
            continue
        seen.add(words[30:90])
        done.append((line.time, line))
    done.sort(key=lambda d: d[0])
    return tuple(
        Cited(short_text(line.text), (book.line(line.file, line.line, line.text),))
        for time, line in done
        if start is None or time >= start
    )


def _went_well(
    diagnosis: Diagnosis, artefacts: Artefacts, pace: Pace | None, impact: Impact, book: Book
) -> tuple[Cited, ...]:
    out = [
        Cited(c.text.replace("By an alert", "An alert fired"), c.citations)
        for c in _detection(diagnosis, artefacts, impact, book)
        if c.text.startswith("By an alert")
    ]
    saved = [x for x in artefacts.lines if "checkpoint" in x.text.lower() and "saved" in x.text.lower()]  # fmt: skip
    if saved and pace is not None and pace.pause is not None:
        mark = (book.line(saved[-1].file, saved[-1].line, saved[-1].text),)
        out.append(Cited("A checkpoint was written before the run was stopped, so no step was lost.", mark))  # fmt: skip
    return tuple(out)


def _went_badly(
    diagnosis: Diagnosis, impact: Impact, timeline: Sequence[TimelineRow]
) -> tuple[Cited, ...]:
    out = []
    if impact.start is not None and impact.end is not None:
        out.append(
            Cited(f"From the start to the end it took {_minutes(impact.end - impact.start)}.")
        )
    seen, world = len(diagnosis.input.ranks_seen), diagnosis.input.world_size
    if world and 0 < seen < world:
        out.append(Cited(f"Logs of {seen} of {world} ranks were at hand."))
    if timeline and all(row.time is None for row in timeline):
        out.append(Cited("None of the cited lines carries a time."))
    return tuple(out)


def _by_luck(pace: Pace | None, book: Book) -> tuple[Cited, ...]:
    if pace is None:
        return ()
    last = pace.slow[-1]
    return (
        Cited("The run went on while it was slow; nothing crashed.", (book.line(last.file, last.line, last.text),)),
    )  # fmt: skip


def _actions(draft: Draft, book: Book) -> tuple[Action, ...]:
    """What settles the cause, where it is not settled, as the card has it; then the fixes."""
    diagnosis, page = draft.diagnosis, _page(draft)
    quotes = {c.n: c for c in diagnosis.citations}
    kinds = {"immediate": "mitigate", "structural": "prevent"}
    first = choose_action(diagnosis, {page.id: page} if page is not None else {})
    check = first if first is not None and first.kind is ActionKind.CHECK else None
    out = [Action("investigate", _say_check(check))] if check is not None else []
    out += [
        Action(
            kinds.get(fix.kind, fix.kind),
            fix.text,
            tuple(book.again(quotes[n]) for n in fix.citations if n in quotes),
        )
        for fix in diagnosis.fixes
    ]
    if diagnosis.confidence is not Confidence.CONFIRMED:
        said = check.what.lower() if check is not None else ""
        out += [Action("investigate", f"Collect {a.what}: {a.why}.") for a in diagnosis.next_artefacts if a.what.lower() != said]  # fmt: skip
    return tuple(out)


def _say_check(check: Check) -> str:
    command = f" `{'; '.join(check.command.splitlines())}`" if check.command else ""
    read = "".join(f" {shown}: {follows.rstrip('.')}." for shown, follows in check.reading)
    return f"{write_action(check)}{command}{read}"


def _lessons(diagnosis: Diagnosis, draft: Draft, book: Book) -> tuple[Cited, ...]:
    out = []
    loud = {(x.file, x.line) for x in diagnosis.cascade if x.role is not ChainRole.INITIATING}
    many = len(diagnosis.followers)
    if diagnosis.first_line is not None and max(many, len(loud)) >= LEAST_LOUD:
        who = f"{many} ranks" if many >= LEAST_LOUD else f"{len(loud)} later lines"
        out.append(Cited(f"{who} reported this failure in other words; the first line named it."))
    pages = [c for c in diagnosis.citations if c.kind is CitationKind.PAGE and c.page]
    if pages:
        out.append(Cited(f"More on this class of failure: knowledge page {pages[0].page}.", (book.again(pages[0]),)))  # fmt: skip
    if draft.related:
        out.append(Cited("It has happened before: " + draft.related))
    return tuple(out)


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _list_inputs(draft: Draft) -> tuple[tuple[str, str], ...]:
    """Names and digests of what was read; names alone where the files are not kept."""
    if draft.files:
        return tuple((name, _digest(path)) for name, path in list(draft.files.items())[:200])
    return tuple((name, "") for name in draft.diagnosis.input.files[:200])


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            for chunk in iter(lambda: stream.read(1 << 20), b""):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()
