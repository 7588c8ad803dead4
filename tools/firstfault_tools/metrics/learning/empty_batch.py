"""Did one rank have nothing to learn from when the loss became NaN? A count of 0 beside a NaN.

A mean over no tokens is 0/0. The rank that had none prints a count of zero (or a list of counts per rank
holds one zero) in the very step in which the first NaN appears; the all-reduce hands it to all others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import keep_marked, quote_line
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.placement.rank_table import RANK

GATE = ("nan", "NaN", "NAN")
LOOK_BACK = 64
_NAN = expression(r"(?i)(?<![a-z])nan(?![a-z])")
_UNITS = r"tokens?|labels?|targets?|samples?|valid|supervised|unmasked|positions?|items?"
_ZERO = expression(
    rf"(?i)(?<![\w-])(?P<name>[\w-]{{0,60}}(?:{_UNITS})[\w-]{{0,40}})['\"]?(?: ?\([^)\n]{{1,20}}\))?\s?[=:]?\s?0(?:\.0+)?(?![\d.,])|"
    rf"(?<![\d.,])0 (?P<after>(?:[\w-]+ ){{0,2}}(?:{_UNITS})\b)"
)
_COUNT = expression(
    rf"(?i)(?<![\w-])(?P<name>[\w-]{{0,60}}(?:{_UNITS})[\w-]{{0,40}})['\"]?(?: ?\([^)\n]{{1,20}}\))?\s?[=:]?\s?(?P<value>\d[\d,]*)(?![\d.])"
)
_LIST = expression(
    rf"(?i)(?<![\w./-])(?P<name>[\w./-]{{0,80}}(?:{_UNITS})[\w./-]{{0,80}})['\"]?\s?[=:]\s?\[(?P<values>\d+(?:,\s?\d+){{1,4095}})\]"
)
_CUT = expression(r"(?i)\btruncat\w+|\blonger than\b|> ?max_(?:seq_)?len")
_PER_STEP = expression(r"(?i)per_second|/s\b|seen|total|cumul|consumed|skipped|dropped|pad")


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The rank whose count is zero where the first NaN appears."""
    marked = [(n, t) for n, t in keep_marked(lines, GATE) if len(t) < 2000 and _NAN.search(t)]
    if not marked:
        return ()
    found = _zero_on_one_rank(lines, marked, file) or _zero_in_list(lines, marked, file)
    return (found,) if found is not None else ()


def _rank_of(text: str) -> int | None:
    rank = read_prefix(text)[0].rank
    if rank is None:
        told = RANK.search(text)
        rank = int(told[1]) if told is not None else None
    return rank


def _zero_on_one_rank(
    lines: Sequence[tuple[int, str]], marked: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    """A line of one rank that holds both, beside lines of other ranks that hold neither."""
    for number, text in marked[:LOOK_BACK]:
        zero = _ZERO.search(text)
        rank = _rank_of(text) if zero is not None else None
        if zero is None or rank is None or _PER_STEP.search(zero["name"] or zero["after"]):
            continue
        others, empty = _read_others(lines, (number, text, rank), zero["name"])
        if len(others) < 2 or any(v[2] == 0 for v in others.values()):
            continue
        what = (zero["name"] or zero["after"]).strip()
        rest = [(n, t, r) for r, (n, t, _) in others.items()][:2]
        cut = _find_cut(lines, number, rank) if len(empty) == 1 else []
        counts = [v[2] for v in others.values()]
        return _describe(empty, what, counts, [(number, text, rank), *rest, *cut], file, bool(cut))
    return None


def _read_others(
    lines: Sequence[tuple[int, str]], own: tuple[int, str, int], name: str | None
) -> tuple[dict[int, tuple[int, str, int]], list[int]]:
    """Counts of other ranks in near lines of the same form, as rank -> (line, text, count), and the ranks that had none."""
    number, text, rank = own
    shape = _shape(text)
    others: dict[int, tuple[int, str, int]] = {}
    empty = [rank]
    for n, t in lines:
        if not 0 < abs(n - number) <= LOOK_BACK or _shape(t) != shape:
            continue
        if _NAN.search(t):
            also = _rank_of(t) if _ZERO.search(t) else None
            if also is not None and also not in empty:
                empty.append(also)
            continue
        count, other = _count_of(t, name), _rank_of(t)
        if count is not None and other is not None and other != rank:
            others.setdefault(other, (n, t, count))
    return others, empty


def _count_of(text: str, name: str | None) -> int | None:
    """The count of this name in a line, else the first count there."""
    told = list(_COUNT.finditer(text))
    count = next((m for m in told if m["name"] == name), told[0] if told else None)
    return None if count is None else int(count["value"].replace(",", ""))


def _find_cut(
    lines: Sequence[tuple[int, str]], number: int, rank: int
) -> list[tuple[int, str, int | None]]:
    """The first line in which the rank says, before that one, that samples were cut."""
    own = ((n, t, rank) for n, t in lines if n < number and _rank_of(t) == rank and _CUT.search(t))
    return list(islice(own, 1))


def _shape(text: str) -> str:
    bare = re.sub(r"(?i)(?<![a-z])(?:nan|inf)(?![a-z])|[\d.,:+-]+", "#", text)
    return " ".join(bare.split())[:200]


def _zero_in_list(
    lines: Sequence[tuple[int, str]], marked: Sequence[tuple[int, str]], file: str
) -> Finding | None:
    """A list of counts, one a rank, with one zero in the row of the first NaN and in none before."""
    row = next(((n, t, m) for n, t in marked[:4] if (m := _LIST.search(t)) is not None), None)
    if row is None:
        return None
    number, text, told = row
    values = _read_values(told)
    if values.count(0) != 1:
        return None
    before = [(n, t) for n, t in lines if n < number and told["name"] in t and "[" in t][-8:]
    if any(0 in _read_values(m) for _, t in before if (m := _LIST.search(t)) is not None):
        return None  # it was so before, without harm
    rank = values.index(0)
    own = [
        (n, t, rank)
        for n, t in lines
        if number - LOOK_BACK <= n < number and _NAN.search(t) and _rank_of(t) == rank
    ]
    quoted = [*own[:1], (number, text, None), *((n, t, None) for n, t in before[-1:])]
    return _describe([rank], told["name"].strip("'\""), [v for v in values if v], quoted, file)


def _read_values(told: re.Match[str]) -> list[int]:
    return [int(v) for v in told["values"].split(",")]


def _describe(
    ranks: Sequence[int],
    what: str,
    counts: Sequence[int],
    quoted: Sequence[tuple[int, str, int | None]],
    file: str,
    cut: bool = False,
) -> Finding:
    who = (
        f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {', '.join(map(str, sorted(ranks)[:8]))}"
    )
    return Finding(
        kind="metrics.rank_empty_batch",
        title=(
            f"{who} had 0 {what.replace('_', ' ')} in the step in which the loss became NaN, the other "
            f"{len(counts)} ranks {min(counts)} to {max(counts)}: its loss is a mean over nothing "
            "(all labels masked, 0/0), and the all-reduce handed the NaN to every rank"
            + (
                "; its sample is longer than max_length, and truncation cut off the whole answer with its labels"
                if cut
                else ""
            )
        ),
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(quote_line(file, n, t, rank=r) for n, t, r in quoted),
        rank=ranks[0] if len(ranks) == 1 else None,
        facts={
            "count": 0,
            "others_least": min(counts),
            "ranks": list(ranks),
            "starts_at": 1,
        },
        strength=Strength(Together.SERIES),
    )
