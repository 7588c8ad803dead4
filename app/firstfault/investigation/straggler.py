"""Which rank did not come to the collective that all others wait in? The one whose last enqueued work is older."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.investigation.diagnosis import FirstLine, Straggler
from firstfault_tools.log.work import WorkReport

LEAST_RANKS = 3


def find_straggler(reports: Sequence[WorkReport]) -> Straggler | None:
    """The one rank that lags by the last report of each; None where several do, or none."""
    groups: dict[str, dict[int, tuple[int, WorkReport]]] = {}
    for report in reports:
        if report.enqueued is not None:
            groups.setdefault(report.group, {})[report.rank] = report.enqueued, report
    last = max(groups.values(), key=len, default={})  # counters of one process group alone compare
    if len(last) < LEAST_RANKS:
        return None
    least = min(enqueued for enqueued, _ in last.values())
    behind = [rank for rank, (enqueued, _) in last.items() if enqueued == least]
    rest = [enqueued for enqueued, _ in last.values() if enqueued != least]
    if len(behind) != 1 or not rest:
        return None
    line = last[behind[0]][1].line
    return Straggler(
        behind[0], least, min(rest), len(rest), FirstLine(line.file, line.number, line.text)
    )
