"""Since when is the run slow, by how much, what did that cost, and which lines written then name a machine that was braked?"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.conversation.evidence import Line
from firstfault.conversation.run_answers import at_line, clock
from firstfault.conversation.telling import Telling
from firstfault.postmortem.evidence import timed_steps
from firstfault.postmortem.pace import Pace, mid, read_pace
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category

BEFORE, AFTER = 1800.0, 1800.0
"""Seconds around the change of pace in which a line may tell its reason."""
MOST = 3
_BRAKE = expression(
    r"(?i)throttl|slowdown|thermal|overheat|power ?brake|power supply|\bPSU?\d?\b|\bfan\b|redundancy|\bAER\b|\blink (?:down|degraded|width)|retrans|"
    r"\bECC\b|remap|governor|stale|not responding"
)
_NO_BRAKE = expression(r"(?i)not active|throttle 0x0+\b(?!\d)|: 0\b|\bINFO\b|SW_POWER_CAP")
_DIGITS = expression(r"\d+")


def read_slowing(t: Telling) -> Pace | None:
    """The slow stretch by the logged steps; None where the pace never changed."""
    return read_pace(timed_steps(t.record.artefacts), t.record.artefacts.lines)


def tell_slowing(t: Telling) -> str:
    """Step and time from which the run was slow, what it lost, and the lines that may be the reason; '' where its pace never changed."""
    pace = read_slowing(t)
    if pace is None:
        return ""
    one, other = pace.healthy[-1], pace.slow[0]
    marks = [at_line(t, x.file, x.line, x.text) for x in (one, other)]
    head = (
        f"Since step {other.step}, logged at {clock(other.time)} UTC ({marks[1]}); step {one.step} at {clock(one.time)} UTC was the last at the usual "
        f"pace ({marks[0]}). {say_pace(pace)}"
    )
    lines = find_brakes(t, pace)
    reason = ""
    if lines:
        rows = "\n".join(
            f"- {x.file}:{x.number} {t.sources.add(x.cited)}: `{x.text.strip()[:220]}`"
            for x in lines
        )
        reason = f"\n\nWritten around that time and fit to slow a machine down:\n\n{rows}"
    verdict = f"{t.cause} {t.main}."
    if t.diagnosis.category is Category.PERFORMANCE or not lines:
        return f"{head} {verdict}{reason}"
    return f"{head}{reason}\n\nWhat ended the run is another thing: {verdict}"


def say_pace(pace: Pace) -> str:
    """The step time before and after, and the time lost since."""
    usual, slow = mid(pace.healthy) / 1000, mid(pace.slow) / 1000
    steps = pace.slow[-1].step - pace.healthy[-1].step
    return (
        f"A step takes {slow:.2f} s instead of {usual:.2f} s (+{100 * (slow / usual - 1):.0f} %, {100 * pace.lost_share:.0f} % of the throughput "
        f"is lost); over {steps:,} steps that is {steps * (slow - usual) / 60:.0f} min."
    )


def find_brakes(t: Telling, pace: Pace) -> Sequence[Line]:
    """Lines around the change of pace by which a machine was hot, braked or badly connected; each kind once."""
    turn = pace.healthy[-1].time
    kinds: dict[str, Line] = {}
    for line in t.evidence.lines:
        if _BRAKE.search(line.text) is None or _NO_BRAKE.search(line.text):
            continue
        at = t.record.artefacts.time_at(line.file, line.number, line.text)[0]
        if at is not None and turn - BEFORE <= at <= pace.slow[0].time + AFTER:
            kinds.setdefault(_DIGITS.sub("#", line.text)[:80], line)
    return list(kinds.values())[:MOST]
