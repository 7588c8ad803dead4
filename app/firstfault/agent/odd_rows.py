"""Which rows of a table or of repeated lines say another number than their neighbours?

Of lines that differ in their numbers alone only a few are shown to a model. The one that decides may be the one whose
value is not that of the others: a rank with another loss, a card with another clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from firstfault_tools.averages import median
from firstfault_tools.expressions import expression

LEAST_ROWS = 8
"""Rows of one form, below which nothing is usual."""

MOST_LINES = 20_000
"""Lines of a file that are looked at."""

USUAL = 0.75
"""Share of rows that have the same value, from which another one is odd."""

FAR = 8.0
"""Deviation from the median, in median absolute deviations, from which a value is odd: 5 standard deviations of a
normal column, so that one row in a million is odd by chance."""

MOST_OF_FORM, MOST = 4, 12
_VALUE = expression(r"(?<![\w.])-?\d{1,18}(?:\.\d{1,18})?(?:e[+-]?\d{1,3})?(?![\w.:])")
_LABELLED = expression(r"(?<=[a-zA-Z])\d{1,6}(?=[,;|\t ])")


def find_odd_rows(lines: Iterable[tuple[int, str]]) -> list[int]:
    """Numbers of the lines whose values are odd among those of their form, the oddest of each form first."""
    forms: dict[str, list[tuple[int, list[float]]]] = defaultdict(list)
    for at, (number, text) in enumerate(lines):
        if at >= MOST_LINES:
            break
        plain = _LABELLED.sub("#", text[:400])
        values = [float(v) for v in _VALUE.findall(plain)]
        if values:
            forms[_VALUE.sub("#", plain)].append((number, values))
    out: list[int] = []
    for rows in forms.values():
        if len(rows) >= LEAST_ROWS:
            out += _odd_of(rows)
    return out[:MOST]


def _odd_of(rows: Sequence[tuple[int, list[float]]]) -> list[int]:
    columns = list(zip(*(values for _, values in rows), strict=True))
    odd: Counter[int] = Counter()
    for column in columns:
        for place in _odd_places(column):
            odd[rows[place][0]] += 1
    return [number for number, _ in odd.most_common(MOST_OF_FORM)]


def _odd_places(column: Sequence[float]) -> list[int]:
    """Rows of a column that are odd; none where many are, or where the column counts up."""
    value, times = Counter(column).most_common(1)[0]
    if times >= USUAL * len(column):
        found = [i for i, v in enumerate(column) if v != value]
    else:
        middle = median(column)
        spread = median(abs(v - middle) for v in column)
        found = [i for i, v in enumerate(column) if spread and abs(v - middle) > FAR * spread]
    return found if len(found) <= (1 - USUAL) * len(column) else []
