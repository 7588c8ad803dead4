"""What is a question of another language in the English of the pages? Question words and complaints only."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("languages.yaml")
LEAST = 2
"""Phrases that must be known before a text is taken for that language: a lone "die" is English."""


@cache
def _languages() -> tuple[tuple[re.Pattern[str], tuple[tuple[re.Pattern[str], str], ...]], ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["languages"]
    return tuple(
        (
            re.compile(row["sign"], re.IGNORECASE),
            tuple((_compile(phrase), english) for phrase, english in row["say"]),
        )
        for row in rows
    )


def _compile(phrase: str) -> re.Pattern[str]:
    """Whole words, except where a script has none between words."""
    return re.compile(phrase if phrase[0] >= "\u3000" else rf"(?i)\b(?:{phrase})\b")


_BESIDE = re.compile(
    r"(?<=[\u3041-\u30ff\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9%])(?=[\u3041-\u30ff\u4e00-\u9fff])"
)
"""Between letters of a script without spaces and those of the Latin one."""


@cache
def _typos() -> tuple[tuple[re.Pattern[str], str], ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["typos"]
    return tuple((_compile(phrase), word) for phrase, word in rows)


def to_english(text: str) -> str:
    """`text` with the phrases that are known replaced; of English only words that are mistyped."""
    text = _BESIDE.sub(" ", text)
    for phrase, word in _typos():
        text = phrase.sub(word, text)
    for sign, phrases in _languages():
        if sign.search(text) is None:
            continue
        told, count = text, 0
        for phrase, english in phrases:
            told, n = phrase.subn(english, told)
            count += n if english.strip() else 0
        if count >= LEAST:
            return " ".join(told.replace("¿", "").split())
    return text
