"""Does a text try to speak to the model? Text of logs, pages and names is data, and is made to look it.

Three things are done before a line is shown to a model: control characters and line breaks go, the
marks by which chat models tell who is speaking are broken, and a line that reads like an instruction
to an assistant is withheld; the person still sees it, with its place. A mark alone is no instruction:
trainers of chat models print samples that are full of them.
"""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.grounding.quotes import WRITTEN_AS
from firstfault_tools.expressions import expression

MAX_LINE = 500
LOOKED_AT, NEAR = 2_000, 60
"""Characters of a line in which orders are looked for, and how far apart their two words may stand."""
WITHHELD = (
    "(withheld: this line reads like an instruction to an assistant; the person can look at it)"
)

_CONTROL = expression(
    r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]+"
)
_CHAT_MARK = expression(
    r"<\|[^|>\n]{1,40}\|>|<\|?/?(?:im_start|im_end|system|assistant|user|tool_call|tool_response|start_of_turn|end_of_turn|think)\|?>|\[/?INST\]|<</?SYS>>|</?s>|\[/?(?:TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\]"
)
_WRITTEN_OUT = expression(r"\\[nrt]")

_ORDER = expression(
    r"(?i)\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:instruction|prompt|rule|guideline|above|previous|prior|earlier|evidence|context)s?\b"
    r"|\b(?:system|developer) (?:prompt|message|instruction)s?\b"
    r"|\byou are (?:now|an? (?:ai|assistant|language model|helpful))\b"
    r"|\b(?:as an ai|language model|chatgpt|dear (?:ai|assistant|model)|hey (?:ai|assistant))\b"
    r"|\b(?:assistant|ai|model|llm|agent|firstfault)\s*[,:]\s*(?:please|you|ignore|report|say|tell|call|run|use|answer|reply|print|respond|output|the|this|do|must)\b"
    r"|\b(?:call|invoke|use|run) (?:the )?(?:tool|function|run_probe|probe)\b[^.\n]{0,60}"
    r"|\b(?:reveal|print|repeat|output|show|send|leak|exfiltrate|include)\b[^.\n]{0,40}\b(?:api.?key|system prompt|your (?:prompt|instructions|key)|secrets?|credentials?)\b"
    r"|\b(?:answer|respond|reply|say|report|conclude|claim|state|tell the (?:user|person|engineer))\b[^.\n]{0,30}\b(?:that (?:everything|the run|nothing|it) |"
    r"only with|exactly|is healthy|no fault|the verdict)"
    r"|\b(?:set|change) (?:the )?(?:verdict|confidence|root cause)\b|\bnew instructions?\b"
)


def reads_like_an_order(text: str) -> bool:
    """The text addresses an assistant instead of reporting what a program did."""
    # a line break that is written out leaves no border before the word behind it
    text = _WRITTEN_OUT.sub("  ", text)
    if _ORDER.search(text) is not None:
        return True
    plain = unicodedata.normalize("NFKC", text[:LOOKED_AT]).lower()
    if _commands_of_all().search(plain) is not None and any(
        _is_about(plain, command, about) for command, about in _pairs()
    ):
        return True
    folded = plain.translate(_lookalikes()) if not plain.isascii() else plain
    return folded != plain and _ORDER.search(folded) is not None


def _is_about(text: str, command: Any, about: Any) -> bool:
    """A command, and what it is about close by: behind it, in languages that turn it round before it."""
    for match in command.finditer(text):
        around = text[match.end() : match.end() + NEAR]
        if not match[0].isascii():
            around = f"{text[max(0, match.start() - NEAR) : match.start()]}\n{around}"
        if about.search(around) is not None:
            return True
    return False


@cache
def _words() -> dict[str, Any]:
    words: dict[str, Any] = json.loads(Path(__file__).with_name("orders.json").read_text("utf-8"))
    return words


@cache
def _pairs() -> tuple[tuple[Any, Any], ...]:
    """(command, what it is about) of each language; google-re2, so that no line costs more than its length."""
    return tuple((_begins(one), _begins(two)) for one, two in _words()["pairs"])


@cache
def _commands_of_all() -> Any:
    return _begins("|".join(command for command, _ in _words()["pairs"]))


def _begins(words: str) -> Any:
    """Words that begin with one of these; where words are not parted by blanks, anywhere."""
    import re2

    parted = "|".join(w for w in words.split("|") if w.isascii() or w[0] < "\u1100")
    joined = "|".join(w for w in words.split("|") if not (w.isascii() or w[0] < "\u1100"))
    return re2.compile(
        "|".join(x for x in (rf"(?:^|[^\pL])(?:{parted})" if parted else "", joined) if x)
    )


@cache
def _lookalikes() -> dict[int, str]:
    return {ord(k): v for k, v in _words()["lookalikes"].items()}


def make_plain(text: str, limit: int = MAX_LINE) -> str:
    """One line of data as a model may see it: bounded, without control characters, withheld if it gives orders."""
    flat = _CONTROL.sub(" ", text.replace("\n", " \\n ").replace("\t", " "))
    if reads_like_an_order(flat):
        return WITHHELD
    flat = _CHAT_MARK.sub(lambda mark: mark[0].translate(WRITTEN_AS), flat)
    return flat if len(flat) <= limit else f"{flat[:limit]} …[cut, {len(flat)} characters]"


def make_plain_block(text: str, limit: int = 6_000) -> str:
    """Several lines of data, each made plain."""
    kept = "\n".join(make_plain(line) for line in text[:limit].split("\n"))
    return kept + ("" if len(text) <= limit else f"\n…[cut, {len(text)} characters in all]")
