"""Which words, numbers and names does a sentence use that somebody must have said before?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.expressions import expression

_CLOCK = expression(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+|,\d{3}(?!\d))?)?Z?)?|\b\d\d:\d\d(?::\d\d(?:\.\d+|,\d{3}(?!\d))?)?\b(?![:.]\d)"
)
# A comma parts thousands where three digits follow each; else it parts the cells of a row. Letters of other
# scripts stand right before a number, too: `約500GB`.
_NUMBER = expression(
    r"(?<![A-Za-z0-9_])(?<![A-Za-z0-9_]\.)-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:e[+-]?\d+)?",
    re.I,
)
_CELL = expression(r"(?<![^,;|\t ])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![^,;|\t ])", re.I)
_VERSION = expression(r"(?<![\w.])v?\d+(?:\.\d+){2,5}(?![\w.]*\d)")
_PLACED = expression(
    r"(?i)(?<![\w-])(rank|gpu|node|host|step|iteration|xid|line|stage|epoch|exit ?code|signal|seq(?:num)?)(s?)(?:[ #=]{0,2}|:)(\d+)\b(?![.\-:]\d)"
)
_LISTED = expression(
    r"(?i)(?<![\w-])(rank|gpu|node|host|step|iteration|line|stage|epoch)s[ #=]{0,2}(\d+(?:(?:\s?(?:,|-|–|and|or|to|through|und|bis)\s?){1,2}\d+)*)"
)
_ENDING = expression(r"(?<=[A-Za-z_])\d{1,12}(?!\w)")
_QUOTED = expression(
    r"(?<!`)`([^`\n]{2,400})`(?!`)|\"([^\"]{2,400})\"|“([^”]{2,400})”|«([^»]{2,400})»"
)
_MARK = expression(r"\s*\[E?\d{1,4}\]")
_FLAG = expression(r"(?<![\w-])--?[A-Za-z][\w-]*")
_VARIABLE = expression(r"\b[A-Z][A-Z0-9]+_[A-Z0-9_]{2,}\b")
_IDENTIFIER = expression(
    r"\b(?:[A-Za-z_]\w*(?:[._][A-Za-z_]\w*)+(?:\(\))?|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+|[A-Za-z]+[-_]?\d[\w-]*|(?:\d{1,3}\.){3}\d{1,3}|(?:/[\w.-]+){2,})"
)
_PLAIN = expression(r"(?i)^(?:e\.g|i\.e|etc)\.?$")
_WORD = expression(r"[A-Za-z][A-Za-z-]{3,}")


def clear_marks(text: str) -> str:
    """`text` without its [n] and [En] marks; what is quoted stays as it stands."""
    out, place = [], 0
    for match in _QUOTED.finditer(text):
        out += [_MARK.sub("", text[place : match.start()]), match[0]]
        place = match.end()
    return "".join([*out, _MARK.sub("", text[place:])])


def numbers(text: str) -> set[float]:
    """Numbers that a text states in digits, each cell of a row among them; clock times are none."""
    out: set[float] = set()
    for match in (*_NUMBER.findall(_CLOCK.sub(" ", text)), *_CELL.findall(text)):
        try:
            out.add(float(match.replace(",", "")))
        except ValueError:
            continue
    return out


def endings(text: str) -> set[float]:
    """Numbers that names end with: `step_24000`, `rank16`, `iter_0002300`."""
    return {float(m) for m in _ENDING.findall(text)}


def listed_numbers(text: str) -> set[tuple[str, int]]:
    """(noun, number) of every number in `ranks 4, 5 and 7`, `GPUs 0-3`, `steps 100 to 200`."""
    return {
        (noun.lower(), int(value))
        for noun, values in _LISTED.findall(text)
        for value in re.findall(r"\d+", values)
    }


def stated_numbers(text: str) -> list[str]:
    """Numbers as they are written, for recomputing at their precision."""
    return [m.replace(",", "") for m in _NUMBER.findall(_CLOCK.sub(" ", text))]


def versions(text: str) -> set[str]:
    """Numbers of three parts and more, which are names: 570.172.08."""
    return set(_VERSION.findall(_CLOCK.sub(" ", text)))


def clock_times(text: str) -> set[str]:
    """Dates and times of day as they stand in a text."""
    return set(_CLOCK.findall(text))


def placed_numbers(text: str, plural: bool = True) -> set[tuple[str, int]]:
    """(noun, number) of `rank 3`, `step 400`, `Xid 79` and the like, nouns in lower case.

    plural: also of `ranks 3`, which may go on with another thing (`the other ranks 1507 batches`).
    """
    return {
        (re.sub(r"\s", "", noun.lower()), int(value))
        for noun, many, value in _PLACED.findall(text)
        if plural or not many
    }


def quotes(text: str) -> list[str]:
    """What stands between quotation marks or backticks."""
    return [next(g for g in match if g) for match in _QUOTED.findall(text)]


def code_spans(text: str) -> frozenset[str]:
    """What stands between backticks."""
    return frozenset(match[0] for match in _QUOTED.findall(text) if match[0])


def without_quotes(text: str, but: frozenset[str] = frozenset()) -> str:
    """`text` without what stands between quotation marks or backticks; `but` what is to stay."""
    if not but:
        return _QUOTED.sub(" ", text)
    return _QUOTED.sub(lambda m: m[0] if next(g for g in m.groups() if g) in but else " ", text)


def flags(text: str) -> set[str]:
    """Command-line flags."""
    return {f for f in _FLAG.findall(text) if len(f) > 1}


def variables(text: str) -> set[str]:
    """Names that look like environment variables."""
    return set(_VARIABLE.findall(text))


def identifiers(text: str) -> set[str]:
    """Names of modules, functions, hosts, devices, addresses, paths: whatever is no plain word."""
    return {m.rstrip("().-") for m in _IDENTIFIER.findall(text) if not _PLAIN.match(m)}


def without_names(text: str) -> str:
    """`text` without what `identifiers` finds: the 14 of gx-14 is no number of its own."""
    return _IDENTIFIER.sub(" ", text)


def content_stems(text: str) -> set[str]:
    """First letters of the words that carry meaning, for a loose comparison."""
    text = without_quotes(text)
    return {w.lower()[:5] for w in _WORD.findall(text) if w.lower() not in _common()}


@cache
def _common() -> frozenset[str]:
    return frozenset(_data()["common"].split())


@cache
def _data() -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(
        Path(__file__).with_name("cause_words.json").read_text("utf-8")
    )
    return raw


@cache
def _groups() -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    raw = _data()["groups"]
    out = []
    for name, group in raw.items():
        words = "|".join(
            re.escape(w).replace(r"\*", r"\w{0,40}").replace(r"\ ", r"[\s_-]{1,9}")
            for w in group["words"]
        )
        out.append(
            (
                name,
                group["category"],
                expression(rf"(?i)(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])"),
            )
        )
    return tuple(out)


def cause_groups(text: str) -> frozenset[str]:
    """Kinds of causes that a text names, by group of cause_words.json."""
    return frozenset(name for name, _, pattern in _groups() if pattern.search(text))


def shingles(texts: Iterable[str], size: int = 10) -> set[tuple[str, ...]]:
    """Runs of `size` words, to recognise text that is repeated."""
    out: set[tuple[str, ...]] = set()
    for text in texts:
        words = re.findall(r"[a-z0-9]+", text.lower())
        out |= {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}
    return out
