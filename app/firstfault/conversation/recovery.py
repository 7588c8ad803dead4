"""Is what failed well again by the log's own word, and how often had it failed? Lines of one thing that say down, and those that say up."""

from __future__ import annotations

from firstfault.conversation.evidence import Line
from firstfault.conversation.run_answers import at_line, clock
from firstfault.conversation.telling import Telling
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

_DOWN = expression(
    r"(?i)\blink (?:is )?down\b|\bnot responding\b|\bunreachable\b|\bIF_DOWN\b|\bNot ?Ready\b|\bstate (?:is )?(?:down|inactive|polling)\b|\bport down\b|went down"
)
_UP = expression(
    r"(?i)\blink (?:is )?up\b|\bIF_UP\b|: server \S+ OK\b|"
    r"\bserver \S+ (?:is )?(?:ok|back)\b|\bresponding again\b|\breachable again\b|\bport (?:is )?(?:up|active)\b|\bNodeReady\b|\bback (?:up|online)\b|\brecovered\b|\brestored\b"
)
_NAME = expression(r"\b(?=[\w.:-]*\d)(?=[\w.:-]*[A-Za-z])[\w.:-]{3,40}\b")
_STAMP = expression(r"\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d|^\d+$")


@dataclass(frozen=True, slots=True)
class Recovery:
    """downs: lines that say that it is away, in order; up: the last line that says that it is back, None where the last word is down."""

    downs: tuple[Line, ...]
    up: Line | None


def _names(line: Line) -> frozenset[str]:
    """What the line is about: names with digits, without its time and without the host that wrote it."""
    found = {n for n in _NAME.findall(line.text) if not _STAMP.search(n)}
    return frozenset(found - {line.place.host or ""})


def find_recovery(t: Telling, wanted: tuple[str, ...] = ()) -> Recovery | None:
    """What went down and, by a later line of the same thing, came up; of the things named where the question names some. None where nothing went down."""
    lines = [x for x in t.evidence.lines if not wanted or any(w in x.text.lower() for w in wanted)]
    downs = [x for x in lines if _DOWN.search(x.text) and not _UP.search(x.text)]
    if not downs:
        return None
    names = _names(downs[0])
    own = tuple(x for x in downs if _names(x) & names) or (downs[0],)
    place = {(x.file, x.number): i for i, x in enumerate(lines)}
    last = place[(own[-1].file, own[-1].number)]
    ups = [x for x in lines[last + 1 :] if _UP.search(x.text) and (_names(x) & names or not names)]
    return Recovery(own, ups[-1] if ups else None)


def say_recovery(t: Telling, recovery: Recovery) -> str:
    """'it went down 2 times (14:21:33, 14:21:58 UTC) and the last word is "Link up" at 14:22:14 UTC, i2.log:104 [3]'."""
    alike = [x for x in recovery.downs if x.place.host == recovery.downs[0].place.host]
    shown = ", ".join(f"{_when(t, x)}{at_line(t, x.file, x.number, x.text)}" for x in alike[:3])
    many = f"{len(alike)} times" if len(alike) > 1 else "once"
    head = f"it went down {many} ({shown})"
    up = recovery.up
    if up is None:
        return f"{head}, and no line after that says that it is back"
    return f"{head}; the last word is that it is back, {_when(t, up)}{at_line(t, up.file, up.number, up.text)}"


def _when(t: Telling, line: Line) -> str:
    at = t.record.artefacts.time_at(line.file, line.number, line.text)[0]
    return f"{clock(at)} UTC, " if at is not None else ""
