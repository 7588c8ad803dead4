"""How can a million lines of one shape be read fast? A regular expression made from the first of
them.

The token reader takes tens of microseconds a line. Step lines repeat their shape, so a reading is
turned once into one expression: the names stay literal, every other number becomes "any number",
and the numbers that mattered become groups. A line with one column more or less no longer matches,
which is what makes a vanished column visible.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.metrics.sources.tokens import LineReading

# Possessive quantifiers: nothing here ever needs to give a character back.
_PLAIN = r"([-+.\deEnaifNAINF]++)"
_COMMAS = r"([-+.,\deEnaifNAINF]++)"
_OTHER = r"[.\d]++(?:[eE][-+]?\d++)?"
_PART = expression(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\s+|[█▏▎▍▌▋▊▉#]+|.", re.DOTALL)
_BAR = r"[█▏▎▍▌▋▊▉# \t-]*+"
_BLANK, _TABS, _BLANKS = r" *+", r"[ \t]*+", r"[ \t]++"
BAR = expression(r"\|\s*(\d+)/(\d+)\s*\[\s*[\d:?]+<")
STAMP = expression(r"(\d{4})[-/](\d\d)[-/](\d\d)[ ,T_](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_STAMP_GROUP = r"(\d{4}[-/]\d\d[-/]\d\d[ ,T_]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)"
MAX_LINE = 4096


@dataclass(frozen=True, slots=True)
class Template:
    """match: the compiled expression's bound `match`. find: the same over many lines. metrics, factors: of the groups in order.

    step, rank, stamp: group indices (0-based) or -1. aside: a progress bar, or a line that takes its
    step from one.
    """

    match: Callable[[str], re.Match[str] | None]
    find: Callable[[str], list[tuple[str, ...]]]
    metrics: tuple[str, ...]
    factors: tuple[float, ...]
    groups: tuple[int, ...]
    step: int
    rank: int
    stamp: int
    total: int | None
    unit: str
    aside: bool


def _generalise(text: str) -> str:
    out = []
    parts = _PART.findall(text)
    for index, part in enumerate(parts):
        if part[0].isdecimal():
            out.append(_OTHER)
        elif part.isspace():
            near = [parts[i] for i in (index - 1, index + 1) if 0 <= i < len(parts)]
            bar = any(n[0] in "█▏▎▍▌▋▊▉#|" for n in near)
            edge = index in (0, len(parts) - 1)
            loose = bar or edge or any(n[0].isdecimal() for n in near)
            # one literal blank is the cheapest thing to match
            if loose:
                out.append(_TABS if "\t" in part else _BLANK)
            else:
                out.append(" " if part == " " else _BLANKS)
        elif part[0] in "█▏▎▍▌▋▊▉#":
            out.append(_BAR)
        else:
            out.append(re.escape(part))
    return "".join(out).replace(_BLANK + _BAR, _BAR).replace(_BAR + _BLANK, _BAR)


def make_template(text: str, reading: LineReading) -> Template | None:
    """The template of a line that was read, or None where it is too long to be worth one."""
    if len(text) > MAX_LINE:
        return None
    spans = _list_spans(text, reading)
    pattern, at = [], 0
    for start, end, name, _ in spans:
        if start < at:
            return None
        pattern.append(_generalise(text[at:start]))
        pattern.append(_group_of(name, text[start:end], text[end : end + 1]))
        at = end
    pattern.append(_generalise(text[at:]) + r"[ \t\r]*$")
    compiled = re.compile("".join(pattern))
    if compiled.match(text) is None:
        return None
    chosen = [i for i, (_, _, name, _) in enumerate(spans) if not name.startswith("#")]
    places = {name: i for i, (_, _, name, _) in enumerate(spans) if name.startswith("#")}
    return Template(
        match=compiled.match,
        find=re.compile("^" + "".join(pattern), re.MULTILINE).findall,
        metrics=tuple(spans[i][2] for i in chosen),
        factors=tuple(spans[i][3] for i in chosen),
        groups=tuple(chosen),
        step=places.get("#step", -1),
        rank=places.get("#rank", -1),
        stamp=places.get("#stamp", -1),
        total=reading.total,
        unit=reading.unit,
        aside=reading.step is None or BAR.search(text) is not None,
    )


def _list_spans(text: str, reading: LineReading) -> list[tuple[int, int, str, float]]:
    """(start, end, name, factor) of all that is read of a line, in its order; names with # are no metrics."""
    spans: list[tuple[int, int, str, float]] = [
        (f.start, f.end, f.metric, f.factor) for f in reading.fields
    ]
    if reading.step is not None:
        spans.append((reading.step.start, reading.step.end, "#step", 1.0))
    if reading.rank is not None:
        spans.append((*reading.rank, "#rank", 1.0))
    stamp = STAMP.search(text, 0, 120)
    if stamp:
        spans.append((*stamp.span(), "#stamp", 1.0))
    return sorted(spans)


_GROUPS = {
    "#stamp": _STAMP_GROUP,
    "#step": r"(\d{1,15}+(?:\.\d++)?)",
    "#rank": r"(\d{1,6}+)",
}


def _group_of(name: str, value: str, following: str) -> str:
    """The expression of one value; digits may be grouped by commas where no comma follows."""
    if name in _GROUPS:
        return _GROUPS[name]
    wide = "," in value or name.endswith("per_s")
    return _COMMAS if wide and following != "," else _PLAIN
