"""How did the judge decide? Explanations in their order with the rule that put each there, and every decision.

The rows are the same for the terminal, `--why --json` (schema firstfault.why/1) and the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from firstfault_tools.correlation.decisions import Decision
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Finding

if TYPE_CHECKING:
    from firstfault.investigation.examination import Examination
    from firstfault.investigation.verdict import Judgement

SCHEMA = "firstfault.why/1"
MOST_EXPLANATIONS = 20
"""Explanations shown; a run of thousands of ranks can leave hundreds of symptoms."""

STEPS = {
    "judge": "the leading explanation, else the proof of health, decides",
    "harmless-and-asked": "the question asks for something that is known to do no harm",
    "warning-names-a-cause": "a warning before it names a cause and what to do",
    "page-for-unexplained-lines": "no rule knows the lines; the knowledge has a page that fits them",
    "good-run-beside-the-bad": "the logs hold a good and a bad run, and a difference between them is known to make just this worse",
    "one-rank-alone-tells-trouble": "one rank alone tells of trouble of its own before all stand still, and nothing else is known",
    "words-of-the-odd-rank": "what the rank that stands out said by itself belongs to the verdict",
    "complaint-weighed": "what the person sees is not contradicted, and what accounts for it is told",
    "experiment-of-the-question": "the question tells of a setting with which it works",
    "setting-named": "a printed setting stands behind the fault",
    "says-only-what-was-said": "the question states the very effect, and nothing that was read says why",
    "asked-among-harmless": "of several harmless things the one that is asked about is told",
    "proof-of-health": "healthy needs proof: a clean end, every file understood, nothing unexplained",
    "precision-of-the-kind": "how often explanations of this kind were right where it was counted",
    "reading-was-stopped": "what failed first may stand in a log that was not read",
}
"""Steps from the order of explanations to the verdict, each with its reason."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step that changed the judgement."""

    rule: str
    change: str


@dataclass(slots=True)
class Steps:
    """The steps of one verdict, in order; those that changed nothing are left out."""

    taken: list[Step] = field(default_factory=list)

    def take(self, rule: str, before: Judgement | None, after: Judgement) -> Judgement:
        """Note what a step changed; the judgement after it."""
        if (change := _compare(before, after)) != "":
            self.taken.append(Step(rule, change))
        return after


def _compare(before: Judgement | None, after: Judgement) -> str:
    parts = []
    if before is None or before.verdict is not after.verdict:
        parts.append(f"verdict {after.verdict.value}")
    if before is None or before.confidence is not after.confidence:
        parts.append(f"{after.confidence.value}")
    old, new = before.finding if before is not None else None, after.finding
    if old is not new and new is not None:
        kept = old is not None and old.kind == new.kind
        parts.append(f"{new.kind} says more" if kept else f"rests on {new.kind}")
    elif old is not new:
        parts.append("rests on no finding")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Why:
    """Everything that decided, of one incident."""

    examination: Examination
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON-able object of schema `firstfault.why/1`."""
        return {
            "schema": SCHEMA,
            "explanations": explanation_rows(self.examination),
            "decisions": [_decision_row(d) for d in self.examination.decisions],
            "survived": [_name(f) for f in self.examination.chain.survived],
            "verdict": [
                {"rule": s.rule, "reason": STEPS[s.rule], "change": s.change} for s in self.steps
            ],
        }


def explanation_rows(examination: Examination) -> list[dict[str, Any]]:
    """Explanations, the leading one first; `before` says which rule puts it before the next one."""
    ranked = examination.chain.explanations[: MOST_EXPLANATIONS + 1]
    rows = []
    for place, (one, following) in enumerate(zip_longest(ranked, ranked[1:]), 1):
        row = {"place": place, **_name(one.finding)}
        if following is not None:
            rule, reason = one.standing.reason_before(following.standing)
            row["before"] = {"rule": rule, "reason": reason}
        rows.append(row)
    return rows[:MOST_EXPLANATIONS]


def _decision_row(decision: Decision) -> dict[str, Any]:
    return {
        "relation": decision.rule.relation.value,
        "rule": decision.rule.name,
        "reason": decision.rule.reason,
        "change": decision.change,
        "of": _name(decision.of),
        "by": _name(decision.by) if decision.by is not None else None,
        "lines": [{"file": file, "line": line} for file, line in decision.lines],
    }


def _name(finding: Finding) -> dict[str, Any]:
    first = finding.evidence[0] if finding.evidence else None
    return {
        "kind": finding.kind,
        "title": finding.title,
        "level": finding.level.value,
        "category": finding.category.value if finding.category is not None else None,
        "rank": finding.rank,
        "host": finding.host,
        "file": first.file if first is not None else None,
        "line": first.line if first is not None else None,
    }


def write_why(why: Why) -> str:
    """The same as text for a terminal."""
    told = why.to_json()
    rows = ["Explanations, the leading one first"]
    for row in told["explanations"]:
        rows.append(f"{row['place']}. {_say(row)}: {row['title']}")
        if "before" in row:
            rows.append(f"   before {row['place'] + 1} by {row['before']['rule']}: {row['before']['reason']}")  # fmt: skip
    if not told["explanations"]:
        rows.append("none: nothing that failed was found")
    if told["survived"]:
        rows += ["", "Set aside, since training went on after it"]
        rows += [f"- {_say(row)}: {row['title']}" for row in told["survived"][:MOST_EXPLANATIONS]]
    rows += ["", "Rules that held"]
    rows += [line for row in told["decisions"] for line in _say_decision(row)] or ["none"]
    rows += ["", "Verdict"]
    rows += [f"- {row['rule']}: {row['change']} ({row['reason']})" for row in told["verdict"]]
    return "\n".join(rows)


def _say_decision(row: Mapping[str, Any]) -> Iterator[str]:
    by = f", beside {_say(row['by'])}" if row["by"] is not None else ""
    yield f"- {row['rule']} ({row['relation']}): {_say(row['of'])}: {row['change']}{by}"
    yield f"  {row['reason']}"


def _say(row: Mapping[str, Any]) -> str:
    parts = [row["kind"], row["level"]]
    parts += [row["category"]] if row["category"] is not None else []
    parts += [f"rank {row['rank']}"] if row["rank"] is not None else []
    parts += [f"{row['file']}:{row['line']}"] if row["file"] is not None else []
    return " · ".join(parts)
