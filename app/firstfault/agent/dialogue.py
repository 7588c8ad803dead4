"""Where do person and assistant stand in the five phases? State that moves only for a reason.

A phase is done when its own question is answered: by evidence, or by the person. A person may correct
what is assumed ("we already checked the network") or go back; whatever rested on it opens again.
All of this is by rule, so that a model can neither skip a phase nor close one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from firstfault.grounding.words import cause_categories
from firstfault.investigation.diagnosis import Diagnosis, PhaseName, PhaseStatus
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category

QUESTIONS = {
    PhaseName.TRIAGE: ("Is the run dead, hung, slow, or wrong in its numbers?", "It has ended."),
    PhaseName.LOCALIZE: (
        "On which rank or host did it begin; are logs of the other ranks there?",
        "Only the ranks in these logs are known.",
    ),
    PhaseName.ISOLATE: (
        "What changed since the last good run: code, data, image, driver, nodes?",
        "Nothing is known to have changed.",
    ),
    PhaseName.ROOT_CAUSE: (
        "Can the artefact that would settle the cause be collected?",
        "It cannot be had; the cause stays as sure as it is.",
    ),
    PhaseName.RESOLVE: (
        "Did the run pass the step where it failed after the fix?",
        "It has not been tried yet.",
    ),
}
"""Question and default of each phase."""

ORDER = tuple(PhaseName)
_NO_ANSWER = expression(
    r"(?i)^\W*(?:i |we )?(?:don'?t|do not) know\W*$|^\W*(?:no idea|not sure|unsure|dunno|skip|later|\?+)\W*$"
)
_ASKS = expression(
    r"(?i)\?\s*$|^\s*(?:what|why|how|which|where|when|who|can|could|should|is|are|does|do|did|show|explain|tell|give|list|find|search)\b"
)
_CHECKED = expression(
    r"(?i)\b(?:already|have|we'?ve|i'?ve) (?:already )?(?:checked|verified|tested|ruled out|excluded|looked at|replaced|swapped)\b|"
    r"\bruled out\b|\b(?:it|that|this)(?:'s| is|s)?(?: definitely| certainly)? not\b|"
    r"\bisn'?t\b|\bnot (?:the|a|an) \w+|"
    r"\b(?:network|memory|hardware|disk|storage|data|code|driver|gpu|nic)s? (?:is|are|was|were|looks?) (?:fine|ok|okay|good|clean|healthy)\b"
)
_BACK = expression(
    r"(?i)\b(?:go|went|step|roll|back up|return|restart|start (?:again|over)|re-?open)\b[^.\n]{0,30}\b(?P<phase>triage|locali[sz]\w*|isolat\w*|root.?cause|resol\w*)\b|"
    r"\bback to (?:the )?(?P<phase2>triage|locali[sz]\w*|isolat\w*|root.?cause|resol\w*)"
)
_RANK = expression(
    r"(?i)\b(?:it(?:'s| is| was)|actually|really|no,?)\b[^.\n]{0,30}\brank (?P<rank>\d{1,6})\b(?:[^.\n]{0,20}\bnot (?:rank )?(?P<not>\d{1,6}))?"
)
_TOPICS = (
    (expression(r"(?i)\bnetwork|\bfabric|infiniband|\bcable|\bswitch|\blinks?\b|\bnics?\b"), Category.COMMUNICATION),
    (expression(r"(?i)\bhardware|\bgpus?\b|\bnode\b|\bcards?\b"), Category.HARDWARE),
    (expression(r"(?i)\bmemory\b|\boom\b"), Category.OOM),
    (expression(r"(?i)\bdata(?:set)?\b|\bloader\b"), Category.DATA),
    (expression(r"(?i)\bcode\b|\bbug\b"), Category.CODE_BUG),
    (expression(r"(?i)\bdriver|\bimage\b|\bversion|\benvironment\b"), Category.ENVIRONMENT),
    (expression(r"(?i)\bcheckpoint|\bdisk\b|\bstorage\b|\bfilesystem\b"), Category.CHECKPOINT),
    (expression(r"(?i)\bslurm|\bscheduler|\bpreempt|\bkubernetes"), Category.SCHEDULER),
    (expression(r"(?i)\blearning rate|\bnan\b|\bnumeric"), Category.NUMERICAL),
)  # fmt: skip


class Move(StrEnum):
    """What a person's message did to the state."""

    STARTED = "started"
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    CORRECTED = "corrected"
    ROLLED_BACK = "rolled_back"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class PhaseState:
    """One phase; `basis`: 'evidence' where tools answered it, 'said' where the person did."""

    name: PhaseName
    status: PhaseStatus
    summary: str
    basis: str = "evidence"


