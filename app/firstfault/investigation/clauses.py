"""What kind of thing does each clause of a person's message say? Context, question, figure, quotation, or not understood.

What speaks against nothing is closed and small: grammar, the parts of a job, names of models and cards, what people
did to a set-up, what one asks. A list of complaints does not end, so whatever else a clause holds must be answered by
the log (stated.py). The words are data: harmless_words.json; one that is missing there costs a healthy run its
verdict, and never the other way round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path

from firstfault.investigation.complaint import tells_of_start
from firstfault.investigation.vetoes import Claim, Statement, is_complaint
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.kept_forms import compile_kept

TABLE = Path(__file__).with_name("harmless_words.json")
LEAST_FOREIGN = 2

_WORD = expression(r"[^\W\d_][\w'’-]*(?:\.\w[\w.-]*)?|[\d_]\w*")
_UNSPACED = expression(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+")
_DIGITS = expression(r"\d+")
_PARTS = expression(r"[^\W\d_]{2,}")

_TO_DO = expression(
    r"(?i)\b(?:to|must|should|shall) (?:stop|kill|restart|roll back|abort|act|fix|drain|wait)\b"
)
"""What one might do."""

_OPEN = expression(
    r"(?i)\bhow (?:long|much longer|much time|many|far|often)\b|\bwhich (?:step|epoch|iteration)\b|\bwhat (?:step|epoch|iteration)\b|"
    r"\bwhat(?: is|'s) the (?:current |last |final )?(?:loss|speed|throughput|lr|accuracy|reward|mfu)\b"
)
"""What such a question names is asked for and not stated."""

_FIGURE = expression(
    r"(?i)(?<![\w.,:/=-])(?P<value>nan|inf|\d{1,9}(?:[.,]\d{1,9})?)(?P<scale>[kM]?) ?"
    r"(?P<unit>%|(?:tok(?:en)?s?|samples?|images?|it)/s(?:ec)?|tps|t?flops?(?:/s)?(?:/gpu)?|[GM]i?B)?(?![\w]|[.,:]\d)"
)
_EVALUATED = expression(r"(?i)\b(?:val|valid|validation|eval|evaluation|test)\w*[ _-]loss")
_IN_MEMORY = expression(r"(?i)\b(?:in|into|from|to|out of|those in) memory\b")
"""A place and no quantity."""

_RATE = expression(r"(?i)/s|tps|flop")
_FACTOR = expression(
    r"(?i)(?<![\w.])\d+(?:\.\d+)? ?(?:[x×]|times) (?:as )?(?:slow|fast|less|low|long|more)\w*|\b(?:half|twice|double|third|quarter) (?:the |as |of |what )|"
    r"(?<![\w.])[-−–]\s?\d{1,2}(?:\.\d+)?\s?%|\b(?:by|lost?|down) (?:about )?\d{1,2}(?:\.\d+)? ?%|"
    r"\b(?:than|since|after|above|below|over|under|as) (?!the (?:one|step|epoch|iteration) )(?:before|the|last|our|my|his|her|a)\b[^,;.?!]{0,20}"
    r"\b(?:run|runs|before|update|upgrade|maintenance|colleague\W?s?|baseline|yesterday|week|monday|image|model)\b"
)
"""A comparison with what is not this log."""


_REFERS = expression(
    r"(?i)\b(?:logs?|lines?|warn\w*|errors?|messages?|notices?|alerts?|alarms?|say\w*|prints?|printed|shows?|appears?|grep|dmesg|output|"
    r"avis\w*|warnung\w*|fehler\w*|meldung\w*|mensaje\w*|erreurs?)\b|[\"'`«“]|日志|警告|报错|ログ|エラー|로그"
)


class ClauseKind(StrEnum):
    """What a clause asks of the log. opaque: it says something that is not understood."""

    CONTEXT = "context"
    QUESTION = "question"
    FIGURE = "figure"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Figure:
    """A told number. exact: with the digits that a log prints; rate: how fast something is."""

    text: str
    value: float | None
    unit: str = ""

    @property
    def rate(self) -> bool:
        """A speed."""
        return _RATE.search(self.unit) is not None


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause. words: those that may state something; contents: all but grammar; quantities: curves of those it
    names, empty for one that is not read as such; judged: it complains, too, of what is judged by
    itself."""

    kind: ClauseKind
    text: str
    words: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    quantities: frozenset[str] = frozenset()
    figures: tuple[Figure, ...] = ()
    wait_s: float = 0.0
    sentence: int = 0
    judged: bool = False

    @property
    def against_another(self) -> bool:
        """It holds this run against another, of which nothing may have been read."""
        return is_against_another(self.text)

    @property
    def refers(self) -> bool:
        """It speaks of what was printed."""
        return self.judged or _REFERS.search(self.text) is not None

    @property
    def said(self) -> str:
        """Its words as they were put."""
        return " ".join(self.text.split()).strip(" .,;:!(\"'")


