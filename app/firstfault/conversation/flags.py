"""What does a pasted command line say in words? Options and letters of formulas, rewritten so that one reader reads all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("flags.yaml")
_LETTER = expression(r"(?<![\w-])([A-Za-z]{1,2}) ?= ?(\d{1,7})(k?)\b")
_JOINED = expression(r"(?i)\b(tp|pp|dp|cp|ep|mbs|gbs|vpp)(\d{1,6})(?=\b|tp|pp|dp|cp|ep|vpp)")
_SPOKEN_TIMES = (
    (expression(r"(?i)\b(?:an|one) hour and a half\b"), "90 min"),
    (expression(r"(?i)\b(\d{1,3}) and a half hours\b"), r"\1.5 hours"),
    (expression(r"(?i)\bhalf an? hour\b"), "30 min"),
    (expression(r"(?i)\b(?:a )?quarter (?:of an|an) hour\b"), "15 min"),
    (expression(r"(?i)\bhalf a day\b"), "12 hours"),
    (expression(r"(?i)\b(every|each) (hour|day|minute)\b"), r"\1 1 \2"),
    (expression(r"(?i)\b(takes?|lasts?|lose|about|for|in|every) an hour\b"), r"\1 1 hour"),
)
"""Durations told without a figure."""
_LINKS = expression(
    r"(?i)(?<![\w.])(\d{1,2}) ?[x\u00d7] ?(25|40|50|100|200|400|800) ?g(?:bps|bit/?s?|b/s|e)?(?![\w/])(?! ?i?b)"
)
"""Adapters of a node by number and rate ("8x400G"), which are one rate together."""
LEAST_LETTERS = 3
"""Letters with a number before they are taken for those of the formulas."""


@cache
def _table() -> tuple[re.Pattern[str], Mapping[str, str], Mapping[str, str]]:
    content = read_yaml(TABLE.read_text(encoding="utf-8"))
    say = {row["flag"]: row["say"] for row in content["flags"]}
    names = "|".join(n.replace("-", "[-_]") for n in sorted(say, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?:--)?\"?({names})\"?(?:\s*[=:]\s*|\s+)(\d[\d,.]*k?)", re.I), say, content["letters"]  # fmt: skip


def say_flags(text: str) -> str:
    """`text` with options and, where several stand together, letters of formulas said in words."""
    pattern, say, letters = _table()
    if "-" in text or "_" in text:
        text = pattern.sub(lambda m: f" {say[m[1].lower().replace('_', '-')]} {m[2]};", text)
    for spoken, figure in _SPOKEN_TIMES:
        text = spoken.sub(figure, text)
    text = _JOINED.sub(r"\1 \2 ", text)
    text = _LINKS.sub(lambda m: f"{int(m[1]) * int(m[2])} Gbit/s", text)
    known = [m for m in _LETTER.finditer(text) if m[1] in letters]
    if len(known) >= LEAST_LETTERS:
        text = _LETTER.sub(lambda m: f"{letters.get(m[1], m[1])} {m[2]}{m[3]};", text)
    return text
