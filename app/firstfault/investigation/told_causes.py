"""Did a warning name the cause, and perhaps its mending, before no line says why?

A program that warns of a condition in so many words is believed before a wrapper that only says that
something failed, also where no signature knows the warning. It is believed no further than `possible`
where it stands alone, and beside a wrapper it is told with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from firstfault.investigation.examination import Examination, choose_few
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.verdict import ACCOUNTED, Judgement, quote_first
from firstfault_tools.causality.message_words import read_category
from firstfault_tools.causality.odd_ranks.last_words import NOISE
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Complaint,
    Confidence,
    Finding,
    Level,
    Verdict,
)
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

_WARNS = expression(
    r"(?:^|[\s\[(|:])(?:WARN(?:ING)?|W\d{4}|[Ww]arning)\b|\bUserWarning:|\bRuntimeWarning:"
)
_KNOWN_NOISE = expression(
    r"FutureWarning|DeprecationWarning|deprecated|OMP_NUM_THREADS|ProcessGroupNCCL|elastic|TCPStore|closing signal"
)
_CAUSE = expression(
    r"(?i)\b(?:because|due to|instead of|(?:smaller|larger|fewer|less|more|greater|older|newer|lower|higher) than|exceeds?|"
    r"does not (?:match|fit|support)|mismatch\w*|incompatible|not (?:supported|enough|found|set|divisible)|only \d+|no longer|"
    r"will (?:not|hang|fail|be (?:ignored|dropped|skipped|lost|empty|stuck))|may (?:hang|fail|deadlock)|can(?:not| not))\b"
)
_ADVICE = expression(
    r"(?i)\b(?:please|consider|set \w+|use \w+|try \w+|increase|decrease|reduce|lower|raise|upgrade|downgrade|install|enable|"
    r"disable|make sure|must|should|need to|expected)\b"
)
MOST_TIMES, BESIDE_LINES, MAX_LINES = 16, 40, 20_000
"""A warning of every rank of two hosts is still rare; lines before a wrapper in which its reason stands."""


def believe_warning(
    examination: Examination, judgement: Judgement, knowledge: Knowledge
) -> Judgement:
    """A warning that names a cause as a possible fault, where nothing else is known; told beside a wrapper."""
    finding = judgement.finding
    if (
        finding is not None
        and finding.kind.startswith("metrics.")
        and finding is examination.chain.first
    ):
        explained = _explain_numbers(examination, judgement, finding)
        if explained is not judgement:
            return explained
        return _account_for(examination, judgement, finding)
    if finding is not None:
        if finding is not examination.chain.first or not finding.has(FindingRole.WRAPPER):
            return judgement
        line = _find_beside(examination, finding)
        return judgement if line is None else _tell_beside(judgement, finding, line)
    if judgement.verdict is not Verdict.UNKNOWN or not judgement.suspicious:
        return judgement
    line = next(_find_rare(examination, judgement.suspicious[0]), None)
    if line is None:
        return _believe_error(judgement, knowledge)
    pages = knowledge.search(line.message[:300], 1) if knowledge.search is not None else ()
    page = next((p for i, _ in pages if (p := knowledge.pages.get(i)) is not None), None)
    told = Finding(
        kind="warning.names_cause",
        title=f"A warning before it names a cause: {_say(line)}",
        level=Level.SYMPTOM,
        category=page.category if page is not None else None,
        confidence=Confidence.POSSIBLE,
        evidence=(line.evidence(), *(s.evidence() for s in judgement.suspicious[:2])),
        page=page.id if page is not None else None,
    )
    return Judgement(Verdict.FAULT, told, Confidence.POSSIBLE, judgement.suspicious)


_FAILS = expression(
    r"(?i)\b(?:error|fatal|critical|fail\w*|abort\w*|panic)\b|(?:^|[\s\[])[EF]\d{4}\b"
)


def _believe_error(judgement: Judgement, knowledge: Knowledge) -> Judgement:
    """The first line that reads like an error and that nothing explains, where its own words tell what failed."""
    for line in judgement.suspicious:
        category = read_category(line.message, causes=True) if _FAILS.search(line.message) else None
        if category is None:
            continue
        pages = knowledge.search(line.message[:300], 4) if knowledge.search is not None else ()
        fits = (p for i, _ in pages if (p := knowledge.pages.get(i)) is not None)
        page = next((p for p in fits if p.category is category and not p.benign), None)
        told = Finding(
            kind="line.own_words",
            title=_LEVEL.sub("", quote_first([line])).strip(),
            level=Level.FAILURE,
            category=category,
            confidence=Confidence.POSSIBLE,
            evidence=(line.evidence(),),
            page=page.id if page is not None else None,
        )
        return Judgement(Verdict.FAULT, told, Confidence.POSSIBLE, judgement.suspicious)
    return judgement


def names_cause(text: str) -> bool:
    """A line of the level of a warning that tells a condition and what to do, or what comes of it."""
    if not _WARNS.search(text[:200]) or _KNOWN_NOISE.search(text) or NOISE.search(text):
        return False
    return _CAUSE.search(text) is not None and _ADVICE.search(text) is not None


def _tell_beside(judgement: Judgement, finding: Finding, line: Line) -> Judgement:
    confidence = Confidence.LIKELY if judgement.confidence is Confidence.CONFIRMED else judgement.confidence  # fmt: skip
    told = replace(
        finding,
        title=f"{_say(line)}, and then: {finding.title}",
        evidence=(finding.evidence[0], line.evidence(), *finding.evidence[1:]),
        confidence=confidence,
    )
    return replace(judgement, finding=told, confidence=confidence)


_GIVES_WAY = expression(
    r"(?i)\b(?:unavailable|not (?:available|installed|found)|no module named|cannot import|failed to (?:import|load)|could not (?:import|load|be loaded)|"
    r"return(?:s|ing) (?:0|zero|none|-?\d)|defaulting|falling back|fall(?:s)? back|fallback|disabled|skipp(?:ed|ing)|will be (?:0|zero|ignored|skipped))"
)
"""A part that gave way: what it would have given is replaced by nothing, a default or something else."""

_MISSING = expression(
    r"(?i)no module named|not installed|cannot import|failed to import|could not import"
)
_QUANTITY = expression(
    r"(?i)\b(reward|loss|accuracy|gradient|grad|advantage|learning rate|entropy|score|kl)s?\b"
)


def _explain_numbers(examination: Examination, judgement: Judgement, finding: Finding) -> Judgement:
    """A verdict of numbers with the warning that said, before them, what gave way to that very quantity."""
    told = {m.lower()[:4] for m in _QUANTITY.findall(finding.title)}
    place = finding.evidence[0] if finding.evidence else None
    if finding.category is not Category.NUMERICAL or place is None or not told:
        return judgement
    for digest in choose_few(examination.logs.digests):
        for number, text in digest.kept[:MAX_LINES]:
            if digest.file == place.file and number >= place.line:
                break
            if not _WARNS.search(text[:200]) or not _GIVES_WAY.search(text) or NOISE.search(text):
                continue
            if not told & {m.lower()[:4] for m in _QUANTITY.findall(text)}:
                continue
            line = make_line(digest.file, number, text, digest.year)
            category = Category.ENVIRONMENT if _MISSING.search(text) else finding.category
            explained = replace(
                finding,
                title=f"{_say(line)}; of it follows: {finding.title}",
                category=category,
                evidence=(line.evidence(), *finding.evidence),
            )
            return replace(judgement, finding=explained)
    return judgement


_COMPLAINTS = {
    Category.PERFORMANCE: (Complaint.SLOW,),
    Category.NUMERICAL: (Complaint.DIVERGED, Complaint.SETBACK, Complaint.UNLEARNED),
    Category.CHECKPOINT: (Complaint.SETBACK,),
}
ACCOUNTS = 0.5
"""Share of such a fault that a known condition accounts for, from which on it is told with the numbers."""


def _account_for(examination: Examination, judgement: Judgement, finding: Finding) -> Judgement:
    """A verdict of numbers with the condition in the same logs that is known to bring such numbers about."""
    about = _COMPLAINTS.get(finding.category) if finding.category is not None else None
    if about is None or finding.level is Level.BENIGN:
        return judgement
    known = [
        (max(f.explains(c) for c in about), f)
        for f in examination.chain.context
        if not f.kind.startswith("metrics.")
    ]
    known += [
        (1.0, f)
        for f in examination.chain.rivals
        if f.category is finding.category is Category.PERFORMANCE
        and f.level in (Level.CAUSE, Level.FAILURE)
        and not f.kind.startswith(("metrics.", "question."))
    ]
    able = [(w, f) for w, f in known if w >= ACCOUNTS and not finding.says(f.title[:30])]
    if not able:
        return judgement
    _, other = max(able, key=lambda pair: pair[0])
    words = f"{ACCOUNTED}{other.title}"
    return replace(judgement.tell_beside(finding, words, other.evidence[:2]), accounted=True)


def _say(line: Line) -> str:
    """Words of a warning without its level and the names of loggers before them."""
    return _LEVEL.sub("", quote_first([line])).strip()


_LEVEL = expression(r"^\s*(?:\[?(?:WARN(?:ING)?|W\d{4})\]?[ :]+(?:[\w.]{1,40}:)?)\s*")


def _find_beside(examination: Examination, finding: Finding) -> Line | None:
    """A warning that names a cause shortly before the wrapper, in the same log and of the same speaker."""
    place = finding.evidence[0] if finding.evidence else None
    if place is None or place.file not in examination.logs.progress:
        return None
    digest = examination.logs.digest_of(place.file)
    end = digest.position(place.line)
    speaker = make_line(place.file, place.line, place.text, digest.year).place.rank
    for number, text in reversed(digest.kept[max(0, end - BESIDE_LINES) : max(0, end)]):
        if names_cause(text):
            line = make_line(digest.file, number, text, digest.year)
            if line.place.rank in (None, speaker) or speaker is None:
                return line
    return None


def _find_rare(examination: Examination, alarm: Line) -> Iterator[Line]:
    """Rare warnings that name a cause before the first alarm, the latest first."""
    quoted = {(e.file, e.line) for f in examination.findings for e in f.evidence}
    for digest in choose_few(examination.logs.digests):
        rows = [r for r in _rows_before(digest, alarm) if names_cause(r[1])]
        shapes = Counter(_shape(text) for _, text in rows)
        for number, text in reversed(rows):
            if shapes[_shape(text)] <= MOST_TIMES and (digest.file, number) not in quoted:
                yield make_line(digest.file, number, text, digest.year)


def _rows_before(digest: FileDigest, alarm: Line) -> Iterator[tuple[int, str]]:
    for number, text in digest.kept[:MAX_LINES]:
        if digest.file == alarm.file and number >= alarm.number:
            return
        yield number, text


def _shape(text: str) -> str:
    return "".join(c for c in text if c.isalpha())[-80:]
