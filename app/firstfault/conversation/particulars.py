"""What does the diagnosis say about the rank or the kind of cause that a question names?

"Why did rank 3 die?" and "Is it the network?" ask about one suspect. The verdict as a whole would be
no answer to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.conversation.answerer import Question
from firstfault.conversation.sources import Sources
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log.speaker import read_speaker
from firstfault_tools.log.window import read_window

MAX_LINES, PIECE, MAX_SHOWN, MAX_QUOTE = 60_000, 2_000, 3, 600
_RANK = expression(r"(?i)\brank[\s_:#-]{0,2}(\d{1,6})\b")
_SUSPECTS = expression(
    r"(?i)^\W*(?:so |and |but |then |ok,? |hm+,? )?(?:is|was|isn't|wasn't|could|can|might|may|are|were)\b[^?]{0,60}?\b"
    r"(?P<what>network|nccl|infiniband|fabric|switch|link|hardware|gpu|card|node|host|nic|memory|oom|disk|storage|"
    r"checkpoint|data|dataset|loader|code|bug|driver|library|environment|version|install\w*|slurm|scheduler|"
    r"preempt\w*|kubernetes|numeric\w*|nan|loss|learning rate|precision|slow\w*|performance)s?\b"
)
_KINDS: tuple[tuple[str, frozenset[Category]], ...] = (
    ("network|nccl|infiniband|fabric|switch|link|nic", frozenset({Category.COMMUNICATION, Category.HARDWARE})),
    ("hardware|gpu|card|node|host", frozenset({Category.HARDWARE})),
    ("memory|oom", frozenset({Category.OOM})),
    ("disk|storage", frozenset({Category.CHECKPOINT, Category.DATA, Category.ENVIRONMENT})),
    ("checkpoint", frozenset({Category.CHECKPOINT})),
    ("data|dataset|loader", frozenset({Category.DATA})),
    ("code|bug", frozenset({Category.CODE_BUG})),
    ("driver|library|environment|version|install.*", frozenset({Category.ENVIRONMENT})),
    ("slurm|scheduler|preempt.*|kubernetes", frozenset({Category.SCHEDULER})),
    ("numeric.*|nan|loss|learning rate|precision", frozenset({Category.NUMERICAL})),
    ("slow.*|performance", frozenset({Category.PERFORMANCE})),
)  # fmt: skip


def answer_particular(question: Question, diagnosis: Diagnosis, sources: Sources) -> list[str]:
    """Blocks about the rank or the suspect that the question names; empty when it names none."""
    named = _RANK.search(question.text)
    if named is not None:
        return _answer_rank(question, diagnosis, sources, int(named[1]))
    suspect = _SUSPECTS.match(question.text)
    if suspect is not None:
        return [_answer_suspect(diagnosis, sources, suspect["what"].lower())]
    return []


def _answer_rank(
    question: Question, diagnosis: Diagnosis, sources: Sources, rank: int
) -> list[str]:
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
    quotes = _quotes_of(question, diagnosis, rank)
    if not quotes:
        return [said]
    rows = [
        f"- {role}{c.file}:{c.line} {sources.add(c)}\n  ```text\n  {c.quote.replace('```', '` ` `')}\n  ```"
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
                if str(rank) in text and read_speaker(text)[0].rank == rank:
                    yield Citation(0, CitationKind.LOG, text[:MAX_QUOTE], file=file, line=number)
            if len(window) < PIECE:
                break


def _answer_suspect(diagnosis: Diagnosis, sources: Sources, what: str) -> str:
    kinds = next(k for words, k in _KINDS if expression(words).fullmatch(what))
    if diagnosis.verdict is Verdict.UNKNOWN or not diagnosis.hypotheses:
        return f"That is open: {diagnosis.root_cause}. Nothing in the evidence settles it."
    ranked = [h for h in diagnosis.hypotheses if h.category in kinds]
    main = diagnosis.hypotheses[0]
    marks = sources.marks(main.for_[:2], diagnosis)
    sure = main.confidence.value
    if diagnosis.category in kinds:
        return f"That is where the evidence points ({sure}): {diagnosis.root_cause} {marks}."
    said = f"Not by this evidence. What it shows ({sure}): {diagnosis.root_cause} {marks}."
    if ranked:
        other = ranked[0]
        said += (
            f" Of that kind, only weaker ({other.confidence.value}): {other.root_cause} "
            f"{sources.marks(other.for_[:2], diagnosis)}."
        )
    return said
