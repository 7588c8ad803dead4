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


def _minutes(found: re.Match[str]) -> str:
    """ "2h40" in minutes."""
    return f"{60 * int(found[1]) + int(found[2])} min"


def _share_unit(found: re.Match[str]) -> str:
    """The parts of a time with its unit: "3.2 s of which 2.6 compute 0.6 exposed"."""
    return found[1] + " " + found[2] + re.sub(r"(\d) (?=[a-z])", rf"\1{found[1]} ", found[3])


_SPOKEN_TIMES = (
    (
        expression(
            r"(?i)(?<![\w.,])(\d{1,3}) ?h(?:ours?|rs?)? ?(\d{1,2}) ?(?:m|mins?|minutes?)?(?![\w.,]*\d|\w)"
        ),
        _minutes,
    ),
    (expression(r"(?i)(?<![\w.])(\d{2,4}) (?=(?:dense )?peak\b)"), r"\1 TFLOP/s "),
    (expression(r"[$](?= at \d)"), "cost"),
    (
        expression(r"(?<![\w.$\u20ac])(\d{1,3}(?:\.\d{1,3})?) ?/ ?(?:gpu[- ]?)?h(?:r|our)?\b"),
        r"$\1/hour",
    ),
    (expression(r"(?i)\bon (?:a |an |one )?(16|24|32|40|48|80|96|141|192)g\b"), r"on \1 GB gpu"),
    (expression(r"(?i)\b(size|message(?: size)?) (\d{6,15})\b(?! ?[a-z])"), r"\1 \2 bytes"),
    (
        expression(
            r"(?i)\b(tok(?:en)?s?/s(?:ec)?(?:/gpu)?)\s?[:=]?\s?(\d[\d.,]{0,12}\s?[kmb]?)\b(?!\s?tok)"
        ),
        r"\2 \1",
    ),
    (expression(r"(?<![\w.,])(\d{1,3}) (000)(?![\d.])"), r"\1\2"),
    (expression(r"(?<![\w.])\.(\d{1,4})(?=\s?[a-z%])"), r"0.\1"),
    (
        expression(
            r"(?i)\b(gpu|card|node|host|server|machine)(s?\b[^?\n]{0,60}?\b\d{1,7}) of them\b"
        ),
        r"\1\2 \1s",
    ),
    (
        expression(
            r"(?i)(?<=\d)( ?(?:s|ms|sec|seconds)) (of which|:|=)((?:[ ,+]{1,3}(?:and )?(?:is |are )?\d{1,5}(?:\.\d{1,4})? (?:exposed |pure )?[a-z]{2,14}(?: comm\w*)?){2,4})"
        ),
        _share_unit,
    ),
    (expression(r"(?i)\b(?:an|one) hour and a half\b"), "90 min"),
    (expression(r"(?i)\b(\d{1,3}) and a half hours\b"), r"\1.5 hours"),
    (expression(r"(?i)\bhalf an? hour\b"), "30 min"),
    (expression(r"(?i)\b(?:a )?quarter (?:of an|an) hour\b"), "15 min"),
    (expression(r"(?i)\bhalf a day\b"), "12 hours"),
    (expression(r"(?i)\b(?:a|one) month\b"), "30 days"),
    (expression(r"(?<![\w-])-[be] (\d{1,5})([KMG])\b(?! ?i?B)"), r"\1 \2iB"),
    (
        expression(
            r"(?i)(?<![\w.])(1|2|4|8|16|32|64|128)k (?=(?:nvidia )?(?:[hab]\d00s?|gb?200|gpus?)\b)"
        ),
        r"\g<1>*1024 ",
    ),
    (
        expression(
            r"(?i)\b(in|within|for|over|during|takes?|lasts?|under) (?:a|one) (week|day|minute)\b"
        ),
        r"\1 1 \2",
    ),
    (expression(r"(?i)\b(in|within|for|over|during|takes?|lasts?) one hour\b"), r"\1 1 hour"),
    (expression(r"(?i)\b(\d{1,6})x(\d{3,6}) tok(?:en)?s\b"), r"global batch \1, sequence \2,"),
    (expression(r"(?i)\b(every|each) (hour|day|minute)\b"), r"\1 1 \2"),
    (expression(r"(?i)\b(takes?|lasts?|lose|about|for|in|every) an hour\b"), r"\1 1 hour"),
)
"""Durations told without a figure, and numbers as they are shortened."""
_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
    "a dozen": 12, "fifteen": 15, "sixteen": 16, "twenty": 20, "thirty": 30, "thirty-two": 32, "forty": 40, "fifty": 50, "sixty": 60,
    "sixty-four": 64, "ninety": 90, "a hundred": 100, "one hundred": 100, "a thousand": 1000, "one thousand": 1000,
}  # fmt: skip
_SPELLED = expression(
    rf"(?i)\b({'|'.join(sorted(_WORDS, key=len, reverse=True))})(?=[ -](?:more |of our |x )?(?:ms|sec\w*|min\w*|hours?|days?|weeks?|months?|gpus?|"
    r"years?|nodes?|hosts?|cards?|ranks?|stages?|micro|chunks|failures?|crash\w*|interruptions?|times?|steps|iterations|sequences|requests|epochs|layers|heads|"
    r"tokens|billion|trillion|million|percent|[ha]\d00)\b)"
)
_KILO = expression(r"\b(\d{1,3})\*1024(?= )")
_POWER = expression(
    r"(?<![\w.])(\d{1,3}(?:\.\d{1,4})?)e\+?(\d{1,2})(?= ?(?:tok|param|flop|samples|steps))",
)
_K_TIME = expression(
    r"(?i)(?<![\w.])(\d{1,4}(?:\.\d{1,3})?) ?k (?=(?:h|hrs?|hours?|s|secs?|seconds?|min\w*)\b)"
)
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


def _say_scaled(value: float) -> str:
    """'5T' for 5e12."""
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:g}{letter}"
    return f"{value:g}"


def say_flags(text: str) -> str:
    """`text` with options and, where several stand together, letters of formulas said in words."""
    pattern, say, letters = _table()
    if "-" in text or "_" in text:
        text = pattern.sub(lambda m: f" {say[m[1].lower().replace('_', '-')]} {m[2]};", text)
    for spoken, figure in _SPOKEN_TIMES:
        text = spoken.sub(figure, text)
    text = _KILO.sub(lambda m: str(int(m[1]) * 1024), text)
    text = _SPELLED.sub(lambda m: str(_WORDS[m[1].lower()]), text)
    text = _POWER.sub(lambda m: _say_scaled(float(m[1]) * 10.0 ** int(m[2])), text)
    text = _K_TIME.sub(lambda m: f"{float(m[1]) * 1000:.0f} ", text)
    text = _JOINED.sub(r"\1 \2 ", text)
    text = _LINKS.sub(lambda m: f"{int(m[1]) * int(m[2])} Gbit/s", text)
    known = [m for m in _LETTER.finditer(text) if m[1] in letters]
    if len(known) >= LEAST_LETTERS:
        text = _LETTER.sub(lambda m: f"{letters.get(m[1], m[1])} {m[2]}{m[3]};", text)
    return text
