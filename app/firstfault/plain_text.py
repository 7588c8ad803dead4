"""How is foreign text printed so that it cannot steer a terminal, and written so that JSON stays safe?

Log lines and file names are foreign: they may hold escape sequences, line breaks that forge a
verdict, or characters that turn the reading direction around.
"""

from __future__ import annotations

import json
import re
from typing import Any

from firstfault_tools.expressions import expression

_STEERING = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
)
_SHOWN = expression(f"[{_STEERING}]")
_WRITTEN = expression(f"[{_STEERING}\\U000e0000-\\U000e007f]")

_ENDS = {ord("\n"): "\ufffd", ord("\t"): " "}


def say_hours(hours: float) -> str:
    """GPU-hours, to a tenth where there are few."""
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:,.1f}"


def show_text(text: str) -> str:
    """`text` with every character that steers a terminal replaced; tabs and line ends stay."""
    return _SHOWN.sub("\ufffd", text)


def show_answer(text: str) -> str:
    """An answer for a terminal: its blocks of code set in, without the marks around them."""
    rows, within = [], False
    for row in show_text(text).split("\n"):
        if row.lstrip().startswith("```"):
            within = not within
        else:
            rows.append(f"    {row}" if within else row)
    return "\n".join(rows)


def show_line(text: str) -> str:
    """`show_text` in one line: what is foreign cannot begin a line of its own."""
    return show_text(text).translate(_ENDS)


def say_pattern_error(error: Exception) -> str:
    """Why google-re2 takes no pattern; its errors hold bytes."""
    said = error.args[0] if error.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def write_json(value: Any, indent: int | None = 1) -> str:
    """`value` as readable JSON whose steering characters are escaped, so that it may be printed."""
    return _WRITTEN.sub(_escape, json.dumps(value, ensure_ascii=False, indent=indent))


def _escape(match: re.Match[str]) -> str:
    if (code := ord(match[0])) < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
