"""When was a line written? Timestamps of the loggers seen in training logs, as seconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from firstfault_tools.expressions import SHORT, expression

NO_YEAR = 1970
"""Year of stamps that print none, where nothing else tells it."""

HEAD = SHORT
"""Characters in which a stamp begins: as many as `re` is asked about."""

_ISO = expression(
    r"(?P<y>20\d\d)[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T ,-](?P<h>\d\d):(?P<mi>\d\d)(?::(?P<s>\d\d))?"
    r"(?P<f>[.,]\d{1,9})?(?P<z>Z|[+-]\d\d:?\d\d)?",
)
_GLOG = expression(
    r"\[?[IWEF](?P<mo>\d{1,2})(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?P<f>\.\d{1,9})?",
)
_SYSLOG = expression(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    r" +(?P<d>\d{1,2}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?: (?P<y>20\d\d))?",
)
_DOTTED = expression(
    r"(?<![\d.])(?P<d>\d\d)\.(?P<mo>\d\d)\.(?P<y>20\d\d|\d\d)[ ,T]{1,2}(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?P<f>[.,]\d{1,9})?"
)
"""Day, month, year with dots, as European locales write it."""
_LEVELLED = expression(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<mo>\d\d)-(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\b"
)
"""Month and day after the level, as vLLM and SGLang print them."""
_MONTHS = {
    m: i + 1
    for i, m in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    )
}


def read_time(text: str, year: int) -> float | None:
    """Seconds since the epoch of the first timestamp near the start of `text`, or None.

    `year` fills in for formats that print none (glog, syslog). No zone means UTC: order matters here,
    not the wall clock.
    """
    head = text[:HEAD]
    match = _ISO.search(head)
    if match is not None:
        return _seconds(match, int(match["y"]), int(match["mo"]))
    match = _GLOG.search(head)
    if match is not None:
        return _seconds(match, year, int(match["mo"]))
    match = _SYSLOG.search(head)
    if match is not None:
        return _seconds(match, int(match["y"] or year), _MONTHS[match["mon"]])
    match = _DOTTED.search(head)
    if match is not None:
        return _seconds(match, 2000 + int(match["y"][-2:]), int(match["mo"]))
    match = _LEVELLED.search(head)
    return _seconds(match, year, int(match["mo"])) if match is not None else None


def _seconds(match: re.Match[str], year: int, month: int) -> float | None:
    groups = match.groupdict()
    zone = _zone(groups.get("z"))
    try:
        moment = datetime(
            year, month, int(match["d"]), int(match["h"]), int(match["mi"]), int(groups["s"] or 0),
            tzinfo=zone,
        )  # fmt: skip
    except ValueError:
        return None
    fraction = groups.get("f")
    return moment.timestamp() + (float("0." + fraction[1:]) if fraction else 0.0)


@lru_cache(maxsize=64)
def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 14 or minutes > 59:
        return UTC
    return timezone(sign * timedelta(hours=hours, minutes=minutes))


def find_year(text: str) -> int | None:
    """First plausible four-digit year in `text`, to complete glog and syslog stamps."""
    match = re.search(r"\b(20[12]\d)[-/](?:0\d|1[0-2])[-/](?:[0-2]\d|3[01])", text)
    if match is None:
        match = re.search(r"\d\d:\d\d:\d\d (20[12]\d)\b", text)
    return int(match[1]) if match else None
