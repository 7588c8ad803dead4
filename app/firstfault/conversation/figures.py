"""Which quantity of the step lines is asked for, and what was it? At a step, at the start, at the end, usually, and before and after a change.

From the series that the readers of step lines make of any framework's log; the names are data (figures.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from firstfault.conversation.run_answers import at_line
from firstfault.conversation.slowing import tell_slowing
from firstfault.conversation.telling import Telling
from firstfault.postmortem.evidence import timed_steps
from firstfault.postmortem.pace import read_pace
from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.metrics.series import MISSING, NO_STEP, StepSeries

TABLE = Path(__file__).with_name("figures.yaml")
MOST, WARM, MOVED = 3, 3, 0.2
"""Quantities of one answer, rows at the start that are no usual ones, and the change, as a share, from which a curve has moved."""
_UNITS = {"tokens_per_s": " tokens/s", "samples_per_s": " samples/s", "tflops": " TFLOP/s per GPU", "iterations_per_s": " steps/s"}  # fmt: skip
_ASKS = expression(
    r"(?i)\b(?:what|whats|which|how (?:high|low|fast|slow|big|large|much|far|long|good|bad)|tell me|show|give|was the|is the)\b|"
    r"^\W*(?:and |then )?(?:the )?(?:average |mean |last |final |peak )?[\w /-]{2,24}\b(?:at|before|after)\b"
)
_ELSE = expression(
    r"(?i)\bwhy\b|\bhow come\b|\bcaus\w+|\bwho\b|\bhow (?:many|do|can|could|would|should)\b|\bshould\b|\bwould\b|\bfix|\bprevent|^\W*when\b|\bexplain|\bcost|"
    r"\bgpu-?hours?\b|\bconverg|\bplateau|\bspike|\bnan\b|\bwhich (?:rank|gpu|host|node|ranks|file|line|layer)\b|\bset to\b|\bwent\b[^?]{0,12}\binto\b|\bmissing\b|\bshort\b|"
    r"\bcommit|\bscheduler\b|\bcheckpoint|\bckpt|\b(?:suggest|impl(?:y|ies)|indicat|point|mean)\w*\s*\W*$"
)
_STEP = expression(r"(?i)\b(?:at|on|in|of|around|for|by|near)?\s?(?:the )?(?:global )?(?:step|iteration|iter|it)[ #:=]{0,2}(\d{1,9})\b")  # fmt: skip
_AT_NUMBER = expression(r"(?i)\b(?:at|around|near|by) (\d{2,9})\b(?! ?(?:%|gpus?|ranks?))")
_START = expression(r"(?i)\b(?:at the (?:start|beginning)|in the beginning|initial\w*|first step|began (?:at|with)|start(?:ed)? (?:at|with))\b")  # fmt: skip
_END = expression(r"(?i)\b(?:before|when|until|last|final|end(?:ed)?|at the crash|latest|newest|right now)\b")  # fmt: skip
_MOST = expression(r"(?i)\b(?:peak|highest|max\w*|worst|largest|slowest)\b")
_LEAST = expression(r"(?i)\b(?:lowest|min\w*|smallest|fastest|best)\b")
_GOOD = expression(r"(?i)\b(?:good|ok|okay|fine|normal|bad|decent|reasonable|poor|enough|healthy|expected)\b")  # fmt: skip
_LOST = expression(r"(?i)\b(?:los(?:t|e|ing)|drop\w*|fell|slower|less|down|percent|%)\b")
_MODEL = expression(r"(?i)\b(\d{1,3}(?:\.\d{1,2})?) ?B\b(?! ?/)")
_GPU = expression(r"(?i)\b(H100|H200|A100|B200|GB200|MI300X|A800|H800)\b")
_PEAKS = {"H100": 989, "H200": 989, "H800": 989, "A100": 312, "A800": 312, "B200": 2250, "GB200": 2500, "MI300X": 1307}  # fmt: skip
"""Dense BF16 peak in TFLOP/s, as in the vendors' data sheets."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """A quantity by its names."""

    name: str
    say: re.Pattern[str]
    columns: tuple[str, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class _Row:
    step: int
    value: float
    line: int


@dataclass(frozen=True, slots=True)
class _Curve:
    """One quantity as one file prints it."""

    name: str
    unit: str
    file: str
    rows: tuple[_Row, ...]
    total: int | None

    def say(self, value: float) -> str:
        """'7.2 s', '9,104 tokens/s'."""
        if value != value:
            return "NaN"
        digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"
        return f"{digits}{self.unit}"


@cache
def _figures() -> tuple[_Figure, ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["figures"]
    return tuple(_Figure(r["name"], re.compile(r["say"], re.I), tuple(r["columns"]), r.get("unit", "")) for r in rows)  # fmt: skip


def _asked_for(text: str) -> list[_Figure]:
    named = [f for f in _figures() if f.say.search(text)]
    ids = {f.name for f in named}
    if "evaluation loss" in ids or "loss scale" in ids:
        named = [f for f in named if f.name != "loss"]
    return named[:MOST]


def asks_figure(text: str) -> bool:
    """The question is for a quantity of the step lines."""
    if _SINCE.search(text) or _ETA.search(text):
        return True
    return bool(_asked_for(text)) and _ASKS.search(text) is not None and _ELSE.search(text) is None


_SINCE = expression(
    r"(?i)\bsince when\W*$|\bsince when (?:is|was|are) (?:it|this|that|the run|training)\b|"
    r"\b(?:since when|when did|when has|from when|(?:which|what) (?:step|time|moment))\b[^?\n]{0,40}\b(?:slow\w*|drop\w*|throughput|speed|degrad\w*|halv\w*|fall|fell)\b"
)


_ETA = expression(
    r"(?i)\b(?:eta|time left|how long (?:until|till|before|does it take until)[^?\n]{0,24}\b(?:finish\w*|done|over|complete\w*|end)|"
    r"when (?:will|is|does)[^?\n]{0,20}\b(?:finish\w*|done|complete\w*)|"
    r"how (?:much|many)[^?\n]{0,20}\b(?:left|remain\w*|to go)|how long[^?\n]{0,16}\b(?:left|remain\w*|to go))\b"
)


def _say_eta(t: Telling) -> str:
    """Steps that are left times the usual step time; '' where the total or the pace is not told."""
    for file, series in t.record.artefacts.steps.items():
        rows = timed_steps(t.record.artefacts)
        own = [r for r in rows if r.file == file and not r.by_rate]
        if not series.total_steps or len(own) <= WARM:
            continue
        last, pace = own[-1], median(r.step_ms for r in own[WARM:]) / 1000
        left = series.total_steps - last.step
        mark = at_line(t, last.file, last.line, last.text)
        if left <= 0:
            return f"It is finished: step {last.step} of {series.total_steps:,} is logged, {mark}."
        hours = left * pace / 3600
        span = f"{hours:.1f} hours" if hours < 72 else f"{hours / 24:.1f} days"
        return (
            f"About {span} at the pace of the log: {left:,} of {series.total_steps:,} steps are left after step {last.step} ({mark}), "
            f"{pace:.3g} s each; saves, evaluations and failures come on top."
        )
    return ""


def tell_figure(t: Telling) -> str:
    """The quantities that are named; '' where none is asked for or no step line prints one."""
    if _ETA.search(t.asked.text):
        return _say_eta(t)
    if _SINCE.search(t.asked.text) and (since := tell_slowing(t)):
        return since
    if not asks_figure(t.asked.text) and not _SKIPPED.search(t.asked.text):
        return ""
    if _SKIPPED.search(t.asked.text) and (skipped := _say_skipped(t)):
        return skipped
    if [f.name for f in _asked_for(t.asked.text)] == ["MFU"] and (derived := _derived_mfu(t)):
        return derived
    curves = [c for f in _asked_for(t.asked.text) if (c := _curve(t, f)) is not None]
    once = list({(c.unit, c.rows[0].line, c.rows[0].value): c for c in curves}.values())
    return " ".join(_say(t, c) for c in once)


_SKIPPED = expression(
    r"(?i)\bhow many (?:\w+ )?(?:steps|iterations|updates)\b[^?\n]{0,20}\bskipped\b|\bhow many skipped\b"
)


def _say_skipped(t: Telling) -> str:
    """How many steps the optimizer skipped, summed over the rows that count them; '' where none does."""
    for file, series in t.record.artefacts.steps.items():
        rows = _rows(series, "skipped")
        if not rows:
            continue
        told = [r for r in rows if r.value > 0]
        c = _Curve("skipped steps", "", file, rows, None)
        counts_on = all(
            b.value >= a.value for a, b in pairwise(rows)
        )  # DeepSpeed counts on, Megatron by interval
        total = rows[-1].value if counts_on else sum(r.value for r in told)
        where = f": first told at step {told[0].step} ({_at(t, c, told[0])}), last at step {told[-1].step} ({_at(t, c, told[-1])})" if told else ""  # fmt: skip
        return f"{total:,.0f} steps were skipped, by the logged rows{where}. {t.cause} {t.main}."
    return ""


def _derived_mfu(t: Telling) -> str:
    """MFU of a log that prints none, from its TFLOP/s or tokens a second; '' where it prints one or neither."""
    figures = {f.name: f for f in _figures()}
    if _curve(t, figures["MFU"]) is not None:
        return ""
    speed = _curve(t, figures["TFLOP/s per GPU"]) or _curve(t, figures["throughput"])
    if speed is None or not speed.unit.startswith((" TFLOP", " tokens")):
        return ""
    share, how = _share_of_peak(t, speed, _usual(speed.rows))
    marks = f"{_at(t, speed, speed.rows[0])}, {_at(t, speed, speed.rows[-1])}"
    return (
        f"MFU is about {share:.0f} %: {how} ({marks}). 35 to 50 % is usual for dense models on well-connected nodes."
        if share is not None
        else ""
    )


def _curve(t: Telling, figure: _Figure) -> _Curve | None:
    """The quantity in the file that prints it most often."""
    found: list[_Curve] = []
    for column in figure.columns:
        for file, series in t.record.artefacts.steps.items():
            if series.has(column) and (rows := _rows(series, column)):
                seconds = column == "step_time_ms"
                name = "step time" if seconds else figure.name
                unit = " s" if seconds else figure.unit or _UNITS.get(column, "")
                if column == "data_time_ms":
                    unit = " ms"
                found.append(_Curve(name, unit, file, rows, series.total_steps))
        if found:
            break
    return max(found, key=lambda c: len(c.rows), default=None)


def _rows(series: StepSeries, column: str) -> tuple[_Row, ...]:
    scale = 1e-3 if column == "step_time_ms" else 1.0
    values = series.values(column)
    return tuple(
        _Row(int(series.step[r]), float(values[r]) * scale, int(series.line[r]))
        for r in map(int, series.rows_with(column))
        if series.step[r] != NO_STEP and values[r] != MISSING
    )


def _at(t: Telling, c: _Curve, row: _Row) -> str:
    return at_line(t, c.file, row.line, t.record.artefacts.text_of(c.file, row.line))


def _say(t: Telling, c: _Curve) -> str:
    """One quantity at the moment that is asked for."""
    text, name = t.asked.text, f"The {c.name}" if c.name != "MFU" else "MFU"
    named = _STEP.search(text) or _AT_NUMBER.search(text)
    if named is not None:
        return _at_step(t, c, name, int(named[1]))
    if _START.search(text):
        return f"{name} was {c.say(c.rows[0].value)} at step {c.rows[0].step}, the first that is logged, {_at(t, c, c.rows[0])}."
    if _MOST.search(text) or _LEAST.search(text):
        best = (max if _MOST.search(text) else min)(c.rows, key=lambda r: r.value)
        return f"{name} was {c.say(best.value)} at step {best.step}, {_at(t, c, best)}; usual is {c.say(_usual(c.rows))} (median of {len(c.rows)} rows)."
    if _LOST.search(text) and (lost := _lost(t, c)):
        return lost
    if _END.search(text) and not _GOOD.search(text):
        first = t.diagnosis.first_line
        own = [r for r in c.rows if first is None or first.file != c.file or r.line <= (first.line or 0)] or list(c.rows)  # fmt: skip
        last = own[-1]
        of_all = f" of {c.total:,}" if c.total else ""
        until = "the last logged before the fault" if t.diagnosis.verdict is Verdict.FAULT else "the last that is logged"  # fmt: skip
        return f"{name} was {c.say(last.value)} at step {last.step}{of_all}, {until}, {_at(t, c, last)}{_beside(c, own)}."
    return _as_it_ran(t, c, name)


def _beside(c: _Curve, rows: Sequence[_Row]) -> str:
    """What is usual for it, where rows enough tell."""
    usual = [r.value for r in rows[WARM:-1] if r.value == r.value]
    return f"; before that it was usually {c.say(median(usual))}, between {c.say(min(usual))} and {c.say(max(usual))}" if len(usual) >= WARM else ""  # fmt: skip


def _usual(rows: Sequence[_Row]) -> float:
    kept = [r.value for r in rows if r.value == r.value]
    return float(f"{median(kept[WARM:] if len(kept) > 2 * WARM else kept):.4g}") if kept else float("nan")  # fmt: skip


def _at_step(t: Telling, c: _Curve, name: str, step: int) -> str:
    row = next((r for r in c.rows if r.step == step), None)
    if row is not None:
        i = c.rows.index(row)
        near = [r for r in (c.rows[i - 1] if i else None, c.rows[i + 1] if i + 1 < len(c.rows) else None) if r is not None]  # fmt: skip
        beside = ", ".join(f"{c.say(r.value)} at step {r.step}" for r in near)
        return f"{name} at step {step} is {c.say(row.value)}, {_at(t, c, row)}{f' (beside it {beside})' if beside else ''}."
    before = max((r for r in c.rows if r.step < step), key=lambda r: r.step, default=None)
    after = min((r for r in c.rows if r.step > step), key=lambda r: r.step, default=None)
    told = " and ".join(f"{c.say(r.value)} at step {r.step} ({_at(t, c, r)})" for r in (before, after) if r is not None)  # fmt: skip
    return f"No line prints the {c.name} of step {step}; the nearest that are logged: {told}."


def _lost(t: Telling, c: _Curve) -> str:
    """The share by which the pace fell; '' where it did not."""
    pace = read_pace(timed_steps(t.record.artefacts), t.record.artefacts.lines)
    if pace is None:
        return ""
    one, other = pace.healthy[-1], pace.slow[0]
    marks = " and ".join(at_line(t, x.file, x.line, x.text) for x in (one, other))
    inside = [[r.value for r in c.rows if (r.step < other.step) is early] for early in (True, False)]  # fmt: skip
    told = f": the {c.name} goes from about {c.say(float(f'{median(inside[0]):.4g}'))} to {c.say(float(f'{median(inside[1]):.4g}'))}" if all(inside) else ""  # fmt: skip
    return f"{100 * pace.lost_share:.0f} % of the throughput is lost since step {other.step}{told} ({marks})."


def _as_it_ran(t: Telling, c: _Curve, name: str) -> str:
    """What was usual, the spread, a lasting change, and whether it is good where that is asked."""
    usual, rows = _usual(c.rows), c.rows
    first, last = rows[0], rows[-1]
    if _GOOD.search(t.asked.text) and c.name in _OF_LEARNING:
        return _is_sound(t, c, first, last)
    values = [r.value for r in rows[WARM:] if r.value == r.value] or [first.value]
    if c.unit.strip() in ("", "GiB") and abs(last.value - first.value) > MOVED * abs(first.value or 1.0):  # fmt: skip
        word = "rises" if last.value > first.value else "falls"
        return f"{name} {word} from {c.say(first.value)} at step {first.step} ({_at(t, c, first)}) to {c.say(last.value)} at step {last.step} ({_at(t, c, last)})."
    spread = f", between {c.say(min(values))} and {c.say(max(values))}" if min(values) != max(values) else ""  # fmt: skip
    changed = _lost(t, c)
    head = f"{name} is about {c.say(usual)}: the median of {len(rows)} logged rows, steps {first.step} to {last.step}{spread} ({_at(t, c, first)}, {_at(t, c, last)})."
    if changed:
        head = f"{name}: {changed}"
    return head + _judged(t, c, usual)


_OF_LEARNING = ("loss", "evaluation loss", "gradient norm")


def _is_sound(t: Telling, c: _Curve, first: _Row, last: _Row) -> str:
    """Whether a curve of learning is finite and has not risen."""
    told = f"it goes from {c.say(first.value)} at step {first.step} ({_at(t, c, first)}) to {c.say(last.value)} at step {last.step} ({_at(t, c, last)})"
    finite = all(r.value == r.value and abs(r.value) != float("inf") for r in c.rows)
    head = f"No: the {c.name} is not finite"
    if finite:
        fallen = last.value <= 1.05 * first.value
        head = f"{'Yes, the ' if fallen else 'Not clearly: the '}{c.name} {'is finite' if fallen else 'has risen'}"
    rest = f" The verdict is about something else: {t.cause} {t.main}." if finite and t.diagnosis.verdict is Verdict.FAULT else ""  # fmt: skip
    return f"{head}; {told}, {len(c.rows)} rows.{rest}"


def _judged(t: Telling, c: _Curve, usual: float) -> str:
    """Whether a speed is good: by the MFU that is printed or follows from tokens per second, model and card; '' where it is not asked."""
    if not _GOOD.search(t.asked.text) or c.name not in ("MFU", "throughput", "step time"):
        return ""
    share, how = usual if c.name == "MFU" else None, "as the log prints it"
    if share is None:
        printed = _curve(t, next(f for f in _figures() if f.name == "MFU"))
        share = _usual(printed.rows) if printed is not None else None
    if share is None:
        share, how = _share_of_peak(t, c, usual)
    if share is None:
        return " Whether that is good takes the MFU: size of the model, kind of GPU and tokens a second and GPU; 35 to 50 % is usual for dense models."
    word = "good" if share >= 40 else "usual" if share >= 33 else "low"
    return f" That is {word}: MFU {share:.0f} % ({how}), and 35 to 50 % is usual for dense models on well-connected nodes."


def _share_of_peak(t: Telling, c: _Curve, usual: float) -> tuple[float | None, str]:
    """MFU from a speed, with how it was counted."""
    if c.unit == " tokens/s":
        return _mfu_of(t, usual)
    if not c.unit.startswith(" TFLOP"):
        return None, ""
    card = next((m for x in t.evidence.lines[:400] if (m := _GPU.search(x.text)) is not None), None)
    name = card[1].upper() if card is not None else "H100"
    assumed = "" if card is not None else ", H100 assumed since no line names the card"
    return 100 * usual / _PEAKS[name], f"{usual:,.0f} of {_PEAKS[name]} TFLOP/s{assumed}"


def _mfu_of(t: Telling, tokens: float) -> tuple[float | None, str]:
    """MFU from tokens a second, where the log names size and card; the rate is a GPU's where its line says so."""
    texts = [x.text for x in t.evidence.lines[:400]]
    size = next((m for x in texts if (m := _MODEL.search(x)) is not None), None)
    card = next((m for x in texts if (m := _GPU.search(x)) is not None), None)
    each = any(re.search(r"(?i)tok\w*/s(?:ec)?/gpu|tokens/gpu/s|tps:", x.text) for x in t.evidence.lines)  # fmt: skip
    gpus = t.diagnosis.input.world_size
    if size is None or (not each and not gpus):
        return None, ""
    name = card[1].upper() if card is not None else "H100"
    rate = tokens if each else tokens / (gpus or 1)
    share = 100 * 6 * float(size[1]) * 1e9 * rate / (_PEAKS[name] * 1e12)
    assumed = "" if card is not None else ", H100 assumed since no line names the card"
    return share, f"6 x {size[1]}B parameters x {rate:,.0f} tokens/s / {_PEAKS[name]} TFLOP/s{assumed}; attention not counted"  # fmt: skip
