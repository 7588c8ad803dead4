"""What does a person ask or say? One frozen reading of the sentence, that every answer starts from.

The wording is data (intents.yaml). Nothing later reads the sentence again for what it asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path

from firstfault.conversation.amounts import read_amounts
from firstfault.conversation.derivations import derive
from firstfault.conversation.flags import say_flags
from firstfault.conversation.formulas import choose_formula
from firstfault.conversation.languages import to_english
from firstfault.conversation.quantities import Quantities, infer_calculator, read_quantities
from firstfault.conversation.topics import Topic, topics_in
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("intents.yaml")
LONGEST = 2_000
"""Characters of a message that are read for what it asks; a longer one is evidence."""
_SPEAKER = expression(r"^\s*(?P<who>[A-Z][a-z]{1,20}(?: [A-Z][a-z]{1,20})?):\s+(?=\S)")
_NOT_NAMES = frozenset(
    {"Error", "Warning", "Note", "Question", "Traceback", "Exception", "Info", "Log", "Update"}
)
_FILE = expression(r"\b(?:of|in)\s+(?P<file>[\w./-]{1,120})")
_ASKS = expression(
    r"(?i)\?|\b(?:will|would|can|could|should|does|do|did|is|was|are|has|have) (?:it|we|i|they|this|that|he|the (?:run|job|node|fix)) |"
    r"^\W*(?:and |but |so |ok,? |then )?(?:what.?s|how.?s|where.?s|who.?s|since when|until when|isnt|arent|doesnt|didnt|wont|cant|"
    r"what|why|how|which|where|when|who|whose|can|could|should|is|"
    r"are|was|were|has|have|had|does|do|did|will|would|may|might|shall|any|"
    r"(?:from|until|since|at|in|on|to|by) (?:what|which|whom)|show|explain|tell|give|list|find|search|draft|write|"
    r"(?:the )?(?:last|first|final|latest|newest|exact) (?:step|line|checkpoint|time|loss|value|message|error|words?))\b"
)
_NO_ANSWER = expression(
    r"(?i)^\W*(?:i |we )?(?:don.?t|do not) know\W*$|^\W*(?:no idea|not sure|unsure|dunno|skip|later|unknown)\W*$"
)


class Family(StrEnum):
    """Which tool answers."""

    COURTESY = "courtesy"
    WALK = "walk"
    RUNNING = "running"
    CALCULATOR = "calculator"
    INCIDENT = "incident"
    KNOWLEDGE = "knowledge"


class Need(StrEnum):
    """What must be there for an intent to be taken."""

    INCIDENT = "incident"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Intent:
    """One way of asking. phrases: any of them is found; unless: none of them is."""

    id: str
    family: Family
    need: Need | None
    phrases: tuple[re.Pattern[str], ...]
    unless: tuple[re.Pattern[str], ...]

    def find(self, text: str) -> re.Match[str] | None:
        """The match that makes `text` this intent."""
        if any(p.search(text) for p in self.unless):
            return None
        return next((m for p in self.phrases if (m := p.search(text)) is not None), None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What one message asks or says.

    intent: id in intents.yaml; 'answer' for a statement without one, 'find' for a question without one.
    named: what the phrase itself named (rank, line, phase, what). topics: kinds of causes spoken of.
    """

    text: str
    intent: str
    family: Family
    named: Mapping[str, str]
    quantities: Quantities
    topics: tuple[Topic, ...]
    speaker: str = ""
    is_question: bool = True
    numbers: str = ""
    """The sentence with options of a command line said in words: what calculators read."""

    @property
    def rank(self) -> int | None:
        """Rank that the sentence names."""
        return int(self.named["rank"]) if "rank" in self.named else None

    @property
    def file(self) -> str:
        """File that the sentence names; '' for none."""
        found = _FILE.search(self.text)
        return found["file"].rstrip("?.,") if found is not None else ""

    @property
    def tells_nothing(self) -> bool:
        """The person does not know."""
        return _NO_ANSWER.match(self.text) is not None


@cache
def load_intents() -> tuple[Intent, ...]:
    """Every intent, in the order in which they are tried."""
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["intents"]
    return tuple(
        Intent(
            id=row["id"],
            family=Family(row["family"]),
            need=Need(row["needs"]) if "needs" in row else None,
            phrases=tuple(re.compile(p, re.IGNORECASE | re.MULTILINE) for p in row["say"]),
            unless=tuple(re.compile(p, re.IGNORECASE) for p in row.get("not", ())),
        )
        for row in rows
    )


