"""What is the whole incident? Verdict and confidence, by rule, from the chain of findings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from firstfault.investigation.complaint import asks_pace
from firstfault.investigation.diagnosis import SkippedInput
from firstfault.investigation.examination import Examination
from firstfault.investigation.health import Condition, HealthProof, prove_health
from firstfault.investigation.vetoes import read_statement
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Complaint,
    Confidence,
    Evidence,
    Finding,
    Level,
    Verdict,
)
from firstfault_tools.log.digest import Line

ACCOUNTED = "what accounts for it: "
"""Begins what stands beside a cause of its own, which the fix of the first is not of."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict, the finding it rests on, and how sure. `proof` is what shows health, or what it lacks."""

    verdict: Verdict
    finding: Finding | None
    confidence: Confidence
    suspicious: tuple[Line, ...] = ()
    proof: HealthProof | None = None
    accounted: bool = False
    """What accounts for its numbers is told with it."""

    @property
    def may_be_calm(self) -> bool:
        """Healthy, or only the question is left to be answered."""
        if self.verdict is Verdict.HEALTHY:
            return True
        return self.finding is None and self.proof is not None and self.proof.lacks_only(Condition.ANSWERED)  # fmt: skip

    def tell_beside(self, finding: Finding, words: str, evidence: Sequence[Evidence]) -> Judgement:
        """The same verdict, its finding told with further words and what they rest on."""
        told = replace(
            finding,
            title=f"{finding.title.rstrip('.')}; {words}",
            evidence=(*finding.evidence, *evidence),
        )
        return replace(self, finding=told)


def judge(
    examination: Examination, question: str = "", skipped: Sequence[SkippedInput] = ()
) -> Judgement:
    """Verdict by rule. UNKNOWN is said whenever something looks wrong and nothing explains it."""
    chain = examination.chain
    if chain.first is not None and is_undecided(chain.first):
        return Judgement(Verdict.UNKNOWN, chain.first, Confidence.POSSIBLE)
    if chain.first is not None and _only_costs_speed(chain.first, question):
        proof = prove_health(examination, question, chain.first, skipped)
        if proof.holds:
            return Judgement(Verdict.HEALTHY, None, Confidence.LIKELY, proof=proof)
    if chain.first is not None:
        verdict = Verdict.WARNING if chain.first.text(Fact.SEVERITY) == "warning" else Verdict.FAULT
        return Judgement(verdict, chain.first, _confidence(examination, chain.first))
    grave = [
        f
        for f in chain.survived
        if f.level is Level.CAUSE
        and f.category is Category.HARDWARE
        and _names_gpu(f)
        and not is_quotation(examination, f)
    ]
    proof = prove_health(examination, question, None, skipped)
    if grave:
        return Judgement(Verdict.WARNING, grave[0], Confidence.LIKELY, proof.suspicious)
    if not proof.holds:
        return Judgement(Verdict.UNKNOWN, None, Confidence.UNKNOWN, proof.suspicious, proof)
    first = chain.benign[0] if chain.benign else None
    return Judgement(Verdict.HEALTHY, first, Confidence.LIKELY, proof=proof)


def _only_costs_speed(finding: Finding, question: str) -> bool:
    """A library's notice that something could be faster, where the person asks about something else."""
    notice = finding.kind.startswith("signature.") and finding.category is Category.PERFORMANCE
    if not notice or not question.strip():
        return False
    return Complaint.SLOW not in read_statement(question).complaints and not asks_pace(question)


def require_proof(
    examination: Examination,
    judgement: Judgement,
    question: str,
    skipped: Sequence[SkippedInput] = (),
) -> Judgement:
    """A healthy verdict with the proof it rests on, or `unknown` with what the proof lacks."""
    if judgement.verdict is not Verdict.HEALTHY:
        return judgement
    proof = prove_health(examination, question, judgement.finding, skipped)
    if proof.holds:
        return replace(judgement, proof=proof)
    return Judgement(Verdict.UNKNOWN, None, Confidence.UNKNOWN, proof.suspicious, proof)


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
    if logs.trained:
        return None
    alone = len(logs.ranks_seen) <= 1 and (logs.world_size or 1) == 1
    waited = finding.has(FindingRole.WAITING)
    return finding.category if alone or not waited else None


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


MAX_QUOTED = 160
_STAMPS = expression(r"^(?:\[[^\]]{0,40}\d\d:\d\d[^\]]{0,30}\]\s?){1,4}")


def quote_first(lines: Sequence[Line]) -> str:
    """Words of the first line, without what stands before them."""
    return _STAMPS.sub("", " ".join(lines[0].message.split()))[:MAX_QUOTED] if lines else ""


def possible_cause(
    lines: tuple[Line, ...], page_id: str, title: str, category: Category
) -> Finding:
    """The first line that reads like an error, believed; what the knowledge base makes of it is a guess."""
    evidence: tuple[Evidence, ...] = tuple(line.evidence() for line in lines[:3])
    return Finding(
        kind="search.page",
        title=f"«{quote_first(lines)}» is the first that reads like an error; of what is known here, this fits best: {title}",
        level=Level.SYMPTOM,
        category=category,
        confidence=Confidence.POSSIBLE,
        evidence=evidence,
        page=page_id,
    )
