"""Where do person and assistant stand in the five phases? State that is told again from what was said.

Nothing is stored: the state is a fold over the diagnosis and the messages in order, so a second tab, a
restart and `firstfault ask` see the same. What a person says is evidence of its own kind, "said": it moves
explanations that are not proven, and closes nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from firstfault.conversation.asked import Asked, Family, read_asked
from firstfault.conversation.checked import Part, parts_in
from firstfault.investigation.diagnosis import Diagnosis, Hypothesis, Phase, PhaseName, PhaseStatus
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("walk.yaml")
ORDER = tuple(PhaseName)
_MOVES = frozenset({"go_back", "came_back", "fixed", "doubt", "ruled_out", "answer"})


@dataclass(frozen=True, slots=True)
class Option:
    """One answer that can be chosen for a phase's question, and what it makes likelier."""

    say: str
    word: re.Pattern[str]
    categories: tuple[Category, ...]


@dataclass(frozen=True, slots=True)
class PhaseQuestion:
    """What an open phase asks."""

    ask: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a person. time: seconds since the epoch, UTC; 0.0 where it is not known."""

    text: str
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Statement:
    """What a message adds as evidence of kind "said"."""

    text: str
    intent: str
    speaker: str = ""
    time: float = 0.0
    phase: PhaseName | None = None
    option: Option | None = None
    supports: tuple[Category, ...] = ()
    checked: tuple[Part, ...] = ()
    """Parts of the system that somebody found in order."""
    rank: int | None = None
    refutes: str = ""
    """The cause against which the output of its own check speaks."""

    def speaks_of(self, hypothesis: Hypothesis) -> bool:
        """Somebody checked the part in which this cause lies, or the cause itself."""
        return self.refutes == hypothesis.root_cause or any(
            part.holds(hypothesis) for part in self.checked
        )

    def rules_out(self, hypothesis: Hypothesis) -> bool:
        """The check speaks against this cause."""
        return self.refutes == hypothesis.root_cause or any(
            part.clears(hypothesis) for part in self.checked
        )

    @property
    def who(self) -> str:
        """'Anna at 03:12', 'you'."""
        name = self.speaker or "you"
        return (
            f"{name} at {time.strftime('%H:%M', time.gmtime(self.time))} UTC" if self.time else name
        )


@dataclass(frozen=True, slots=True)
class Walk:
    """State after some messages."""

    phases: tuple[Phase, ...]
    statements: tuple[Statement, ...] = ()
    answered: frozenset[PhaseName] = frozenset()

    @property
    def current(self) -> PhaseName | None:
        """First phase that is open and has not been answered; None when none is."""
        return next(
            (p.name for p in self.phases if p.status is PhaseStatus.OPEN and p.name not in self.answered),
            None,
        )  # fmt: skip

    def votes(self, category: Category | None) -> int:
        """How many statements make a kind of cause likelier."""
        return sum(category in s.supports for s in self.statements)


@cache
def load_questions() -> Mapping[PhaseName, PhaseQuestion]:
    """Question and answers of each phase."""
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["phases"]
    return {
        PhaseName(name): PhaseQuestion(
            row["ask"],
            tuple(
                Option(o["say"], re.compile(o["word"], re.IGNORECASE), tuple(map(Category, o["categories"])))
                for o in row["options"]
            ),
        )
        for name, row in rows.items()
    }  # fmt: skip


def begin(diagnosis: Diagnosis | None) -> Walk:
    """State right after a diagnosis. A fault is not resolved before a run has shown it."""
    if diagnosis is None:
        return Walk(tuple(Phase(n, PhaseStatus.OPEN, "Nothing was read yet.") for n in ORDER))
    phases = []
    for phase in diagnosis.phases:
        waits = phase.name is PhaseName.RESOLVE and diagnosis.verdict is not Verdict.HEALTHY
        if waits and phase.status is PhaseStatus.DONE:
            phase = replace(
                phase, status=PhaseStatus.OPEN, summary=f"{phase.summary} Not verified yet."
            )
        phases.append(phase)
    return Walk(tuple(phases))


Refutes = Callable[[str, Walk], str]
"""The cause against which a message tells the outcome of its check, after what was said before; '' for none."""


def follow(
    diagnosis: Diagnosis | None, said: Sequence[Said], refutes: Refutes = lambda _, __: ""
) -> Walk:
    """State after all messages."""
    walk = begin(diagnosis)
    for number, message in enumerate(said):
        asked = read_turn(message.text, diagnosis is not None, first=number == 0)
        walk = take(walk, asked, message.time, refutes(message.text, walk))
    return walk


def read_turn(text: str, has_incident: bool, first: bool) -> Asked:
    """Reading of a message; where nothing was read yet, a later one may still answer a phase's question."""
    asked = read_asked(text, has_incident)
    if has_incident or first or asked.is_question or asked.family is not Family.KNOWLEDGE:
        return asked
    known = any(o.word.search(asked.text) for q in load_questions().values() for o in q.options)
    return replace(asked, intent="answer", family=Family.WALK) if known else asked


