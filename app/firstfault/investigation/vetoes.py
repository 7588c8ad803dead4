"""What does the person state is not well, in whatever language? Their word is no proof of a cause, and a veto on `healthy`.

"It hangs" is stated, "does it hang?" is asked, "it did not crash" is denied, "a warning about a possible
hang" is feared: only what is stated counts. The words are data: vetoes.json.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from firstfault.investigation.complaint import (
    LONGEST_QUESTION,
    load_vocabulary,
    read_complaint,
    tells_of_start,
)
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Complaint
from firstfault_tools.kept_forms import compile_kept

TABLE = Path(__file__).with_name("vetoes.json")
BEFORE = 60
"""Characters before a word in which it may be denied or only feared."""

_OF_STEADY = (Complaint.SLOW, Complaint.STALLED)
"""What is said of the first steps is said of the start-up."""

_QUOTED = expression(
    r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|„[^“”\n]{1,300}[“”]|«[^»\n]{1,300}»|「[^」\n]{1,300}」|`[^`\n]{1,300}`|(?<!\w)'[^'\n]{2,300}'(?!\w)"
)
_SENTENCE = expression(
    r"(?<=[.!;?])[\"'”»)]?\s+(?=\S)|(?<=[。！；？])\s*(?=\S)|(?<=[?!])(?=[^\W\d_a-zA-Z])|\n+|\s[–—-]\s"
)
_CLAUSE = expression(
    r"[,:，：、]\s*|\s\(|\)\s|\s(?:but|and then|yet|aber|sondern|mais|pero|mas|ma|но)\s"
)
_CLAIM = expression(
    r"[,，、](?![^()]{0,40}\))\s*|\s(?:but|and then|yet|aber|sondern|mais|pero|mas|ma|но)\s|\sand (?=(?:the|it|its|our|my|all|now|every|each|one|this|that|there)\b)"
)
"""A claim keeps what explains it: what stands after its colon or in brackets."""
_UNSURE = expression(
    r"(?i)\bI (?:have )?(?:read|heard) that\b[^.?!]*|\b(?:may|might|could(?! not)|possibl[ey]|potential(?:ly)?|can (?:cause|lead|result))\b[^,;.?!]*"
)
"""Hearsay, and what only might be."""

_OR = expression(r"(?i)\s*(?:or|oder|ou|o|или|还是|それとも)\b")
_AT_END = expression(
    r"(?i)\b(?:at the (?:very )?end|after (?:the )?(?:training|last (?:step|epoch))|(?:on|at) exit|does(?: not|n't) (?:exit|return|terminate)|never (?:exits|returns|ends)|"
    r"after (?:it )?(?:finish\w*|complet\w*)|nach dem (?:training|ende)|am ende|à la fin|al final|in the end)\b|"
    r"结束后|終了後|最后"
)
_TOLD_WAIT = expression(
    r"(?i)\b(?<![\d.])(?!\d{4}s\b|[ap]m\b)(?P<n>\d{1,4}(?:\.\d{1,3})?|an?|une?|una|eine|one|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty)\+? ?"
    r"(?P<unit>s|sec|seconds?|m|min|minut\w{1,2}|h|hours?|stunden?|heures?|ore|horas?)\b"
    r"|(?P<count>\d{1,4}|半|一|两|二|三|四|五|十)\s?个?(?P<unspaced>秒|分钟|分間|分|小时|時間|분|시간)"
)
_NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_WORDS = {w: float(i) for i, w in enumerate(_NUMBERS)} | {
    **dict.fromkeys(("a", "an", "un", "une", "una", "eine", "一"), 1.0), "半": 0.5, "两": 2.0, "二": 2.0, "三": 3.0,
    "四": 4.0, "五": 5.0, "十": 10.0, "twenty": 20.0, "thirty": 30.0,
}  # fmt: skip
_UNITS = ((("m", "分", "분"), 60.0), (("h", "stunde", "ore", "小时", "時間", "시간"), 3600.0), (("s", "秒"), 1.0))  # fmt: skip


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
class Claim:
    """A clause that states something. rest: without a known complaint; asks: it presumes what it asks about."""

    text: str
    rest: str
    asks: bool
    wait_s: float
    sentence: int


@dataclass(frozen=True, slots=True)
class Statement:
    """What a person states. at_end: after the work was done; wait_s: how long it stood still, where they say it."""

    complaints: tuple[Complaint, ...] = ()
    at_end: bool = False
    wait_s: float | None = None
    claims: tuple[Claim, ...] = ()
    text: str = ""


@cache
def _words() -> _Words:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    rules = {name: compile_kept(table[name], re.IGNORECASE) for name in ("why", "first", "denied", "denied_after", "feared", "goes_on")}  # fmt: skip
    vetoes = tuple(
        Veto(
            Complaint(row["complaint"]),
            compile_kept("|".join(row["patterns"].values()), re.IGNORECASE),
            row["not_shown"],
        )
        for row in table["vetoes"]
    )
    return _Words(vetoes=vetoes, **rules)


def read_statement(question: str) -> Statement:
    """What the question states to be wrong, gravest first; empty where it only asks, fears or denies."""
    if not question.strip():
        return Statement()
    whole = question[:LONGEST_QUESTION]
    text = _QUOTED.sub(" ", whole)
    stated: dict[Complaint, None] = {}
    for clause, _, _ in _stating_clauses(text):
        stated |= dict.fromkeys(_read_complaints(clause))
    if _words().goes_on.search(text):
        # who says that it still runs does not say that it ended; what else they complain of stands
        stated.pop(Complaint.DIED, None)
    complaint = read_complaint(text)
    waits = complaint is Complaint.SLOW and Complaint.STALLED in stated
    if complaint is not None and complaint is not Complaint.STALLED and not waits:
        stated[complaint] = None
    claims = tuple(
        Claim(clause, _cut_complaints(clause), asks, _read_wait(clause) or 0.0, sentence)
        for clause, asks, sentence in _stating_clauses(_UNSURE.sub(" ", whole), _CLAIM)
    )
    return Statement(
        tuple(stated), _AT_END.search(text) is not None, _read_wait(text), claims, whole
    )


def is_complaint(word: str) -> bool:
    """The word alone complains: that a log holds it, too, explains nothing."""
    return any(veto.pattern.fullmatch(word) for veto in _words().vetoes)


def _cut_complaints(clause: str) -> str:
    """The clause without the words of a complaint that is known: it is judged as such, or denied."""
    known = [v.pattern for v in _words().vetoes]
    if (complaint := read_complaint(clause)) is not None:
        known.append(load_vocabulary().of(complaint).pattern)
    if tells_of_start(clause):
        known = []
    for pattern in known:
        while (match := pattern.search(clause)) is not None and match[0].strip():
            before = _words().denied.search(clause[: match.start()])
            after = _words().denied_after.match(clause[match.end() :])
            begin = before.start() if before else match.start()
            end = match.end() + (after.end() if after else 0)
            clause = f"{clause[:begin]} {clause[end:]}"
    return clause


def _read_complaints(clause: str) -> list[Complaint]:
    """Complaints that the clause states and does not deny or fear."""
    start = tells_of_start(clause)
    return [
        veto.complaint
        for veto in _words().vetoes
        if not (start and veto.complaint in _OF_STEADY)
        and any(_holds(clause, match) for match in veto.pattern.finditer(clause))
    ]


def not_shown(complaint: Complaint) -> str:
    """What an answer without proof leaves open of a complaint."""
    return next((v.not_shown for v in _words().vetoes if v.complaint is complaint), "that the run is well")  # fmt: skip


def _stating_clauses(text: str, border: re.Pattern[str] = _CLAUSE) -> list[tuple[str, bool, int]]:
    """Clauses that state something, whether they ask with a question word, which presumes, and their sentence."""
    out = []
    for number, sentence in enumerate(_SENTENCE.split(text)):
        asks = sentence.rstrip(" 。").endswith(("?", "？", "か", "吗", "呢"))
        clauses = [c for c in border.split(sentence) if c.strip()]
        for place, clause in enumerate(clauses):
            assumes = _words().why.search(clause) is not None
            last = place == len(clauses) - 1 or _OR.match(clauses[place + 1]) is not None
            if not assumes and (_words().first.search(clause) or (asks and last)):
                continue
            out.append((clause, asks and (last or assumes), number))
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
    count, unit = (told["n"] or told["count"]).lower(), (told["unit"] or told["unspaced"]).lower()
    number = _WORDS.get(count)
    seconds = next(s for signs, s in _UNITS if unit.startswith(signs))
    return (float(count) if number is None else number) * seconds
