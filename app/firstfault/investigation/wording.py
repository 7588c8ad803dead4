"""How is a verdict put into words? Short sentences with [n] marks; nothing that is not cited."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import takewhile

from firstfault.investigation.chain_links import list_followers
from firstfault.investigation.citations import CitationBook
from firstfault.investigation.examination import Examination
from firstfault.investigation.headline import capitalise, lower_first, shorten_clause
from firstfault.investigation.health import Ground, HealthProof
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.place import find_place
from firstfault.investigation.run_stage import say_when
from firstfault.investigation.standouts import find_standouts
from firstfault.investigation.surroundings import pasted_checks, warnings_before
from firstfault.investigation.verdict import Judgement, is_quotation, quote_first
from firstfault_tools.causality.odd_ranks.silence import Silence, read_silence
from firstfault_tools.causality.progress import read_progress
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Complaint, Confidence, Finding, Level, Verdict
from firstfault_tools.hardware.bus import call_gpu
from firstfault_tools.hardware.host.tables import is_heading
from firstfault_tools.knowledge.page import bullets
from firstfault_tools.log.digest import Line
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.scan import make_line

MAX_COMPANIONS = 2
MOST_QUOTED, MOST_SHOWN = 200, 120
"""Characters of a warning and of each line of a pasted check: neither stands under the evidence."""
MOST_BESIDE = 240
"""Characters of what stands beside the cause: more than a headline, less than a paragraph."""
MOST_NAMED = 3
"""Ranks up to which those that followed are named and not counted."""
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
    confidence: Confidence = Confidence.LIKELY,
) -> str:
    """How sure it is and how it is known, what it means, what stands beside it and what followed. The cause itself is the headline.

    The lines of the evidence are not quoted again, only named by their marks.
    """
    when = say_when(examination, finding)
    parts = [_say_certainty(finding, main, confidence), f"{when}." if when else ""]
    parts += _say_place(examination, finding, book)
    page = knowledge.pages.get(finding.page or "")
    if page is not None and page.summary:
        sentence = _first_sentence(page.summary)
        number = book.cite_page(page, "", sentence)
        if number is not None:
            parts.append(f"{capitalise(sentence)} [{number}]")
    beside = []
    for other in find_companions(examination, finding):
        numbers = book.cite_logs(other.evidence[:1])
        if numbers:
            beside.append(f"{shorten_clause(other.title, MOST_BESIDE)} {marks(numbers)}")
    if beside:
        parts.append(f"Beside it: {'; '.join(beside)}.")
    parts += _say_before(examination, finding, book)
    parts += _say_consequences(examination, finding, book)
    return " ".join(p for p in parts if p)


_SURE = {
    Confidence.CONFIRMED: ("Confirmed by", "it names the cause itself"),
    Confidence.LIKELY: ("Likely, by", "it points there and does not prove it"),
    Confidence.POSSIBLE: ("Possible, by", "it only resembles what this cause leaves"),
}


def _say_certainty(finding: Finding, main: Sequence[int], confidence: Confidence) -> str:
    """How sure it is and why, in one sentence: by which line, and whether that settles it."""
    first = finding.evidence[0] if finding.evidence else None
    if first is None or not main or confidence not in _SURE:
        return _say_deciding(finding, main)
    word, reason = _SURE[confidence]
    line = f"line {first.line} of {first.file}" if first.line else first.file
    when = f", written at {datetime.fromtimestamp(first.time, UTC):%H:%M:%S}" if first.time else ""
    agree = f"; {marks(main[1:3])} agree{'s' if len(main) == 2 else ''}" if len(main) > 1 else ""
    return f"{word} {line}{when} {marks(main[:1])}: {reason}{agree}."


def _say_deciding(finding: Finding, main: Sequence[int]) -> str:
    """Which line decides, and when it was written."""
    first = finding.evidence[0] if finding.evidence else None
    if first is None or not main:
        return ""
    if not first.line:
        return f"{first.file} decides {marks(main[:3])}."
    when = f", written at {datetime.fromtimestamp(first.time, UTC):%H:%M:%S}" if first.time else ""
    agree = f"; {marks(main[1:3])} agree" if len(main) > 2 else f"; {marks(main[1:2])} agrees"
    agreeing = agree if len(main) > 1 else ""
    return f"Line {first.line} of {first.file} decides{when} {marks(main[:1])}{agreeing}."


def _say_before(examination: Examination, finding: Finding, book: CitationBook) -> list[str]:
    """Warnings that stood before the fault, and what checks show that were pasted with the log."""
    parts = []
    for line in warnings_before(examination, finding):
        number = book.cite_log(line.evidence())
        if number is not None:
            words = " ".join(line.message.split())[:MOST_QUOTED]
            parts.append(f"A warning stood before it: «{words}» [{number}].")
    for command, shown in pasted_checks(examination):
        output = [line for line in shown if not is_heading(line.text)]
        numbers = book.cite_logs(line.evidence() for line in output)
        words = "; ".join(" ".join(line.text.split())[:MOST_SHOWN] for line in output)
        if numbers:
            parts.append(f"The pasted `{command}` shows «{words}» {marks(numbers)}.")
    return parts


def _say_consequences(examination: Examination, finding: Finding, book: CitationBook) -> list[str]:
    """Why the others failed: who reported what followed, and where the rest was only shut down."""
    parts = []
    chain = examination.chain
    own = find_place(examination, finding).rank
    numbers = _cite_first(chain.cascade[:4], book)
    if numbers:
        named = list_followers(examination, own)
        who = count_ranks(named, examination.logs.ranks_seen, examination.logs.world_size)
        if _told_silent(examination, own):
            who = "those that timed out"
        verb = "reports" if len(named) == 1 else "report"
        parts.append(
            f"{capitalise(who) or 'Later lines'} only {verb} what followed from it {marks(numbers[:3])}."
        )
    numbers = _cite_first(chain.teardown[: 4 - len(numbers)], book)
    if numbers:
        parts.append(f"After that the job was shut down {marks(numbers)}.")
    return parts


def count_ranks(ranks: Sequence[int], seen: Collection[int], world: int | None) -> str:
    """`rank 3`, `ranks 0, 1 and 2`, `15 of 16 ranks`: many are counted and not named."""
    if len(ranks) <= MOST_NAMED:
        return name_ranks(list(ranks)) if ranks else ""
    whole = max(world or 0, len(seen))
    return f"{len(ranks)} of {whole} ranks" if whole > len(ranks) else f"all {len(ranks)} ranks"


def _cite_first(findings: Sequence[Finding], book: CitationBook) -> list[int]:
    found = [book.cite_log(e) for f in findings for e in f.evidence[:1]]
    return [n for n in found if n is not None]


def _say_place(examination: Examination, finding: Finding, book: CitationBook) -> list[str]:
    """Where it was seen, unless the title says all of that, and whether the silence of a rank agrees."""
    place = find_place(examination, finding)
    words = place.process.describe()
    where = ["" if finding.says(words) else words]
    if words == place.host and where[0]:
        where = [f"host {words}"]
    if place.gpu:
        where.append(call_gpu(place.gpu))
    parts = [f"Seen on {', '.join(w for w in where if w)}."] if any(where) else []
    silence = _told_silent(examination, place.rank)
    if silence is not None:
        number = book.cite_log(silence.reports[0].line.evidence())
        if number is not None:
            parts.append(f"{silence.describe()} [{number}].")
    return parts


def _told_silent(examination: Examination, rank: int | None) -> Silence | None:
    """All other ranks timed out and this one never did; None where that is not seen."""
    silence = read_silence(examination.logs) if rank is not None else None
    return silence if silence is not None and rank in silence.ranks else None


def explain_open(
    examination: Examination, finding: Finding, book: CitationBook, main: Sequence[int]
) -> str:
    """What was seen of an end or a wait whose reason is not in what was read, and what else was seen."""
    parts = [_say_deciding(finding, main).replace(" decides", " is what is known")]
    if finding.host and not finding.says(finding.host):
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
        numbers = book.cite_logs(other.evidence[:1])
        if numbers and other.title not in told:
            told.add(other.title)
            parts.append(f"Seen as well: {shorten_clause(other.title)} {marks(numbers)}.")
    parts += _say_before(examination, finding, book)
    numbers = _cite_first(examination.chain.teardown[:3], book)
    if numbers:
        parts.append(f"After that the job was shut down {marks(numbers)}.")
    return " ".join(parts)


def find_companions(examination: Examination, finding: Finding) -> list[Finding]:
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
        if (place.file, place.line) in quoted or finding.says(other.title):
            continue
        quoted.add((place.file, place.line))
        out.append(other)
    return out[:MAX_COMPANIONS]


def explain_healthy(
    examination: Examination, judgement: Judgement, knowledge: Knowledge, book: CitationBook
) -> tuple[str, str]:
    """(explanation, root cause) of a run in which nothing is wrong; what it rests on is told first."""
    lead = judgement.finding
    benign = list(examination.chain.benign)
    if lead is not None and lead not in examination.chain.survived:
        benign = [lead, *(f for f in benign if f is not lead)]
    survived = sorted(examination.chain.survived, key=lambda f: f is not lead)
    parts = ["Nothing is wrong in what was read: no failure that the run did not get over."]
    state = describe_ground(judgement.proof) if judgement.proof is not None else ""
    shown = judgement.proof.shown_by[:1] if judgement.proof is not None else ()
    numbers = book.cite_logs(shown)
    if state:
        parts.append(f"{state[0].upper()}{state[1:]} {marks(numbers)}.".replace(" .", "."))
    noted = [f for f in examination.chain.context if f.kind.startswith("metrics.")][:2]
    for finding in (*benign, *survived, *(f for f in noted if f is not lead))[:7]:
        how = _how_harmless(examination, finding, benign, noted)
        parts.append(_tell_harmless(finding, how, knowledge, book))
    explained = any(f.kind.startswith("metrics.") for f in benign)
    for line in _looks_alarming(examination, explained=explained)[:3]:
        number = book.cite_log(line.evidence())
        if number is not None:
            words = " ".join(line.message.split())[:200]
            parts.append(
                f"«{words}» [{number}]: reads like trouble, but {_how_outlived(examination, line)}."
            )
    return " ".join(parts), _sum_up(examination, state, lead, benign, survived)


def _tell_harmless(finding: Finding, how: str, knowledge: Knowledge, book: CitationBook) -> str:
    """A finding that did no harm, why that is so, and what its page says of it."""
    numbers = book.cite_logs(finding.evidence[:1])
    sentence = ""
    page = knowledge.pages.get(finding.page or "")
    # the page of a fault tells what it does when it stays, which is not what happened here
    if page is not None and page.benign and page.summary:
        quote = _first_sentence(page.summary)
        number = book.cite_page(page, "", quote)
        sentence = f" {quote} [{number}]" if number is not None else ""
    return f"{finding.title.rstrip('.')} {marks(numbers)}: {how}.{sentence}"


def _sum_up(
    examination: Examination,
    state: str,
    lead: Finding | None,
    benign: Sequence[Finding],
    survived: Sequence[Finding],
) -> str:
    """The sentence of the verdict: what the run was, and the one thing that looks like a fault."""
    if benign and (lead is None or lead not in survived):
        return f"Nothing wrong (normal): {state}; {benign[0].title}"
    if survived and is_quotation(examination, survived[0]):
        return f"Nothing wrong: {state}; what is quoted is from elsewhere: {survived[0].title}"
    if survived:
        return f"Nothing wrong (recovered): {state}; got over: {survived[0].title}"
    return f"Nothing wrong: {state} and no failure is reported"


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


def _how_outlived(examination: Examination, line: Line) -> str:
    """What is known to have followed a line that reads like trouble."""
    reader = examination.logs.progress[line.file]
    if reader.goes_on_after(line.number):
        return "steps follow it"
    return "nothing that failed follows it"


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


def explain_unknown(
    examination: Examination, judgement: Judgement, book: CitationBook
) -> tuple[str, str]:
    """(explanation, root cause) of what was seen where it is not enough."""
    proof = judgement.proof
    if proof is not None and proof.quiet:
        state = describe_ground(proof)
        ruled_out = f"no fault is seen in what was read{f', and {state}' if state else ''}"
        cause = f"Not enough evidence: {ruled_out}; that does not show {proof.not_shown}"
        return _explain_missing(proof, book), cause
    cause = "Not enough evidence to name a root cause"
    if judgement.suspicious:
        cause += f": nothing says what is behind «{quote_first(judgement.suspicious)}»"
    return _explain_complaints(examination, judgement, book), cause


def _explain_missing(proof: HealthProof, book: CitationBook) -> str:
    """What a proof of health holds and lacks, in a sentence for each."""
    numbers = book.cite_logs(proof.shown_by[:1])
    state = describe_ground(proof)
    parts = [f"No fault is seen in what was read, which does not show {proof.not_shown}."]
    if state:
        parts.append(f"{state[0].upper()}{state[1:]} {marks(numbers)}.".replace(" .", "."))
    for check in proof.missing:
        if check.complaint is Complaint.SLOW:
            parts.append(
                "Whether the run is slower than another one cannot be told from it alone: a log of the faster run is needed to compare with."
            )
        elif check.complaint is None and check.reason:
            parts.append(f"{check.reason[0].upper()}{check.reason[1:]}.")
    parts.append("What is listed under next artefacts would decide it.")
    return " ".join(parts)


def describe_ground(proof: HealthProof) -> str:
    """How the run stands, by what the proof rests on; empty where nothing tells."""
    match proof.ground:
        case Ground.FINISHED:
            return "the run finished: it ended as planned"
        case Ground.REPORTED:
            return "its launcher reports a good end"
        case Ground.GOES_ON:
            step = f", the last one seen is {proof.step}" if proof.step is not None else ""
            return f"the steps go on to the last line{step}"
        case Ground.TEST_PASSED:
            return "the test ended and every value it checked was right"
        case Ground.NOTICE:
            return "only the notice that is asked about was read, and it is known to do no harm"
        case Ground.NONE:
            return ""


def _explain_complaints(examination: Examination, judgement: Judgement, book: CitationBook) -> str:
    seen = [*examination.chain.teardown]
    numbers = book.cite_logs(e for f in seen[:3] for e in f.evidence[:1])
    numbers += book.cite_logs(line.evidence() for line in judgement.suspicious[:3])
    if numbers:
        said = "Something ended or complained"
        if judgement.suspicious:
            said = f"«{quote_first(judgement.suspicious)}» reads like an error"
        return (
            f"{said} {marks(numbers)}, but no line says why. Collect what is "
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
        return f"Another outcome of this check: {lower_first(check)}. Or {earlier}."
    return f"{earlier[0].upper()}{earlier[1:]}."
