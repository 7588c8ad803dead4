"""Which times stand in a sentence, and what of? Saves, intervals, restarts, lost work and how often something fails."""

from __future__ import annotations

import re

from firstfault_tools.expressions import expression

DAY, HOUR, MINUTE = 86_400.0, 3_600.0, 60.0

_N = r"(?<![A-Za-z\d.])(\d{1,7}(?:[,.]\d{1,6})?)"
_UNIT = r"(?:ms|s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hr|hrs|hour|hours|d|day|days|week|weeks|month|months|y|year|years)"
_TIME = rf"{_N}\s?({_UNIT})\b"
_SECONDS: tuple[tuple[str, float], ...] = (
    ("ms", 1e-3), ("mo", 2_592_000.0), ("mi", 60.0), ("m", 60.0), ("s", 1.0), ("h", 3600.0), ("d", 86400.0), ("w", 604_800.0), ("y", 31_557_600.0),
)  # fmt: skip

_SAVE = expression(
    rf"(?i)\b(?:sav(?:e|es|ing)|writ(?:e|es|ing)|checkpoint(?:s|ing)?|ckpts?|it|one)\b[^.?\n\d]{{0,24}}\b(?:takes?|"
    rf"took|costs?|needs?|of|lasts?|stalls?(?: for)?|blocks?(?: for)?|is|time)\b[^.?\n\d]{{0,12}}{_TIME}|"
    rf"{_TIME}[^.,;?\n\d]{{0,14}}\b(?:to (?:save|write)|save|write|checkpoint)\b|\b(?:sav(?:e|es|ing)|ckpts?|checkpoints?) (?:for |of |time )?{_TIME}"
)
_EVERY = expression(
    rf"(?i)\b(?:sav(?:e|es|ing)|checkpoint(?:s|ing)?|writ(?:e|es|ing))\b(?:(?!\b(?:fail|crash|die|break|mtbf|interrupt))[^.?\n\d]){{0,24}}"
    rf"\b(?:every|each|interval(?: of| is)?)\s{{0,2}}{_TIME}|\binterval\s?(?:of|is|=)?\s?{_TIME}"
)
_ANY_EVERY = expression(rf"(?i)\b(?:every|each)\s{{1,2}}{_TIME}")
_SAVES = expression(r"(?i)\bsav(?:e|es|ing)\b|\bcheckpoint|\bckpt")
_RESTART = expression(
    rf"(?i)\b(?:re-?start(?:s|ing|ed)?|recover(?:y|s|ing)?|resum(?:e|es|ing))\b[^.?,;\n\d]{{0,20}}{_TIME}|"
    rf"{_TIME} (?:to|for (?:a|each|every)|of|until (?:it|we)) (?:re-?starts?|recover(?:y|s)?|resume|come back)\b"
)
_LOST_WORK = expression(
    rf"(?i)\b(?:los(?:e|es|ing|t)|redo(?:es|ing)?|repeat(?:s|ing)?)\b[^.?,;\n\d]{{0,24}}{_TIME}|{_TIME} (?:of )?(?:lost (?:work|training|progress)|"
    rf"(?:work|training|progress) (?:is |are )?lost)\b"
)
_NO_SAVE = r"(?:(?!\b(?:sav|checkpoint|ckpt|re-?start|resum|recover|los[et]))[^.?\n\d])"
"""Up to another event, whose time is its own."""
_EACH_FAILS = expression(
    rf"(?i)\b(?:each|one|single|every|an?|per)[- ](?P<part>node|host|server|machine|gpu|card|device|accelerator)\b[^.?\n\d]{{0,20}}\b(?:mtbf|mttf|"
    rf"fails?|dies|breaks|crashes)\b[^.?\n\d]{{0,20}}{_TIME}|"
    rf"\b(?P<named>node|host|server|machine|gpu|card)[- ](?:mtbf|mttf)\b[^.?\n\d]{{0,14}}{_TIME}|"
    rf"\b(?:mtbf|mttf)\b[^.?\n\d]{{0,14}}{_TIME} ?(?:each|per|a) ?(?P<after>node|host|server|machine|gpu|card|device)\b|"
    rf"\b(?:mtbf|mttf) (?:of|per|for) (?:a|an|one|each|every|the|single)? ?(?P<of>node|host|server|machine|gpu|card|device|accelerator)\b[^.?\n\d]{{0,14}}{_TIME}"
)
"""How long one part lasts: the run fails as many times more often as it has parts."""
_NAMED_INTERVAL = expression(
    r"(?i)\b(?:sav(?:e|es|ing)|checkpoint(?:s|ing)?|ckpts?)\b[^.?\n\d]{0,12}\b(hourly|daily|every hour|every day|once an hour)\b|"
    r"\b(hourly|daily) (?:sav(?:e|es|ing)|checkpoint(?:s|ing)?|ckpts?)\b"
)
_FAILS = expression(
    rf"(?i)\b(?:fail(?:s|ures?|ed)?|crash(?:es|ed)?|dies|los(?:e|es|ing) (?:a|one) (?:node|gpu|host|machine)|interrupt(?:s|ions?|ed)?|mtbf|breaks?)\b{_NO_SAVE}{{0,30}}\b(?:every|"
    rf"each|about every|once (?:in|every)|of|is|=)\b{_NO_SAVE}{{0,10}}{_TIME}|\bmtbf\b{_NO_SAVE}{{0,12}}{_TIME}|"
    rf"\bmtbf\b[^.?\n]{{0,40}}?\b(?:is|of|about|around)\s{{1,2}}{_TIME}"
)
_RATE = expression(
    rf"(?i){_N} (?:failures?|crash(?:es)?|interruptions?|faults?|(?:failed |dead |lost |bad )?(?:nodes?|gpus?|hosts?))\s?(?:a|per|each|every|/|in|over)\s?(?:{_N}\s?)?({_UNIT})\b"
)
_TIMES = expression(
    rf"(?i)\b(?:fail(?:s|ures?|ed)?|crash(?:es|ed|ing)?|dies|die|interrupt(?:s|ions?|ed)?|restart(?:s|ed)?)\b[^.?\n\d]{{0,20}}{_N} ?(?:x|×|"
    rf"times?) ?(?:a|per|each|every|/|in|over)\s?(?:{_N}\s?)?({_UNIT})\b"
)
_ONCE = expression(
    r"(?i)\b(?:fail(?:s|ures?)?|crash(?:es)?|dies)\b[^.?\n]{0,20}\b(?:(once|twice)\s?(?:a|per|every)\s?(day|week|hour|month)|(daily|weekly))\b"
)
_DURATION = expression(rf"(?i){_TIME}")
_ADDED = expression(
    r"(?i)\b(?:then|plus|and another|after that|followed by)\b|\d\s?\w{0,8}\s?\+\s?\d"
)


