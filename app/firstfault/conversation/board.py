"""Which explanations are there, what speaks for and against each, and which test tells the first two apart?

What a person says moves explanations that are not proven. One that is proven by a line stays, and the
board says that the statement speaks against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault.conversation.walk import Statement, Walk, phase_question
from firstfault.incidents.events import Explained, RuledOut, WalkShown
from firstfault.investigation.diagnosis import (
    Citation,
    Diagnosis,
    Hypothesis,
    PhaseName,
    PhaseStatus,
)
from firstfault.investigation.knowledge import Knowledge
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence
from firstfault_tools.knowledge.page import bullets

_RANK = {
    Confidence.CONFIRMED: 3.0,
    Confidence.LIKELY: 2.0,
    Confidence.POSSIBLE: 1.0,
    Confidence.UNKNOWN: 0.0,
}
SAID_WEIGHT = 0.4
"""What one statement adds: three of them outweigh one step of certainty, two do not."""
RULED_OUT, SUPPORTED, REFUTED, OPEN = "ruled out by you", "supported", "refuted", "open"


@dataclass(frozen=True, slots=True)
class Ranked:
    """One explanation with its place on the board."""

    hypothesis: Hypothesis
    state: str
    score: float


@dataclass(frozen=True, slots=True)
class Board:
    """Explanations, best first. separating_test: what tells the first two apart."""

    rows: tuple[Explained, ...] = ()
    separating_test: str = ""
    lead: Hypothesis | None = None
    ruled_out: RuledOut | None = None
    """The verdict, where a check that somebody made has dropped it."""


def rank_explanations(diagnosis: Diagnosis, walk: Walk) -> tuple[Ranked, ...]:
    """Explanations in order after what was said."""
    came_back = any(s.intent == "came_back" for s in walk.statements)
    doubted = any(s.intent == "doubt" for s in walk.statements)
    ranked = []
    for number, h in enumerate(diagnosis.hypotheses):
        proven = is_stated(h, diagnosis)
        score = _RANK[h.confidence] + SAID_WEIGHT * walk.votes(h.category) - 0.01 * number
        # of the explanations that do not lead, only those that an experiment supports are likely
        sure = h.confidence in (Confidence.LIKELY, Confidence.CONFIRMED)
        state = SUPPORTED if sure or (number == 0 and h.confidence is not Confidence.POSSIBLE) else OPEN  # fmt: skip
        if _dropped_by(h, diagnosis, walk) is not None:
            state, score = RULED_OUT, score - 10
        elif h.against and not h.for_:
            state = REFUTED
        elif number == 0 and (came_back or doubted) and not proven:
            state, score = OPEN, score - (1.0 if came_back else 0.5)
        elif walk.votes(h.category) and state is OPEN:
            state = SUPPORTED
        ranked.append(Ranked(h, state, score + (20 if proven else 0)))
    return tuple(sorted(ranked, key=lambda r: -r.score))


_STATES = {
    Category.OOM: expression(r"(?i)out of memory|OutOfMemory|oom-?kill|cannot allocate memory|DefaultCPUAllocator: can't allocate"),
    Category.HARDWARE: expression(r"\bXid\b|(?i:uncorrectable|fallen off the bus|double bit)"),
    Category.ENVIRONMENT: expression(r"(?i)no space left|no module named|permission denied|too many open files"),
    Category.CHECKPOINT: expression(r"(?i)size mismatch|missing key\(s\)|unexpected key|corrupt"),
}  # fmt: skip
"""What a line says that is itself the cause; errors of connections are not among it, they mostly follow from something."""


def is_stated(h: Hypothesis, diagnosis: Diagnosis) -> bool:
    """A cause that is proven, or that the first line it rests on states in so many words: what is said does not undo it."""
    if h.confidence is Confidence.CONFIRMED:
        return True
    pattern = _STATES.get(h.category) if h.category is not None else None
    if pattern is None or h.confidence is not Confidence.LIKELY:
        return False
    quote = next((c.quote for c in diagnosis.citations if c.n in h.for_[:1] and c.file), "")
    return pattern.search(quote) is not None


def withstands_check(h: Hypothesis, diagnosis: Diagnosis) -> bool:
    """What was read names this cause by itself, so that a check which found its part in order does not undo it."""
    return is_stated(h, diagnosis) or (h.stated and h.confidence is Confidence.LIKELY)


def _dropped_by(h: Hypothesis, diagnosis: Diagnosis, walk: Walk) -> Statement | None:
    """The last statement that rules a cause out which does not stay all the same."""
    said = (s for s in reversed(walk.statements) if s.rules_out(h))
    return next((s for s in said if not _withstands(h, s, diagnosis)), None)


def _withstands(h: Hypothesis, by: Statement, diagnosis: Diagnosis) -> bool:
    """The cause stays all the same. The outcome of its own check undoes what is not proven, whatever names it."""
    return is_stated(h, diagnosis) if by.refutes else withstands_check(h, diagnosis)


def list_ruled_out(diagnosis: Diagnosis, walk: Walk) -> tuple[str, ...]:
    """Causes that a person has ruled out."""
    ranked = rank_explanations(diagnosis, walk)
    return tuple(r.hypothesis.root_cause for r in ranked if r.state == RULED_OUT)


def lay_board(diagnosis: Diagnosis | None, walk: Walk, knowledge: Knowledge) -> Board:
    """The board after what was said; empty without a diagnosis."""
    if diagnosis is None or not diagnosis.hypotheses:
        return Board()
    ranked = rank_explanations(diagnosis, walk)
    rows = tuple(_row(r, diagnosis, walk, knowledge) for r in ranked)
    open_rows = [r for r in ranked if r.state in (OPEN, SUPPORTED)]
    separating = ""
    if len(open_rows) > 1:
        separating = _separate(diagnosis) or (rows[0].test if rows else "")
    lead = open_rows[0].hypothesis if open_rows else None
    return Board(rows, separating, lead, _find_ruled_out(diagnosis, walk, lead))


def _find_ruled_out(diagnosis: Diagnosis, walk: Walk, lead: Hypothesis | None) -> RuledOut | None:
    first = diagnosis.hypotheses[0]
    by = _dropped_by(first, diagnosis, walk)
    if by is None:
        return None
    return RuledOut(first.root_cause, by.who, lead.root_cause if lead is not None else "")


def move_phases(walk: Walk, board: Board) -> Walk:
    """The state with the phases that rest on the verdict opened, where somebody's check has dropped it."""
    ruled = board.ruled_out
    if ruled is None:
        return walk
    now = f"Now first, not proven: {ruled.now}" if ruled.now else "The cause is open"
    said = {
        PhaseName.ISOLATE: f"Open again: the first explanation was ruled out by {ruled.who}.",
        PhaseName.ROOT_CAUSE: f"Ruled out by {ruled.who}: {ruled.cause.rstrip('. ')}. {now.rstrip('. ')}.",
        PhaseName.RESOLVE: "The fixes are of the cause that was ruled out.",
    }
    phases = tuple(
        replace(p, status=PhaseStatus.OPEN, summary=said[p.name]) if p.name in said else p
        for p in walk.phases
    )
    return replace(walk, phases=phases)


