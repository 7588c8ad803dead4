"""What does the person say is wrong? Facts of their question, not their guesses.

"9.1 s instead of 5.1 s" is evidence that the run is slow, whatever the log says; "is it the network?"
is a guess. The words are data: complaints.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Complaint

TABLE = Path(__file__).with_name("complaints.json")
LONGEST_QUESTION = 2000

_SENTENCE_END = expression(r"(?<=[.?!;])\s+|\s[–—]\s")
_START = expression(
    r"(?i)(?<!of the )(?<!after the )\b(?:first|1st) (?:few )?(?:steps?|iterations?|batch(?:es)?|epoch|minutes)\b|(?<!from )\bstep [01]\b"
)
"""What is said of the first steps is said of the start-up."""
_GUESS = expression(
    r"(?i)^\s*(?:is|are|was|were|do|does|did|should|could|can|will|would|might|may|why is it|or|which)\b.*\?$"
)


@dataclass(frozen=True, slots=True)
class Wording:
    """How one complaint is put, the class of what is behind it, and its title where no line tells why."""

    complaint: Complaint
    pattern: re.Pattern[str]
    category: Category
    untold: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All of complaints.json."""

    wordings: tuple[Wording, ...]
    pace: re.Pattern[str]
    same: re.Pattern[str]
    memory: re.Pattern[str]

    def of(self, complaint: Complaint) -> Wording:
        """The wording of a complaint; KeyError for one that is never stated as such."""
        return {w.complaint: w for w in self.wordings}[complaint]


@cache
def load_vocabulary() -> Vocabulary:
    """The words of the table, compiled at the first question."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    terms = table["terms"]
    return Vocabulary(
        wordings=tuple(
            Wording(
                Complaint(row["id"]),
                _join(row["patterns"], terms),
                Category(row["category"]),
                row["untold"],
            )
            for row in table["complaints"]
        ),
        pace=_join(table["pace"], terms),
        same=_join(table["same"], terms),
        memory=_join(table["memory"], terms),
    )


def _join(patterns: Sequence[str], terms: Mapping[str, str]) -> re.Pattern[str]:
    joined = "|".join(patterns)
    for name, term in terms.items():
        joined = joined.replace(f"<{name}>", term)
    return expression(joined, re.IGNORECASE)


def read_complaint(question: str) -> Complaint | None:
    """The complaint that the question states as a fact; None where it only asks or guesses."""
    for sentence in _sentences(question):
        if _GUESS.match(sentence) or _START.search(sentence):
            continue
        for wording in load_vocabulary().wordings:
            if wording.pattern.search(sentence):
                return wording.complaint
    return None


def tells_of_start(sentence: str) -> bool:
    """The sentence is about the first steps, which are never like the others."""
    return _START.search(sentence) is not None


def asks_pace(question: str) -> bool:
    """A sentence about speed that is not about the start-up."""
    pace = load_vocabulary().pace
    return any(pace.search(s) and not _START.search(s) for s in _sentences(question))


def asks_memory(question: str) -> bool:
    """The question is about memory."""
    return load_vocabulary().memory.search(question) is not None


def asks_sameness(question: str) -> bool:
    """The question is about ranks that do the same, where each should do its own."""
    return load_vocabulary().same.search(question) is not None


def _sentences(question: str) -> list[str]:
    return _SENTENCE_END.split(question[:LONGEST_QUESTION])
