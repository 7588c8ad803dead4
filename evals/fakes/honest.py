"""What if the model only says what it read? A script that quotes its evidence; nothing of it may be lost."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evals.fakes.scripted_model import reply, text_of
from langchain_core.messages import AIMessage, BaseMessage

_FILE = re.compile(r"^(F\d+) .{0,200}\(.{0,120}\):$")
_LINE = re.compile(r"^(\d+) (.{12,})$")


def shown_lines(messages: Sequence[BaseMessage]) -> list[tuple[str, int, str]]:
    """(file, number, text) of the lines of logs in the first message."""
    out, file = [], ""
    for row in text_of(messages[1:2]).split("\n"):
        begun = _FILE.match(row)
        line = _LINE.match(row)
        if begun:
            file = begun[1]
        elif file and line:
            out.append((file, int(line[1]), line[2]))
        elif not row:
            file = ""
    return out


def shown_ids(messages: Sequence[BaseMessage]) -> list[str]:
    """Ids of the lines that the tools' reading stands on, else of the first lines."""
    text = text_of(messages)
    cited = [i for part in re.findall(r"\(stands on ([^)]{1,200})\)", text) for i in re.findall(r"F\d+:\d+", part)]  # fmt: skip
    lines = [f"{f}:{n}" for f, n, _ in shown_lines(messages)]
    return list(dict.fromkeys([*cited, *lines])) or ["F1:1"]


def quoting(messages: Sequence[BaseMessage], _tools: tuple[str, ...]) -> AIMessage:
    """One paragraph a line of evidence: its number and the words that stand there."""
    rows = [
        (f"{file}:{line}", line, text)
        for file, line, text in shown_lines(messages)
        if "(withheld" not in text and not re.search(r'["`“«]', text[:70])
    ]
    return reply(
        answer=[
            {"text": f'Line {line} reads "{_cut(text)}".', "lines": [identity]}
            for identity, line, text in rows[:4]
        ]
    )


def _cut(text: str) -> str:
    """The beginning of a line, cut between words."""
    text = text.split(" [+", 1)[0]
    short = text[:70].rstrip() if len(text) <= 70 else text[:70].rsplit(" ", 1)[0].rstrip()
    return short.rsplit("<", 1)[0].rstrip() if short.count("<") > short.count(">") else short