def _row(ranked: Ranked, diagnosis: Diagnosis, walk: Walk, knowledge: Knowledge) -> Explained:
    h = ranked.hypothesis
    quotes = {c.n: c for c in diagnosis.citations}
    spoken_for = [_say(s) for s in walk.statements if h.category in s.supports]
    spoken_against = [_say(s) for s in walk.statements if s.speaks_of(h)]
    return Explained(
        root_cause=h.root_cause,
        category=h.category.value if h.category is not None else "",
        confidence=h.confidence.value,
        state=ranked.state,
        for_=(*_quotes(h.for_, quotes), *spoken_for),
        against=(*_quotes(h.against, quotes), *spoken_against),
        test=_test(h, diagnosis, knowledge, quotes),
    )


def _quotes(numbers: Sequence[int], quotes: dict[int, Citation]) -> tuple[str, ...]:
    found = [quotes[n] for n in numbers[:4] if n in quotes]
    return tuple(
        f"{c.file}:{c.line} {c.quote.strip()[:140]}" if c.file else f"page {c.page}" for c in found
    )


def _say(statement: Statement) -> str:
    return f"said by {statement.who}: {statement.text}"


def _test(
    h: Hypothesis, diagnosis: Diagnosis, knowledge: Knowledge, quotes: dict[int, Citation]
) -> str:
    """What would settle one explanation."""
    if diagnosis.hypotheses and h is diagnosis.hypotheses[0] and diagnosis.disproof:
        return diagnosis.disproof
    pages = [quotes[n].page for n in h.for_ if n in quotes and quotes[n].page]
    if not pages and knowledge.search is not None:
        pages = [page for page, score in knowledge.search(h.root_cause, 1) if score >= 0.2]
    page = knowledge.pages.get(pages[0] or "") if pages else None
    section = page.section("How to confirm") if page is not None else None
    items = bullets(section.text) if section is not None else []
    return (
        " ".join(x.strip() for x in items[0] if "```" not in x) if items else _separate(diagnosis)
    )


def _separate(diagnosis: Diagnosis) -> str:
    wanted = diagnosis.next_artefacts[:1]
    return f"{wanted[0].what}: {wanted[0].command}" if wanted else diagnosis.disproof


def show_walk(walk: Walk, board: Board, diagnosis: Diagnosis | None) -> WalkShown:
    """What the page shows of the state."""
    text, options = phase_question(walk, diagnosis)
    return WalkShown(walk.phases, board.rows, board.separating_test, text, options, board.ruled_out)


def say_board(board: Board) -> str:
    """The hypothesis board in words."""
    if not board.rows:
        return "There is no explanation yet: nothing that was read carries one."
    rows = []
    for number, row in enumerate(board.rows, 1):
        rows.append(f"{number}. {row.root_cause} ({row.confidence}, {row.state})")
        rows += [f"   - for: {x}" for x in row.for_[:3]] + [
            f"   - against: {x}" for x in row.against[:3]
        ]
        rows += [f"   - test: {row.test}"] if row.test else []
    lead = board.rows[0]
    head = f"{len(board.rows)} explanation{'s' if len(board.rows) > 1 else ''}; first is: {lead.root_cause.rstrip('.')} ({lead.state})."
    tail = f"\n\nThe test that tells the first two apart: {board.separating_test}" if board.separating_test else ""  # fmt: skip
    return head + "\n\n" + "\n".join(rows) + tail
