"""Do several ranks of one host use the same GPU in their first barrier?

A barrier of NCCL is an all-reduce on some device. A rank that has set none takes GPU 0, and PyTorch
says so; harmless while the number is the rank's own, a hang when two ranks name the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.log.digest import Line

FIRST_COLLECTIVES = 4
"""Sequence numbers up to which a collective is one of the start."""


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """Neighbouring ranks that wait in one of the first collectives and named one GPU."""
    waits = [w for w in incident.work if w.timed_out]
    if not waits or any((w.seq or 0) > FIRST_COLLECTIVES for w in waits):
        return []
    users: dict[tuple[str | None, str], dict[int, Line]] = defaultdict(dict)
    guessed = incident.signatures.with_role(FindingRole.DEVICE_GUESSED)
    for digest in incident.digests:
        for hit in digest.hits:
            if hit.index not in guessed:
                continue
            rank, gpu = rank_of(incident, hit.line), hit.captures.get("gpu_index")
            if rank is not None and gpu is not None:
                users[hit.line.place.host, gpu].setdefault(rank, hit.line)
    for (host, gpu), lines in users.items():
        ranks = sorted(lines)
        if not any(b - a == 1 for a, b in pairwise(ranks)):
            continue
        where = f" on {host}" if host else ""
        names = ", ".join(map(str, ranks[:8]))
        return [
            Finding(
                kind="ranks.same_gpu",
                title=(
                    f"ranks {names}{where} all use GPU {gpu} in the first barrier, because none had set its device: "
                    "torch.cuda.set_device(local_rank) (or device_id in init_process_group) has to come before the "
                    "first collective, else the ranks meet on one GPU and hang"
                ),
                level=Level.CAUSE,
                category=Category.CODE_BUG,
                evidence=tuple(lines[r].evidence() for r in ranks[:3]),
                facts={"survived": False, "ranks": ranks[:64]},
            )
        ]
    return []