@dataclass(frozen=True, slots=True)
class Correction:
    """Something the person says was checked: the words, and the kinds of causes they concern."""

    text: str
    categories: tuple[Category, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """The question that is open, with what is assumed if it stays so."""

    phase: PhaseName
    text: str
    default: str
    shown: bool = False
    """The person has seen it; only then can a statement of theirs be its answer."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """State after some turns."""

    phases: tuple[PhaseState, ...]
    asked: Asked | None = None
    corrections: tuple[Correction, ...] = ()
    last: Move = Move.STARTED
    verdict_category: Category | None = None

    @property
    def current(self) -> PhaseName | None:
        """First phase that is open; None when all are done or skipped."""
        return next((p.name for p in self.phases if p.status is PhaseStatus.OPEN), None)

    def phase(self, name: PhaseName) -> PhaseState:
        """State of one phase."""
        return next(p for p in self.phases if p.name is name)


def begin(diagnosis: Diagnosis | None) -> Dialogue:
    """State right after a diagnosis: done is what the evidence answered, up to the first gap."""
    if diagnosis is None:
        states = tuple(PhaseState(n, PhaseStatus.OPEN, "Nothing was given yet.") for n in ORDER)
        return _with_question(Dialogue(states))
    states = tuple(PhaseState(p.name, p.status, p.summary) for p in diagnosis.phases)
    return _with_question(Dialogue(_in_order(states), verdict_category=diagnosis.category))


def take(dialogue: Dialogue, text: str) -> Dialogue:
    """State after the person said `text`."""
    back = _BACK.search(text)
    if back is not None:
        return roll_back(dialogue, _named_phase(back["phase"] or back["phase2"]))
    rank = _RANK.search(text)
    if rank is not None:
        opened = roll_back(dialogue, PhaseName.LOCALIZE)
        return replace(
            opened,
            corrections=(*opened.corrections, Correction(text[:400], ())),
            last=Move.CORRECTED,
        )
    if _CHECKED.search(text) and not text.rstrip().endswith("?"):
        return _correct(dialogue, text)
    if _NO_ANSWER.match(text):
        return replace(dialogue, last=Move.UNANSWERED)
    if dialogue.asked is not None and dialogue.asked.shown and not _ASKS.search(text):
        return answer(dialogue, text)
    return replace(dialogue, last=Move.ASKED)


def answer(dialogue: Dialogue, text: str) -> Dialogue:
    """The open question is answered: its phase is done, and the next open one gets its question."""
    if dialogue.asked is None:
        return replace(dialogue, last=Move.ASKED)
    name = dialogue.asked.phase
    states = tuple(
        PhaseState(name, PhaseStatus.DONE, f"You said: {' '.join(text.split())[:300]}", "said")
        if p.name is name
        else p
        for p in dialogue.phases
    )
    return _with_question(replace(dialogue, phases=states, asked=None, last=Move.ANSWERED))


def roll_back(dialogue: Dialogue, to: PhaseName) -> Dialogue:
    """Open a phase and all that come after it."""
    start = ORDER.index(to)
    states = tuple(
        PhaseState(p.name, PhaseStatus.OPEN, f"Opened again. Before: {p.summary}"[:400])
        if ORDER.index(p.name) >= start and p.status is not PhaseStatus.OPEN
        else p
        for p in dialogue.phases
    )
    return _with_question(replace(dialogue, phases=states, asked=None, last=Move.ROLLED_BACK))


def ask(dialogue: Dialogue, asked: Asked) -> Dialogue:
    """Put a better question in place of the default one; only for the phase that is open."""
    return replace(dialogue, asked=asked) if asked.phase is dialogue.current else dialogue


def show_question(dialogue: Dialogue) -> tuple[str, Dialogue]:
    """Line with the phase and its open question, and the state in which it has been shown."""
    if dialogue.asked is None:
        return "", dialogue
    asked = dialogue.asked
    number = ORDER.index(asked.phase) + 1
    text = (
        f"Phase {number} of {len(ORDER)}, {asked.phase.value.replace('_', ' ')}, is open: {asked.text} "
        f"If you do not know: {asked.default}"
    )
    return text, replace(dialogue, asked=replace(asked, shown=True))


def refresh(dialogue: Dialogue, diagnosis: Diagnosis | None) -> Dialogue:
    """State after a new diagnosis: its phases, with what the person had said before."""
    return replace(begin(diagnosis), corrections=dialogue.corrections)


def describe(dialogue: Dialogue) -> str:
    """The state in a few lines."""
    lines = [f"- {p.name.value}: {p.status.value}. {p.summary}" for p in dialogue.phases]
    lines += [f"- the person says: {c.text}" for c in dialogue.corrections[-4:]]
    if dialogue.asked is not None and dialogue.current is not None:
        lines.append(f"- open question ({dialogue.asked.phase.value}): {dialogue.asked.text}")
    return "\n".join(lines)


def categories_in(text: str) -> tuple[Category, ...]:
    """Kinds of causes a person's words concern."""
    found = [category for pattern, category in _TOPICS if pattern.search(text)]
    found += [Category(c) for c in sorted(cause_categories(text))]
    return tuple(dict.fromkeys(found))


def _correct(dialogue: Dialogue, text: str) -> Dialogue:
    correction = Correction(" ".join(text.split())[:400], categories_in(text))
    kept = replace(dialogue, corrections=(*dialogue.corrections, correction), last=Move.CORRECTED)
    if dialogue.verdict_category in correction.categories:
        # the verdict itself is doubted: what separated it from other causes is open again
        kept = replace(roll_back(kept, PhaseName.ISOLATE), last=Move.CORRECTED)
    return kept


def _named_phase(word: str) -> PhaseName:
    word = word.lower()
    starts = (
        ("tri", PhaseName.TRIAGE),
        ("local", PhaseName.LOCALIZE),
        ("isol", PhaseName.ISOLATE),
        ("root", PhaseName.ROOT_CAUSE),
    )
    return next((phase for start, phase in starts if word.startswith(start)), PhaseName.RESOLVE)


def _in_order(states: Sequence[PhaseState]) -> tuple[PhaseState, ...]:
    """RESOLVE cannot be done before the cause is."""
    cause = next((s for s in states if s.name is PhaseName.ROOT_CAUSE), None)
    open_cause = cause is not None and cause.status is PhaseStatus.OPEN
    return tuple(
        replace(s, status=PhaseStatus.OPEN)
        if open_cause and s.name is PhaseName.RESOLVE and s.status is PhaseStatus.DONE
        else s
        for s in states
    )


def _with_question(dialogue: Dialogue) -> Dialogue:
    name = dialogue.current
    if name is None:
        return replace(dialogue, asked=None)
    text, default = QUESTIONS[name]
    return replace(dialogue, asked=Asked(name, text, default))
