"""Why are some steps slow, or the loss once high? The rows that stand out, and what was written beside each of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from firstfault.conversation.evidence import Line
from firstfault.conversation.named_events import TROUBLE
from firstfault.conversation.run_answers import at_line
from firstfault.conversation.telling import Telling
from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.metrics.series import MISSING, NO_STEP, StepSeries

LEAST_ROWS, SLOW, FAR, MOST = 12, 1.25, 8.0, 4
"""Rows that make a curve; how much longer than usual a step stands out; how many usual deviations a loss does; rows shown."""
_ASKS_PACE = expression(
    r"(?i)\b(?:dips?|pauses?|stutter\w*|periodic\w*|every (?:now and then|so often|few|couple)|once in a while|sometimes|some steps|"
    r"slow steps?|costs? (?:us |me )?(?:any |much )?time|"
    r"(?:steps?|iterations?|throughput|tps|speed)\b[^?\n]{0,24}\b(?:slow\w*|dip\w*|drop\w*|vary|varies|uneven|jitter\w*|fluctuat\w*))\b|"
    r"\b(?:step|iteration|iter) \d+\b[^?\n]{0,24}\b(?:slow\w*|long\w*|took|\d+(?:\.\d+)? ?s\b)"
)
_ASKS_LOSS = expression(
    r"(?i)\b(?:loss|grad\w*(?: norm)?)\b[^?\n]{0,16}\b(?:jump\w*|bump\w*|peaks?|outlier)|\bspikes?\b(?![^?\n]{0,20}\b(?:time|throughput|latency|memory))"
)
_OF_A_PART = expression(
    r"(?i)\b(?:bad|broken|faulty|dead|sick|defective) (?:gpu|node|card|host|nic|cable|disk)\b"
)
_SAVE = expression(r"(?i)\bsav(?:e|ed|ing)\b|\bcheckpoint|\bckpt|\bstaging\b")
_EVAL = expression(r"(?i)\beval\w*|\bvalidation\b")
_DATA = expression(r"(?i)\bdata\b|\bloader|\bbatch\b|\bfetch|\bs3\b|\bshard")


@dataclass(frozen=True, slots=True)
class OddRow:
    """One row that stands out. ratio: how many times the usual step time, or deviations of a loss."""

    step: int
    value: float
    ratio: float
    file: str
    line: int
    beside: tuple[Line, ...]


def tell_odd_steps(t: Telling) -> str:
    """The rows that stand out with what was written beside them; '' where the question is about none, or no curve is there."""
    text = t.asked.text
    if not asks_odd_steps(text):
        return ""
    if _ASKS_LOSS.search(text):
        return _tell_loss(t)
    return _tell_pace(t) if _ASKS_PACE.search(text) else ""


def asks_odd_steps(text: str) -> bool:
    """The question is about rows that stand out."""
    if _OF_A_PART.search(text):
        return False
    return _ASKS_LOSS.search(text) is not None or _ASKS_PACE.search(text) is not None


def _columns(series: StepSeries, names: Sequence[str]) -> tuple[str, list[tuple[int, float]]]:
    for name in names:
        if series.has(name):
            values = series.values(name)
            rows = [(int(r), float(values[r])) for r in series.rows_with(name) if values[r] != MISSING and series.step[int(r)] != NO_STEP]  # fmt: skip
            if len(rows) >= LEAST_ROWS:
                return name, rows
    return "", []


def _beside(t: Telling, file: str, before: int, after: int) -> tuple[Line, ...]:
    """Lines between the row before and the one after that are no step lines and tell of work or trouble."""
    steps = {s.line for s in t.record.steps if s.file == file}
    own = [x for x in t.evidence.lines if x.file == file and before <= x.number < after and x.number not in steps]  # fmt: skip
    return tuple(x for x in own if _SAVE.search(x.text) or _EVAL.search(x.text) or TROUBLE.search(x.text))  # fmt: skip


def _tell_pace(t: Telling) -> str:
    for file, series in t.record.artefacts.steps.items():
        name, rows = _columns(
            series, ("step_time_ms", "tokens_per_s", "samples_per_s", "iterations_per_s")
        )
        if not rows:
            continue
        usual = median(v for _, v in rows)
        seconds = name == "step_time_ms"
        odd = []
        for n, (r, v) in enumerate(rows):
            ratio = v / usual if seconds else usual / v if v else float("inf")
            if n > 0 and ratio >= SLOW:
                before, line = int(series.line[rows[n - 1][0]]), int(series.line[r])
                after = int(series.line[rows[n + 1][0]]) if n + 1 < len(rows) else line + 1
                odd.append(OddRow(int(series.step[r]), v, ratio, file, line, _beside(t, file, before, after)))  # fmt: skip
        return _say_pace(t, odd, len(rows), usual / 1000 if seconds else usual, seconds)
    return ""


def _say_pace(t: Telling, odd: Sequence[OddRow], count: int, usual: float, seconds: bool) -> str:
    unit = "s a step" if seconds else "a second"
    named = re.search(r"(?i)\b(?:step|iteration|iter) (\d+)", t.asked.text)
    if named is not None:
        odd = [o for o in odd if o.step == int(named[1])] or odd
    if not odd:
        return f"No logged row is much slower than usual: {count} rows, {usual:,.4g} {unit} (median), none beyond {SLOW:g} times of it."
    kinds = Counter(_kind(o) for o in odd)
    kind, often = kinds.most_common(1)[0]
    shown = sorted(odd, key=lambda o: -o.ratio)[:MOST]
    rows = []
    for o in sorted(shown, key=lambda o: o.step):
        value = o.value / 1000 if seconds else o.value
        mark = at_line(t, o.file, o.line, t.record.artefacts.text_of(o.file, o.line))
        told = "; ".join(f"`{x.text.strip()[:160]}` ({at_line(t, x.file, x.number, x.text)})" for x in o.beside[:2])  # fmt: skip
        said = f"; beside it: {told}" if told else "; nothing is written beside it"
        rows.append(f"- step {o.step}: {value:,.4g} {unit} ({o.ratio:.1f} times as slow as usual), {mark}{said}")  # fmt: skip
    why = f"{often} of the {len(odd)} slow rows stand beside {kind}" if kind else f"nothing is written beside {often} of the {len(odd)} slow rows"  # fmt: skip
    head = f"Because {_REASONS[kind]}: {why}" if kind else f"The log does not tell: {why}"
    return f"{head}; {count} rows in all, {usual:,.4g} {unit} is usual.\n\n" + "\n".join(rows) + f"\n\nBetween them the pace is as usual{_say_period(odd)}."  # fmt: skip


_REASONS = {
    "a save of a checkpoint": "training waits for the save, and the logged interval that holds it is longer",
    "an evaluation": "the logged interval holds an evaluation",
    "trouble with data": "a rank waited for data, and all others for that rank",
    "another line of trouble": "something else was written just then",
}


def _kind(o: OddRow) -> str:
    text = "\n".join(x.text for x in o.beside)
    if _SAVE.search(text):
        return "a save of a checkpoint"
    if _EVAL.search(text):
        return "an evaluation"
    if _DATA.search(text):
        return "trouble with data"
    return "another line of trouble" if text else ""


def _say_period(odd: Sequence[OddRow]) -> str:
    steps = [o.step for o in odd]
    gaps = Counter(b - a for a, b in pairwise(steps))
    if not gaps:
        return ""
    gap, often = gaps.most_common(1)[0]
    return f"; they come every {gap} steps" if often >= 2 and often >= 0.6 * (len(steps) - 1) else ""  # fmt: skip


def _tell_loss(t: Telling) -> str:
    for file, series in t.record.artefacts.steps.items():
        wanted = ("grad_norm", "loss") if "grad" in t.asked.text.lower() else ("loss", "grad_norm")
        name, rows = _columns(series, wanted)
        if not rows:
            continue
        best: tuple[float, int] | None = None
        steps = [abs(b[1] - a[1]) for a, b in pairwise(rows)]
        noise = 1.4826 * median(steps) or 1e-9
        for n in range(1, len(rows)):
            near = [v for _, v in rows[max(0, n - 5) : n]]
            jump = (rows[n][1] - median(near)) / noise
            if best is None or jump > best[0]:
                best = (jump, n)
        if best is None:
            return ""
        return _say_loss(t, file, series, name, rows, best)
    return ""


def _say_loss(
    t: Telling, file: str, series: StepSeries, name: str, rows: Sequence[tuple[int, float]], best: tuple[float, int]
) -> str:  # fmt: skip
    jump, n = best
    word = name.replace("_", " ")
    r, value = rows[n]
    usual = median(v for _, v in rows[max(0, n - 5) : n])
    mark = at_line(t, file, int(series.line[r]), t.record.artefacts.text_of(file, int(series.line[r])))  # fmt: skip
    if jump < FAR:
        return f"No spike of the {word} stands out: the highest rise is at step {series.step[r]}, {value:.4g} after {usual:.4g}, {mark}, within the scatter of {len(rows)} rows."
    back = next((m for m in range(n + 1, len(rows)) if rows[m][1] <= usual + 0.25 * (value - usual)), None)  # fmt: skip
    beside = _beside(t, file, int(series.line[rows[n - 1][0]]), int(series.line[r]))
    told = "".join(f" Beside it: `{x.text.strip()[:160]}` ({at_line(t, x.file, x.number, x.text)})." for x in beside[:2])  # fmt: skip
    if back is None:
        return f"The {word} jumps at step {series.step[r]} to {value:.4g} from about {usual:.4g}, {mark}, and does not come back within the log.{told} {t.cause} {t.main}."
    end, after = rows[back]
    other = at_line(t, file, int(series.line[end]), t.record.artefacts.text_of(file, int(series.line[end])))  # fmt: skip
    return (
        f"A single spike that recovers is usual in long runs and needs nothing: the {word} jumps at step {series.step[r]} to {value:.4g} from about {usual:.4g} ({mark}) "
        f"and is back at {after:.4g} by step {series.step[end]} ({other}).{told} Act when spikes grow, come closer together or leave a higher loss. "
        f"The verdict: {t.cause} {t.main}."
    )
