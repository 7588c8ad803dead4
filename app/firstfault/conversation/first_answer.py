"""What is the answer to the question that came with the evidence, in one sentence under the headline?

A question with a yes, a no, a choice or a place in its answer gets it, by the diagnosis alone and without reading a
file; what the headline answers (what happened, why) is not said twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from firstfault.conversation.suspects import is_accused
from firstfault.conversation.telling import start_sentence
from firstfault.conversation.topics import Topic, topics_in
from firstfault.grounding.advice import raises_timeout
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.part import find_part
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.knowledge.pack import read_yaml

MOST_READ = 4_000
"""Characters of a message: a question stands before or after what was pasted, in a few sentences."""

_SENTENCES = expression(r"(?<=[?？.!])\s+|\n+|[()（）]|(?<=[？。！])|; ")
_ASKS = expression(
    r"(?i)^(?:so |and |but |or )?(?:why|how|what|when|who|whose|which|where|on which|in which)\b"
)
_PLACE = expression(
    r"(?i)^(?:so |and |but )?(?:on |in |from )?(?:which|where|what)\b[^?]{0,60}?\b(?:ranks?|hosts?|nodes?|gpus?|cards?|workers?|cables?|replicas?|pods?|"
    r"machines?|devices?|servers?|stages?|chips?|one)\b|(?i:^where (?:is|was|did|does)\b)"
)
_LATER = expression(
    r"(?i), (?:so |and |but |or )?(?=(?:who|what|why|how|which|where|can|is|are|do|does|did|should|must|will|has|have)\b)"
)
"""Where the question itself begins, behind what it rests on."""

_OF_A_PART = expression(
    r"(?i)^(?:so |and |but |or )?(?!(?:do|does|did|can|could|should|shall|will|would|have|has|had|may|must|am|i)\b)"
)
"""A question that suspects: `Is it the network`, `Disk full`; not one of what is done or allowed."""

MOST_WORDS = 14
"""Words above which a question tells a story, in which a part is only named."""

_REPORTS = frozenset({"nccl", "rccl"})
"""Who reports a fault of the network is not at fault for it."""

_PROVEN = frozenset({"network", "hardware", "scheduler"})
"""Topics that a cause of their kind bears out; of the others the kind alone says too little."""

_BLAMED = expression(
    r"(?i)\b(?:blames?|names?|first fail\w*|root cause|says?|reports?|points? (?:at|to)|because of)\b[^.?\n]{0,40}?(?<!local )\branks? (?P<rank>\d{1,6})\b"
)
_RANK = expression(r"(?i)(?<!local )(?<!local_)\branks? (\d{1,6})\b")
_TIMEOUT = expression(
    r"(?i)\b(?:rais\w+|increas\w+|longer|bigger|larger|higher|enlarg\w+|extend)\b[^?]{0,40}\btime-?outs?\b"
)
_REPLACE = expression(
    r"(?i)\brma\b|\b(?:replace|swap)\b[^?]{0,30}\b(?:gpu|card|node|cable|nic|it)\b"
)
_TAKE_OUT = expression(r"(?i)\b(?:drain|exclude|cordon|take out|remove)\b")
_LINK = expression(r"(?i)\b(?:cables?|nics?|ports?|switch(?:es)?)\b")
_HARDWARE = expression(r"(?i)\b(?:broken|defective|faulty|bad|dead|hardware)\b")
_NOT_JUDGED = frozenset({"performance", "memory", "numerics"})
"""Topics whose words tell what is seen and not what is suspected."""


@dataclass(frozen=True, slots=True)
class _Suspect:
    """One suspicion: how it is asked, what of a cause bears it out, and both answers."""

    ask: re.Pattern[str]
    holds: re.Pattern[str]
    borne_out: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class _Table:
    """All of first_answers.yaml."""

    suspects: tuple[_Suspect, ...]
    bad: re.Pattern[str]
    good: re.Pattern[str]
    nothing: re.Pattern[str]
    beside: re.Pattern[str]
    names: frozenset[str]
    instead: dict[Category, str]


@cache
def _table() -> _Table:
    told = read_yaml(Path(__file__).with_name("first_answers.yaml").read_text(encoding="utf-8"))
    ways = {name: expression(f"(?i){words}") for name, words in told["sound"].items()}
    return _Table(
        tuple(
            _Suspect(expression(f"(?i){r['ask']}"), expression(f"(?i){r['holds']}"), r["borne_out"], r["otherwise"])
            for r in told["suspects"]
        ),
        ways["bad"],
        ways["good"],
        ways["nothing"],
        expression(f"(?i){told['beside']}"),
        frozenset(told["names"]),
        {Category(name): words for name, words in told["instead"].items()},
    )  # fmt: skip


def answer_briefly(question: str, diagnosis: Diagnosis, where: str) -> str:
    """The sentence; '' where the headline answers or nothing was asked. where: the place, as the card says it."""
    text = question[:MOST_READ]
    sentences = [s.strip() for s in _SENTENCES.split(text) if s.strip()]
    asked = [s for s in sentences if s.endswith(("?", "？"))]
    for sentence in reversed(asked):
        later = _LATER.search(sentence)
        sentence = sentence[later.end() :] if later is not None else sentence
        if told := _answer(sentence.rstrip("?？ "), diagnosis, where):
            return told
    blamed = _BLAMED.search(text)
    if asked and blamed is not None and diagnosis.verdict is Verdict.FAULT:
        return _of_rank(int(blamed["rank"]), diagnosis, where)
    return ""


def _answer(sentence: str, diagnosis: Diagnosis, where: str) -> str:
    open_question = _ASKS.match(sentence) is not None
    place = _PLACE.search(sentence) is not None
    match diagnosis.verdict:
        case Verdict.HEALTHY:
            return _of_sound_run(sentence, open_question, place)
        case Verdict.UNKNOWN:
            return "" if open_question and not place else "What was read does not decide it yet."
    if place:
        innocent = diagnosis.category not in (Category.HARDWARE, Category.COMMUNICATION)
        if innocent and _LINK.search(sentence):
            return "None: by this evidence it is not the network."
        return _say_place(diagnosis, where)
    if open_question:
        return ""
    named = _RANK.search(sentence)
    if named is not None and (told := _of_rank(int(named[1]), diagnosis, where)):
        return told
    return (
        _of_timeout(sentence, diagnosis)
        or _of_replacement(sentence, diagnosis)
        or _of_suspect(sentence, diagnosis)
        or _of_topics(sentence, diagnosis)
    )


def _of_sound_run(sentence: str, open_question: bool, place: bool) -> str:
    table = _table()
    if place:
        return "None: nothing is wrong in what was read."
    if open_question:
        return "Nothing failed in what was read." if table.nothing.search(sentence) else ""
    bad, good = table.bad.search(sentence), table.good.search(sentence)
    if (bad is None) == (good is None):
        return ""
    return "No: nothing is wrong in what was read." if bad else "Yes, by what was read."


def _say_place(diagnosis: Diagnosis, where: str) -> str:
    if diagnosis.first_failing_rank is None and not diagnosis.host and "job" in where:
        return "No single one: it is the same for the whole job."
    known = (
        diagnosis.first_failing_rank is not None
        or diagnosis.host
        or diagnosis.gpu
        or diagnosis.struck.part
    )
    place = where.partition(" (")[0]
    return f"{start_sentence(place)}." if known or diagnosis.struck.hosts else ""


def _of_rank(rank: int, diagnosis: Diagnosis, where: str) -> str:
    first = diagnosis.first_failing_rank
    if first is None or (diagnosis.alike and rank in diagnosis.alike):
        return ""
    if first == rank:
        return (
            ""
            if diagnosis.category is not Category.HARDWARE
            else f"Yes, rank {rank} is where it began."
        )
    return f"Not rank {rank}: it began at {where.partition(' (')[0]}."


def _of_timeout(sentence: str, diagnosis: Diagnosis) -> str:
    if _TIMEOUT.search(sentence) is None or any(raises_timeout(f.text) for f in diagnosis.fixes):
        return ""
    return "No: a longer timeout would only make it wait longer."


def _of_replacement(sentence: str, diagnosis: Diagnosis) -> str:
    replaced = _REPLACE.search(sentence) is not None
    if not replaced and _TAKE_OUT.search(sentence) is None:
        return ""
    if diagnosis.category is not Category.HARDWARE:
        return "No: by this evidence the hardware is not at fault."
    if replaced:
        return "Not as a first step: take it out, reboot and test it."
    return f"Yes: take {diagnosis.host} out." if diagnosis.host else ""


def _of_suspect(sentence: str, diagnosis: Diagnosis) -> str:
    cause = diagnosis.root_cause.partition("; ")[0]
    for suspect in _table().suspects:
        if suspect.ask.search(sentence) is not None:
            if suspect.holds.search(cause) is not None:
                return f"{suspect.borne_out}." if suspect.borne_out else ""
            return f"{suspect.otherwise}{_instead(diagnosis, ())}."
    return ""


def _of_topics(sentence: str, diagnosis: Diagnosis) -> str:
    """Of a part of the system: whether the cause lies there."""
    if _OF_A_PART.match(sentence) is None or len(sentence.split()) > MOST_WORDS:
        return ""
    sentence = _table().beside.sub("", sentence)
    topics = [t for t in topics_in(sentence) if t.id not in _NOT_JUDGED]
    guilty = [t for t in topics if is_accused(diagnosis, t, sentence)]
    innocent = [_call(t, sentence) for t in topics if t not in guilty]
    if len(guilty) == 1 and guilty[0].id in _PROVEN:
        named = _call(guilty[0], sentence)
        if named.lower() in _REPORTS:
            return ""
        if len(innocent) == 1:
            return f"By this evidence it is {named}, not {innocent[0]}."
        return f"Yes, by this evidence it is {named}." if not innocent else ""
    if guilty or not innocent:
        return ""
    named = (
        f"Neither {innocent[0]} nor {innocent[1]}" if len(innocent) > 1 else f"Not {innocent[0]}"
    )
    return f"{named}, by this evidence{_instead(diagnosis, topics)}."


def _instead(diagnosis: Diagnosis, asked: Sequence[Topic]) -> str:
    category = diagnosis.category
    if category is None or any(category in t.categories for t in asked):
        return ""
    part = find_part(diagnosis)
    told = f"it is the {part}" if part else _table().instead.get(category, "")
    return f": {told}" if told else ""


def _call(topic: Topic, sentence: str) -> str:
    """The part in the person's own word."""
    if topic.id in ("code", "scheduler"):
        return f"the {topic.id}"
    found = topic.word.search(sentence)
    word = found[0] if found is not None else topic.id
    if word.lower() in _table().names:
        return word
    return f"the {word.lower().replace('gpu', 'GPU')}"
