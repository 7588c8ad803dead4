"""What does a person state about a run that nothing which was read explains? All of it speaks against `healthy`.

Context and open questions need no answer (clauses.py). A quantity must have been read and be fine, a told number must
stand in what was read, and what is not understood is explained only by one line, or one finding with its lines, that
the run is known to have got over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from itertools import accumulate, islice, pairwise

from firstfault.investigation.clauses import (
    Clause,
    ClauseKind,
    Figure,
    read_clauses,
    read_quantities,
    read_words,
    split_word,
    without_stops,
)
from firstfault.investigation.curves import Curve, read_curve
from firstfault.investigation.examination import Examination, sample_lines
from firstfault.investigation.steadiness import is_steady
from firstfault.investigation.vetoes import Statement, is_complaint
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

TOLD_WAIT = 0.5
"""Share of the told duration that a pause in the log must have to be the one that is spoken of."""

START_SHARE = (0.8, 1.5)
"""Shares of the told duration between which a start lies that is the one that is spoken of."""

LEAST_STEPS, LEAST_QUOTED = 3, 4
"""Steps that show that a start is over; last words of a line by which somebody names it."""

TIMES_READ, LINES_ASKED, MOST_CHARS = 20_000, 60, 600
LEAST_STEM, LONG_STEM, LEAST_WAIT_S = 4, 6, 30.0
LEAST_SHARED = 2
"""Words of a clause that one line must hold before it is what the clause speaks of."""

_NAME = expression(r"[A-Za-z]+_\w+|[A-Z]?[a-z]+[A-Z]\w*|[A-Z]{3,}\w*|\w+\.\w+")
"""A name of the log, written so as nobody writes a word: `find_unused_parameters`, `recvValue`, `SIGTERM`."""

_ENDINGS = ("ing", "edly", "ed", "es", "s", "ly")
_DOUBLED = expression(r"([bdgmnprt])\1$")
"""`skipped`, `running`."""

_SIZE = expression(r"(?i)\d ?[GM]i?B\b")
_DURATION = expression(
    r"(?i)(?<![\w.])(?P<n>\d{1,6}(?:\.\d{1,6})?) ?(?P<unit>m?s|sec(?:onds)?|min(?:utes)?)\b|\((?P<before>m?s|sec(?:onds)?|min(?:utes)?)\): ?(?P<after>\d{1,6}(?:\.\d{1,6})?)"
)
_VALUE = expression(
    r"(?i)(?<![\w.,-])(?:nan|inf|0\.0{1,8}|\d{1,6}\.\d{3,8}|\d{2,4}\.\d{2}|\d{2,7}[1-9]\d|\d{3,8}[1-9])(?![\w.,-]*\w)(?! ?(?:s|sec|seconds|ms|min\w*|h|hours?|[kmgt]i?b)\b)"
)
"""A value that is told exactly: it stands in the log that it was read in. Durations and sizes are rounded."""

_EXPECTED = expression(
    r"(?i)\b(?:instead of|expect\w*|usual\w*|should be|rather than) (?:about |only )?[\d.,]+"
)
"""What is not in this log."""

_HOST = expression(r"(?<![\w.-])[a-z]{2,12}\d{0,4}-[a-z]{0,3}\d{1,4}(?![\w.-]*\w)")
"""A machine or worker by its name."""

_PAST = expression(r"(?i)\b(?:had|got|used to|last|before|expect\w*|should)\b")
_STANDS = expression(r"(?i)nowhere|nothing|never")
"""Of a quantity: it does not do what it should, and a level curve does not show that this is fine."""

_DENIAL = expression(r"(?i)no|not|never|none|nothing|nobody|neither|nowhere|\w+n['’]t")
_PRINTED = expression(r"(?<![\w.])\d{1,12}(?:\.\d{1,9})?(?:[eE][-+]?\d{1,2})?")

_MEMORY, _PACE = "memory", ""
_SELDOM = frozenset({"reward", "accuracy", "entropy", "KL", "host memory", "validation loss"})
"""Quantities that many runs do not print."""

_ROSE = frozenset({"loss", "gradient norm"})
_CHANGE = expression(
    r"(?<![\w.])(?P<a>\d{1,4}(?:\.\d{1,5})?) ?(?:->|→|to) ?(?:about |over |around )?(?P<b>\d{1,4}(?:\.\d{1,5})?)(?![\w%]|\.\d)"
)
"""A change of a value, which those of a healthy log show or do not."""

SAME, AS_FAST = 0.25, 0.1
"""Share by which a told and a printed duration or speed may differ: people round."""


def find_unexplained(
    examination: Examination, said: Statement, answer: Finding | None, ended: bool = False
) -> list[str]:
    """Words of every clause that what was read does not answer. answer: the finding that answers the question;
    ended: the run came to its own end, so what is said of its stop is no trouble."""
    out = []
    before = (-1, False)
    clauses = read_clauses(said)
    referring = {clause.sentence for clause in clauses if clause.refers}
    contents = {c.sentence: {w for o in clauses if o.sentence == c.sentence for w in o.contents} for c in clauses}  # fmt: skip
    for clause in clauses:
        words = without_stops(clause.words) if ended else list(clause.words)
        unread = not _is_read(examination, clause, answer)
        if not unread and (clause.kind in (ClauseKind.CONTEXT, ClauseKind.QUESTION) or not words):
            continue
        goes_on = before == (clause.sentence, True) and clause.kind is ClauseKind.FIGURE
        beside = frozenset(contents[clause.sentence])
        told = _Told(clause, tuple(words), beside, answer, goes_on, clause.sentence in referring)
        answered = not unread and _is_answered(examination, told)
        before = (clause.sentence, answered)
        if not answered:
            out.append(clause.said)
    return out


@dataclass(frozen=True, slots=True)
class _Told:
    """A clause beside what else is known. words: what of it needs an answer; beside: all words of its sentence but grammar; answer: the finding that answers the
    question; goes_on: it adds to a clause that was answered; refers: its sentence speaks of what was printed."""

    clause: Clause
    words: tuple[str, ...]
    beside: frozenset[str]
    answer: Finding | None
    goes_on: bool
    refers: bool


def _is_answered(examination: Examination, told: _Told) -> bool:
    """What the clause tells was read, and is fine or was got over."""
    clause = told.clause
    text = _EXPECTED.sub(" ", clause.text)
    exact = (*_VALUE.findall(text), *_HOST.findall(text))
    if any(not _is_printed(examination, v) for v in exact):
        return False
    rates = [f for f in clause.figures if f.rate]
    if rates or (clause.against_another and clause.quantities):
        # another run was not read, but what it printed may be told
        past = clause.against_another or _PAST.search(clause.text) is not None
        return bool(rates) and all(_runs_at(examination, f, past) for f in rates)
    denied = bool(clause.quantities) and any(_STANDS.fullmatch(w) for w in told.words)
    if told.goes_on or (not denied and _is_measured(examination, clause, told.answer)):
        return True
    rest = [w for w in told.words if not (_NAME.fullmatch(w) and _is_printed(examination, w))]
    named = len(told.words) - len(rest)
    shown = [w for w in told.beside if w not in rest]
    explained = 0
    for thing in _list_outlived(examination, rest, told.answer):
        count = thing.count(rest)
        if told.refers or thing.names(rest) or count + named + thing.count(shown) >= LEAST_SHARED:
            explained = max(explained, count)
    left = len(rest) - explained
    return not left or (not denied and explained + named >= left)


def _is_read(examination: Examination, clause: Clause, answer: Finding | None) -> bool:
    """The logs hold the quantity that is complained of, and the rise that is told of it."""
    if answer is not None and _answers(answer):
        return True
    curves = {n: read_curve(examination, n) for n in clause.quantities & (_SELDOM | _ROSE)}
    if clause.judged and any(curves[n] is None for n in clause.quantities & _SELDOM):
        return False
    rises = [(float(m["a"]), float(m["b"])) for m in _CHANGE.finditer(clause.text)]
    read = [c for n, c in curves.items() if n in _ROSE and c is not None]
    return all(b <= a or any(_rose(c, a, b) for c in read) for a, b in rises if read)


def _rose(curve: Curve, low: float, high: float) -> bool:
    """It went up from about the one value to about the other."""
    least = list(accumulate(curve.values, min))
    told = (v >= high * (1 - AS_FAST) and m <= low * (1 + AS_FAST) for v, m in zip(curve.values, least, strict=True))  # fmt: skip
    return any(told)


@dataclass(frozen=True, slots=True)
class _Outlived:
    """What one thing is told with that the run got over. kind: of a finding, empty for a line that is none."""

    text: str
    kind: str = ""

    def count(self, words: Sequence[str]) -> int:
        """Words that it holds. What complains by itself is explained by a finding only."""
        stems = set(_stems(self.text))
        return sum(
            (bool(self.kind) or not is_complaint(w)) and all(_is_among(s, stems) for s in _stems(w))
            for w in words
        )

    def names(self, words: Sequence[str]) -> bool:
        """The finding is called by one of the words."""
        stems = set(_stems(self.kind))
        return any(set(_stems(w)) <= stems for w in words if not _DENIAL.fullmatch(w))


def _is_among(stem: str, stems: Set[str]) -> bool:
    """It, or a longer form of it: `tokenizing`, `tokenizer`."""
    return stem in stems or (len(stem) >= LONG_STEM and any(s.startswith(stem) for s in stems))


def _list_outlived(
    examination: Examination, words: Sequence[str], answer: Finding | None
) -> Iterator[_Outlived]:
    """Findings that are harmless or were got over, and lines with one of the words after which the run went on."""
    chain = examination.chain
    for f in (*chain.benign, *chain.survived, *chain.context, *([answer] if answer else ())):
        texts = (f.kind, f.title, *(e.text[:MOST_CHARS] for e in f.evidence[:6]))
        yield _Outlived(" ".join(texts), f.kind)
    if not words:
        return
    parts = {_stem(p) for w in words for p in split_word(w)[:1]}
    forms = tuple(form for p in parts for form in (p, p.upper(), p.capitalize()))
    for digest, number, text in islice(examination.logs.lines_with(forms), LINES_ASKED):
        if _is_outlived(examination, digest, number, text):
            yield _Outlived(text[:MOST_CHARS])


def _is_outlived(examination: Examination, digest: FileDigest, number: int, text: str) -> bool:
    """Steps follow the line, or it stands among them or behind the run's own end."""
    if examination.logs.survived(make_line(digest.file, number, text, digest.year)):
        return True
    advance = examination.logs.advances[digest.file]
    if advance is not None and advance.first.number < number <= advance.last.number:
        return True
    finish = examination.logs.progress[digest.file].finished_at()
    return finish is not None and number > finish


