"""What does the person state is not well, in whatever language? Their word is no proof of a cause, and a veto on `healthy`.

"It hangs" is stated, "does it hang?" is asked, "it did not crash" is denied, "a warning about a possible
hang" is feared: only what is stated counts. The words are data: vetoes.json.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from firstfault.investigation.complaint import LONGEST_QUESTION, read_complaint, tells_of_start
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Complaint

TABLE = Path(__file__).with_name("vetoes.json")
BEFORE = 60
"""Characters before a word in which it may be denied or only feared."""

_OF_STEADY = (Complaint.SLOW, Complaint.STALLED)
"""What is said of the first steps is said of the start-up."""

_QUOTED = expression(
    r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|„[^“”\n]{1,300}[“”]|«[^»\n]{1,300}»|「[^」\n]{1,300}」|`[^`\n]{1,300}`|(?<!\w)'[^'\n]{2,300}'(?!\w)"
)
_SENTENCE = expression(
    r"(?<=[.!;。！；])(?!(?<=\d\.)\d)\s*(?=\S)|(?<=[?？])\s*(?=\S)|\n+|\s[–—-]\s"
)
_CLAUSE = expression(
    r"[,:，：、]\s*|\s\(|\)\s|\s(?:but|and then|yet|aber|sondern|mais|pero|mas|ma|но)\s"
)
_AT_END = expression(
    r"(?i)\b(?:at the (?:very )?end|after (?:the )?(?:training|last (?:step|epoch))|(?:on|at) exit|does(?: not|n't) (?:exit|return|terminate)|never (?:exits|returns|ends)|"
    r"after (?:it )?(?:finish\w*|complet\w*)|nach dem (?:training|ende)|am ende|à la fin|al final|in the end)\b|"
    r"结束后|終了後|最后"
)
_TOLD_WAIT = expression(
    r"(?i)\b(?<![\d.])(?P<n>\d{1,4}(?:\.\d{1,3})?|a|an|one|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty)\+? ?(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?)\b"
)
_NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_WORDS = {w: i for i, w in enumerate(_NUMBERS)} | {"a": 1, "an": 1, "twenty": 20, "thirty": 30}


@dataclass(frozen=True, slots=True)
class Veto:
    """How one complaint is stated, by all languages, and what an answer without proof does not show."""

    complaint: Complaint
    pattern: re.Pattern[str]
    not_shown: str


@dataclass(frozen=True, slots=True)
class _Words:
    vetoes: tuple[Veto, ...]
    why: re.Pattern[str]
    first: re.Pattern[str]
    denied: re.Pattern[str]
    denied_after: re.Pattern[str]
    feared: re.Pattern[str]
    goes_on: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Statement:
    """What a person states. at_end: after the work was done; wait_s: how long it stood still, where they say it."""

    complaints: tuple[Complaint, ...] = ()
    at_end: bool = False
    wait_s: float | None = None


@cache
def _words() -> _Words:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    rules = {name: re.compile(table[name], re.IGNORECASE) for name in ("why", "first", "denied", "denied_after", "feared", "goes_on")}  # fmt: skip
    vetoes = tuple(
        Veto(
            Complaint(row["complaint"]),
            re.compile("|".join(row["patterns"].values()), re.IGNORECASE),
            row["not_shown"],
        )
        for row in table["vetoes"]
    )
    return _Words(vetoes=vetoes, **rules)


def read_statement(question: str) -> Statement:
    """What the question states to be wrong, gravest first; empty where it only asks, fears or denies."""
    if not question.strip():
        return Statement()
    text = _QUOTED.sub(" ", question[:LONGEST_QUESTION])
    stated: dict[Complaint, None] = {}
    for clause in _stating_clauses(text):
        for veto in _words().vetoes:
            if veto.complaint in _OF_STEADY and tells_of_start(clause):
                continue
            if any(_holds(clause, match) for match in veto.pattern.finditer(clause)):
                stated[veto.complaint] = None
    if _words().goes_on.search(text):
        # who says that it still runs does not say that it ended; what else they complain of stands
        stated.pop(Complaint.DIED, None)
    complaint = read_complaint(text)
    waits = complaint is Complaint.SLOW and Complaint.STALLED in stated
    if complaint is not None and complaint is not Complaint.STALLED and not waits:
        stated[complaint] = None
    return Statement(tuple(stated), _AT_END.search(text) is not None, _read_wait(text))


def not_shown(complaint: Complaint) -> str:
    """What an answer without proof leaves open of a complaint."""
    return next((v.not_shown for v in _words().vetoes if v.complaint is complaint), "that the run is well")  # fmt: skip


def _stating_clauses(text: str) -> list[str]:
    out = []
    for sentence in _SENTENCE.split(text):
        asks = sentence.rstrip().endswith(("?", "？"))
        clauses = [c for c in _CLAUSE.split(sentence) if c.strip()]
        for place, clause in enumerate(clauses):
            assumes = _words().why.search(clause) is not None
            last = place == len(clauses) - 1
            if _words().first.search(clause) and not assumes:
                continue
            if asks and last and not assumes:
                continue
            out.append(clause)
    return out


def _holds(clause: str, match: re.Match[str]) -> bool:
    """The clause states the word: it neither denies nor only fears it."""
    before = clause[max(0, match.start() - BEFORE) : match.start()]
    after = clause[match.end() : match.end() + 12]
    words = _words()
    return not (
        words.denied.search(before)
        or words.denied_after.match(after)
        or words.feared.search(before)
    )


def _read_wait(text: str) -> float | None:
    told = _TOLD_WAIT.search(text)
    if told is None:
        return None
    count = _WORDS.get(told["n"].lower())
    number = float(count) if count is not None else float(told["n"])
    unit = told["unit"].lower()
    return number * (3600.0 if unit.startswith("h") else 60.0 if unit in ("m", "min") or unit.startswith("minute") else 1.0)  # fmt: skip
