"""Did all processes of a run register, each once: those of Lightning, and the tasks of JAX?

Lightning prints `GLOBAL_RANK: 3, MEMBER: 4/8` for every process and, when all are there, that all are
registered. Where that line never comes, the numbers tell who is missing or was started twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST = 8_192
_MEMBER = expression(
    r"GLOBAL_RANK: (?P<rank>\d{1,6}), MEMBER: (?P<number>\d{1,6})/(?P<world>\d{1,6})\b"
)
_MISSING_TASK = expression(
    r"^\s*(?:[\w.\[\]():> -]{0,60}\s)?/job:\w+/replica:\d+/task:(?P<task>\d{1,6})\s*$"
)
_PROCESSES = expression(r"\bnum_processes\s?=\s?(?P<count>\d{1,6})\b")
_REACHED = expression(r"tasks that reached the barrier: \d{1,6}/(?P<count>\d{1,6})\b")
_NEVER_PLACED = "kubernetes.unschedulable"
_ALL = expression(r"\b[Aa]ll (?:distributed|DDP) processes registered")
_TASKS = expression(
    r"#SBATCH +(?:--ntasks(?:-per-node)?|-n)[= ]\d+|^\s*python3? \S+\.py|\bsrun .*\bpython"
)


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """Ranks that never registered, or that several processes claim."""
    ranks: Counter[int] = Counter()
    world = 0
    lines: list[Line] = []
    for digest, number, text in incident.lines_with(("MEMBER: ", "processes registered")):
        if _ALL.search(text):
            return []
        match = _MEMBER.search(text[:400])
        if match is None or len(lines) >= MOST:
            continue
        ranks[int(match["rank"])] += 1
        world = max(world, int(match["world"]))
        lines.append(make_line(digest.file, number, text, digest.year))
    if not lines:
        return _find_tasks(incident, any(f.kind == _NEVER_PLACED for f in findings))
    if world < 2 or incident.trained:
        return []
    title = _read_title(ranks, world)
    if title is None:
        return []
    script = (
        make_line(digest.file, number, text, digest.year)
        for digest, number, text in incident.lines_with(("python", "#SBATCH"))
        if _TASKS.search(text)
    )
    evidence = [lines[0], lines[-1], *islice(script, 1)]
    return [
        Finding(
            kind="launch.members",
            title=title,
            level=Level.CAUSE,
            category=Category.SCHEDULER,
            evidence=tuple(line.evidence() for line in evidence),
            page="one-launcher-per-node",
            facts={"survived": False, "world": world, "registered": len(ranks)},
        )
    ]


def _find_tasks(incident: LogIncident, unplaced: bool) -> list[Finding]:
    """JAX: the tasks that the coordinator waited for in vain, beside how many there are to be.

    unplaced: Kubernetes found no node for a pod, which is why its task never came.
    """
    missing: dict[int, Line] = {}
    total = 0
    for digest, number, text in incident.lines_with(
        ("/task:", "num_processes", "Wait_for_all_tasks", "reached the barrier: ")
    ):
        count = _PROCESSES.search(text[:400]) or _REACHED.search(text[:400])
        if count is not None:
            total = max(total, int(count["count"]))
        row = _MISSING_TASK.match(text[:200])
        if row is not None and len(missing) < MOST:
            missing[int(row["task"])] = make_line(digest.file, number, text, digest.year)
    if not missing or incident.trained:
        return []
    if not any(True for _ in incident.lines_with(("imed out task names", "asks did not register"))):
        return []
    total = max(total, max(missing) + 1)
    there = total - len(missing)
    ranks = sorted(missing)
    span = f"task {ranks[0]}" if len(ranks) == 1 else f"tasks {ranks[0]} to {ranks[-1]}"
    only = there == 1 and len(missing) > 1
    title = (
        f"only {there} of {total} processes registered with the coordinator: {span} never came"
        + (
            "; the script was started once, although it asks for more processes"
            if only
            else "; it was not started, died before, or cannot reach the coordinator"
        )
    )
    return [
        Finding(
            kind="launch.members",
            title=title,
            level=Level.SYMPTOM if unplaced else Level.CAUSE,
            category=Category.SCHEDULER if only else Category.COMMUNICATION,
            evidence=tuple(missing[r].evidence() for r in ranks[:3]),
            rank=ranks[0] if len(ranks) == 1 else None,
            page="jax-coordination",
            facts={"survived": False, "world": total, "registered": there},
        )
    ]


def _read_title(ranks: Counter[int], world: int) -> str | None:
    twice = [r for r, n in ranks.items() if n > 1]
    if len(ranks) >= 2 and len(twice) == len(ranks) and len(ranks) < world:
        return (
            f"every global rank from {min(ranks)} to {max(ranks)} registered more than once and the others of {world} "
            "never: each node counts its ranks from 0, because the launcher does not tell the nodes apart (one task "
            "per node under srun, or no node rank): give Slurm one task for each GPU (--ntasks-per-node) or set "
            "NODE_RANK on each node"
        )
    missing = sorted(set(range(world)) - set(ranks))
    # members that are pasted here and there are an excerpt, not a node that never came
    gap = len(missing) > 1 and missing[-1] - missing[0] + 1 != len(missing)
    if not twice and missing and not gap and len(missing) * 4 >= world:
        return (
            f"only {len(ranks)} of {world} processes started: global ranks {missing[0]} to {missing[-1]} never "
            "registered, so the run waits for them; the script was started on one node only (without srun), or Slurm "
            "was given fewer tasks than nodes times devices"
        )
    return None