def _is_printed(examination: Examination, word: str) -> bool:
    """The name or value stands in some line of the logs."""
    whole = re.compile(rf"(?i)(?<![^\W\d_]){re.escape(word)}")
    lines = examination.logs.lines_with((word, word.lower(), word.upper(), word.capitalize()))
    return any(whole.search(text) for _, _, text in islice(lines, TIMES_READ))


def _stems(text: str) -> Iterator[str]:
    yield from map(_stem, split_word(text) or [text.lower()])


def _stem(word: str) -> str:
    end = next((e for e in _ENDINGS if word.endswith(e) and len(word) - len(e) >= LEAST_STEM), "")
    stem = word.removesuffix(end)
    return stem[:-1] if end and _DOUBLED.search(stem) else stem


def _is_measured(examination: Examination, clause: Clause, answer: Finding | None) -> bool:
    """What the clause tells of a quantity or a pause was read in just this run, and is fine."""
    curves = clause.quantities
    if curves and answer is not None and _answers(answer):
        return True
    if clause.wait_s >= LEAST_WAIT_S and _is_over(examination, clause.wait_s):
        return True
    if _is_passed(examination, clause.text):
        return True
    paced = _PACE in curves or clause.wait_s > 0
    if paced and any(map(_measures_pace, examination.chain.benign)):
        return True
    names = (curves - {_PACE}) | ({_MEMORY} if _SIZE.search(clause.text) else set())
    return any(is_steady(examination, name) for name in names)


