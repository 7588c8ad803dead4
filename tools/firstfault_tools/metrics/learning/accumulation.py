"""What did gradient accumulation change? Two runs, or two phases of a log, laid beside each other.

Loss and gradient norm that are larger by exactly the number of accumulation steps are summed and not
averaged. Communication that grows with the number of micro-steps is reduced in each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line
from firstfault_tools.log.logs import Logs

BESIDE = ("accum",)

MARKERS = ("ccum", "loss", "comm", "reduce", "world", "micro", "AllReduce", "ReduceScatter")
_ACCUMULATION = expression(
    r"(?i)\b(?:gradient|grad)[_ ]?accum\w{0,40}(?:[_ ](?:steps?|iters?))?['\"]?[:=.\s]{1,80}(?P<steps>\d{1,5})\b(?!\.\d)"
)
_WORLD = expression(r"(?i)\bworld[_ ]?size['\"]?[:=.\s]{1,80}(?P<size>\d{1,6})\b")
_HEADING = expression(r"={2,}|-{3,}|#{2,}|\brun \w+\b", re.IGNORECASE)
_VALUE = (
    r"['\"]?\s{0,9}[:=]?\s{0,9}(?P<value>\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,4})?)(?![\w.]{0,60}/)"
)
_LOSS = expression(rf"(?i)(?<![\w/_-])(?:lm |train(?:ing)?[_/ ])?loss{_VALUE}")
_EVAL = expression(rf"(?i)\b(?:eval|val|validation)[_/ ]loss{_VALUE}")
_NORM = expression(rf"(?i)\bgrad(?:ient)?[_ ]?norm{_VALUE}")
_COMM = expression(
    r"(?i)\b(?:exposed )?(?:comm(?:unication)?|all-?reduce|grad[_ -]?(?:reduce|sync)|reduce[_ -]?scatter)\w*"
    r"(?: time)?\s*[:=]?\s*(?P<value>\d+(?:\.\d+)?)\s?(?:ms|s)\b"
)
_METRICS = (("eval_loss", _EVAL), ("loss", _LOSS), ("grad_norm", _NORM), ("comm", _COMM))
_CALLS = expression(r"(?P<kernel>\S*(?:AllReduce|ReduceScatter)\S*)\s+(?P<calls>\d[\d,]{0,9})\s+\d")
_UNITS = expression(r"(?i)\b(?P<units>\d{1,5}) (?:FSDP )?(?:units|buckets|blocks|modules)\b")
_MICRO = expression(r"(?i)micro-?(?:steps|batches)(?: per \w+(?: \w+)?)?\s*[:=]\s*(?P<micro>\d{1,5})\b|\b(?P<other>\d{1,5}) micro-?(?:steps|batches) per")  # fmt: skip
NEAR = 0.12
FIRST = 12


@dataclass(slots=True)
class Phase:
    """A log, or a part of one with its own accumulation; first values of each metric in order."""

    file: str
    steps: int | None = None
    world: int | None = None
    heading: tuple[int, str] | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    rows: list[tuple[int, str]] = field(default_factory=list)

    def usual(self, name: str) -> float | None:
        """Median of the first values, where there are three."""
        own = self.values.get(name, [])[:FIRST]
        return median(own) if len(own) >= 3 or (own and name == "eval_loss") else None


def read_phases(lines: Sequence[tuple[int, str]], file: str) -> list[Phase]:
    """Phases in order. A new one begins where another number of accumulation steps is printed."""
    phases = [Phase(file)]
    for number, text in keep_marked(lines, MARKERS)[:20_000]:
        if len(text) > 4000:
            continue
        now = phases[-1]
        if told := _ACCUMULATION.search(text):
            steps = int(told["steps"])
            if now.steps is not None and now.rows and _HEADING.search(text[:200]):
                now = Phase(file, world=now.world)
                phases.append(now)
            if now.steps is None or not now.rows:
                now.steps = steps
                now.heading = (number, text)
        if now.world is None and (size := _WORLD.search(text)):
            now.world = int(size["size"])
        values = {name: m for name, pattern in _METRICS if (m := pattern.search(text))}
        if "eval_loss" in values:
            values.pop("loss", None)
        for name, match in values.items():
            now.values.setdefault(name, []).append(float(match["value"]))
        if values and len(now.rows) < 200:
            now.rows.append((number, text))
    return [p for p in phases if p.rows]


def find_in_incident(incident: Logs, findings: Sequence[Any]) -> tuple[Finding, ...]:
    """Scaling mistakes between runs, and reductions in every micro-step."""
    digests = [d for d in incident.digests if d.name_rank is None][:6]
    if len(incident.digests) > 12:
        return ()
    if not any(keep_marked(d.kept, BESIDE) for d in digests):
        return ()
    phases = [p for d in digests for p in read_phases(d.kept, d.file)]
    calls = next((c for d in digests if (c := _count_calls(d.kept, d.file))), None)
    found = list(_compare(phases, calls))
    if calls is not None and not any(f.kind == "metrics.reduced_each_micro_step" for f in found):
        found.append(calls)
    return tuple(found[:2])


def _count_calls(lines: Sequence[tuple[int, str]], file: str) -> Finding | None:
    """A profile whose reductions are units times micro-steps."""
    kernels = [(n, t, m) for n, t in keep_marked(lines, ("AllReduce", "ReduceScatter")) if (m := _CALLS.search(t))]  # fmt: skip
    if not kernels:
        return None
    texts = keep_marked(lines, ("nits", "uckets", "locks", "odules", "icro"))
    units = next(((n, t, m) for n, t in texts if (m := _UNITS.search(t))), None)
    micro = next(((n, t, m) for n, t in texts if (m := _MICRO.search(t))), None)
    if units is None or micro is None:
        return None
    each, steps = int(units[2]["units"]), int(micro[2]["micro"] or micro[2]["other"])
    for number, text, kernel in kernels:
        count = int(kernel["calls"].replace(",", ""))
        if steps >= 2 and count == each * steps and "AllReduce" in text:
            places = dict.fromkeys([(number, text), (units[0], units[1]), (micro[0], micro[1])])
            return _reduced(
                f"the profile of one step counts {count} all-reduces = {each} units x {steps} micro-steps",
                tuple(quote_line(file, n, t) for n, t in places),
            )
    return None


def _reduced(why: str, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        kind="metrics.reduced_each_micro_step",
        title=f"gradients are reduced (synchronised) in every micro-step instead of once per optimizer step, so gradient accumulation saves no communication: {why}",
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        evidence=evidence,
        facts={"starts_at": 1},
    )


def _compare(phases: Sequence[Phase], calls: Finding | None) -> Iterator[Finding]:
    for i, one in enumerate(phases):
        for other in phases[i + 1 :]:
            if (made := _compare_comm(one, other, calls)) is not None:
                yield made
            if (made := _compare_loss(one, other)) is not None:
                yield made


def _compare_comm(one: Phase, other: Phase, calls: Finding | None) -> Finding | None:
    if not one.steps or not other.steps or one.steps == other.steps:
        return None
    few, many = sorted((one, other), key=lambda p: p.steps or 0)
    before, after = few.usual("comm"), many.usual("comm")
    factor = (many.steps or 0) / (few.steps or 1)
    if not before or not after or factor < 2 or abs(after / before / factor - 1) > 0.2:
        return None
    places = [(p.file, q) for p in (few, many) for q in (p.heading, p.rows[0]) if q is not None]
    why = f"communication takes {before:g} with accumulation {few.steps} and {after:g} with {many.steps}, {after / before:.1f} times as long"
    if calls is not None:
        why += f"; {calls.title.rsplit(': ', 1)[-1]}"
    return _reduced(
        why,
        (
            *(quote_line(f, n, t) for f, (n, t) in places),
            *(calls.evidence[:1] if calls is not None else ()),
        ),
    )


def _compare_loss(one: Phase, other: Phase) -> Finding | None:
    """A loss that is larger by the accumulation steps or the world size than in the other run."""
    low, high = sorted((one, other), key=lambda p: p.usual("loss") or 0.0)
    ratio = _ratio_of(low, high, "loss")
    if ratio is None or low.file == high.file:
        return None
    evaluated, norms = (_ratio_of(low, high, metric) for metric in ("eval_loss", "grad_norm"))
    for what, factor in (("gradient-accumulation steps", high.steps), ("ranks (world size)", high.world)):  # fmt: skip
        if factor is None or factor < 2 or abs(ratio / factor - 1) > NEAR:
            continue
        agree = evaluated is not None and abs(evaluated - 1) < 0.1
        scaled = norms is not None and abs(norms / factor - 1) < 0.25
        if agree or scaled:
            return _summed(low, high, (ratio, what, factor), agree, scaled)
    return None


def _ratio_of(low: Phase, high: Phase, metric: str) -> float | None:
    """How many times the usual value of one run that of the other is, where both have one."""
    small, large = low.usual(metric), high.usual(metric)
    return large / small if small and large else None


def _summed(
    low: Phase, high: Phase, told: tuple[float, str, int], agree: bool, scaled: bool
) -> Finding:
    """agree: the evaluation loss is equal in both. scaled: the gradient norm has grown with the loss."""
    ratio, what, factor = told
    also = " and gradient norm" if scaled else ""
    even = "; the evaluation loss is equal in both" if agree else ""
    places = [(p.file, q) for p in (high, low) for q in (p.heading, p.rows[0]) if q is not None]
    return Finding(
        kind="metrics.loss_summed",
        title=f"loss{also} of {high.file} are {ratio:.1f} times those of {low.file}, which is the number of {what} ({factor}): "
        f"the loss is summed and not averaged (divided) over them{even}; a scaling mistake and no instability",
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        evidence=tuple(quote_line(f, n, t) for f, (n, t) in places),
        facts={"ratio": round(ratio, 2), "factor": factor, "survived": False},
    )
