"""Which rank is it, by what the person says of the layout? Ranks of findings that the logs alone could not place."""

from __future__ import annotations

from dataclasses import replace

from firstfault.investigation.examination import Examination
from firstfault_tools.causality.assignment import place_ranks
from firstfault_tools.causality.chain import order_findings
from firstfault_tools.correlation.decisions import Trail
from firstfault_tools.placement.layout import read_layout


def place_as_told(examination: Examination, question: str) -> Examination:
    """The examination with ranks by the layout that the question states; the same one where it states none."""
    layout = read_layout(question)
    if not layout.told:
        return examination
    logs = examination.logs.with_layout(layout)
    trail = Trail()
    findings = place_ranks(logs, examination.findings, trail)
    if not trail.decisions:
        return replace(examination, logs=logs)
    return replace(
        examination,
        logs=logs,
        findings=tuple(findings),
        chain=order_findings(findings),
        decisions=(*examination.decisions, *trail.decisions),
    )
