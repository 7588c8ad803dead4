"""Did an elastic rendezvous end with fewer nodes than the job was meant to have, while the others were on their way?

`--nnodes=MIN:MAX` lets the rendezvous close once MIN nodes have joined and the last call (30 s unless set
otherwise) is over. Nodes that are still pending then find it closed, or the job runs with a world that is
too small for it. A longer timeout of the rendezvous does not help: it is another limit.
"""

from __future__ import annotations

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.unmet import describe_launch
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

_SPAN = expression(r"--nnodes[= ](?P<least>\d{1,5}):(?P<most>\d{1,5})\b")
_LEAST = expression(r"\bmin_nodes\W{1,20}(?P<least>\d{1,5})\b")
_MOST = expression(r"\bmax_nodes\W{1,20}(?P<most>\d{1,5})\b")
_DONE = expression(
    r"Rendezvous version \d+ is complete.{0,80}'participants': \[(?P<joined>[\d, ]+)\]|"
    r"\[rdzv\] The rendezvous .{0,200}has been completed|\bgroup_world_size=(?P<size>\d{1,5})\b"
)
_LATE = expression(
    r"RendezvousClosedError|observed to be closed|rendezvous .{0,80}(?:is|was|has been) (?:already )?closed|"
    r"num_workers_waiting['\"]?: [1-9]|\bFailedScheduling\b|\bTriggeredScaleUp\b"
)
_PENDING = expression(
    r"(?P<why>FailedScheduling|TriggeredScaleUp)\s+(?:pod/)?(?P<pod>[a-z0-9][a-z0-9.-]+)"
)
_COMPLAINT = expression(
    r"(?i)\w+Error\b.{0,120}world[_ ]size|world[_ ]size.{0,40}(?:!=|mismatch|expected|divisible)"
)
_CALL = expression(r"last_call_timeout['\"]?\s*[=:]\s*['\"]?(?P<seconds>\d+)")


def find_small_quorum(incident: LogIncident) -> Finding | None:
    """The rendezvous was completed by fewer nodes than the most that were asked for, and others came late."""
    span = _read_span(incident)
    if span is None:
        return None
    least, most, asked = span
    done = _read_size(incident)
    if done is None or not least <= done[0] < most:
        return None
    late = [
        make_line(d.file, n, t, d.year)
        for d, n, t in incident.lines_with(
            ("losed", "num_workers_waiting", "FailedScheduling", "TriggeredScaleUp")
        )
        if _LATE.search(t[:1000])
    ]
    closed = [x for x in late if "losed" in x.text]
    if not late or not (closed or _small_world(incident)):
        return None
    joined, line = done
    pending = {m["pod"]: x for x in late if (m := _PENDING.search(x.text)) is not None}
    grown = any("TriggeredScaleUp" in x.text for x in late)
    call = next(
        (m["seconds"] for _, _, t in incident.lines_with(("last_call_timeout",)) if (m := _CALL.search(t))), "30"
    )  # fmt: skip
    if pending:
        names = ", ".join(sorted(pending)[:4])
        why = f"{names} {'were' if len(pending) > 1 else 'was'} still pending then" + (
            " (the cluster had to add a node first: scale-up)" if grown else " (FailedScheduling)"
        )
    else:
        why = "the other nodes came late and found it closed"
    return describe_launch(
        "quorum",
        f"the rendezvous was completed with {joined} of {most} nodes: --nnodes={least}:{most} lets it end with the minimum of "
        f"{least} nodes once the last call ({call} s) is over, and {why}; the job then ran on a world that was too small, and "
        f"late nodes met a closed rendezvous",
        [line, asked, *list(pending.values())[:1], *closed[:1]],
        Category.SCHEDULER,
    )


def _small_world(incident: LogIncident) -> bool:
    """The program itself complains of the number of ranks."""
    rows = incident.lines_with(("world size", "world_size", "World size"))
    return any(_COMPLAINT.search(text[:1000]) for _, _, text in rows)


def _read_span(incident: LogIncident) -> tuple[int, int, Line] | None:
    """(least, most, line) of an elastic number of nodes."""
    least: tuple[int, Line] | None = None
    for digest, number, text in incident.lines_with(("--nnodes", "min_nodes", "max_nodes")):
        line = make_line(digest.file, number, text, digest.year)
        if (span := _SPAN.search(text)) is not None and int(span["least"]) < int(span["most"]):
            return int(span["least"]), int(span["most"]), line
        if (low := _LEAST.search(text)) is not None:
            least = int(low["least"]), line
        if (high := _MOST.search(text)) is not None and least is not None:
            if least[0] < int(high["most"]):
                return least[0], int(high["most"]), least[1]
            least = None
    return None


def _read_size(incident: LogIncident) -> tuple[int, Line] | None:
    """(nodes, line) of the first rendezvous that was completed."""
    for digest, number, text in incident.lines_with(("is complete", "group_world_size")):
        match = _DONE.search(text)
        size = 0
        if match is not None and match["joined"]:
            size = len(match["joined"].split(","))
        elif match is not None and match["size"]:
            size = int(match["size"])
        if size:
            return size, make_line(digest.file, number, text, digest.year)
    return None
