"""Did a resumed run take another setting than the one it was trained with, and go wrong since?

Trainers say at a resume which arguments differ from the checkpoint, or which checkpoint value they
override. Beside a loss that leaves its course after it, that line is the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence, Finding, Level

LEFT = frozenset(
    {"metrics.divergence", "metrics.resume_loss_jump", "metrics.loss_inflated", "metrics.lr_jump"}
)
MOST_LINES = 20_000
_DIFFERS = expression(
    r"(?P<name>[a-z][a-z_]{3,40}): (?P<now>\S{1,40}) \(from args\) != (?P<old>\S{1,40}) \(from trainer_state\.json\)|"
    r"> overriding (?P<over>[a-z ]{4,40}) value to (?P<to>\S{1,40})"
)
_MATTERS = expression(
    r"learning|lr\b|warmup|warm-up|batch|accumulation|decay|beta|scheduler|precision|seed"
)


def find_in_incident(incident: Any, findings: Sequence[Finding]) -> Iterable[Finding]:
    """The verdict on the loss again, with the setting that changed before it."""
    logs: LogIncident = incident
    left = next(
        (f for f in findings if f.kind in LEFT and f.evidence and f.level in (Level.CAUSE, Level.FAILURE)),
        None,
    )  # fmt: skip
    if left is None:
        return ()
    file, at = left.evidence[0].file, left.evidence[-1].line
    told: list[tuple[int, str, str]] = []
    digest = next((d for d in logs.digests if d.file == file), None)
    for number, text in digest.kept[:MOST_LINES] if digest is not None else ():
        if number >= at or ("trainer_state.json)" not in text and "> overriding" not in text):
            continue
        for m in _DIFFERS.finditer(text):
            name = m["name"] or m["over"]
            if _MATTERS.search(name):
                said = f"{name} {m['now']} instead of {m['old']}" if m["name"] else f"{name} now {m['to']}"  # fmt: skip
                told.append((number, text, said))
    if not told:
        return ()
    title = left.title[0].lower() + left.title[1:]
    quoted = {n: t for n, t, _ in told[:2]}
    return (
        replace(
            left,
            kind="metrics.changed_setting",
            title=f"The resumed run uses other settings than its checkpoint ({', '.join(dict.fromkeys(s for _, _, s in told[:4]))}); with them {title}",
            level=Level.CAUSE,
            evidence=(
                *(Evidence(file, n, t.strip()[:600]) for n, t in quoted.items()),
                *left.evidence[:2],
            ),
            page="resume-state",
            facts={**left.facts, "starts_at": 1, "specificity": 6_000},
        ),
    )