def _runs_at(examination: Examination, told: Figure, mostly: bool) -> bool:
    """The run prints about the told speed, in its unit. mostly: in most of its lines, as where it is what one expects."""
    unit = re.compile(rf"(?i){re.escape(told.unit.partition('/')[0].replace('flops', 'flop'))}")
    rows = [text for _, _, text in sample_lines(examination) if unit.search(text)]
    value = told.value or 0.0
    good = sum(
        any(
            abs(float(n) - value) <= AS_FAST * value
            for n in _PRINTED.findall(text.replace(",", ""))
        )
        for text in rows
    )
    return good * 2 > len(rows) if mostly else good > 0


def is_quantity_steady(examination: Examination, text: str) -> bool:
    """Each quantity that the text names was read and ends as it should."""
    names = set(read_quantities(list(read_words(text))).values())
    return bool(names) and all(name and is_steady(examination, name) for name in names)


def _answers(finding: Finding) -> bool:
    return finding.level is Level.BENIGN and finding.kind.startswith("question.")


def _measures_pace(finding: Finding) -> bool:
    return finding.kind.startswith("metrics.") and finding.category is Category.PERFORMANCE


def _is_over(examination: Examination, wait_s: float) -> bool:
    """The pause that is spoken of was read: lines follow it, or a line tells its length."""
    if is_paused(examination, TOLD_WAIT * wait_s) or was_start(examination, wait_s):
        return True
    for digest in examination.logs.digests:
        for _, text in digest.kept[:TIMES_READ]:
            for told in _DURATION.finditer(text[:MOST_CHARS]):
                unit = told["unit"] or told["before"]
                scale = 0.001 if unit == "ms" else 60.0 if unit.startswith("m") else 1.0
                if abs(float(told["n"] or told["after"]) * scale - wait_s) <= SAME * wait_s:
                    return True
    return False


