"""What does a person state about a run that nothing which was read explains? All of it speaks against `healthy`.

A list of complaints does not end; what speaks against nothing is closed and small: grammar, the parts of a job, what
one asks, and the words of what is known to be harmless here. A clause is understood where nothing else is in it, or
where what is known outweighs it. A quantity that it names must have been read and be fine. The words are data:
harmless_words.json; one that is missing there costs a healthy run its verdict, and never the other way round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path

from firstfault.investigation.complaint import tells_of_start
from firstfault.investigation.examination import Examination
from firstfault.investigation.steadiness import is_steady
from firstfault.investigation.vetoes import Claim, Statement, is_complaint
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.scan import make_line

TABLE = Path(__file__).with_name("harmless_words.json")

TOLD_WAIT = 0.5
"""Share of the told duration that a pause in the log must have to be the one that is spoken of."""

TIMES_READ, LINES_ASKED, MOST_CHARS = 20_000, 400, 600
LEAST_STEM, LEAST_FOREIGN, LEAST_WAIT_S = 4, 2, 30.0

_WORD = expression(r"[^\W\d_][\w'’-]*(?:\.\w[\w.-]*)?|[\d_]\w*")
_UNSPACED = expression(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+")
_DIGITS = expression(r"\d+")
_PARTS = expression(r"[^\W\d_]{2,}")
_NAME = expression(r"[A-Za-z]+_\w+|[A-Z]?[a-z]+[A-Z]\w*|[A-Z]{3,}\w*|\w+\.\w+")
"""A name of the log, written so as nobody writes a word: `find_unused_parameters`, `recvValue`, `SIGTERM`."""

_ENDINGS = ("ing", "edly", "ed", "es", "s", "ly")
_DOUBLED = expression(r"([bdgmnprt])\1$")
"""`skipped`, `running`."""

_TO_DO = expression(
    r"(?i)\b(?:to|must|should|shall) (?:stop|kill|restart|roll back|abort|act|fix|drain|wait)\b"
)
"""What one might do."""

_SIZE = expression(r"(?i)\d ?[GM]i?B\b")
_DURATION = expression(
    r"(?i)(?<![\w.])(?P<n>\d{1,6}(?:\.\d{1,6})?) ?(?P<unit>m?s|sec(?:onds)?|min(?:utes)?)\b|\((?P<before>m?s|sec(?:onds)?|min(?:utes)?)\): ?(?P<after>\d{1,6}(?:\.\d{1,6})?)"
)
_VALUE = expression(
    r"(?i)(?<![\w.,-])(?:nan|inf|\d{1,6}\.\d{3,8}|\d{2,4}\.\d{2}|\d{2,7}[1-9]\d|\d{3,8}[1-9])(?![\w.,-]*\w)(?! ?(?:s|sec|seconds|ms|min\w*|h|hours?|[kmgt]i?b)\b)"
)
"""A value that is told exactly: it stands in the log that it was read in. Durations and sizes are rounded."""

_MEMORY = "memory"
SAME = 0.25
"""Share by which a told and a printed duration may differ: people round."""


@dataclass(frozen=True, slots=True)
class _Words:
    plain: frozenset[str]
    languages: tuple[frozenset[str], ...]
    asked: frozenset[str]
    quantities: dict[str, str]
    """Word, and the name of its curve."""
    start: frozenset[str]
    denied: re.Pattern[str]
    requests: re.Pattern[str]
    characters: re.Pattern[str]


@cache
def _words() -> _Words:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    plain = frozenset(table["english"].split()) | frozenset(table["field"].split())
    languages = [frozenset(row.split()) for row in table["languages"].values()]
    plain |= {word for row in languages for word in row if not word.isascii()}
    trouble = "|".join(table["trouble"].split())
    return _Words(
        plain=plain,
        languages=tuple(row - plain for row in languages),
        asked=frozenset(table["asked"].split()),
        quantities={w: curve for curve, row in table["quantities"].items() for w in row.split()},
        start=frozenset(table["start"].split()),
        denied=re.compile(rf"(?i)\b(?:no|without|never an?y?|not an?y?) (?:\w+ )?(?:{trouble})\b"),
        requests=re.compile(rf"(?i)^\W*(?:{'|'.join(table['requests'].split())})\b"),
        characters=re.compile(table["characters"]),
    )


def find_unexplained(
    examination: Examination, said: Statement, answer: Finding | None
) -> list[str]:
    """Words of every claim of what is said that what was read does not explain. answer: the finding that answers the question."""
    language = _read_language(said.text)
    claims = [(claim, w) for claim in said.claims if (w := _state(claim, language))]
    if not claims:
        return []
    known = _known_words(examination, answer)
    out = []
    before = (-1, False)
    for claim, stating in claims:
        goes_on = before == (claim.sentence, True) and not set(stating) - set(_quantities(stating))
        understood = goes_on or _is_understood(examination, claim, stating, known, answer)
        before = (claim.sentence, understood)
        if not understood:
            out.append(" ".join(claim.text.split()).strip(" .,;:!(\"'"))
    return out


def _read_language(text: str) -> frozenset[str]:
    """Plain words of the languages other than English in which something is put."""
    low = {w.lower() for w in _read_words(text)}
    spoken = [w for w in _words().languages if len(low & w) >= LEAST_FOREIGN]
    return frozenset().union(*spoken)


def _state(claim: Claim, language: frozenset[str]) -> list[str]:
    """Words of the claim that may state something: all but the harmless ones, names with digits and numbers."""
    words = _words()
    text = _TO_DO.sub(" ", words.denied.sub(" ", claim.rest))
    free = words.plain | language
    if claim.asks or words.requests.match(text):
        free |= words.asked
    if tells_of_start(claim.text):
        free |= words.start  # the first steps are never like the others
    return [w for w in _read_words(text) if not _is_free(w, free)]


def _is_free(word: str, free: frozenset[str]) -> bool:
    if any(c.isdigit() for c in word):
        return True
    return word.lower() in free or set(_split(word)) <= free


def _split(word: str) -> list[str]:
    """Parts of `grad_norm`, `cache-flush`, `reducer.cpp`."""
    return _PARTS.findall(word.replace("_", " ").lower())


def _quantities(stating: Sequence[str]) -> dict[str, str]:
    """Words that name a quantity, with the curve that shows it, empty for one that is not read as such."""
    table = _words().quantities
    return {w: c for w in stating for c in [next((table[p] for p in _split(w) if p in table), None)] if c is not None}  # fmt: skip


def _read_words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        word = match[0].strip("._-'’")
        if _UNSPACED.search(word):
            if left := _words().characters.sub("", _DIGITS.sub("", word)):
                yield left
        elif len(word) > 1:
            yield word


def _known_words(examination: Examination, answer: Finding | None) -> frozenset[str]:
    """Stems of the words of what is known to be harmless here, was got over, or answers the question."""
    chain = examination.chain
    found = (*chain.benign, *chain.survived, *chain.context, *([answer] if answer else ()))
    texts = [
        text for f in found for text in (f.kind, f.title, *(e.text[:600] for e in f.evidence[:6]))
    ]
    return frozenset(s for text in texts for s in _stems(text))


def _stems(text: str) -> Iterator[str]:
    yield from map(_stem, _split(text))


def _stem(word: str) -> str:
    end = next((e for e in _ENDINGS if word.endswith(e) and len(word) - len(e) >= LEAST_STEM), "")
    stem = word.removesuffix(end)
    return stem[:-1] if end and _DOUBLED.search(stem) else stem


def _is_understood(
    examination: Examination,
    claim: Claim,
    stating: Sequence[str],
    known: frozenset[str],
    answer: Finding | None,
) -> bool:
    curves = _quantities(list(_read_words(claim.text)))
    foreign = [v for v in _VALUE.findall(claim.text) if not _is_logged(examination, v)]
    if not foreign and _is_measured(examination, claim, set(curves.values()), answer):
        return True
    explained = {w for w in stating if all(s in known for s in _stems(w))}
    rest = [w for w in stating if w not in explained]
    named = {w for w in rest if _NAME.fullmatch(w) and _is_logged(examination, w)}
    left = foreign + [
        w
        for place, w in enumerate(rest)
        if w not in named
        and (
            is_complaint(w)
            or not _is_logged(examination, *(rest[place : place + 2] if w in curves else [w]))
        )
    ]
    return not left or len(explained) + len(named) >= len(left)


def _is_measured(
    examination: Examination, claim: Claim, curves: set[str], answer: Finding | None
) -> bool:
    """What the claim tells of a quantity or a pause was read in just this run, and is fine."""
    if curves and answer is not None and _answers(answer):
        return True
    if claim.wait_s >= LEAST_WAIT_S and _is_over(examination, claim.wait_s):
        return True
    paced = "" in curves or claim.wait_s > 0
    if paced and any(map(_measures_pace, examination.chain.benign)):
        return True
    names = (curves - {""}) | ({_MEMORY} if _SIZE.search(claim.text) else set())
    return any(is_steady(examination, name) for name in names)


def is_quantity_steady(examination: Examination, text: str) -> bool:
    """Each quantity that the text names was read and ends as it should."""
    names = set(_quantities(list(_read_words(text))).values())
    return bool(names) and all(name and is_steady(examination, name) for name in names)


def _answers(finding: Finding) -> bool:
    return finding.level is Level.BENIGN and finding.kind.startswith("question.")


def _measures_pace(finding: Finding) -> bool:
    return finding.kind.startswith("metrics.") and finding.category is Category.PERFORMANCE


def _is_logged(examination: Examination, *words: str) -> bool:
    """The words stand beside each other in some line of the logs, in whatever form: they name what was got over.

    A quantity is named by every log, so it is asked for with the word that follows it.
    """
    stems = [_stem(part) for word in words for part in _split(word) or [word]]
    if len(words) == 1 and _quantities(words):
        return False
    whole = re.compile(r"(?i)(?<![^\W\d_])" + r"\w{0,6}[\W_]{1,3}".join(map(re.escape, stems)))
    first = next(iter(_PARTS.findall(words[0].replace("_", " "))), words[0])
    forms = (first, stems[0], stems[0].upper(), stems[0].capitalize())
    lines = islice(examination.logs.lines_with(forms), LINES_ASKED)
    return any(whole.search(text) for _, _, text in lines)


def _is_over(examination: Examination, wait_s: float) -> bool:
    """The pause that is spoken of was read: lines follow it, or a line tells its length."""
    if is_paused(examination, TOLD_WAIT * wait_s):
        return True
    for digest in examination.logs.digests:
        for _, text in digest.kept[:TIMES_READ]:
            for told in _DURATION.finditer(text[:MOST_CHARS]):
                unit = told["unit"] or told["before"]
                scale = 0.001 if unit == "ms" else 60.0 if unit.startswith("m") else 1.0
                if abs(float(told["n"] or told["after"]) * scale - wait_s) <= SAME * wait_s:
                    return True
    return False


def is_paused(examination: Examination, least_s: float) -> bool:
    """Some log is silent for so long and goes on after it: the pause that is spoken of is over."""
    for digest in examination.logs.digests:
        rows = digest.kept[:TIMES_READ]
        stamped = (make_line(digest.file, n, t, digest.year) for n, t in rows)
        times = [line.time for line in stamped if line.time is not None]
        if any(b - a >= least_s for a, b in pairwise(times)):
            return True
    return False