@dataclass(frozen=True, slots=True)
class _Words:
    grammar: frozenset[str]
    plain: frozenset[str]
    languages: tuple[frozenset[str], ...]
    asked: frozenset[str]
    quantities: dict[str, str]
    """Word, and the name of its curve."""
    start: frozenset[str]
    stopped: frozenset[str]
    denied: re.Pattern[str]
    requests: re.Pattern[str]
    deeds: re.Pattern[str]
    characters: re.Pattern[str]


@cache
def _words() -> _Words:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    grammar = frozenset(table["english"].split())
    plain = grammar | frozenset(table["field"].split())
    languages = [frozenset(row.split()) for row in table["languages"].values()]
    plain |= {word for row in languages for word in row if not word.isascii()}
    trouble = "|".join(table["trouble"].split())
    return _Words(
        grammar=grammar,
        plain=plain,
        languages=tuple(row - plain for row in languages),
        asked=frozenset(table["asked"].split()),
        quantities={w: curve for curve, row in table["quantities"].items() for w in row.split()},
        start=frozenset(table["start"].split()),
        stopped=frozenset(table["stopped"].split()),
        denied=compile_kept(
            rf"(?i)\b(?:no|without|never an?y?|not an?y?) (?:\w+ )?(?:{trouble})\b"
        ),
        requests=compile_kept(rf"(?i)^\W*(?:{'|'.join(table['requests'].split())})\b"),
        deeds=_compile_deeds(table),
        characters=compile_kept(table["characters"]),
    )


def _compile_deeds(table: Mapping[str, str]) -> re.Pattern[str]:
    """How a clause begins that tells what somebody did to the set-up."""
    people, deeds, doing = ("|".join(table[k].split()) for k in ("people", "deeds", "doing"))
    when = r"(?:(?:yesterday|today|last \w+|earlier|recently|on \w+) )?"
    person = rf"(?:(?:an?|the|our|my|one of our|some) )?(?:{people})\b(?: (?!never\b|not\b)\w+)? "
    thing = r"(?:the|our|my|this|that) [\w -]{1,40}? (?:was|were|has been|had been|is|are) "
    done = rf"(?:(?:have|has|had|just|only|also|now|recently|was|were|been) )*(?:{deeds})\b"
    return compile_kept(
        rf"(?i)^\W*(?:(?:just |only )?(?:{doing})\b|{when}(?:{person}|{thing}){done})"
    )


_DENIES = expression(
    r"(?i)\b(?:not|n't|no|never|without|nothing|neither|nor|since|because|but|that|which|who|everything|all|so)\b|n't\b|\bit\b(?! (?:to|from|on|with|for)\b)"
)


@cache
def _names() -> frozenset[str]:
    """Names of models and cards: they say what runs."""
    # only what somebody writes is looked through for them: the memory model is not loaded for a log
    from firstfault_tools.memory.cards import list_cards
    from firstfault_tools.memory.models import list_models

    return frozenset(p for name in (*list_models(), *list_cards()) for p in split_word(name))


def read_clauses(said: Statement) -> tuple[Clause, ...]:
    """The clauses of what is stated, each with what it asks of the log."""
    language = _read_language(said.text)
    return tuple(_read_clause(claim, language) for claim in said.claims)


