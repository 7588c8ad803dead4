"""Which setting makes the run work, by what the person says, and what is at fault then?

"With NCCL_P2P_DISABLE=1 it trains" is an experiment with a result. It decides where the log alone shows
only that ranks waited or that a call failed; what a log shows as a cause outranks it.
"""

from __future__ import annotations

from dataclasses import replace

from firstfault.investigation.examination import Examination
from firstfault.investigation.verdict import Judgement
from firstfault_tools.collectives.remedies import describe_remedy, read_question
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level, Verdict

MOST_LOGS = 8
"""Logs in which the settings of a run are looked for: every rank prints the same ones."""


_PEER_PATH = ("hardware.acs_redirect", "hardware.iommu")
"""Facts of pasted checks that say what is wrong with the path between GPUs."""


def weigh_remedy(examination: Examination, judgement: Judgement, question: str) -> Judgement:
    """The verdict with the reason that the question's experiment shows, where none stands yet."""
    if judgement.finding is not None and judgement.finding.kind == "experiment.remedy":
        return _join_path(examination, judgement, judgement.finding)
    if not question or not _is_open(judgement):
        return judgement
    told = read_question(question)
    if told is None:
        return judgement
    remedy, spelling = told
    first = judgement.finding
    evidence = first.evidence if first is not None else _first_lines(examination)
    if not evidence:
        return judgement
    finding = describe_remedy(remedy, spelling, evidence[:3], Level.FAILURE)
    seen = f"; what the log shows of it: {first.title}" if first is not None else ""
    finding = replace(finding, title=f"{finding.title}, as the question says{seen}")
    return Judgement(Verdict.FAULT, finding, finding.confidence, judgement.suspicious)


def _join_path(examination: Examination, judgement: Judgement, told: Finding) -> Judgement:
    """The experiment that points at direct copies, together with the check that shows what bends them."""
    if "P2P" not in told.text(Fact.SETTING):
        return judgement
    seen = next((f for f in examination.findings if f.kind.startswith(_PEER_PATH)), None)
    if seen is None:
        return judgement
    joined = replace(
        told,
        title=f"{told.title}; {seen.reworded('')}",
        evidence=(*told.evidence, *seen.evidence[:2]),
    )
    return replace(judgement, finding=joined)


_BY_SETTINGS = frozenset(
    {
        Category.NUMERICAL,
        Category.DATA,
        Category.CODE_BUG,
        Category.CHECKPOINT,
        Category.OOM,
        Category.PERFORMANCE,
    }
)


def name_setting(
    examination: Examination, judgement: Judgement, question: str
) -> tuple[Examination, Judgement]:
    """The verdict with the printed setting behind a fault of numbers or indices in its title."""
    first = judgement.finding
    if first is None or judgement.verdict is Verdict.HEALTHY or first.category not in _BY_SETTINGS:
        return examination, judgement
    from firstfault_tools.metrics.learning.fault_settings import explain_by_settings, groups_of

    if not groups_of(first):
        return examination, judgement
    few = examination.logs.digests[:MOST_LOGS]
    lines = [(d.file, list(d.kept)) for d in few]
    told = explain_by_settings(first, lines, question, examination.findings)
    if told is first:
        return examination, judgement
    chain = examination.chain
    if chain.first is first:
        examination = replace(examination, chain=replace(chain, first=told))
    return examination, replace(judgement, finding=told)


def _is_open(judgement: Judgement) -> bool:
    if judgement.verdict is Verdict.UNKNOWN:
        return True
    finding = judgement.finding
    if judgement.verdict is not Verdict.FAULT or finding is None:
        return False
    vague = finding.has(FindingRole.VAGUE)
    return vague and finding.category in (Category.COMMUNICATION, None) and not _names(finding)


def _names(finding: Finding) -> bool:
    """The finding has singled out a rank, which a setting of all ranks does not explain."""
    return finding.rank is not None and finding.level is Level.CAUSE


def _first_lines(examination: Examination) -> tuple[Evidence, ...]:
    """The last lines of the first log: where it stands still."""
    for digest in examination.logs.digests:
        lines = [Evidence(digest.file, n, t) for n, t in digest.kept if t.strip()]
        if lines:
            return tuple(lines[-1:])
    return ()
