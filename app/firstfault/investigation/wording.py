"""How is a verdict put into words? Short sentences with [n] marks; nothing that is not cited."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from firstfault.investigation.citations import CitationBook
from firstfault.investigation.examination import Examination
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.standouts import find_standouts
from firstfault.investigation.surroundings import pasted_checks, warnings_before
from firstfault.investigation.verdict import Judgement, is_quotation
from firstfault_tools.causality.progress import read_progress
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Level, Verdict
from firstfault_tools.knowledge.page import bullets
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.speaker import read_speaker

MAX_COMPANIONS = 2
_ALARMING = expression(
    r"(?i)\b(?:warn(?:ing)?|error|errors|unable|failed|failure|corrected|missing|retry(?:ing)?|slow|"
    r"skip(?:ped|ping)?|could not|cannot|timed? ?out|spike|autotun\w*|compil\w+)\b"
)

_SOURCE = expression(
    r"\s*(?:[#@]|[fr]{0,2}[\"']|[\w.]+(?:: [\w.]+)? = |(?:def|class|import|from|return)\b|print\w*\()"
)
"""A line of a program that a log shows, as trainers print themselves at the start; it reports nothing."""


def marks(numbers: Sequence[int]) -> str:
    """`[1][2]` for citation numbers."""
    return "".join(f"[{n}]" for n in dict.fromkeys(numbers))


def _first_sentence(text: str) -> str:
    flat = " ".join(text.split())
    for end in (". ", ": ", "; "):
        cut = flat.find(end, 40)
        if end == ". " and 0 < cut < 400:
            return flat[: cut + 1]
    return flat[:400]


def explain(
    examination: Examination,
    finding: Finding,
    knowledge: Knowledge,
    book: CitationBook,
    main: Sequence[int],
) -> str:
    """What happened first, what it means, and which later lines follow from it."""
    parts = [f"{finding.title.rstrip('.')} {marks(main[:3])}.".replace(" .", ".")]
    words = _decisive_words(finding)
    if words:
        parts.append(f"It says «{words}» {marks(main[:1])}.")
    rank = f"rank {finding.rank}" if finding.rank is not None else ""
    where = [
        rank if rank and rank not in finding.title.lower() else "",
        f"host {finding.host}" if finding.host else "",
        finding.gpu
        if (finding.gpu or "").startswith(("GPU", "PCI"))
        else f"GPU {finding.gpu}"
        if finding.gpu
        else "",
    ]
    if any(where):
        parts.append(f"Seen on {', '.join(w for w in where if w)}.")
    page = knowledge.pages.get(finding.page or "")
    if page is not None and page.summary:
        sentence = _first_sentence(page.summary)
        number = book.cite_page(page, "", sentence)
        if number is not None:
            parts.append(f"{sentence} [{number}]")
    for other in _companions(examination, finding):
        numbers = [n for e in other.evidence[:1] if (n := book.cite_log(e)) is not None]
        if numbers:
            parts.append(f"Together with it: {other.title.rstrip('.')} {marks(numbers)}.")
    for line in warnings_before(examination, finding):
        number = book.cite_log(line.evidence())
        if number is not None:
            parts.append(f"Said before: «{' '.join(line.message.split())[:200]}» [{number}].")
    for command, output in pasted_checks(examination):
        numbers = [n for line in output if (n := book.cite_log(line.evidence())) is not None]
        words = "; ".join(" ".join(line.text.split())[:120] for line in output)
        if numbers:
            parts.append(f"The pasted check `{command}` shows «{words}» {marks(numbers)}.")
    later = [*examination.chain.cascade, *examination.chain.teardown]
    numbers = [n for f in later[:4] for e in f.evidence[:1] if (n := book.cite_log(e)) is not None]
    if numbers:
        parts.append(f"What the other lines report follows from it {marks(numbers)}.")
    return " ".join(parts)


def explain_open(
    examination: Examination,
    finding: Finding,
    knowledge: Knowledge,
    book: CitationBook,
    main: Sequence[int],
) -> str:
    """What was seen of an end or a wait whose reason is not in what was read, and what else was seen."""
    parts = [f"{finding.title.rstrip('.')} {marks(main[:3])}."]
    words = _decisive_words(finding)
    if words:
        parts.append(f"It says «{words}» {marks(main[:1])}.")
    if finding.host and finding.host not in finding.title:
        parts.append(f"Seen on host {finding.host}.")
    parts.append(
        "This tells that something ended or waited and not why: the evidence is not enough to name a cause. "
        "What is listed under next artefacts would decide it."
    )
    seen = [f for f in (*examination.chain.rivals, *examination.chain.cascade) if f is not finding]
    told = {finding.title}
    for other in seen:
        if len(told) > MAX_COMPANIONS:
            break
        numbers = [n for e in other.evidence[:1] if (n := book.cite_log(e)) is not None]
        if numbers and other.title not in told:
            told.add(other.title)
            parts.append(f"Seen as well: {other.title.rstrip('.')} {marks(numbers)}.")
    for line in warnings_before(examination, finding):
        number = book.cite_log(line.evidence())
        if number is not None:
            parts.append(f"Said before: «{' '.join(line.message.split())[:200]}» [{number}].")
    numbers = [
        n
        for f in examination.chain.teardown[:3]
        for e in f.evidence[:1]
        if (n := book.cite_log(e)) is not None
    ]
    if numbers:
        parts.append(f"Clean-up after it {marks(numbers)}.")
    return " ".join(parts)


def _companions(examination: Examination, finding: Finding) -> list[Finding]:
    """Other causes and failures that stand beside the first one and tell more of the same story."""
    quoted = {(e.file, e.line) for e in finding.evidence}
    out: list[Finding] = []
    stacks = [f for f in examination.chain.context if f.kind.startswith("stacks.")]
    for other in (*stacks[:1], *examination.chain.rivals, *examination.chain.cascade):
        place = other.evidence[0] if other.evidence else None
        if other not in stacks and other.level not in (Level.CAUSE, Level.FAILURE):
            continue
        if place is None:
            continue
        if (place.file, place.line) in quoted or other.title in finding.title:
            continue
        quoted.add((place.file, place.line))
        out.append(other)
    return out[:MAX_COMPANIONS]


def _decisive_words(finding: Finding) -> str:
    """What the first line says, where the title does not already say it."""
    if not finding.evidence or finding.evidence[0].line == 0:
        return ""
    text = finding.evidence[0].text
    body = " ".join(text[read_speaker(text)[1] :].split())[:220]
    return "" if not body or body[:60] in finding.title else body


def explain_healthy(
    examination: Examination, lead: Finding | None, knowledge: Knowledge, book: CitationBook
) -> tuple[str, str]:
    """(explanation, root cause) of a run in which nothing is wrong; `lead` is told first."""
    benign = list(examination.chain.benign)
    if lead is not None and lead not in examination.chain.survived:
        benign = [lead, *(f for f in benign if f is not lead)]
    survived = sorted(examination.chain.survived, key=lambda f: f is not lead)
    parts = ["Nothing is wrong in what was read: no failure that the run did not get over."]
    state, line = _state_of_run(examination)
    if line is not None and (number := book.cite_log(line.evidence())) is not None:
        parts.append(f"{state[0].upper()}{state[1:]} [{number}].")
    noted = [f for f in examination.chain.context if f.kind.startswith("metrics.")][:2]
    for finding in (*benign, *survived, *(f for f in noted if f is not lead))[:7]:
        numbers = [n for e in finding.evidence[:1] if (n := book.cite_log(e)) is not None]
        sentence = ""
        page = knowledge.pages.get(finding.page or "")
        # the page of a fault tells what it does when it stays, which is not what happened here
        if page is not None and page.benign and page.summary:
            quote = _first_sentence(page.summary)
            number = book.cite_page(page, "", quote)
            sentence = f" {quote} [{number}]" if number is not None else ""
        how = _how_harmless(examination, finding, benign, noted)
        parts.append(f"{finding.title.rstrip('.')} {marks(numbers)}: {how}.{sentence}")
    for line in _looks_alarming(
        examination, explained=any(f.kind.startswith("metrics.") for f in benign)
    )[:3]:
        number = book.cite_log(line.evidence())
        if number is not None:
            words = " ".join(line.message.split())[:200]
            parts.append(
                f"«{words}» [{number}]: reads like trouble, but the steps went on as before."
            )
    if benign and (lead is None or lead not in survived):
        cause = f"Nothing wrong (normal): {state}; {benign[0].title}"
    elif survived and is_quotation(examination, survived[0]):
        cause = f"Nothing wrong: {state}; what is quoted is from elsewhere: {survived[0].title}"
    elif survived:
        cause = f"Nothing wrong (recovered): {state}; got over: {survived[0].title}"
    else:
        cause = f"Nothing wrong: {state} and no failure is reported"
    return " ".join(parts), cause


def _state_of_run(examination: Examination) -> tuple[str, Line | None]:
    """How the run stands, in words, and the line that shows it."""
    readers = examination.logs.progress.values()
    for reader in readers:
        finish = reader.finished_at()
        text = examination.logs.text_of(reader.digest, finish) if finish is not None else None
        if finish is not None and text is not None:
            line = make_line(reader.digest.file, finish, text, reader.digest.year)
            return "the run ended as planned", line
    last = [(p, r) for r in readers if (p := r.last_training()) is not None]
    if not last:
        for digest, number, text in examination.logs.lines_with(("Out of bounds values",)):
            line = make_line(digest.file, number, text, digest.year)
            return "the test ended and every value it checked was right", line
        return "the steps advance", None
    step, reader = max(last, key=lambda found: found[0].counter or 0)
    return f"the steps advance, the last one seen is {step.counter}", reader.line(step)


def _how_harmless(
    examination: Examination,
    finding: Finding,
    benign: Sequence[Finding],
    noted: Sequence[Finding],
) -> str:
    """Why a finding of a healthy run does no harm."""
    if finding in benign or finding in noted:
        return "normal and harmless"
    place = finding.evidence[0] if finding.evidence else None
    if is_quotation(examination, finding):
        return "quoted from elsewhere, it says nothing about this run"
    reader = examination.logs.progress.get(place.file) if place is not None else None
    finish = reader.finished_at() if reader is not None else None
    if place is not None and finish is not None and place.line > finish:
        return "it came after the training had finished, harmless"
    return "recovered: the steps continue after it, harmless"


def _looks_alarming(examination: Examination, explained: bool) -> list[Line]:
    """Lines of a healthy run that somebody may stumble over, one of each kind.

    explained: the curves are explained already; what was said at start-up is then no answer.
    """
    quoted = {(e.file, e.line) for f in examination.findings for e in f.evidence}
    out: dict[str, Line] = {}
    for digest in examination.logs.digests:
        first = next(
            (p.number for p in examination.logs.progress[digest.file].after(0) if p.training), 0
        )
        for number, text in digest.kept:
            if not _ALARMING.search(text) or (digest.file, number) in quoted:
                continue
            if (explained and number < first) or _SOURCE.match(text):
                continue
            if (step := read_progress(number, text)) is not None and step.training:
                continue
            line = make_line(digest.file, number, text, digest.year)
            out.setdefault(re.sub(r"[\d\W]+", "", line.message)[:40], line)
            if len(out) >= 3:
                return list(out.values())
    return list(out.values())


def explain_unknown(examination: Examination, judgement: Judgement, book: CitationBook) -> str:
    """What was seen, and that it is not enough."""
    if judgement.pace_asked:
        state, line = _state_of_run(examination)
        number = book.cite_log(line.evidence()) if line is not None else None
        cited = f" {marks([number])}" if number is not None else ""
        return (
            f"{state[0].upper()}{state[1:]}{cited}, at a steady pace and without a failure. Whether the run is slower "
            "than another one cannot be determined from it alone: a log of the faster run is needed to compare with."
        )
    seen = [*examination.chain.teardown]
    numbers = [n for f in seen[:3] for e in f.evidence[:1] if (n := book.cite_log(e)) is not None]
    numbers += [
        n for line in judgement.suspicious[:3] if (n := book.cite_log(line.evidence())) is not None
    ]
    if numbers:
        return (
            f"Something ended or complained {marks(numbers)}, but no line says why. Collect what is "
            "listed under next artefacts; the verdict stays open until then."
        )
    return (
        "What was read shows no failure that is known here and no sign of a healthy run either. Add the "
        "logs of all ranks and of the launcher."
    )


def name_standouts(examination: Examination, book: CitationBook) -> list[str]:
    """A sentence for every rare telling line before the first alarm of an open incident."""
    quoted = {(c.file, c.line) for c in book.citations}
    out = []
    for line in find_standouts(examination):
        number = None if (line.file, line.number) in quoted else book.cite_log(line.evidence())
        if number is not None:
            before = " before it" if quoted else ""
            out.append(f"Stands out{before}: «{' '.join(line.text.split())[:220]}» [{number}].")
    return out


def state_disproof(judgement: Judgement, knowledge: Knowledge) -> str:
    """What would show that the verdict is wrong."""
    finding = judgement.finding
    if judgement.verdict is Verdict.HEALTHY:
        return "A rank whose log is missing here, or a later error."
    if finding is None:
        return ""
    page = knowledge.pages.get(finding.page or "")
    place = finding.evidence[0] if finding.evidence else None
    where = f"line {place.line} of {place.file}" if place is not None and place.line else "this"
    earlier = f"an earlier failure than {where}, in a log that was not given"
    section = page.section("How to confirm") if page is not None else None
    checks = bullets(section.text) if section is not None else []
    if checks:
        # a command of the check stands on the page; within a sentence it cannot be copied
        words = takewhile(lambda line: "```" not in line, checks[0])
        check = " ".join(line.strip() for line in words).strip().rstrip(".:")
        return f"A check that does not bear it out ({check}); or {earlier}."
    return f"{earlier[0].upper()}{earlier[1:]}."
