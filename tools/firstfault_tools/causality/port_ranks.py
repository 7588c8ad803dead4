"""Which rank sends through a network port that lost its link?"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Finding
from firstfault_tools.log.place import Place
from firstfault_tools.placement.table import only, same_host


def rank_at_port(
    incident: LogIncident, finding: Finding, findings: Sequence[Finding]
) -> int | None:
    """The one rank of the port's host whose own RDMA connections broke; its partners elsewhere met the same.

    Where only the partners tell, they sit on one rail: the rank of the host with their local number.
    """
    met = _ranks_of_broken_rdma(incident)
    for other in findings:
        if other.has(FindingRole.RDMA) or other.has(FindingRole.PORT_DOWN):
            met |= {*other.wholes(Fact.RANKS)}
    table, host = incident.placement, finding.host or ""
    own = {r for r in met if same_host(table.place_of(r).host or "", host)}
    if own or len(met) < 2:
        return only(own)
    seats = {table.seat_of(r) for r in met}
    seat = None if None in seats else only(seats)
    return table.by_gpu(host, seat, None) if seat is not None else None


def _ranks_of_broken_rdma(incident: LogIncident) -> set[int]:
    """Ranks whose process reports a broken connection or port, by its label or by the pid that NCCL gives."""
    roles = (FindingRole.RDMA, FindingRole.PORT_DOWN)
    indices = frozenset[int]().union(*map(incident.signatures.with_role, roles))
    met: set[int | None] = set()
    for line in (h.line for d in incident.digests for h in d.hits if h.index in indices):
        rank, place = rank_of(incident, line), line.place
        if rank is None and place.host and place.pid is not None:
            rank = incident.placement.ranks_of(
                Place(host=place.host, pid=place.pid, gpu=place.gpu)
            ).only
        met.add(rank)
    return {rank for rank in met if rank is not None}
