"""In which language is a question put, and what can be said in it? The verdict, where the fault lies, a refusal; the rest stays English.

The words are data (speech.yaml). English is not in the table: nothing is put before an answer to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("speech.yaml")
LONGEST = 600
"""Characters that are read for the language; a pasted log is none."""
_ENGLISH = expression(
    r"(?i)\b(?:the|and|of|is|are|what|how|why|which|should|do|does|with|for|to|my|it|this|that|can|when|or|if|from|we|be|not|many|much)\b"
)
_VERDICTS = (
    ("only_if", expression(r"(?i)^only\b")),
    (
        "not_shown",
        expression(r"(?i)^(?:not (?:shown|proven)|the (?:evidence|log) does not (?:say|show))\b"),
    ),
    ("yes", expression(r"(?i)^yes\b")),
    ("no", expression(r"(?i)^no\b")),
)


@dataclass(frozen=True, slots=True)
class Speech:
    """One language. says: name of what is said -> the words."""

    id: str
    sign: re.Pattern[str]
    least: int
    says: Mapping[str, str]


@cache
def _languages() -> tuple[Speech, ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["languages"]
    taken = {"id", "sign", "least"}
    return tuple(
        Speech(r["id"], re.compile(r["sign"], re.IGNORECASE), r["least"], {k: v for k, v in r.items() if k not in taken})
        for r in rows
    )  # fmt: skip


def find_speech(text: str) -> Speech | None:
    """The language that a question is put in; None for English and for what is too short to tell."""
    text = text[:LONGEST]
    english = len({w.lower() for w in _ENGLISH.findall(text)})
    best, most = None, 0
    for speech in _languages():
        found = len({w.lower() for w in speech.sign.findall(text)})
        if found and speech.least == 1:
            return speech  # a script of its own tells it, whatever English terms stand beside
        if found >= speech.least and found > max(most, english):
            best, most = speech, found
    return best


def say_in(speech: Speech, text: str, kind: str, place: str) -> str:
    """An answer with its verdict, and for an incident the place of the first fault, said in the language before it."""
    says = speech.says
    verdict = next((says[name] for name, start in _VERDICTS if start.match(text)), "")
    of_log = kind.startswith("incident")
    if not verdict:
        name = "calculated" if kind.startswith("calculator") else "of_log" if of_log else "told"
        return f"{says[name]} {text}\n\n{says['english']}"
    fault = f" {says['fault'].format(place=place)}" if of_log and place else ""
    return f"{verdict}{fault} {text}\n\n{says['english']}"
