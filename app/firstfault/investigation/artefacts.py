"""What should be collected next? Rules from the knowledge folder, matched against the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault.investigation.diagnosis import NextArtefact
from firstfault.investigation.examination import Examination
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.verdict import Judgement
from firstfault_tools.findings import Confidence, Verdict

MAX_ARTEFACTS = 4


def choose_artefacts(
    examination: Examination, judgement: Judgement, knowledge: Knowledge
) -> tuple[NextArtefact, ...]:
    """Artefacts that would settle what is open; none for a healthy run or a confirmed cause."""
    if judgement.verdict is Verdict.HEALTHY or judgement.confidence is Confidence.CONFIRMED:
        return ()
    out: list[NextArtefact] = []
    finding = judgement.finding
    if finding is not None and finding.kind.startswith("signature."):
        wanted = finding.kind.removeprefix("signature.")
        for signature in examination.logs.signatures.signatures:
            if signature.id == wanted:
                out += [NextArtefact(n.what, n.why, n.command) for n in signature.next]
    facts = _facts(examination, judgement)
    for rule in knowledge.artefacts:
        if _applies(rule, facts):
            artefact = NextArtefact(str(rule["what"]), str(rule["why"]), str(rule["command"]))
            if artefact.what not in {a.what for a in out}:
                out.append(artefact)
    return tuple(out[:MAX_ARTEFACTS])


def _facts(examination: Examination, judgement: Judgement) -> set[str]:
    finding = judgement.finding
    facts = {f"verdict:{judgement.verdict.value}"}
    if finding is not None:
        facts.add(f"kind:{finding.kind}")
        facts.add(f"kind:{finding.kind.split('.')[0]}")
        if finding.category is not None:
            facts.add(f"category:{finding.category.value}")
    world, seen = examination.logs.world_size, len(examination.logs.ranks_seen)
    if world and seen < world:
        facts.add("ranks:missing")
    if examination.logs.work:
        facts.add("watchdog:seen")
    facts |= {f"reading:{name}" for name in examination.readings}
    return facts


def _applies(rule: Mapping[str, Any], facts: set[str]) -> bool:
    if facts & set(map(str, rule.get("unless", ()))):
        return False
    return bool(facts & set(map(str, rule.get("when", ()))))
