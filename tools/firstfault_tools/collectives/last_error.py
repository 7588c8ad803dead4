"""Which last error did NCCL report, where its class alone says nothing?

PyTorch prints the class of a failure (internal error, system error) and below it "Last error:" with the
text of NCCL's last warning. That text is the finding; the class is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Evidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import keep_marked
from firstfault_tools.log.prefix import read_prefix

GATE = ("Last error:",)
LOOK_BACK, MOST = 80, 64
_TOLD = expression(
    r"remote peer|remote process|[Ss]ocket|[Cc]onnection|Cuda failure|ibv_|NET/IB|out of memory|CUDA calloc|shared memory|/dev/shm|"
    r"Duplicate GPU|[Mm]ismatch|NVLS|[Mm]ulticast|security group|insert remote address|[Aa]bort|peer access|[Nn]o route|[Bb]ootstrap|"
    r"libibverbs|initialization failed|ncclUniqueId|Message truncated|retry|timed? ?out|Connect to"
)
"""What signatures of their own know, or what only says that another process ended."""

_START = expression(r"Traceback \(most recent call last\)|NCCL error in:|DistBackendError")


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """One finding for the first last error that nothing else knows."""
    if not keep_marked(lines, GATE):
        return ()
    for index, (_, text) in enumerate(lines):
        if "Last error:" not in text:
            continue
        label = _label(text)
        own = ((n, t) for n, t in lines[index + 1 : index + 1 + MOST] if _label(t) == label)
        number, told = next(own, (0, ""))
        said = " ".join(_body(told).split())
        if (
            len(said) < 8
            or _TOLD.search(said)
            or said.startswith(("Exception", "Traceback", "[", "frame #"))
        ):
            continue
        start = next(
            (
                n
                for n, t in lines[max(0, index - LOOK_BACK) : index]
                if _label(t) == label and _START.search(t)
            ),
            number,
        )
        return (
            Finding(
                kind="nccl.last_error",
                title=f"NCCL failed, and its last error says why: {said[:200]}",
                level=Level.FAILURE,
                category=Category.COMMUNICATION,
                evidence=(Evidence(file, number, told),),
                facts={"survived": False, "starts_at": start},
                strength=Strength(Together.TWO_LINES),
            ),
        )
    return ()


def _label(text: str) -> str:
    return re.sub(r"\d{2,}", "#", text[: read_prefix(text)[1]])


def _body(text: str) -> str:
    return text[read_prefix(text)[1] :]
