"""In which other form may a quote, a time, a name or a count stand in the evidence than in a sentence about it?

A reader shortens a quote with three dots, rounds a time of day, leaves out the middle of a long name, says
"39 minutes later" of two stamps. That is true and not invented; what differs in substance still is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from itertools import combinations, pairwise

from firstfault.grounding.arithmetic import slack
from firstfault.grounding.items import Item, ItemKind
from firstfault.grounding.sums import unit_of
from firstfault_tools.expressions import expression
from firstfault_tools.log.scan import make_line

LEAST_PIECE = 4
"""Characters that each piece of a shortened quote must have."""

LEAST_PARTS = 3
"""Parts from which on a name may lose its middle: `per_device_batch_size`."""

ANY_YEAR = 2000
"""Stands in where a stamp has none: only what lies between two stamps is asked."""

_GAP = expression(r"\s*(?:\[\s?(?:\.{3,}|…)\s?\]|⟦\s?(?:\.{3,}|…)\s?⟧|\.{3,}|…)\s*")
_TURNS = expression(r"(?i)\b(?:no|not|never|none|nor|without|un\w+able|cannot)\b|n't\b")
"""Words that turn a sentence round: a gap that hides one makes another sentence."""

_CLOCK = expression(r"(?:(\d{4})-(\d\d)-(\d\d))?(?:[T ]?(\d\d:\d\d)(:\d\d(?:[.,]\d+)?)?)?Z?")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_CODE = expression(r"[A-Za-z_]{2,60}(?:\.[A-Za-z_]{2,60}){1,6}")
_CLOUD = expression(r"(?i)ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:\.[\w.-]+)?")
_ADDRESS = expression(r"(?:\d{1,3}\.){3}\d{1,3}")
_DURATION = expression(
    r"(?i)(?<![\w.])(?P<n>(?:\d{1,3}(?:,\d{3}){1,3}|\d{1,6})(?:\.\d+)?)[ -]?(?P<unit>s|sec(?:ond)?s?|min(?:ute)?s?|h|hours?|d|days?)\b"
)


def stands_shortened(quote: str, texts: Iterable[str]) -> bool:
    """The pieces of a quote with `...` in it stand in one of the texts, in order, and no gap hides a `not`.

    Both as they are compared: in small letters, white space as one space.
    """
    pieces = [p.strip() for p in _GAP.split(quote.strip(" .,;:")) if p.strip(" .,;:")]
    if not pieces or any(len(p) < LEAST_PIECE for p in pieces):
        return False
    return any(_in_order(pieces, text) for text in texts)


def _in_order(pieces: Sequence[str], text: str) -> bool:
    spans: list[tuple[int, int]] = []
    place = 0
    for piece in pieces:
        found = text.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
        spans.append((found, place))
    return not any(_TURNS.search(text[a[1] : b[0]]) for a, b in pairwise(spans))


def clock_stands(stated: str, said: str) -> bool:
    """A date or time of day stands in what was said, the date in another spelling, the time to the minute."""
    match = _CLOCK.fullmatch(stated)
    if match is None:
        return False
    year, month, day, minute, second = match.groups()
    if year and not _date_stands(int(year), int(month), int(day), said):
        return False
    if not minute:
        return bool(year)
    whole = (minute + (second or "")).replace(",", ".")
    return whole in said.replace(",", ".") or (not second and _rounds_up(minute, said))


def _date_stands(year: int, month: int, day: int, said: str) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    name = _MONTHS[month - 1]
    spelt = rf"{year}[-/.]?{month:02d}[-/.]?{day:02d}|\b{name}\w* {{1,2}}0?{day}\b|\b0?{day}[ /-]{name}|(?<![\d/]){month:02d}[-/]{day:02d}(?![\d/])"
    return re.search(spelt, said) is not None


def _rounds_up(minute: str, said: str) -> bool:
    """`12:09` of 12:08:40."""
    hours, minutes = int(minute[:2]), int(minute[3:])
    before = (hours * 60 + minutes - 1) % (24 * 60)
    return (
        re.search(rf"(?<!\d){before // 60:02d}:{before % 60:02d}:[345]\d(?!\d)", said) is not None
    )


def name_stands(name: str, said: str) -> bool:
    """A name stands in what was said (small letters): as a whole, with other separators, as an address, shortened."""
    low = name.lower()
    if _ends_there(low, said) or _ends_there(low.removesuffix("s"), said):
        return True
    cloud = _CLOUD.fullmatch(low)
    if cloud is not None and _ends_there(".".join(cloud.groups()), said):
        return True
    if _ADDRESS.fullmatch(low):
        return _ends_there("ip-" + low.replace(".", "-"), said)
    return _is_joined(low, said) or _is_code_of(low, said) or _is_shortened(low, said)


def _is_joined(name: str, said: str) -> bool:
    """`all_reduce` of ALLREDUCE, `node07` of node-07: paths and dotted names keep their parts."""
    if "." in name or "/" in name:
        return False
    return _ends_there(re.sub(r"[-_]", "", name), re.sub(r"[-_]", "", said))


def _ends_there(name: str, said: str) -> bool:
    """What ends with a digit is not part of a longer number: node-1 is not node-12."""
    stem = name.rstrip("0123456789")
    if stem == name:
        return bool(name) and name in said
    if not stem or (not stem[-1].isalpha() and stem[-1] not in "-_"):
        return re.search(rf"{re.escape(name)}(?!\d)", said) is not None
    number = name[len(stem) :].lstrip("0") or "0"
    return re.search(rf"{re.escape(stem)}0*{number}(?!\d)", said) is not None or any(
        _within(match[1], int(number)) for match in re.finditer(rf"{re.escape(stem)}\[([\d,-]{{1,200}})\]", said)
    )  # fmt: skip


def _within(spans: str, number: int) -> bool:
    """14 of Slurm's `gx-[11,13-16]`."""
    ends = [part.split("-") for part in spans.split(",")]
    return any(
        e[0].isdigit() and e[-1].isdigit() and int(e[0]) <= number <= int(e[-1]) for e in ends
    )


