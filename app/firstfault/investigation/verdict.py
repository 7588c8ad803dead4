"""What is the whole incident? Verdict and confidence, by rule, from the chain of findings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from firstfault.investigation.examination import Examination
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level, Verdict
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

_SUSPICIOUS = expression(
    r"\b(?:ERROR|FATAL|CRITICAL|Error|Exception|error:|fatal|panic|[Aa]bort(?:ed|ing)?|[Ff]ailed|[Cc]rash(?:ed)?|SIG[A-Z]{3,4})\b"
)
_HARMLESS = expression(
    r"(?i)\b(?:0 errors?|no errors?|error[_ ]?rate|errors?[:=]\s*0|without error|error_file\s*:|"
    r"correct(?:ed|able) (?:\w+ )?errors?|"
    r"on_error|ignore_errors|(?:log|loss|mean|std|rel|abs)[_ ]error|error ?[:=] ?\d{1,6}\.\d+(?:e[-+]?\d+)?|"
    r"FutureWarning|DeprecationWarning|UserWarning|Exception ignored (?:in|while)|"
    r"attempt \d+ ?(?:/|of) ?\d+|retrying in)\b|[:=]\s*(?:0|no|none|n/a|not active|disabled)\s*$"
)
_SLOWER_THAN = expression(
    r"(?i)\bslower (?:than|since)\b|\b(?:twice|\d+ ?x|times) as (?:slow|long)|\bused to (?:be|run|take)\b|"
    r"\b(?:got|became|gets) slower\b|\bsince (?:yesterday|monday|last week|the (?:upgrade|update|move)).{0,40}\bslow|"
    r"langsamer als|plus lente? que|más lent[oa] que|比.{1,12}慢|より遅|보다 느"
)
_CHECKED = "network.nccl_passed"
"""A test that checked its results; it says nothing about speed."""

_ASKS_SPEED = expression(
    r"(?i)bandwidth|\bslow|\bspeed|\b[GM]B/s|through ?put|busbw|algbw|latency|\bhang|stuck|fast"
)
MAX_SUSPICIOUS = 40


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict, the finding it rests on, and how sure."""

    verdict: Verdict
    finding: Finding | None
    confidence: Confidence
    suspicious: tuple[Line, ...] = ()
    pace_asked: bool = False
    """A slow-down was asked about that nothing in what was read shows or denies."""


def doubt_pace(examination: Examination, judgement: Judgement, question: str) -> Judgement:
    """Even steps answer no question about another run that was faster."""
    if judgement.verdict is not Verdict.HEALTHY:
        return judgement
    if any(f.kind == _CHECKED for f in examination.findings) and _ASKS_SPEED.search(question):
        readers = examination.logs.progress.values()
        if not any(r.trained() for r in readers):
            return Judgement(Verdict.UNKNOWN, None, Confidence.UNKNOWN, pace_asked=True)
    if not _SLOWER_THAN.search(question):
        return judgement
    if judgement.finding is not None or examination.chain.survived or examination.logs.finished:
        return judgement
    return Judgement(Verdict.UNKNOWN, None, Confidence.UNKNOWN, pace_asked=True)


def judge(examination: Examination) -> Judgement:
    """Verdict by rule. UNKNOWN is said whenever something looks wrong and nothing explains it."""
    chain = examination.chain
    if chain.first is not None and is_undecided(chain.first):
        return Judgement(Verdict.UNKNOWN, chain.first, Confidence.POSSIBLE)
    if chain.first is not None:
        verdict = (
            Verdict.WARNING if chain.first.facts.get("severity") == "warning" else Verdict.FAULT
        )
        return Judgement(verdict, chain.first, _confidence(examination, chain.first))
    grave = [
        f
        for f in chain.survived
        if f.level is Level.CAUSE
        and f.category is Category.HARDWARE
        and _names_gpu(f)
        and not is_quotation(examination, f)
    ]
    suspicious = tuple(suspicious_lines(examination))
    if grave:
        return Judgement(Verdict.WARNING, grave[0], Confidence.LIKELY, suspicious)
    if chain.teardown or suspicious:
        return Judgement(Verdict.UNKNOWN, None, Confidence.UNKNOWN, suspicious)
    if chain.survived or shows_health(examination) or _only_notices(examination):
        return Judgement(
            Verdict.HEALTHY, chain.benign[0] if chain.benign else None, Confidence.LIKELY
        )
    return Judgement(Verdict.UNKNOWN, None, Confidence.UNKNOWN)