def read_asked(text: str, has_incident: bool) -> Asked:
    """Reading of one message. has_incident: a diagnosis is there that 'it' can mean."""
    speaker, said = _split_speaker(text.strip()[:LONGEST])
    said = to_english(said)
    numbers = say_flags(said)
    quantities = read_quantities(numbers)
    present = {Need.INCIDENT: has_incident, Need.NUMBER: quantities.any}
    is_question = _ASKS.search(said) is not None
    if _is_derived(numbers, quantities, has_incident):
        return Asked(said, "derived", Family.CALCULATOR, {}, quantities, topics_in(said), speaker, is_question, numbers)  # fmt: skip
    for intent in load_intents():
        if intent.need is not None and not present[intent.need]:
            continue
        if intent.id == "formula":
            if choose_formula(numbers, quantities) is None:
                continue
        elif intent.family is Family.CALCULATOR and not quantities.serves(intent.id):
            continue
        found = intent.find(numbers if intent.family is Family.CALCULATOR else said)
        if (
            found is not None
            and intent.family is Family.KNOWLEDGE
            and not has_incident
            and _is_nearly_derived(numbers, quantities)
        ):
            break
        if found is not None:
            named = {k.rstrip("2"): v.lower() for k, v in found.groupdict().items() if v}
            return Asked(
                said, intent.id, intent.family, named, quantities, topics_in(said), speaker,
                is_question, numbers,
            )  # fmt: skip
    inferred = infer_calculator(quantities) if is_question or not has_incident else None
    if inferred is not None and not _is_taken_away(inferred, said):
        return Asked(said, inferred, Family.CALCULATOR, {}, quantities, topics_in(said), speaker, is_question, numbers)  # fmt: skip
    if not has_incident and _is_nearly_derived(numbers, quantities):
        return Asked(said, "derived", Family.CALCULATOR, {}, quantities, topics_in(said), speaker, is_question, numbers)  # fmt: skip
    loose = "find" if is_question or not has_incident else "answer"
    family = Family.KNOWLEDGE if loose == "find" else Family.WALK
    return Asked(
        said, loose, family, {}, quantities, topics_in(said), speaker, is_question, numbers
    )


_FITS = expression(
    r"(?i)(?<!states )\bfits?\b|\boom\b|\bhow often\b[^?]{0,40}\b(?:sav|check|ckpt|snap)|\binterval\b(?![^?]{0,60}\byoung)|\bshould\b|\b(?:ok|okay|possible|enough|work)\W*$"
)
"""A verdict is asked for, or more than one number: other calculators weigh it."""
_CACHE = expression(r"(?i)\bhow (?:many|much)\b[^?]{0,40}\bkv\b|\bkv\b[^?]{0,80}\bfits?\b")
_OTHERS = (("rank", 0), ("link", 1))
"""Quantities from whose number on another calculator tells more: the place of a rank, rates by their names."""
LEAST_NUMBERS = 3
"""Numbers of a message beside an incident from which on it is a calculation of its own."""


def is_weighed(text: str) -> bool:
    """A verdict or the best of several values is asked for, which calculators of their own give."""
    return _FITS.search(text) is not None and _CACHE.search(text) is None


def _is_derived(text: str, quantities: Quantities, has_incident: bool) -> bool:
    """What is asked follows from the numbers of the sentence, and every one of them enters."""
    if is_weighed(text):
        return False
    derived = derive(text, quantities)
    if (
        derived is None
        or derived.left
        or any(len(derived.reading.values(n)) > most for n, most in _OTHERS)
    ):
        return False
    return not has_incident or len(derived.reading.mentions) >= LEAST_NUMBERS


MOST_LEFT = 3
"""How many times more numbers must enter than are left aside for a calculation to be what is meant rather than a page."""


def _is_nearly_derived(text: str, quantities: Quantities) -> bool:
    """What is asked follows from nearly all numbers of the sentence."""
    derived = derive(text, quantities)
    if derived is None or is_weighed(text):
        return False
    used = len(derived.reading.mentions) - len(derived.left)
    return used >= MOST_LEFT * max(1, len(derived.left))


_CONTINUES = expression(
    r"(?i)^\W*(?:(?:ok(?:ay)?|so|fine|thanks)\W{1,3})?(?:and|but|what if|what about|how about|now|then|with|without|or with|und|mit|same)\b"
)


def _tells_numbers(text: str) -> bool:
    """A quantity stands in the message by its name."""
    numbers = say_flags(text)
    return read_quantities(numbers).any or any(not a.alone for a in read_amounts(numbers).amounts)


def read_continued(text: str, earlier: Sequence[str], has_incident: bool) -> Asked | None:
    """A message that goes on with the calculation before it ("and with ZeRO-3?"): its numbers first, then those
    that it leaves as they were. None where it does not go on with one."""
    if not earlier or _CONTINUES.match(text) is None or not _tells_numbers(text):
        return None
    before = read_continued(earlier[-1], earlier[:-1], has_incident) or read_asked(earlier[-1], has_incident)  # fmt: skip
    alone = read_asked(text, has_incident)
    if before.family is not Family.CALCULATOR or alone.family is Family.INCIDENT:
        return None
    whole = read_asked(f"{text.strip().rstrip('?')}; {before.text}", has_incident)
    return whole if whole.family is Family.CALCULATOR else None


def _is_taken_away(intent: str, said: str) -> bool:
    """The wording says that another thing is asked than its numbers serve: a choice, say."""
    row = next((i for i in load_intents() if i.id == intent), None)
    return row is not None and any(p.search(said) for p in row.unless)


def _split_speaker(text: str) -> tuple[str, str]:
    found = _SPEAKER.match(text)
    if found is None or found["who"] in _NOT_NAMES:
        return "", text
    return found["who"], text[found.end() :]
