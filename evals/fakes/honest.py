"""What if the model only says what it read? A script that quotes its evidence; nothing of it may be lost."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evals.fakes.scripted_model import reply, text_of
from langchain_core.messages import AIMessage, BaseMessage

_SHOWN = re.compile(r"^(E\d+) F\d+:(\d+) \| (.{12,})$", re.M)


def quoting(messages: Sequence[BaseMessage], _tools: tuple[str, ...]) -> AIMessage:
    """One sentence a line of evidence: its number and the words that stand there."""
    rows = [
        (identity, line, text)
        for identity, line, text in _SHOWN.findall(text_of(messages[1:2]))
        if "(withheld" not in text and not re.search(r'["`“«]', text[:70])
    ]
    return reply(
        stance="agree",
        explanation=[
            {"text": f'Line {line} reads "{_cut(text)}".', "evidence": [identity]}
            for identity, line, text in rows[:6]
        ],
    )


def _cut(text: str) -> str:
    """The beginning of a line, cut between words."""
    short = text[:70].rstrip() if len(text) <= 70 else text[:70].rsplit(" ", 1)[0].rstrip()
    return short.rsplit("<", 1)[0].rstrip() if short.count("<") > short.count(">") else short
