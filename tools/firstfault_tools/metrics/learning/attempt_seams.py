"""Did a run go on worse in the next log than it stopped in the one before? A resume that two logs tell of.

Each attempt often writes a log of its own: the level before the load stands in one, the level after it in the
next. Both are read as one log, in the order of their steps, and judged as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.logs import Logs
from firstfault_tools.metrics.log_lines import find_in_lines, read_steps
from firstfault_tools.metrics.series import NO_STEP

BESIDE = ("logs:2",)

JUMPS = "metrics.resume_loss_jump"
MOST_LOGS, LEAST_STEPS = 8, 4
OFFSET = 100_000_000
"""Added to the line numbers of the later log; no log has as many lines."""


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> list[Finding]:
    """The jump of the loss between two logs, of which the later goes on where the earlier stopped."""
    logs = [d for d in incident.digests if d.name_rank is None]
    if not 2 <= len(logs) <= MOST_LOGS or any(f.kind == JUMPS for f in findings):
        return []
    spans = [(span, d) for d in logs if (span := _span(d)) is not None]
    for (_, last, stride), before in spans:
        for (first, _, _), after in spans:
            goes_on = before is not after and 0 < first - last <= 2 * stride
            if goes_on and (found := _judge(before, after)):
                return found
    return []


def _span(digest: FileDigest) -> tuple[int, int, int] | None:
    """(first step, last step, usual distance) of a log that counts its steps upwards."""
    series = read_steps(list(digest.kept))
    steps = [s for s in series.step if s != NO_STEP]
    if len(steps) < LEAST_STEPS or steps != sorted(steps) or steps[0] == steps[-1]:
        return None
    return steps[0], steps[-1], max(1, (steps[-1] - steps[0]) // (len(steps) - 1))


def _judge(before: FileDigest, after: FileDigest) -> list[Finding]:
    lines = [*before.kept, *((n + OFFSET, text) for n, text in after.kept)]
    found = (f for f in find_in_lines(lines, before.file) if f.kind == JUMPS)
    return [
        replace(f, evidence=tuple(_place(e, before.file, after.file) for e in f.evidence))
        for f in found
    ]


def _place(evidence: Evidence, before: str, after: str) -> Evidence:
    late = evidence.line > OFFSET
    return replace(
        evidence,
        file=after if late else before,
        line=evidence.line - OFFSET if late else evidence.line,
    )
