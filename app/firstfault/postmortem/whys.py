"""Why, and why again? A chain from what people saw to the cause, that stops where evidence stops."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.investigation.diagnosis import ChainRole, CitationKind, Diagnosis
from firstfault.postmortem.evidence import Artefacts, Book
from firstfault.postmortem.report import Cited, Why
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Confidence, Finding, Level, Verdict

MOST = 5
_MARKS = expression(r"\s*\[\d+\]")


def ask_whys(diagnosis: Diagnosis, artefacts: Artefacts, book: Book) -> tuple[Why, ...]:
    """Up to five steps; the last has no `because` where the evidence gives none."""
    if diagnosis.verdict not in (Verdict.FAULT, Verdict.WARNING) or not diagnosis.hypotheses:
        return ()
    steps = [*_seen_steps(diagnosis, artefacts, book)]
    cause = _cause(diagnosis, book)
    steps = [s for s in steps if s.text != cause.text][: MOST - 3]
    mechanism = _mechanism(diagnosis, book)
    if mechanism is not None:
        steps.append(mechanism)
    steps.append(cause)
    out = [
        Why("Why did this become an incident?" if n == 0 else "Why was that?", step)
        for n, step in enumerate(steps)
    ]
    if len(out) < MOST:
        out.append(Why("Why was that?", None))
    return tuple(out)


def _seen_steps(diagnosis: Diagnosis, artefacts: Artefacts, book: Book) -> list[Cited]:
    """From the outside in: what ended, what others saw, what failed, each kind once."""
    steps: list[Cited] = []
    ended = next((x for x in diagnosis.cascade if x.role is ChainRole.TEARDOWN and x.file), None)
    if ended is not None and ended.file:
        mark = book.line(ended.file, ended.line, ended.text)
        steps.append(Cited("The launcher ended the whole job.", (mark,)))
    victim = next((x for x in diagnosis.cascade if x.role is ChainRole.CASCADE and x.file), None)
    measured = _distinct(artefacts.findings, diagnosis)
    if victim is not None and victim.file and not measured:
        who = f"Rank {victim.rank}" if victim.rank is not None else "Another process"
        mark = book.line(victim.file, victim.line, victim.text)
        steps.append(Cited(f"{who} reported a failure that follows from it.", (mark,)))
    steps += [Cited(_sentence(f.title), book.evidence(f.evidence)) for f in measured]
    return steps


def _distinct(findings: Sequence[Finding], diagnosis: Diagnosis) -> list[Finding]:
    """What was measured, performance first, one of a kind, without the cause itself."""
    first = diagnosis.first_line
    place = (first.file, first.line) if first is not None else None
    kept: dict[str, Finding] = {}
    for finding in findings:
        if finding.level not in (Level.SYMPTOM, Level.FAILURE) or not finding.evidence:
            continue
        if (finding.evidence[0].file, finding.evidence[0].line) != place:
            kept.setdefault(finding.kind, finding)
    return sorted(kept.values(), key=lambda f: not f.kind.startswith("metrics."))[:3]


def _cause(diagnosis: Diagnosis, book: Book) -> Cited:
    quotes = {c.n: c for c in diagnosis.citations}
    main = diagnosis.hypotheses[0]
    marks = tuple(book.again(quotes[n]) for n in main.for_[:3] if n in quotes)
    sure = diagnosis.confidence in (Confidence.CONFIRMED, Confidence.LIKELY)
    return Cited(_sentence(diagnosis.root_cause), marks, assumed=not sure or not marks)


def _mechanism(diagnosis: Diagnosis, book: Book) -> Cited | None:
    """How such a fault acts, by its knowledge page: general, so marked as an assumption here."""
    for citation in diagnosis.citations:
        if citation.kind is CitationKind.PAGE and f"[{citation.n}]" in diagnosis.explanation:
            return Cited(_sentence(citation.quote), (book.again(citation),), assumed=True)
    return None


def _sentence(text: str) -> str:
    flat = " ".join(_MARKS.sub("", text).split()).rstrip(".:; ")
    first = flat.split(" ", 1)[0].rstrip(":,")
    return (flat if not first.isalpha() else flat[:1].upper() + flat[1:]) + "."
