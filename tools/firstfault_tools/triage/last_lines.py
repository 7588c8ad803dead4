"""What did a rank write last, and at which step was it?"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.secrets import redact

_STEP = expression(
    r"(?i)\b(?:global[_ ]?step|steps?|iteration|iter)\b['\"]?[\s:=#\[]{0,4}(\d{1,12})\b"
)
SHOWN = 200


@dataclass(frozen=True, slots=True)
class LastLine:
    """Last line of a rank's log; step: the last one that its lines name, None where none does."""

    host: str
    pid: int
    rank: int | None
    step: int | None
    text: str


def find_step(lines: Sequence[str]) -> int | None:
    """The last step that lines name."""
    return next((int(m[1]) for line in reversed(lines) if (m := _STEP.search(line[:2000]))), None)


def read_last_line(log: str, host: str, pid: int, rank: int | None) -> LastLine:
    """The last line that is not empty and the last step, from the end of a log."""
    lines = [line for line in log.splitlines() if line.strip()]
    return LastLine(
        host, pid, rank, find_step(lines), redact(lines[-1].strip()[:SHOWN]) if lines else ""
    )
