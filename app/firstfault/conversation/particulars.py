"""What does the diagnosis say about the rank or the kind of cause that a question names?

"Why did rank 3 die?" and "Is it the network?" ask about one suspect. The verdict as a whole would be
no answer to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.conversation.answerer import Question
from firstfault.conversation.blocks import write_quote
from firstfault.conversation.sources import Sources
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.log.window import read_window

MAX_LINES, PIECE, MAX_SHOWN, MAX_QUOTE = 60_000, 2_000, 3, 600
_STEP = expression(r"(?i)\b(?:iteration|iter|step)s?\b[\s:=\[]{0,4}\d{1,9}\b[^\n]{0,200}\bloss\b")


def answer_rank(question: Question, diagnosis: Diagnosis, sources: Sources, rank: int) -> list[str]:
    """Blocks about one rank."""
    first = diagnosis.first_failing_rank
    seen = diagnosis.input.ranks_seen
    if rank != first and seen and rank not in seen and not any(_lines_of(question, rank)):
        return [f"Rank {rank} wrote no line of the evidence. Add its log to see what it did."]
    main = sources.marks(
        diagnosis.hypotheses[0].for_[:2] if diagnosis.hypotheses else (), diagnosis
    )
    if rank == first:
        return [f"Rank {rank} is where it began: {diagnosis.root_cause} {main}."]
    if first is not None:
        said = f"The first fault lies at rank {first}, not at rank {rank}: {diagnosis.root_cause} {main}."
    elif diagnosis.verdict is Verdict.FAULT:
        said = f"The evidence singles out no rank. What it shows: {diagnosis.root_cause} {main}."
    else:
        said = (
            f"No fault is established at rank {rank}. The verdict: {diagnosis.root_cause} {main}."
        )
    once = {
        (c.file, c.line): (role, c) for role, c in reversed(_quotes_of(question, diagnosis, rank))
    }
    quotes = list(reversed(once.values()))
    if not quotes:
        return [said]
    rows = [
        f"- {role}{c.file}:{c.line} {sources.add(c)}\n{write_quote(c.quote, 2)}"
        for role, c in quotes
    ]
    return [said, f"What rank {rank} says itself:\n\n" + "\n".join(rows)]


def _quotes_of(question: Question, diagnosis: Diagnosis, rank: int) -> list[tuple[str, Citation]]:
    """Links of the cascade that are this rank's, else the last lines it wrote."""
    links = [
        (f"{link.role.value}: ", Citation(0, CitationKind.LOG, link.text, file=link.file, line=link.line))
        for link in diagnosis.cascade
        if link.rank == rank and link.file and link.line
    ]  # fmt: skip
    return links[:MAX_SHOWN] or [("", c) for c in list(_lines_of(question, rank))[-MAX_SHOWN:]]


def _lines_of(question: Question, rank: int) -> Iterator[Citation]:
    for file, path in question.artefacts.items():
        for first in range(1, MAX_LINES, PIECE):
            if question.is_stopped():
                return
            window = read_window(path, first, first + PIECE - 1)
            for number, text in window:
                if str(rank) in text and read_prefix(text)[0].rank == rank:
                    yield Citation(0, CitationKind.LOG, text[:MAX_QUOTE], file=file, line=number)
            if len(window) < PIECE:
                break


def cited_ranks(diagnosis: Diagnosis) -> list[int]:
    """Ranks that wrote the lines for the first explanation."""
    wanted = set(diagnosis.hypotheses[0].for_) if diagnosis.hypotheses else set()
    quotes = [c.quote for c in diagnosis.citations if c.n in wanted and c.kind is CitationKind.LOG]
    ranks = [read_prefix(q)[0].rank for q in quotes]
    return list(dict.fromkeys(r for r in ranks if r is not None))


def step_after(question: Question, diagnosis: Diagnosis) -> Citation | None:
    """The last training step after the first fault, in its file; None where none follows."""
    first = diagnosis.first_line
    path = question.artefacts.get(first.file) if first is not None and first.file else None
    if first is None or path is None or not first.line:
        return None
    found = None
    for start in range(first.line + 1, first.line + MAX_LINES, PIECE):
        window = read_window(path, start, start + PIECE - 1)
        for number, text in window:
            if _STEP.search(text):
                found = Citation(
                    0, CitationKind.LOG, text[:MAX_QUOTE], file=first.file, line=number
                )
        if len(window) < PIECE or question.is_stopped():
            break
    return found
