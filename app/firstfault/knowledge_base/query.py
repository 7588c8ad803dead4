"""What is being asked? Plain words as they are; of a pasted log, the lines that look like an error.

Prefixes (launcher, time, host, rank, logger) are taken off as in the log reader, since they say who
spoke and not what was said.
"""

from __future__ import annotations

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.line import normalise
from firstfault_tools.log.prefix import read_prefix

MAX_CHARS = 200_000
MAX_LINES = 12
MAX_LINE_CHARS = 1_200
_ALARM = expression(
    r"Error\b|ERROR|Exception|\bWARN|Warning|[Ff]ail|FAIL|[Ff]atal|[Kk]ill|[Aa]ssert|Traceback|"
    r"timed? ?out|Timeout|TIMEOUT|[Aa]bort|panic|Xid|Signal \d|exitcode|SIG[A-Z]{3,}|CANCELLED|"
    r"denied|refused|not found|cannot|Cannot|can't|[Ii]nvalid|corrupt|\bnan\b|NaN|\bOOM|out of memory"
)
_MACHINE = expression(r"[=_()\[\]{}<>`'\":]|\d{2}|[A-Z]{2}|[a-z][A-Z]|\n")


@dataclass(frozen=True, slots=True)
class Query:
    """`text` is what the indexes see. `lines` are the raw lines for signatures; none for plain words."""

    text: str
    lines: tuple[str, ...]


def read_query(raw: str) -> Query:
    """Condense what was typed or pasted; at most MAX_LINES lines of it count."""
    rows = [r for r in raw[:MAX_CHARS].encode(errors="replace").split(b"\n") if r.strip()]
    lines = [text for row in rows if (text := normalise(row)[:MAX_LINE_CHARS].strip())]
    if len(lines) > MAX_LINES:
        loud = [line for line in lines if _ALARM.search(line)]
        # the first alarms of a paste are nearer to the cause than the last ones
        lines = list(dict.fromkeys(loud))[:MAX_LINES] or lines[-MAX_LINES:]
    bodies = [line[read_prefix(line)[1] :].strip() or line for line in lines]
    machine = any(_MACHINE.search(line) for line in lines)
    return Query(" \n".join(bodies), tuple(lines) if machine else ())