def was_start(examination: Examination, wait_s: float) -> bool:
    """Some log needed about so long from its first line to its first step, and the steps go on since."""
    low, high = START_SHARE
    starts = _read_starts(examination)
    return any(low * wait_s <= _span_s(rows) <= high * wait_s for rows in starts)


def _is_passed(examination: Examination, text: str) -> bool:
    """The point at which the run is said to stand is a line of its log, and a long pause and steps follow it."""
    said = " ".join(text.split())
    for rows in _read_starts(examination):
        named = [at for at, line in enumerate(rows[:-1]) if _quotes(said, line.text)]
        if len(named) == 1 and _span_s(rows[named[0] :]) >= LEAST_WAIT_S:
            return True
    return False


def _read_starts(examination: Examination) -> Iterator[list[Line]]:
    """Lines up to the first step, of logs whose steps go on."""
    for digest in examination.logs.digests:
        advance = examination.logs.advances[digest.file]
        taken = (p.number for p in examination.logs.progress[digest.file].after(0) if p.training)
        steps = list(islice(taken, LEAST_STEPS))
        if advance is not None and not advance.halted and len(steps) == LEAST_STEPS:
            rows = (row for row in digest.kept[:TIMES_READ] if row[0] <= steps[0])
            yield [make_line(digest.file, n, t, digest.year) for n, t in rows]


def _span_s(lines: Sequence[Line]) -> float:
    times = [line.time for line in lines if line.time is not None]
    return times[-1] - times[0] if times else 0.0


def _quotes(said: str, text: str) -> bool:
    """The last words of a line stand in what is said."""
    words = text[:MOST_CHARS].split()
    return len(words) > LEAST_QUOTED and " ".join(words[-LEAST_QUOTED:]) in said


def is_paused(examination: Examination, least_s: float) -> bool:
    """Some log is silent for so long and goes on after it: the pause that is spoken of is over."""
    for digest in examination.logs.digests:
        rows = digest.kept[:TIMES_READ]
        stamped = (make_line(digest.file, n, t, digest.year) for n, t in rows)
        times = [line.time for line in stamped if line.time is not None]
        if any(b - a >= least_s for a, b in pairwise(times)):
            return True
    return False
