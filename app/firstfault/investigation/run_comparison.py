"""How is a bad run judged beside a good one? Both are diagnosed, then laid beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from firstfault.intake.collect import collect_paths
from firstfault.investigation.complaint import read_complaint
from firstfault.investigation.diagnose import conclude
from firstfault.investigation.diagnosis import SkippedInput
from firstfault.investigation.examination import examine
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.run_comparison.comparison import Comparison, compare_runs
from firstfault_tools.run_comparison.effects import EFFECT_OF, Effect

if TYPE_CHECKING:
    from firstfault.investigation.diagnosis import Diagnosis
    from firstfault.investigation.knowledge import Knowledge
    from firstfault_tools.registry import Artefact

_OF_CATEGORY = {
    Category.OOM: Effect.MEMORY,
    Category.PERFORMANCE: Effect.SLOW,
    Category.NUMERICAL: Effect.DIVERGED,
    Category.COMMUNICATION: Effect.HANG,
}


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs laid beside each other, with their own verdicts in a sentence each."""

    comparison: Comparison
    good_verdict: str
    bad_verdict: str
    next_steps: tuple[str, ...]


def compare_paths(
    known: Knowledge, spool: Path, good: Path, bad: Path, question: str = ""
) -> Compared:
    """Diagnose and compare two files or folders. Raises InputUnreadable."""
    mine = _read(known, spool, good, "")
    theirs = _read(known, spool, bad, question)
    complaint = [*_effects_said(question), *_effects_found(theirs.diagnosis)]
    result = compare_runs(
        mine.artefacts, theirs.artefacts, dict.fromkeys(complaint), (mine.hosts, theirs.hosts)
    )
    return Compared(
        result, _tell(mine.diagnosis), _tell(theirs.diagnosis), suggest_steps(result, good, bad)
    )


@dataclass(frozen=True, slots=True)
class _Run:
    artefacts: tuple[Artefact, ...]
    diagnosis: Diagnosis
    hosts: frozenset[str]


def _read(known: Knowledge, spool: Path, path: Path, question: str) -> _Run:
    collection = collect_paths([path], spool)
    examination = examine(collection.artefacts, known.signatures)
    skipped = [SkippedInput(s.what, s.why) for s in collection.skipped]
    diagnosis = conclude(examination, collection.artefacts, known, skipped, question)
    logs = examination.logs
    hosts = frozenset({*logs.placement.ranks_on, *logs.hosts_seen})
    return _Run(tuple(collection.artefacts), diagnosis, hosts)


def _effects_said(question: str) -> list[Effect]:
    complaint = read_complaint(question) if question else None
    effect = EFFECT_OF.get(complaint) if complaint is not None else None
    return [effect] if effect is not None else []


def _effects_found(diagnosis: Diagnosis) -> list[Effect]:
    if diagnosis.verdict not in (Verdict.FAULT, Verdict.WARNING) or diagnosis.category is None:
        return []
    return [_OF_CATEGORY.get(Category(diagnosis.category), Effect.CRASH)]


def _tell(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict is Verdict.HEALTHY:
        # beside a better run that would be too much: nothing is wrong by its own lines alone
        return f"no fault by its own lines ({diagnosis.root_cause})"
    return f"{diagnosis.verdict}: {diagnosis.root_cause}"


def suggest_steps(result: Comparison, good: Path, bad: Path) -> tuple[str, ...]:
    """What would settle which difference it is."""
    able = [d for d in result.differences if d.explains]
    steps = []
    if len(able) == 1:
        steps.append(f"run the bad run once with {able[0].name} as in the good one")
    elif able:
        steps.append(
            f"set back one at a time, beginning with {able[0].name}; with {len(result.differences)} differences "
            "halving them (delta debugging) finds the one in a few trials"
        )
    if result.nodes.only_bad:
        steps.append("run the good settings on the hosts that only the bad run had")
    if not result.stated_good or not result.stated_bad:
        lacking = [str(p) for p, n in ((good, result.stated_good), (bad, result.stated_bad)) if not n]  # fmt: skip
        steps.append(
            f"add the settings of {' and '.join(lacking)}: the configuration, `env | sort`, `pip freeze`"
        )
    return tuple(steps)