def is_quotation(examination: Examination, finding: Finding) -> bool:
    """All its lines are marked as quoted (`> ...`) in a log that for the most part is not."""
    if not finding.evidence or not all(e.text.startswith("> ") for e in finding.evidence):
        return False
    return finding.evidence[0].file in examination.logs.own_words


def is_undecided(finding: Finding) -> bool:
    """It says that something ended or waited, and not why: a symptom, or a death without a reason."""
    return finding.level is Level.SYMPTOM or finding.category is None


def choose_category(examination: Examination, judgement: Judgement) -> Category | None:
    """Category of the answer. A symptom that comparing ranks did not explain belongs to none.

    Where ranks cannot be compared, or the connection never worked, the symptom's own class is the
    best there is; it is never more than possible.
    """
    finding = judgement.finding
    if finding is None or judgement.verdict is Verdict.HEALTHY:
        return None
    if judgement.verdict is not Verdict.UNKNOWN:
        return finding.category
    if finding.category is not Category.COMMUNICATION:
        return None
    logs = examination.logs
    if any(r.trained() for r in logs.progress.values()):
        return None
    alone = len(logs.ranks_seen) <= 1 and (logs.world_size or 1) == 1
    waited = finding.kind.startswith(("collective.", "signature.watchdog"))
    return finding.category if alone or not waited else None


def _only_notices(examination: Examination) -> bool:
    """The input is little more than notices known to be harmless, as when somebody asks about one."""
    lines = sum(1 for d in examination.logs.digests for _, text in d.kept if text.strip())
    quoted = {(e.file, e.line) for f in examination.chain.benign for e in f.evidence}
    return bool(quoted) and len(quoted) * 3 >= lines


def _names_gpu(finding: Finding) -> bool:
    """A broken GPU is worth a warning though the run goes on; a link it does not need is not."""
    return finding.gpu is not None or re.search(r"\bGPU\b|\bXid\b", finding.title) is not None


def _confidence(examination: Examination, first: Finding) -> Confidence:
    if first.level is Level.SYMPTOM:
        return Confidence.POSSIBLE
    rivals = [r for r in examination.chain.rivals if r.category is not first.category]
    if rivals and first.confidence is Confidence.CONFIRMED:
        return Confidence.LIKELY
    return first.confidence


def suspicious_lines(examination: Examination) -> list[Line]:
    """Lines that read like an error, that no finding explains and that training did not survive."""
    explained = {(e.file, e.line) for f in examination.findings for e in f.evidence}
    explained |= {(h.line.file, h.line.number) for d in examination.logs.digests for h in d.hits}
    explained |= {(t.line.file, n) for t in examination.logs.tracebacks for n in range(t.start, t.line.number + 1)}  # fmt: skip
    out: list[Line] = []
    for digest in examination.logs.digests:
        for number, text in digest.kept:
            if (digest.file, number) in explained or not _SUSPICIOUS.search(text):
                continue
            if _HARMLESS.search(text):
                continue
            line = make_line(digest.file, number, text, digest.year)
            if examination.logs.survived(line):
                continue
            out.append(line)
            if len(out) >= MAX_SUSPICIOUS:
                return out
    return out


def shows_health(examination: Examination) -> bool:
    """Positive signs of life: steps that advance, a finished run, or a test of NCCL that ended."""
    readers = examination.logs.progress.values()
    if _test_ended(examination):
        return True
    return any(r.trained() or r.finished_at() is not None for r in readers)


def _test_ended(examination: Examination) -> bool:
    """The only thing that ran is one test of NCCL, and it printed its last lines."""
    if not any(f.kind == "network.nccl_tests" for f in examination.chain.context):
        return False
    logs = examination.logs
    ended = [text for _, _, text in logs.lines_with(("Out of bounds values", "Avg bus bandwidth"))]
    commands = sum(1 for _, _, text in logs.lines_with(("_perf ",)) if "/" in text)
    return any(": 0 OK" in text for text in ended) and commands <= 1


def possible_cause(
    lines: tuple[Line, ...], page_id: str, title: str, category: Category
) -> Finding:
    """A cause that only the knowledge base suggests: never more than possible."""
    evidence: tuple[Evidence, ...] = tuple(line.evidence() for line in lines[:3])
    return Finding(
        kind="search.page",
        title=title,
        level=Level.SYMPTOM,
        category=category,
        confidence=Confidence.POSSIBLE,
        evidence=evidence,
        rank=None,
        page=page_id,
    )