def read_save(text: str) -> float | None:
    """Seconds that one save takes."""
    return read_time(_SAVE, _FAILS.sub("", _EVERY.sub("", text)))


def read_interval(text: str) -> float | None:
    """Seconds between two saves."""
    told = read_time(_EVERY, text)
    if told is None and _SAVES.search(text):
        told = read_time(_ANY_EVERY, _FAILS.sub("", _EACH_FAILS.sub("", text)))
    return told or _read_named_interval(text)


def read_lost(text: str) -> float | None:
    """Seconds of work that a failure costs."""
    return read_time(_LOST_WORK, text)


def read_restart(text: str) -> float | None:
    """Seconds until a run goes on after a failure."""
    return read_time(_RESTART, text)


def read_duration(text: str) -> float | None:
    """A duration; several that follow each other are added."""
    found = list(_DURATION.finditer(_RATE.sub("", text)))
    if not found:
        return None
    taken = found if len(found) > 1 and _ADDED.search(text) else found[:1]
    return sum(float(m[1].replace(",", "")) * seconds_of(m[2]) for m in taken)


def find_group(pattern: re.Pattern[str], text: str) -> str | None:
    """The first group of a pattern that captured something."""
    found = pattern.search(text)
    return next((g for g in found.groups() if g), None) if found is not None else None


def read_time(pattern: re.Pattern[str], text: str) -> float | None:
    """Seconds of the first time that a pattern captures."""
    found = pattern.search(text)
    if found is None:
        return None
    value, unit = [g for g in found.groups() if g][:2]
    return float(value.replace(",", "")) * seconds_of(unit)


def seconds_of(unit: str) -> float:
    """Seconds in a unit of time as people write it."""
    return next(s for start, s in _SECONDS if unit.lower().startswith(start))


def read_failures(text: str) -> float | None:
    """Mean time between failures in seconds."""
    text = _EACH_FAILS.sub("", text)
    rate = _RATE.search(text) or _TIMES.search(text)
    if rate is not None:
        return (
            seconds_of(rate[3]) * float(rate[2] or 1) / max(float(rate[1].replace(",", "")), 1e-9)
        )
    once = _ONCE.search(text)
    if once is not None:
        unit = once[2] or {"daily": "day", "weekly": "week"}[once[3].lower()]
        return seconds_of(unit) / (2 if (once[1] or "").lower() == "twice" else 1)
    return read_time(_FAILS, text)


def read_each_fails(text: str) -> tuple[str, float] | None:
    """('node' or 'gpu', mean seconds between failures of one), where the time of one part is told."""
    found = _EACH_FAILS.search(text)
    if found is None:
        return None
    part = next(
        p for p in (found["part"], found["named"], found["after"], found["of"]) if p
    ).lower()
    value, unit = next((found[i], found[i + 1]) for i in (2, 5, 7, 11) if found[i])
    what = "node" if part in ("node", "host", "server", "machine") else "gpu"
    return what, float(value.replace(",", "")) * seconds_of(unit)


def _read_named_interval(text: str) -> float | None:
    """Seconds of an interval told without a number."""
    named = find_group(_NAMED_INTERVAL, text)
    return None if named is None else 86_400.0 if "da" in named.lower() else 3_600.0


def say_time(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 1.5 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 5 * MINUTE and seconds % MINUTE:
        return f"{seconds / MINUTE:.1f} min".replace(".0 min", " min")
    if seconds < 1.5 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:.1f} h".replace(".0 h", " h")
    return f"{seconds / DAY:.1f} days".replace(".0 days", " days")
