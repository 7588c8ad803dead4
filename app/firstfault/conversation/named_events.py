"""Is what a question points at the cause, or innocent? The line it means, held against the first fault by time, place and progress."""

from __future__ import annotations

import re
from collections import Counter

from firstfault.conversation.evidence import Evidence, Line
from firstfault.conversation.evidence_lines import find_names
from firstfault.conversation.run_answers import at_line, clock
from firstfault.conversation.telling import Telling
from firstfault.conversation.words import plain_words
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict

TROUBLE = expression(
    r"(?i)warn|error|exception|fail|fatal|killed|abort|timed? ?out|watchdog|out of memory|\bdown\b|\blost\b|corrupt|xid|\becc\b|refused|"
    r"unreachable|closed|slow|skew|pause|retry|took \d|remote|status=[1-9]"
)
_RECOVERED = expression(
    r"(?i)\bactive\b|\bup\b|recover|restored|came back|reconnect|\bok\b|succeeded"
)
MOST_AFTER = 400
"""Lines below a trouble among which its recovery is looked for."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Where a line stands to the first fault. seconds: before it (negative) or after; None: not told."""

    line: Line
    seconds: float | None
    is_before: bool | None
    is_fault: bool


def relate(t: Telling, evidence: Evidence, line: Line) -> Relation:
    """The line held against the first fault."""
    first = t.diagnosis.first_line
    own = {(first.file, first.line)} if first is not None else set()
    here, then = t.record.artefacts.time_at(line.file, line.number, line.text), t.record.fault_time
    if here[0] is not None and then is not None and not here[1]:
        seconds = here[0] - then
        before = seconds < 0 if abs(seconds) >= 1 else None
        return Relation(line, seconds, before, (line.file, line.number) in own)
    same = first is not None and first.file == line.file
    before = line.number < first.line if same and first is not None else None
    return Relation(line, None, before, (line.file, line.number) in own)


def say_relation(t: Telling, relation: Relation) -> str:
    """'19 s after the first fault (i1.log:34 [2])', with what speaks for its innocence."""
    line = relation.line
    mark = at_line(t, line.file, line.number, line.text)
    if relation.seconds is None:
        where = "before" if relation.is_before else "after"
        return f"{mark} stands {where} the line of the first fault" if relation.is_before is not None else f"{mark} has no time to compare"  # fmt: skip
    gap = _span(abs(relation.seconds))
    if abs(relation.seconds) < 1:
        return f"{mark} is of the same second as the first fault"
    return f"{mark} is of {clock((t.record.fault_time or 0.0) + relation.seconds)}, {gap} {'before' if relation.seconds < 0 else 'after'} the first fault"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"  # fmt: skip


def answer_named(t: Telling, evidence: Evidence) -> str:
    """Yes or no to "was it this event?", where the question names devices, files or what a rank said; '' where no such line is."""
    names = [n for n in find_names(t.asked.text) if not re.fullmatch(r"\d+", n)]
    hosts = {h.lower() for h in evidence.hosts}
    found = _lines_with(evidence, names) if set(names) - hosts else _told_by(t, evidence, names)
    troubled = [x for x in found if TROUBLE.search(x.text)]
    if not troubled or t.diagnosis.verdict is not Verdict.FAULT:
        return ""
    relations = [relate(t, evidence, x) for x in troubled]
    turned = _INNOCENT.search(t.asked.text) is not None
    yes, no = ("No", "Yes, by what was read") if turned else ("Yes", "No")
    if any(r.is_fault for r in relations):
        return f"{yes}, that is the first fault itself: {t.cause} {t.main}."
    lead = relations[0]
    said = say_relation(t, lead)
    place, back, step = _other_host(t, lead.line), _recovery(t, evidence, lead.line, names), progress_after(t, lead)  # fmt: skip
    if lead.is_before is False:
        return f"{no}: {said}, so it follows from it or stands beside it, and did not cause it. The first fault{f' is at {t.place}' if t.place else ''}: {t.cause} {t.main}."
    if lead.is_before and step:
        return f"{no}: {said}{place}{back}, and training went on in between ({step}). The first fault: {t.cause} {t.main}."
    return f"Not shown by what was read: {said}{place}{back}; nothing ties it to the first fault: {t.cause} {t.main}."


_INNOCENT = expression(
    r"(?i)\binnocent|\bharmless|\bunrelated|\bnot (?:related|the (?:cause|reason|culprit))|\brule out"
)
_COMMON = 0.5
"""Share of the lines of a rank above which a word tells none of them apart."""


def _told_by(t: Telling, evidence: Evidence, names: list[str]) -> list[Line]:
    """Lines of the rank or host in question that share most of its other words; none where no word is rare among them."""
    rank = t.asked.rank
    own = [x for x in evidence.lines if (x.place.rank == rank if rank is not None else x.place.host and x.place.host.lower() in names)]  # fmt: skip
    words = set(tokenize(t.asked.text)) - plain_words()
    held = [(x, words & set(tokenize(x.text))) for x in own]
    count = Counter(w for _, shared in held for w in shared)
    scored = [(sum(1 / count[w] for w in shared if count[w] <= max(1, _COMMON * len(own))), x) for x, shared in held]  # fmt: skip
    best = max((s for s, _ in scored), default=0.0)
    return [x for s, x in scored if s == best and best > 0]


def _lines_with(evidence: Evidence, names: list[str]) -> list[Line]:
    scored = [(sum(n in x.text.lower() for n in names), x) for x in evidence.lines] if names else []
    best = max((s for s, _ in scored), default=0)
    return [x for s, x in scored if s == best and best >= min(2, len(names))]


def _other_host(t: Telling, line: Line) -> str:
    host = line.place.host
    own = t.host
    return f", on {host} and not on {own}" if host and own and host.split(".")[0] != own.split(".")[0] else ""  # fmt: skip


def _recovery(t: Telling, evidence: Evidence, line: Line, names: list[str]) -> str:
    lines = evidence.lines
    start = next((i for i, x in enumerate(lines) if (x.file, x.number) == (line.file, line.number)), None)  # fmt: skip
    if start is None or not names:
        return ""
    for other in lines[start + 1 : start + MOST_AFTER]:
        if _RECOVERED.search(other.text) and all(n in other.text.lower() for n in names):
            one, two = (t.record.artefacts.time_at(x.file, x.number, x.text)[0] for x in (line, other))  # fmt: skip
            after = f" after {two - one:.0f} s" if one is not None and two is not None and two >= one else ""  # fmt: skip
            return f"; it came back{after} ({at_line(t, other.file, other.number, other.text)})"
    return ""


def progress_after(t: Telling, relation: Relation) -> str:
    """The last step between the event and the fault, as quoted; '' where none is."""
    last = t.record.last_step
    fault = t.record.fault_time
    if last is None:
        return ""
    if relation.seconds is not None and fault is not None and last.time is not None:
        later = last.time > fault + relation.seconds
    else:
        later = last.file == relation.line.file and last.line > relation.line.number
    return f"step {last.step}, {at_line(t, last.file, last.line, last.text)}" if later else ""
