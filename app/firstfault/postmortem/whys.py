"""Why, and why again? A chain from what people saw to the cause, that stops where evidence stops."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.investigation.diagnosis import (
    ChainLink,
    ChainRole,
    Citation,
    CitationKind,
    Diagnosis,
)
from firstfault.investigation.headline import capitalise, lower_first, read_cause
from firstfault.postmortem.evidence import Artefacts, Book
from firstfault.postmortem.report import Cited, Why
from firstfault.postmortem.victims import ranks_in_trouble
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Confidence, Finding, Level, Verdict
from firstfault_tools.knowledge.page import Page
from firstfault_tools.log.place import name_ranks

MOST = 5
MOST_NAMED = 3
FIRST = "Why did this become an incident?"
WHY_HEADING = "Why it happens"
_MARKS = expression(r"\s*\[\d+\]")
_QUOTED = expression(r"`([^`]{3,200})`")
_FIGURE = expression(r"\d+\.\d{2,}|\d{3,}")
_FIRST_SENTENCE = expression(r"[A-Z][^\n]{20,300}?[\w)`]\.(?= |$)")
_PLACE = expression(r"^(?P<file>\S.*?)(?:, line |:)(?P<line>\d{1,9})$")


@dataclass(frozen=True, slots=True)
class GivenWhy:
    """A step as a person wrote it. evidence: `file:line`, or a reference of their own; may be empty."""

    because: str
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """One `because`, and the question that it raises."""

    because: Cited
    raises: str


def ask_whys(
    diagnosis: Diagnosis,
    artefacts: Artefacts,
    book: Book,
    given: Sequence[GivenWhy] = (),
    page: Page | None = None,
    safeguard: str = "",
    stood: Cited | None = None,
) -> tuple[Why, ...]:
    """Up to five steps; the last has no `because` where nothing gives one. What a person wrote wins.

    page: the knowledge that the verdict rests on, which goes on where the lines end. safeguard: what keeps such a
    failure away. stood: for how long the run stood still.
    """
    if given:
        return _as_given(given, artefacts, book)
    if diagnosis.verdict not in (Verdict.FAULT, Verdict.WARNING) or not diagnosis.hypotheses:
        return ()
    steps = _seen(diagnosis, artefacts, book, stood)[: MOST - 2]
    steps += _causes(diagnosis, book, page)
    if len(steps) < MOST and safeguard:
        said = f"Nothing that was read shows this safeguard in place: {lower_first(safeguard)}"
        steps.append(_Step(Cited(_sentence(said), assumed=True), "Why was it not in place?"))
    out, question = [], FIRST
    for step in steps[:MOST]:
        out.append(Why(question, step.because))
        question = step.raises
    if len(out) < MOST:
        out.append(Why(question, None))
    return tuple(out)


def _as_given(given: Sequence[GivenWhy], artefacts: Artefacts, book: Book) -> tuple[Why, ...]:
    out, question = [], FIRST
    for why in given:
        place = _PLACE.match(why.evidence.strip())
        text = artefacts.text_of(place["file"], int(place["line"])) if place else ""
        marks = (book.line(place["file"], int(place["line"]), text),) if place and text else ()
        said = _sentence(why.because)
        if why.evidence.strip() and not marks:
            said = f"{said} ({why.evidence.strip()})"
        out.append(Why(question, Cited(said, marks, assumed=not why.evidence.strip())))
        question = "Why was that?"
    return tuple(out)


def _seen(
    diagnosis: Diagnosis, artefacts: Artefacts, book: Book, stood: Cited | None
) -> list[_Step]:
    """From the outside in: what ended, who waited or failed with it, what was measured; each once."""
    ended = [x for x in diagnosis.cascade if x.role is ChainRole.TEARDOWN and x.file]
    victims = [x for x in diagnosis.cascade if x.role is ChainRole.CASCADE and x.file]
    measured = _distinct(artefacts.findings, diagnosis)
    steps = []
    if ended:
        steps.append(_Step(Cited("The job was shut down after a failure.", _mark(ended, book)), "Why did it fail?"))  # fmt: skip
    elif stood is not None and victims:
        steps.append(_Step(stood, "Why did it stand still?"))
    # what slows a run down without ending it is measured; nobody failed
    if victims and (ended or not measured):
        ranks = diagnosis.followers or ranks_in_trouble(diagnosis, artefacts)
        who = "Other processes"
        if ranks:
            few = len(ranks) <= MOST_NAMED
            who = capitalise(name_ranks(ranks)) if few else f"{len(ranks)} other ranks"
        one = len(ranks) == 1
        said = f"{who} could not go on and reported it."
        steps.append(_Step(Cited(said, _mark(victims, book)), f"Why could {'it' if one else 'they'} not go on?"))  # fmt: skip
    for finding in measured if not ended else measured[:1]:
        steps.append(_Step(Cited(_sentence(finding.title), book.evidence(finding.evidence)), "Why was that?"))  # fmt: skip
    return steps


def _mark(links: Sequence[ChainLink], book: Book) -> tuple[int, ...]:
    return tuple(book.line(x.file or "", x.line, x.text) for x in links[:1])


def _distinct(findings: Sequence[Finding], diagnosis: Diagnosis) -> list[Finding]:
    """What was measured, performance first, one of a kind, without the cause itself."""
    first = diagnosis.first_line
    place = (first.file, first.line) if first is not None else None
    kept: dict[str, Finding] = {}
    for finding in findings:
        if finding.level not in (Level.SYMPTOM, Level.FAILURE) or not finding.evidence:
            continue
        if not finding.kind.startswith("metrics."):
            continue
        same = finding.title.lower() in diagnosis.root_cause.lower()
        if (finding.evidence[0].file, finding.evidence[0].line) != place and not same:
            kept.setdefault(finding.kind, finding)
    # what the whole job shows comes before what single ranks do
    return sorted(kept.values(), key=lambda f: f.title.startswith("Rank"))[:2]


def _causes(diagnosis: Diagnosis, book: Book, page: Page | None) -> list[_Step]:
    """The cause, which the headline has told, then what the rest of it or its page says of how it comes about."""
    quotes = {c.n: c for c in diagnosis.citations}
    main = diagnosis.hypotheses[0]
    marks = tuple(book.again(quotes[n]) for n in main.for_[:3] if n in quotes)
    sure = diagnosis.confidence in (Confidence.CONFIRMED, Confidence.LIKELY)
    plain = read_cause(diagnosis)
    assumed = not sure or not marks
    steps = [_Step(Cited(_refer(diagnosis), marks, assumed), "Why did that happen?")]
    if plain.clauses:
        steps += _details(plain.clauses, main.for_, diagnosis, book, assumed)
    elif page is not None and (reason := _read_reason(page)):
        mark = Citation(0, CitationKind.PAGE, reason, page=page.id, heading=WHY_HEADING, url=page.url)  # fmt: skip
        because = Cited(_sentence(reason), (book.again(mark),), assumed=True)
        steps.append(_Step(because, "Why was that possible?"))
    else:
        # nothing decides it, so it is an assumption
        steps += _details(plain.possible, main.for_, diagnosis, book, assumed=True)
    return steps


def _refer(diagnosis: Diagnosis) -> str:
    """The fault by its place: what it is stands in the headline, and is not said again."""
    where = diagnosis.place or diagnosis.struck.part
    line = _line_of(diagnosis)
    if where:
        said = f"{capitalise(where)} had the first fault, named above"
        return f"{said}, {line}." if line else f"{said}."
    return (
        f"The first fault, named above, stands {line}." if line else "It is the fault named above."
    )


def _line_of(diagnosis: Diagnosis) -> str:
    first = diagnosis.first_line
    if first is None:
        return ""
    return f"in line {first.line} of {first.file}" if first.line else f"in {first.file}"


def _read_reason(page: Page) -> str:
    """The first sentence of why it happens; '' where the page begins with a list."""
    section = page.section(WHY_HEADING)
    text = " ".join((section.text if section is not None else "").split("\n\n")[0].split())
    found = _FIRST_SENTENCE.match(text)
    return found[0] if found is not None and not text.startswith(("-", "*", "|", "`")) else ""


def _details(
    clauses: Sequence[str], numbers: Sequence[int], diagnosis: Diagnosis, book: Book, assumed: bool
) -> list[_Step]:
    """What the cause says of itself: first what went on before it, then the settings that let it, each with its lines."""
    quotes = {c.n: c for c in diagnosis.citations}
    steps = []
    raised = ("Why was that possible?", "Why was it so?")
    for said, raises in zip(("; ".join(clauses[:1]), "; ".join(clauses[1:])), raised, strict=True):
        if said:
            found = [n for n in numbers if n in quotes and _is_of(quotes[n].quote, said)]
            marks = tuple(book.again(quotes[n]) for n in found or numbers[:1] if n in quotes)
            steps.append(_Step(Cited(_sentence(said), marks, assumed), raises))
    return steps


def _is_of(quote: str, said: str) -> bool:
    """The line is one that the clauses name: by the words they quote of it, or by a figure of theirs."""
    flat = " ".join(quote.split())
    named = _QUOTED.findall(said)
    return any(" ".join(n.split()) in flat for n in named) or any(f in flat for f in _FIGURE.findall(_QUOTED.sub("", said)))  # fmt: skip


def _sentence(text: str) -> str:
    flat = " ".join(_MARKS.sub("", text).split()).rstrip(".:; ")
    return capitalise(flat) + "."