def take(walk: Walk, asked: Asked, when: float = 0.0, refuted: str = "") -> Walk:
    """State after one message; a question changes nothing but by what is said before it. refuted: the cause against
    which it tells the outcome of a check."""
    if refuted:
        text = " ".join(asked.text.split())[:300]
        told = Statement(text, "ruled_out", asked.speaker, when, refutes=refuted)
        return replace(walk, statements=(*walk.statements, told))
    if asked.family not in (Family.WALK, Family.RUNNING):
        said = _said_first(asked.text)
        return take(walk, said, when) if said is not None else walk
    if asked.intent == "go_back":
        return _reopen(walk, named_phase(asked))
    statement = _read(walk, asked, when)
    if statement is None:
        return walk
    moved = replace(walk, statements=(*walk.statements, statement))
    if asked.intent == "came_back":
        return _reopen(_reopen(moved, PhaseName.RESOLVE), PhaseName.ROOT_CAUSE)
    if asked.intent == "doubt":
        return _reopen(
            moved, PhaseName.LOCALIZE if statement.rank is not None else PhaseName.ISOLATE
        )
    if asked.intent == "fixed":
        return _note(moved, PhaseName.RESOLVE, statement)
    if statement.phase is not None:
        return _note(moved, statement.phase, statement)
    return moved


_CLAUSE = re.compile(r"[,.;:!\n]\s?")
_TAG = re.compile(
    r"(?i)^\s*(?:is|isn'?t|was|wasn'?t|are|aren'?t|right|correct|no|or)\b[^\n]{0,14}\?$"
)


def _said_first(text: str) -> Asked | None:
    """What was checked, before a question that follows ("..., what else?"); a doubt ("..., is it?") says nothing."""
    if not text.rstrip().endswith("?"):
        return None
    *said, question = _CLAUSE.split(text.rstrip())
    if _TAG.match(question):
        return None
    read = (read_asked(clause, True) for clause in said if clause.strip())
    return next((x for x in read if x.intent == "ruled_out" and x.family is Family.WALK), None)


def _read(walk: Walk, asked: Asked, when: float) -> Statement | None:
    categories = tuple(dict.fromkeys(c for t in asked.topics for c in t.categories))
    plain = Statement(" ".join(asked.text.split())[:300], asked.intent, asked.speaker, when)
    if asked.intent == "ruled_out":
        return replace(plain, checked=parts_in(asked.text))
    if asked.intent == "doubt":
        return replace(plain, supports=categories if asked.topics else (), rank=asked.rank)
    if asked.intent != "answer":
        return plain
    if asked.tells_nothing:
        return replace(plain, phase=walk.current)
    phase, option = _match(walk, asked.text)
    return replace(plain, phase=phase, option=option, supports=option.categories if option else ())


def _match(walk: Walk, text: str) -> tuple[PhaseName | None, Option | None]:
    """The phase that a free text answers: the open one first, then any that knows the words."""
    current = walk.current
    order = [current, *(n for n in ORDER if n is not current)] if current else list(ORDER)
    for name in order:
        for option in load_questions()[name].options:
            if option.word.search(text) or text.strip().lower() == option.say.lower():
                return name, option
    return current, None


def _note(walk: Walk, name: PhaseName, statement: Statement) -> Walk:
    """Write what was said into a phase; it stays open, since nothing was seen."""
    said = f"{statement.who} said: {statement.text}"
    phases = tuple(
        replace(p, summary=f"{said} (not seen in the evidence)", findings=(*p.findings, said))
        if p.name is name and p.status is PhaseStatus.OPEN
        else replace(p, findings=(*p.findings, said)) if p.name is name else p
        for p in walk.phases
    )  # fmt: skip
    answered = walk.answered | {name} if name is not PhaseName.RESOLVE else walk.answered
    return replace(walk, phases=phases, answered=answered)


def _reopen(walk: Walk, to: PhaseName) -> Walk:
    start = ORDER.index(to)
    phases = tuple(
        replace(p, status=PhaseStatus.OPEN, summary=f"Opened again. Before: {p.summary}"[:400])
        if ORDER.index(p.name) >= start and not p.summary.startswith("Opened again")
        else p
        for p in walk.phases
    )
    kept = frozenset(n for n in walk.answered if ORDER.index(n) < start)
    return replace(walk, phases=phases, answered=kept)


def named_phase(asked: Asked) -> PhaseName:
    """The phase that a sentence names; triage where it names none."""
    word = asked.named.get("phase", "tri")
    starts = (("tri", PhaseName.TRIAGE), ("local", PhaseName.LOCALIZE), ("isol", PhaseName.ISOLATE),
              ("root", PhaseName.ROOT_CAUSE), ("reso", PhaseName.RESOLVE))  # fmt: skip
    return next((phase for start, phase in starts if word.startswith(start)), PhaseName.TRIAGE)


def phase_question(walk: Walk, diagnosis: Diagnosis | None) -> tuple[str, tuple[str, ...]]:
    """The question of the current phase and the answers to choose from; empty when none is open."""
    name = walk.current
    if name is None:
        return "", ()
    question = load_questions()[name]
    text = question.ask
    if name is PhaseName.ROOT_CAUSE:
        wanted = diagnosis.next_artefacts if diagnosis is not None else ()
        text += f": {wanted[0].what}?" if wanted else ", such as the logs of the other ranks?"
    return text, tuple(o.say for o in question.options)


def is_move(asked: Asked) -> bool:
    """The message says something that the state takes in."""
    return asked.family is Family.WALK and asked.intent in _MOVES