def _is_code_of(name: str, said: str) -> bool:
    """`trainer.train` of `File "trainer.py", line 9, in train`: each part is a word there."""
    return _CODE.fullmatch(name) is not None and all(
        re.search(rf"(?<![a-z0-9_]){re.escape(part)}(?![a-z0-9_])", said)
        for part in name.split(".")
    )


def _is_shortened(name: str, said: str) -> bool:
    """`per_device_batch_size` of `per_device_train_batch_size`: one part is left out of its middle."""
    parts = name.split("_")
    if len(parts) < LEAST_PARTS or not all(p.isalpha() for p in parts):
        return False
    return any(
        re.search(rf"(?<![a-z0-9_]){'_'.join(parts[:n])}_[a-z]+_{'_'.join(parts[n:])}(?![a-z0-9_])", said)
        for n in range(1, len(parts))
    )  # fmt: skip


def lasted(text: str, cited: Sequence[Item]) -> frozenset[str]:
    """Numbers of durations in `text` that lie between the stamps of two cited lines, as they are written."""
    stated = [
        (m["n"].replace(",", ""), unit.factor)
        for m in _DURATION.finditer(text)
        if (unit := unit_of(m["unit"].lower())) is not None
    ]
    if not stated:
        return frozenset()
    lines = (make_line(i.file, i.line, i.text, ANY_YEAR) for i in cited if i.kind is ItemKind.LOG)
    times = sorted({line.time for line in lines if line.time is not None})
    apart = [b - a for a, b in combinations(times, 2)]
    return frozenset(n for n, unit in stated if any(abs(float(n) * unit - d) <= slack(n) * unit for d in apart))  # fmt: skip


def counted(cited: Sequence[Item]) -> frozenset[float]:
    """How many lines, ranks, hosts and files are cited: what a sentence may count without a line that prints it."""
    ranks = {i.rank for i in cited if i.rank is not None}
    hosts = {i.host for i in cited if i.host}
    files = {i.file for i in cited if i.file}
    return frozenset(float(n) for n in (len(cited), len(ranks), len(hosts), len(files)) if n > 1)
