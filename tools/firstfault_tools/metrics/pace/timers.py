"""Where does a step's time go: compute, data, communication or waiting for a neighbour stage?

Reads the timers that Megatron prints beside its step lines, in the one-line form
`time (ms) | forward-compute: 1391.22 | ...` and in the form `(min, max) time across ranks (ms):` with
one timer a line. Names as in Megatron-LM's training loop and pipeline schedules.
"""

from __future__ import annotations

from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Evidence,
    Finding,
    Json,
    Level,
    Strength,
    Together,
)
from firstfault_tools.metrics.series import Event
from firstfault_tools.metrics.view import View, make_finding, number

_PAIR = expression(r"([a-z][a-z0-9-]+):\s*([\d.]+)")
_RANGE = expression(
    r"^\s*(?:\[\w+\]:?\s*|\d+:\s*)?([a-z][a-z0-9-]+) \.{3,}:? ?:?\s*\(([\d.]+), ([\d.]+)\)"
)


class Share(StrEnum):
    """What a timer's time went into."""

    COMPUTE = "compute"
    DATA = "data"
    COMMUNICATION = "communication"
    NEIGHBOUR = "waiting for a neighbour stage"


# Outer timers (forward-backward, interval-time) contain the others and are left out.
NAMES = {
    "forward-compute": Share.COMPUTE,
    "backward-compute": Share.COMPUTE,
    "optimizer-inner-step": Share.COMPUTE,
    "optimizer-clip-main-grad": Share.COMPUTE,
    "optimizer-copy-main-to-model-params": Share.COMPUTE,
    "batch-generator": Share.DATA,
    "forward-recv": Share.NEIGHBOUR,
    "backward-recv": Share.NEIGHBOUR,
    "forward-send-backward-recv": Share.NEIGHBOUR,
    "backward-send-forward-recv": Share.NEIGHBOUR,
    "forward-send": Share.COMMUNICATION,
    "backward-send": Share.COMMUNICATION,
    "all-grads-sync": Share.COMMUNICATION,
    "grads-all-reduce": Share.COMMUNICATION,
    "grads-reduce-scatter": Share.COMMUNICATION,
    "params-all-gather": Share.COMMUNICATION,
    "backward-params-all-reduce": Share.COMMUNICATION,
    "backward-embedding-all-reduce": Share.COMMUNICATION,
    "embedding-grads-all-reduce": Share.COMMUNICATION,
    "layernorm-grads-all-reduce": Share.COMMUNICATION,
}
MEANINGS = {
    Share.DATA: (
        "dataloader_stall",
        "the input pipeline is the bottleneck",
        "dataloader-stall",
    ),
    Share.COMMUNICATION: (
        "communication_share",
        "exposed collectives: compare with other nodes and with an earlier run",
        "communication-stall",
    ),
    Share.NEIGHBOUR: (
        "pipeline_wait",
        "pipeline bubble or an unequal stage: price the schedule with the bubble calculator",
        "pipeline-bubble",
    ),
}
"""Of a share that is large: the kind of its finding, what it means, its page."""


@dataclass(frozen=True, slots=True)
class Timer:
    """One printed timer in milliseconds; low equals high where only one value was printed."""

    name: str
    low: float
    high: float
    event: Event


def read_timers(view: View) -> list[Timer]:
    """All printed timers with a known name, in the order of the log."""
    found = []
    for event in view.events("timers"):
        for name, value in _PAIR.findall(event.text):
            if name in NAMES:
                found.append(Timer(name, float(value), float(value), event))
    for event in view.events("timer_range"):
        match = _RANGE.match(event.text)
        if match and match.group(1) in NAMES:
            found.append(Timer(match.group(1), float(match.group(2)), float(match.group(3)), event))
    return found


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def judge_timer_spread(view: View) -> list[Finding]:
    """A data timer that is long on the slowest rank and short on the fastest: one rank starves."""
    ranges = [t for t in read_timers(view) if NAMES[t.name] is Share.DATA and t.high > t.low]
    if len(ranges) < 3:
        return []
    late = ranges[len(ranges) // 2 :]
    low, high = _median([t.low for t in late]), _median([t.high for t in late])
    step = view.curve("step_time_ms").values
    whole = float(step[len(step) // 2 :].mean()) if len(step) else 0.0
    if high < 5 * max(low, 1.0) or high < 0.25 * whole or high < 50:
        return []
    first = next(t for t in ranges if t.high >= 0.5 * high)
    return [
        make_finding(
            "rank_data_spread",
            f"One rank waits for its input data: {late[-1].name} takes {number(high)} ms on the "
            f"slowest rank and {number(low)} ms on the fastest"
            + (f", of a step of {number(whole)} ms" if whole else "")
            + "; all others wait for that rank in the gradient reduction",
            Level.CAUSE,
            Category.PERFORMANCE,
            tuple(
                Evidence(view.file, t.event.line, t.event.text.strip()[:600])
                for t in ([first, late[-1]] if first is not late[-1] else [first])
            ),
            facts={
                "timer": late[-1].name,
                "low_ms": low,
                "high_ms": high,
                "starts_at": 1,
            },
            strength=Strength(Together.SERIES),
        )
    ]


def judge_timers(view: View) -> list[Finding]:
    """The largest share that is not compute, where it matters, with the timer behind it."""
    timers = read_timers(view)
    typical = _typical_ms(timers)
    total = sum(typical.values())
    if not {"forward-compute", "backward-compute"} <= typical.keys() or total <= 0:
        return []
    shares = {
        share: sum(v for n, v in typical.items() if NAMES[n] is share) / total for share in Share
    }
    worst = max((s for s in Share if s is not Share.COMPUTE), key=lambda s: shares[s])
    if shares[worst] < 0.2:
        return []
    top = max((n for n in typical if NAMES[n] is worst), key=lambda n: typical[n])
    last = [timer for timer in timers if timer.name == top][-1]
    cause = worst is Share.DATA and shares[worst] >= 0.25
    split = ", ".join(
        f"{share.value} {part:.0%}" for share, part in shares.items() if part >= 0.005
    )
    facts: dict[str, Json] = {
        "timer": top,
        "timer_ms": typical[top],
        **{f"{share.name.lower()}_share": part for share, part in shares.items()},
    }
    kind, what, page = MEANINGS[worst]
    return [
        make_finding(
            kind,
            f"Of the timed step {shares[worst]:.0%} is {worst.value} ({top} {number(typical[top])} "
            f"ms); {what} ({split})",
            Level.CAUSE if cause else Level.CONTEXT,
            Category.PERFORMANCE,
            (Evidence(view.file, last.event.line, last.event.text.strip()[:600]),),
            page=page,
            facts=facts,
        )
    ]


def _typical_ms(timers: list[Timer]) -> dict[str, float]:
    """Milliseconds by name; the first report holds compilation and warm-up."""
    values: dict[str, list[float]] = {}
    for timer in timers:
        values.setdefault(timer.name, []).append(timer.high)
    return {name: _median(own[1:] or own) for name, own in values.items()}
