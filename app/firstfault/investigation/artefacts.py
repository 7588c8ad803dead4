"""What should be collected next? Rules from the knowledge folder, matched against the verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from firstfault.investigation.diagnosis import NextArtefact
from firstfault.investigation.examination import Examination
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.verdict import Judgement
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Confidence, Verdict
from firstfault_tools.log.place import name_ranks

MAX_ARTEFACTS = 4
FIRST_LINES = 1000
OTHER_CARDS = expression(
    r"(?i)\blibtpu|\bTPU[ _v]|\bHCCL\b|\bHcclComm|\btorch_npu|\bRCCL\b|\bhabana|\bgaudi\b|\bneuronx?[_-]"
)
"""Accelerators without NVIDIA's NCCL and driver, which cannot be asked there."""


def choose_artefacts(
    examination: Examination, judgement: Judgement, knowledge: Knowledge
) -> tuple[NextArtefact, ...]:
    """Artefacts that would settle what is open; none for a healthy run or a confirmed cause."""
    if judgement.verdict is Verdict.HEALTHY or judgement.confidence is Confidence.CONFIRMED:
        return ()
    out: list[NextArtefact] = []
    finding = judgement.finding
    if finding is not None and finding.kind.startswith("signature."):
        signature = examination.logs.signatures.find(finding.kind.removeprefix("signature."))
        out += [
            NextArtefact(n.what, n.why, n.command, True, n.run_on, n.supports_if, n.refutes_if, n.then)
            for n in (signature.next if signature is not None else ())
        ]  # fmt: skip
    facts = _facts(examination, judgement)
    names = _names(examination, judgement)
    stated = _stated(judgement)
    for rule in knowledge.artefacts:
        if "else:nothing" in rule["when"]:
            facts = facts if out else facts | {"else:nothing"}
        if _applies(rule, facts) and _is_stated(rule, stated):
            artefact = NextArtefact(
                _fill(str(rule["what"]), names),
                _fill(str(rule["why"]), names),
                _fill(str(rule["command"]), names, in_command=True),
                False,
                *(
                    _fill(str(rule.get(k, "")), names)
                    for k in ("run_on", "supports_if", "refutes_if", "then")
                ),
            )
            if artefact.what not in {a.what for a in out}:
                out.append(artefact)
    return tuple(out[:MAX_ARTEFACTS])


def _stated(judgement: Judgement) -> str:
    """What the question states and nothing explains."""
    missing = judgement.proof.missing if judgement.proof is not None else ()
    return "; ".join(check.words for check in missing if check.words)


_OPEN = {
    "host": ("the host", "the host"),
    "peer": ("the lost host", "HOST"),
    "when": ("that time", "TIME"),
    "rank": ("the failing rank", "RANK"),
    "pid": ("the process", "PID"),
    "missing": ("the other ranks", "RANKS"),
}
"""What stands for a name that is not known: in a sentence, and in a command."""


def _names(examination: Examination, judgement: Judgement) -> dict[str, str]:
    """Who and when the verdict is about, as far as it is known."""
    finding = judgement.finding
    if finding is None:
        return {}
    lost = next((f for f in examination.findings if f.kind == "peers.lost"), None)
    peer = (
        finding.text(Fact.PEER)
        or finding.text(Fact.NODE)
        or (finding.host if finding.has(FindingRole.NODE_LOST) else "")
        or (lost.host if lost is not None else "")
    )
    seated = examination.logs.placement.host_of(finding.rank) if finding.rank is not None else None
    time = finding.time or next((e.time for e in finding.evidence if e.time is not None), None)
    known = {
        "host": finding.host or seated or "",
        "peer": re.sub(r"<\d+>$", "", str(peer or "")),
        "when": datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S") if time else "",
        "rank": f"rank {finding.rank}" if finding.rank is not None else "",
        "pid": str(finding.pid or ""),
        "missing": name_ranks(missing) if (missing := _missing_ranks(examination)) else "",
    }
    return {name: word for name, word in known.items() if word}


def _fill(text: str, names: Mapping[str, str], in_command: bool = False) -> str:
    """`text` with {names} filled in."""
    for name, words in _OPEN.items():
        known = names.get(name) or words[in_command]
        text = text.replace(f"{{{name}}}", known)
    return text


def _facts(examination: Examination, judgement: Judgement) -> set[str]:
    finding = judgement.finding
    facts = {f"verdict:{judgement.verdict.value}"}
    if judgement.verdict is Verdict.UNKNOWN and finding is None:
        facts |= _open_facts(judgement)
    if finding is not None:
        facts.add(f"kind:{finding.kind}")
        facts.add(f"kind:{finding.kind.split('.')[0]}")
        if finding.category is not None:
            facts.add(f"category:{finding.category.value}")
        if finding.page:
            facts.add(f"page:{finding.page}")
    if _missing_ranks(examination):
        facts |= {"ranks:missing", f"missing:{finding.kind if finding is not None else ''}"}
    if examination.logs.work:
        facts.add("watchdog:seen")
    if not examination.logs.alive:
        facts.add("run:ended")
    if examination.logs.tracebacks:
        facts.add("seen:traceback")
    if any(OTHER_CARDS.search(text[:400]) for d in examination.logs.digests[:4] for _, text in d.kept[:FIRST_LINES]):  # fmt: skip
        facts.add("cards:other")
    facts |= {f"reading:{name}" for name in examination.readings}
    facts |= {f"found:{found.kind}" for found in examination.findings}
    return facts


def _missing_ranks(examination: Examination) -> list[int]:
    """Ranks of the job that wrote nothing that was given."""
    world, seen = examination.logs.world_size, examination.logs.ranks_seen
    return sorted(set(range(world)) - set(seen)) if world and len(seen) < world else []


def _open_facts(judgement: Judgement) -> set[str]:
    """What a proof of health lacks; `open:nothing` where no complaint says what to look for."""
    missing = judgement.proof.missing if judgement.proof is not None else ()
    asked = {f"open:{check.complaint}" for check in missing if check.complaint is not None}
    quiet = judgement.proof is not None and judgement.proof.quiet
    if asked and quiet:
        return asked
    kind = "open:stated" if quiet and _stated(judgement) else "open:nothing"
    return {kind, *asked, *(f"open:{check.condition}" for check in missing)}


def _is_stated(rule: Mapping[str, Any], stated: str) -> bool:
    return "stated" not in rule or expression(str(rule["stated"])).search(stated) is not None


def _applies(rule: Mapping[str, Any], facts: set[str]) -> bool:
    if facts & set(map(str, rule.get("unless", ()))):
        return False
    return bool(facts & set(map(str, rule.get("when", ()))))
