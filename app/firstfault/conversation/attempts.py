"""Why did the restarts not help? Each attempt of the log with its own first trouble, beside what never changed."""

from __future__ import annotations

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.last_words import FAILED
from firstfault.conversation.run_answers import at_event, at_line, clock
from firstfault_tools.checkpoint.saves import SaveState
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category

MAX_SHOWN = 6
_AGAIN = expression(
    r"(?i)\brestart(?:ing)?\b[^\n]{0,40}\b\d{1,3} ?(?:/|of) ?\d{1,3}\b|attempts left; will restart worker group|\brestart_count=[1-9]|"
    r"\brequeued?\b|\brestarting (?:the )?(?:job|worker|pod|container)"
)
_VARIES = expression(r"0x[0-9a-fA-F]+|\d+")
_FOLLOWS = expression(
    r"(?i)peer|remote process|waiting for|giving up|exit ?code|closing signal|Traceback"
)
"""What only reports that an attempt ended."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One restart: the line that tells of it, and what went wrong first after it."""

    begins: Line
    trouble: Line | None


def find_attempts(lines: tuple[Line, ...]) -> list[Attempt]:
    """Restarts in the order of the lines."""
    starts = [i for i, x in enumerate(lines) if _AGAIN.search(x.text)]
    out = []
    for n, start in enumerate(starts):
        end = starts[n + 1] if n + 1 < len(starts) else len(lines)
        own = [x for x in lines[start + 1 : end] if FAILED.search(x.text)]
        telling = [x for x in own if not _FOLLOWS.search(x.text)]
        out.append(Attempt(lines[start], next(iter(telling or own), None)))
    return out


def tell_attempts(f: Facts) -> str:
    """What each restart met, and whether it was the same every time; '' where the log tells of none."""
    attempts = find_attempts(f.evidence.lines)
    told = [a for a in attempts if a.trouble is not None]
    if not told:
        return ""
    kinds = {_VARIES.sub("#", a.trouble.text) for a in told if a.trouble is not None}
    same = f"All {len(told)} ended the same way" if len(kinds) == 1 and len(told) > 1 else "Each met its own end"  # fmt: skip
    if len(told) == 1:
        same = "It ended so"
    rows = []
    for number, attempt in enumerate(told[:MAX_SHOWN], 1):
        line = attempt.trouble
        if line is None:
            continue
        rows.append(
            f"- Restart {number}, {_when(f, attempt.begins)}{f.at(attempt.begins)}: `{attempt.begins.text.strip()[:200]}`\n"
            f"  ended by {_when(f, line)}{f.at(line)}: `{line.text.strip()[:200]}`"
        )
    stayed = _what_stayed(f)
    head = f"{stayed or 'Because what stopped the run was still there: a restart removes no cause. '}{same}:"
    return f"{head}\n\n" + "\n".join(rows) + f"\n\nThe first fault: {f.cause}{f.where if f.place not in f.cause else ''} {f.main}."  # fmt: skip


def _when(f: Facts, line: Line) -> str:
    at = f.evidence.time_of(line, f.year)
    return f"{clock(at)} UTC, " if at is not None else ""


def _what_stayed(f: Facts) -> str:
    """The host that was used again, or the checkpoint that was read again though it is not whole."""
    events, best = f.record.checkpoints.events, f.record.resume_from
    refused = next((e for e in events if e.state is SaveState.REFUSED), None)
    if refused is not None and best is not None:
        return (
            f"Because they read the checkpoint of {refused.name}, which is not whole ({at_event(f, refused)}); the newest whole one is {best.name} "
            f"({at_event(f, best)}): point the resume at it and move {refused.name} away.{_pointer(f, refused.step)} "
        )
    host = f.host
    if host and f.diagnosis.category is Category.HARDWARE:
        again = next((a.begins for a in find_attempts(f.evidence.lines) if host in a.begins.text), None)  # fmt: skip
        mark = f" ({f.at(again)})" if again is not None else ""
        return f"Because they were placed on {host} again{mark}, where the hardware had failed: leave that node out before the next start. "
    return ""


_POINTER = expression(r"(?i)\blatest\b['\"]? ?(?:->|=|:|is|points to|set to|updated to)")


def _pointer(f: Facts, step: int | None) -> str:
    """That the pointer to the newest checkpoint was moved before its save was finished; '' where no line tells."""
    if step is None:
        return ""
    moved = next((x for x in f.evidence.lines if _POINTER.search(x.text) and str(step) in x.text), None)  # fmt: skip
    if moved is None:
        return ""
    return f" The pointer to the newest was moved to it before the save was whole, {at_line(f, moved.file, moved.number, moved.text)}."
