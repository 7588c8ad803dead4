"""Is what stands behind this name a secret? `password=`, `X_API_KEY:` and `token` are not the same.

A strong name (password, secret, API key) hides any value that is no ordinary word; an environment
variable or header (`*_KEY`, `X-Auth-Token`) one that looks made up; a weak name (token, key, auth)
only one that looks random: logs are full of `pad_token`, `cache_key` and `token: AutoTokenizer`.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

LONGEST_VALUE = 4_000
LOOKED_AT = 160
"""Characters by which a value is judged; a secret shows what it is within its first hundred."""

LEAST_WEAK, LEAST_MEDIUM, LEAST_STRONG = 16, 8, 4
_WORD = expression(r"[A-Z]{1,200}(?![a-z])|[A-Z]?[a-z]{1,200}|\d{1,200}")
_BARE = expression(r"[^\s\"'`,;&)}\]<>|]{1,4000}")
_WORDLIKE = expression(r"[A-Za-z]{1,60}(?:[_. :/-][A-Za-z]{0,60}){0,40}\d{0,3}")
_HARMLESS = expression(
    r"(?i)<|\*|x{4,}|0x[0-9a-f]{0,32}$|\$\{|\$\(|\$\w|\{\{|%\(|!|\.{3}|os\.(?:environ|getenv)|(?:self|args|cfg|config|settings|env|kwargs|opts|hparams)[.\[]"
)
_PATH = expression(r"[/~.]{0,2}/|[A-Za-z]:\\|[a-z][a-z0-9+.-]{1,20}://")
_NUMBER = expression(r"[-+]?[\d.,_]{1,100}(?:[eE][-+]?\d{1,4})?%?")
_PIECE = expression(r"[A-Za-z0-9+=~]{12,4000}")
_UUID = expression(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOLD = expression(r"([A-Za-z]{1,20}) $")
_PROSE = expression(r"\s[a-z]{1,30}(?:\W|$)")


class Strength(IntEnum):
    """How much a name says about its value."""

    NONE = 0
    WEAK = 1
    MEDIUM = 2
    STRONG = 3


@dataclass(frozen=True, slots=True)
class Value:
    """Where a value stands in its text, without quotes."""

    start: int
    end: int
    quoted: bool


@cache
def read_formats() -> dict[str, Any]:
    """The table of formats and words, secret_formats.json."""
    file = Path(__file__).with_name("secret_formats.json")
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return table


@cache
def _words_of(key: str) -> frozenset[str]:
    return frozenset(read_formats()[key])


@cache
def _strong_ends() -> tuple[str, ...]:
    return tuple(w for w in _words_of("strong") if len(w) >= 6)


def judge_name(name: str) -> Strength:
    """How secret a variable, header, option or key of this name is."""
    words = [w.lower() for w in _WORD.findall(name[-200:])]
    at = max((i for i, w in enumerate(words) if _is_keyword(words, i, w)), default=-1)
    if at < 0 or any(w in _words_of("tail_not_a_secret") for w in words[at + 1 :]):
        return Strength.NONE
    head = words[: at + 1]
    if any(_is_strong(head, i) for i in range(len(head))):
        return Strength.STRONG
    if any(w in _words_of("not_a_secret") for w in words):
        return Strength.NONE
    if words[at] == "pass" and len(head) > 1:
        return Strength.STRONG
    variable = name.isupper() and ("_" in name or "-" in name)
    header = name[:2] in ("X-", "x-")
    return Strength.MEDIUM if variable or header else Strength.WEAK


def _is_keyword(words: list[str], at: int, word: str) -> bool:
    if word in _words_of("weak") or _is_strong(words, at):
        return True
    return len(word) > 6 and word.endswith("token")


def _is_strong(words: list[str], at: int) -> bool:
    word = words[at]
    if word in _words_of("strong") or word.endswith(_strong_ends()):
        return True
    pair = words[at - 1] + word if at else ""
    three = words[at - 2] + pair if at > 1 else ""
    return pair in _words_of("strong") or three in _words_of("strong")


def read_value(text: str, at: int) -> Value | None:
    """The value that begins at `at`: in quotes (perhaps escaped ones) or up to a blank or bracket."""
    slashes = 0
    while slashes < 3 and text[at + slashes : at + slashes + 1] == "\\":
        slashes += 1
    quote = text[at + slashes : at + slashes + 1]
    if quote and quote in "\"'`":
        start = at + slashes + 1
        end = _closing(text, start, "\\" * slashes + quote)
        if end > start:
            return Value(start, end, True)
        at = start
    found = _BARE.match(text, at)
    if found is None:
        return None
    end = found.end()
    while end > at and text[end - 1] in "\\.:":
        end -= 1
    return Value(at, end, False) if end > at else None


def _closing(text: str, start: int, mark: str) -> int:
    """Where the quotation ends: the first mark that is not itself escaped; -1 for none nearby."""
    limit = min(len(text), start + LONGEST_VALUE)
    end = text.find(mark, start, limit)
    for _ in range(20):
        if end <= start or len(mark) > 1 or text[end - 1] != "\\":
            break
        end = text.find(mark, end + 1, limit)
    return end


def is_secret(strength: Strength, text: str, value: Value, after_colon: bool = False) -> bool:
    """The value behind a name of this strength must be hidden. after_colon: it may be prose."""
    said = text[value.start : min(value.end, value.start + LOOKED_AT)]
    if strength is Strength.NONE or _is_harmless(said, value.quoted):
        return False
    if strength is Strength.STRONG:
        if len(said) < LEAST_STRONG or (len(said) < 6 and not value.quoted and after_colon):
            return False
        return value.quoted or not (after_colon and _is_prose(said, text, value.end))
    if _NUMBER.fullmatch(said):
        return False
    if strength is Strength.MEDIUM:
        return len(said) >= LEAST_MEDIUM and not _WORDLIKE.fullmatch(said)
    return len(said) >= LEAST_WEAK and (is_random(said) or _UUID.fullmatch(said) is not None)


def _is_harmless(said: str, quoted: bool) -> bool:
    if _HARMLESS.match(said) or said.lower().strip(".,:;!?") in _words_of("state_words"):
        return True
    if _PATH.match(said) and said.count("/") + said.count("\\") > 1 and not is_random(said[:80]):
        return True
    if _PATH.match(said) and "://" in said:
        return True
    return not quoted and ("(" in said or "[" in said or _names_another(said))


def _names_another(said: str) -> bool:
    """A variable that holds it: `api_key = api_key`, `key: HF_TOKEN`."""
    return (
        said.isidentifier()
        and len(said) < 40
        and judge_name(said) >= Strength.MEDIUM
        and not any(map(str.isdigit, said))
    )


def is_told_harmless(before: str) -> bool:
    """The word before the name says which kind it is: `cache key`, `sort key`."""
    told = _TOLD.search(before)
    return told is not None and told[1].lower() in _words_of("not_a_secret")


def _is_prose(said: str, text: str, end: int) -> bool:
    """A small word in a sentence: `secret: could not be mounted`."""
    return said.isalpha() and said.islower() and _PROSE.match(text, end) is not None


def is_random(said: str) -> bool:
    """No word, number, path or dotted name: some stretch of it mixes letters and digits closely."""
    return any(_is_mixed_up(found) for found in _PIECE.findall(said))


def _is_mixed_up(piece: str) -> bool:
    digits = sum(map(str.isdigit, piece))
    letters = sum(map(str.isalpha, piece))
    if letters < 2 or (not digits and not _turns_case(piece)):
        return False
    turns = sum(a.isdigit() != b.isdigit() for a, b in pairwise(piece))
    return (
        turns >= 3
        or (digits > 0 and _turns_case(piece))
        or (_turns_case(piece) and len(piece) >= 28)
        or (turns >= 1 and len(piece) >= 16 and digits >= 4)
    )


def _turns_case(piece: str) -> bool:
    """Capitals stand amid the word more often than at the beginnings of words."""
    turns = sum(a.islower() != b.islower() for a, b in pairwise(piece))
    return turns * 3 > len(piece)
