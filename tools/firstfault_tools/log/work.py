"""What did each rank's NCCL watchdog (or HCCL) say? Sequence numbers, operations and sizes per process group.

Formats are those of PyTorch's ProcessGroupNCCL.cpp from 1.13 to 2.11: the timeout line, the status
line with last enqueued and last completed work, and the exception line; and the codes of HCCL's waits.
"""

from __future__ import annotations

import re
from math import prod

from firstfault_tools.dataclass import dataclass
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
    lines = (make_line(digest.file, n, t, digest.year) for n, t in digest.marked_lines(Mark.WORK))
    return tuple(report for line in lines if (report := read_work_line(line)) is not None)


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
        rank = _int(_told(_BODY_RANK.search(text), "rank") or _told(group, "rank"))
    if rank is None:
        return None
    ran = _RAN.search(text)
    return WorkReport(
        rank=rank,
        group=(_told(group, "guid") or _told(group, "id") or "").strip(),
        line=line,
        timed_out=ran is not None or "caught collective operation timeout" in text,
        seq=_int(_told(work, "seq") or _told(_AT.search(text), "seq")),
        op=_told(work, "op"),
        numel_in=_numel(_told(work, "nin") or _product(_told(work, "shape"))),
        numel_out=_numel(_told(work, "nout")),
        timeout_ms=_int(_told(work, "timeout")),
        ran_ms=_int(_told(ran, "ran")),
        enqueued=_int(_told(status, "enq")),
        completed=_int(_told(status, "comp")),
    )


def _told(match: re.Match[str] | None, name: str) -> str | None:
    """What a part of a line says, where the line has it."""
    return match[name] if match is not None else None


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
