"""What did each rank's NCCL watchdog (or HCCL) say? Sequence numbers, operations and sizes per process group.

Formats are those of PyTorch's ProcessGroupNCCL.cpp from 1.13 to 2.11: the timeout line, the status
line with last enqueued and last completed work, and the exception line; and the codes of HCCL's waits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import FileDigest, Line, Mark
from firstfault_tools.log.scan import make_line

_WORK = expression(
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
    r"(?:, (?:NumelIn=(?P<nin>\d+), NumelOut=(?P<nout>\d+)|TensorShape=\[(?P<shape>[\d, ]*)\]))?"
    r"(?:, Timeout\(ms\)=(?P<timeout>\d+))?"
)
_RAN = expression(r"ran for (?P<ran>\d+) milliseconds")
_STATUS = expression(
    r"last enqueued(?: NCCL)? work: (?P<enq>-?\d+), last completed(?: NCCL)? work: (?P<comp>-?\d+)",
    re.I,
)
_AT = expression(
    r"(?:at work sequence id|Timeout at NCCL work|timeout at NCCL work|Exception hit in NCCL work|hit in NCCL work): (?P<seq>\d+)",
    re.I,
)
_GROUP = expression(r"PG (?:ID )?(?P<id>\d+)(?: PG GUID (?P<guid>[\w()., ]+?))? Rank (?P<rank>\d+)")
_HCCL = expression(r"\bEI000([26]): ")
_BODY_RANK = expression(r"\[(?:Global )?Rank (?P<rank>\d+)\]")


@dataclass(frozen=True, slots=True)
class WorkReport:
    """What one watchdog line says about one rank's collective. Numbers are None where not printed."""

    rank: int
    group: str
    line: Line
    timed_out: bool
    seq: int | None = None
    op: str | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None
    enqueued: int | None = None
    completed: int | None = None


def read_work(digest: FileDigest) -> tuple[WorkReport, ...]:
    """Watchdog reports of one log, in order."""
    out = []
    for number in digest.marked.get(Mark.WORK, ()):
        position = digest.position(number)
        if position < 0 or digest.kept[position][0] != number:
            continue
        report = read_work_line(
            make_line(digest.file, number, digest.kept[position][1], digest.year)
        )
        if report is not None:
            out.append(report)
    return tuple(out)


def read_work_line(line: Line) -> WorkReport | None:
    """What one line says of a rank's collective; None for lines of other kinds."""
    text = line.text
    work = _WORK.search(text)
    status = _STATUS.search(text)
    if work is None and status is None:
        return _read_hccl(line)
    group = _GROUP.search(text)
    rank = line.place.rank
    if rank is None:
        body = _BODY_RANK.search(text)
        if body is None and group is None:
            return None
        rank = int(body["rank"] if body is not None else group["rank"])  # type: ignore[index]
    at = _AT.search(text)
    ran = _RAN.search(text)
    seq = work["seq"] if work is not None and work["seq"] else at["seq"] if at is not None else None
    name = (group["guid"] or group["id"]) if group is not None else ""
    return WorkReport(
        rank=rank,
        group=name.strip(),
        line=line,
        timed_out=ran is not None or "caught collective operation timeout" in text,
        seq=_int(seq),
        op=work["op"] if work is not None else None,
        numel_in=_numel(work["nin"] or _product(work["shape"]) if work is not None else None),
        numel_out=_numel(work["nout"] if work is not None else None),
        timeout_ms=_int(work["timeout"] if work is not None else None),
        ran_ms=_int(ran["ran"] if ran is not None else None),
        enqueued=_int(status["enq"] if status is not None else None),
        completed=_int(status["comp"] if status is not None else None),
    )


def _read_hccl(line: Line) -> WorkReport | None:
    """Ascend's HCCL gave up waiting: for a peer's socket (EI0006), or for its record in a collective (EI0002)."""
    code = _HCCL.search(line.text)
    if code is None or line.place.rank is None:
        return None
    op = "an HCCL connection" if code[1] == "6" else "an HCCL collective"
    return WorkReport(line.place.rank, "", line, timed_out=True, op=op)


def _int(text: str | None) -> int | None:
    return int(text) if text is not None else None


def _product(shape: str | None) -> str | None:
    """Elements of the shape that PyTorch up to 2.0 prints instead of their number."""
    sizes = re.findall(r"\d+", shape or "")
    return str(prod(map(int, sizes))) if sizes else None


def _numel(text: str | None) -> int | None:
    """Element count; coalesced works print an all-ones 64-bit number that means unknown."""
    value = _int(text)
    return None if value is None or value >= 2**63 else value
