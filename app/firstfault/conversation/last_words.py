"""What was written last before the fault, by the rank or host in question or by the run as a whole?"""

from __future__ import annotations

import re

from firstfault.conversation.blocks import write_quote
from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.moments import say_moment
from firstfault.conversation.rank_lines import NAMED_RANK
from firstfault_tools.expressions import expression

FAILED = expression(r"(?i)error|exception|traceback|fail|killed|timed out|watchdog caught|out of memory|data inconsistency")  # fmt: skip
_SETTING = expression(r"\b\w+=\S+")
"""A setting printed at the start names trouble ("timeout=600s") and tells of none."""
_ENDING = expression(r"(?i)closing signal|death signal|shutting down|terminat|connection closed")
_DIFFERS = expression(r"(?i)\bdifferen|\botherwise\b|\bnot like the others")
SILENT_S = 600.0
"""Seconds between a line and the fault above which the line does not tell what was being done."""


def tell_doing(f: Facts) -> str:
    """The last line that is no failure of the rank or host that is asked about, else of the one at fault."""
    first = f.first_line
    if first is None:
        return ""
    who, own = _whose(f)
    if NAMED_RANK.search(f.text) is None and not any(
        h.lower() in f.text.lower() for h in f.evidence.hosts
    ):
        return _last_before(f, first)
    quiet = [x for x in own if not FAILED.search(_SETTING.sub("", x.text)) and not _ENDING.search(x.text) and len(x.text.strip()) > 12]  # fmt: skip
    at = f.record.fault_time
    times = [(f.evidence.time_of(x, f.year), x) for x in quiet]
    timed = [(t, x) for t, x in times if t is not None and (at is None or t <= at)]
    before = [x for x in quiet if x.file == first.file and x.number < first.number]
    if timed:
        line = max(timed, key=lambda p: (p[0], p[1].number))[1]
    elif before:
        line = before[-1]
    else:
        return (
            f"{who[:1].upper()}{who[1:]} wrote nothing before the fault that was read; {f.cause} {f.main}."
            if who
            else ""
        )
    if _DIFFERS.search(f.text) and who and who in f.whole_cause:
        return f"{f.whole_cause} {f.main}. Its last own line before that, {f.at(line)}: `{line.text.strip()[:200]}`."
    mine = (who or "It")[:1].upper() + (who or "It")[1:]
    told = f"\n\n{write_quote(line.text[:300])}"
    failed = next((x for x in own if FAILED.search(x.text) and x.number > line.number), None)
    wrote = f.evidence.time_of(line, f.year)
    if (
        failed is not None
        and who
        and at is not None
        and wrote is not None
        and at - wrote > SILENT_S
    ):
        own_words = write_quote(failed.text[:300])
        said = (
            f"{mine} tells it by its failure, {f.at(failed)}:\n\n{own_words}\n\nBefore that it wrote nothing for "
            f"{(at - wrote) / 60:.0f} min; its last line is {f.at(line)}."
        )
        return f"{said}\n\nThe verdict: {f.cause} {f.main}."
    said = f"{mine} wrote this last before the fault, {f.at(line)}:{told}"
    after = f"\n\nIts first failure after that: {f.at(failed)}." if failed is not None and who else ""  # fmt: skip
    return f"{said}{after}\n\nThe verdict: {f.cause} {f.main}."


def _last_before(f: Facts, first: Line) -> str:
    """What the run as a whole wrote last before the fault, the fault, and what its place had written before."""
    at = f.record.fault_time
    last = f.record.last_step
    who, own = _whose(f)
    parts = []
    if last is not None:
        when = f" at {say_moment(last.time)}" if last.time is not None else ""
        step = Line(last.file, last.line, last.text)
        parts.append(f"Step {last.step}{when} is the last that the run reported, {f.at(step)}.")
    quiet = [x for x in own if who and not FAILED.search(_SETTING.sub("", x.text)) and (x.file, x.number) < (first.file, first.number)]  # fmt: skip
    if quiet and (last is None or quiet[-1].number != last.line):
        parts.append(f"{who[:1].upper()}{who[1:]} wrote this last before it, {f.at(quiet[-1])}:\n\n{write_quote(quiet[-1].text[:300])}\n\n")  # fmt: skip
    when = f" at {say_moment(at)}" if at is not None else ""
    parts.append(f"Then{when} the fault{f.where if f.place not in f.cause else ''}, {f.at(first)}: {f.cause}.")  # fmt: skip
    return " ".join(parts)


def _whose(f: Facts) -> tuple[str, list[Line]]:
    """(name, lines) of the rank or host that the question names, else of the rank at fault, else of all."""
    lines = list(f.evidence.lines)
    asked = NAMED_RANK.search(f.text)
    rank = int(asked[1]) if asked is not None else None
    if rank is None:
        text = f.text.lower()
        host = next((h for h in f.evidence.hosts if re.search(rf"(?<![\w-]){re.escape(h.lower())}(?![\w-])", text)), None)  # fmt: skip
        if host is not None:
            return host, [x for x in lines if x.place.host == host]
        rank = f.diagnosis.first_failing_rank
    own = [x for x in lines if x.place.rank == rank] if rank is not None else []
    if asked is not None or own:
        return f"rank {rank}", own
    return "", lines