def _read_clause(claim: Claim, language: frozenset[str]) -> Clause:
    text = claim.text
    if _is_deed(claim):
        return Clause(ClauseKind.CONTEXT, text, sentence=claim.sentence)
    words = tuple(_state(claim, language))
    shown = _IN_MEMORY.sub(" ", _OPEN.sub(" ", text) if claim.asks else text)
    # a language without spaces shows its nouns only once the words of the complaint are gone
    named = read_quantities([*read_words(shown), *(w for w in words if not w.isascii())])
    contents = tuple(w for w in read_words(text) if not _is_free(w, _words().grammar))
    figures = tuple(_read_figures(text))
    if words and set(words) <= set(named):
        kind = ClauseKind.FIGURE
    elif words:
        kind = ClauseKind.OPAQUE
    else:
        kind = ClauseKind.QUESTION if claim.asks else ClauseKind.CONTEXT
    curves = frozenset(named.values())
    if _EVALUATED.search(text):
        curves = curves - {"loss"} | {"validation loss"}
    return Clause(kind, text, words, contents, curves, figures, claim.wait_s, claim.sentence, claim.rest != text)  # fmt: skip


def _is_deed(claim: Claim) -> bool:
    """Somebody did something to the set-up, and no more is said: `a colleague changed the schedule`."""
    deed = _words().deeds.search(claim.text)
    if deed is None or claim.rest != claim.text:
        return False
    rest = claim.text[deed.end() :]
    told = list(read_words(rest))
    return not _DENIES.search(rest) and not any(map(is_complaint, told))


def _read_language(text: str) -> frozenset[str]:
    """Plain words of the languages other than English in which something is put."""
    low = {w.lower() for w in read_words(text)}
    spoken = [w for w in _words().languages if len(low & w) >= LEAST_FOREIGN]
    return frozenset().union(*spoken)


def _state(claim: Claim, language: frozenset[str]) -> list[str]:
    """Words of the claim that may state something: all but the harmless ones, names with digits and numbers."""
    words = _words()
    text = _TO_DO.sub(" ", words.denied.sub(" ", claim.rest))
    free = words.plain | language
    if claim.asks:
        text = _OPEN.sub(" ", text)
    if claim.asks or words.requests.match(text):
        free |= words.asked
    if tells_of_start(claim.text):
        free |= words.start  # the first steps are never like the others
    left = [w for w in read_words(text) if not _is_free(w, free)]
    return [w for w in left if not set(split_word(w)) <= _names()] if left else left


def is_against_another(text: str) -> bool:
    """The text compares with a run or a time that may not have been read."""
    return _FACTOR.search(text) is not None


def without_stops(words: Iterable[str]) -> list[str]:
    """Words that still state something of a run that came to its own end."""
    return [w for w in words if w.lower() not in _words().stopped]


def _is_free(word: str, free: frozenset[str]) -> bool:
    if any(c.isdigit() for c in word):
        return True
    return word.lower() in free or set(split_word(word)) <= free


def split_word(word: str) -> list[str]:
    """Parts of `grad_norm`, `cache-flush`, `reducer.cpp`."""
    return _PARTS.findall(word.replace("_", " ").lower())


def read_quantities(words: Sequence[str]) -> dict[str, str]:
    """Words that name a quantity, with the curve that shows it, empty for one that is not read as such."""
    table = _words().quantities
    return {w: c for w in words for c in [next((table[p] for p in split_word(w) if p in table), None)] if c is not None}  # fmt: skip


def read_words(text: str) -> Iterator[str]:
    """Words; of a language without spaces what is left of them without its plain characters."""
    for match in _WORD.finditer(text):
        word = match[0].strip("._-'’")
        if _UNSPACED.search(word):
            if left := _words().characters.sub("", _DIGITS.sub("", word)):
                yield left
        elif len(word) > 1:
            yield word


def _read_figures(text: str) -> Iterator[Figure]:
    for told in _FIGURE.finditer(text):
        word, scale = told["value"].lower(), told["scale"]
        value = None if word in ("nan", "inf") else float(word.replace(",", "."))
        if value is not None and scale:
            value *= 1e3 if scale == "k" else 1e6
        yield Figure(told[0].strip(), value, (told["unit"] or "").lower())
