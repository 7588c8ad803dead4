"""What limited the memory when the kernel killed a process: the host, a cgroup, a NUMA policy, a cpuset?

The kernel prints the constraint beside the kill (mm/oom_kill.c, `oom-kill:constraint=`). "Free" memory
on the host says nothing where a policy or a limit keeps the process from using it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from firstfault_tools.facts import Fact
from firstfault_tools.findings import Finding

KIB_PER_GIB = 1024 * 1024
WORTH_TELLING_GIB = 1.0


def explain_memory_kills(findings: Sequence[Finding]) -> list[Finding]:
    """Kills with their constraint, limit and the free memory of other NUMA nodes in the title."""
    constraints = {(f.host, f.pid): f for f in findings if f.kind == "kernel.oom_constraint"}
    limits = [f for f in findings if f.kind == "kernel.oom_limit"]
    free = [f for f in findings if f.kind == "kernel.node_free"]
    out = []
    for finding in findings:
        if finding.kind == "kernel.oom_kill":
            constraint = constraints.get((finding.host, finding.pid))
            finding = _explain(finding, constraint, limits, free)
        out.append(finding)
    return out


def _say_constraint(name: str, told: Finding) -> Iterator[str]:
    match name:
        case "CONSTRAINT_MEMORY_POLICY":
            nodes = told.text(Fact.NODES) or "?"
            yield (
                f"its NUMA memory policy (numactl --membind or a similar binding) allows node {nodes} only, and "
                "that node was full"
            )
        case "CONSTRAINT_CPUSET":
            yield f"its cpuset allows memory of NUMA node {told.text(Fact.MEMS)} only, and that was full"
        case "CONSTRAINT_MEMCG":
            group = told.text(Fact.LIMITED) or told.text(Fact.CGROUP)
            yield f"the limit of cgroup {group}{_owner(group)}"


def _explain(
    kill: Finding, constraint: Finding | None, limits: Sequence[Finding], free: Sequence[Finding]
) -> Finding:
    words: list[str] = []
    met: dict[str, int] = {}
    evidence = list(kill.evidence)
    name = constraint.text(Fact.CONSTRAINT) if constraint is not None else ""
    if constraint is not None:
        evidence.append(constraint.evidence[0])
        words += _say_constraint(name, constraint)
    if name in ("CONSTRAINT_MEMORY_POLICY", "CONSTRAINT_CPUSET"):
        words += _other_nodes(constraint.text(Fact.NODES) if constraint else "", free)
    if kill.text(Fact.SCOPE) == "cgroup":
        for limit in limits:
            kib = limit.whole(Fact.LIMIT_KIB)
            if limit.host == kill.host and kib is not None and kib < 1 << 50:
                held = kill.whole(Fact.ANON_RSS_KIB) or 0
                own = ", most of it held by this process itself" if 2 * held > kib else ""
                words.append(f"{kib / KIB_PER_GIB:.1f} GiB allowed{own}")
                met = {Fact.LIMIT_KIB: kib}
                evidence.append(limit.evidence[0])
                break
    if not words:
        return kill
    told = {"constraint": name} if name else {}
    if constraint is not None and name == "CONSTRAINT_MEMCG":
        told[Fact.LIMITED] = constraint.text(Fact.LIMITED) or constraint.text(Fact.CGROUP)
    if name == "CONSTRAINT_MEMORY_POLICY":
        told[Fact.FIX] = "NUMA memory policy"
    facts = {**kill.facts, **told, **met}
    title = kill.title
    if name in ("CONSTRAINT_MEMORY_POLICY", "CONSTRAINT_CPUSET"):
        title = title.replace("the host ran out of memory", "the memory it may use ran out")
    return replace(
        kill, title=f"{title}: {'; '.join(words)}", evidence=tuple(evidence), facts=facts
    )


def _owner(group: str) -> str:
    if "kubepods" in group:
        return " (the memory limit of the pod)"
    if "slurm" in group or "/job_" in group:
        return " (the memory that the Slurm job asked for)"
    if "docker" in group:
        return " (the memory limit of the container)"
    return ""


def _other_nodes(nodes: str, free: Sequence[Finding]) -> list[str]:
    words = []
    for node in free:
        number, kib = node.text(Fact.DEVICE), node.whole(Fact.FREE_KIB)
        if number == nodes or kib is None:
            continue
        gib = kib / KIB_PER_GIB
        if gib >= WORTH_TELLING_GIB:
            words.append(f"node {number} had {gib:.0f} GiB free")
    return words[:4]
