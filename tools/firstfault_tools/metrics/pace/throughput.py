"""Is the run as fast as it was, and what stops it? Step changes, drift, pauses, data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.metrics.change_points import Shift, find_drift, find_shift
from firstfault_tools.metrics.pace.work import Growth, find_growth
from firstfault_tools.metrics.series import MISSING, NO_STEP, Event
from firstfault_tools.metrics.view import View, make_finding, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAVES = ("checkpoint_saved", "checkpoint_staged")
"""Events of a save; only some programs name its step."""

WARM = 3
FARTHEST_ROUND = 64
"""Steps between two waits above which rounds of loader workers do not explain them."""
PILES_UP = (
    "; something grows from step to step (kept outputs, a graph that is extended, a list or cache that is searched, a "
    "disk or memory that fills up)"
)


@dataclass(frozen=True, slots=True)
class Pace:
    """Time a step took, by row. source: the column it came from. exact: milliseconds, not relative."""

    rows: NDArray[np.int64]
    ms: NDArray[np.float64]
    source: str
    exact: bool

    @property
    def per_step(self) -> bool:
        """It times whole steps, however much each does; rates of tokens are per unit of work already."""
        return self.source != "tokens_per_s"

    def show(self, ms: float) -> str:
        """A level as it was printed: a time, or the rate that it was made of."""
        if self.exact:
            return f"{number(ms)} ms"
        return f"{number(1000.0 / ms)} {self.source.replace('_per_s', '/s')}"


def pace_of(view: View) -> Pace | None:
    """Step times of the lead rank without the first rows, which compile and warm up."""
    import numpy as np

    series = view.lead
    steps = series.steps()
    for metric, inverse in (
        ("step_time_ms", False),
        ("iterations_per_s", True),
        ("tokens_per_s", True),
        ("samples_per_s", True),
    ):
        values = series.values(metric)
        if metric == "step_time_ms":
            # a progress bar turns from it/s to s/it where a step takes a second
            rate = series.values("iterations_per_s")
            told = (values == MISSING) & (rate != MISSING) & np.isfinite(rate) & (rate > 0)
            values = np.where(told, 1000.0 / np.where(told, rate, 1.0), values)
        rows = np.flatnonzero((values != MISSING) & np.isfinite(values) & (values > 0))
        if len(rows) < 7:
            continue
        part = values[rows]
        made = 1000.0 / part if inverse else part
        exact = not inverse or metric == "iterations_per_s"
        warm = _warm(len(rows))
        return Pace(rows[warm:], made[warm:], metric, exact)
    time = np.asarray(series.time)
    rows = np.flatnonzero((time != MISSING) & (steps != NO_STEP))
    if len(rows) < 8:
        return None
    gaps, moved = np.diff(time[rows]), np.diff(steps[rows])
    good = (moved > 0) & (gaps > 0)
    # Whole seconds say nothing about steps of a second.
    if good.sum() < 7 or float(np.median(gaps[good])) < 5:
        return None
    warm = _warm(int(good.sum()))
    return Pace(rows[1:][good][warm:], (gaps[good] / moved[good] * 1000)[warm:], "time", True)


def _warm(rows: int) -> int:
    """Rows to leave out at the start: fewer of a short excerpt, which may begin anywhere."""
    return WARM if rows >= 12 else 1


def _period(places: NDArray[np.int64]) -> int | None:
    """Common distance of at least three marks, up to one place of jitter; None if there is none."""
    import numpy as np

    if len(places) < 3:
        return None
    gaps = np.diff(places)
    usual = int(np.median(gaps))
    # A pause that fell just below the threshold leaves a double gap.
    multiple = np.maximum(1, np.round(gaps / max(usual, 1)))
    if usual < 2 or np.any(np.abs(gaps - multiple * usual) > np.maximum(1, 0.05 * gaps)):
        return None
    return usual


def judge_data_stall(view: View) -> list[Finding]:
    """Time spent waiting for data, and the period of the waits."""
    import numpy as np

    series = view.lead
    data, step = series.values("data_time_ms"), series.values("step_time_ms")
    rows = np.flatnonzero((data != MISSING) & (step != MISSING) & (step > 0))
    if len(rows) < 8:
        return []
    rows = rows[2:]
    wait, whole = data[rows], step[rows]
    # Some trainers print compute and data side by side, others data within the whole.
    whole = np.where(wait > whole, wait + whole, whole)
    share = float(np.sum(wait) / np.sum(whole))
    if share < 0.25 or float(np.sum(wait)) < 50 * len(rows) * 0.2:
        return []
    usual = float(np.median(wait))
    stalls = np.flatnonzero((wait > 4 * max(usual, 1.0)) & (wait > 0.5 * whole))
    rest = whole - wait
    epoch = series.values("epoch")
    starts = [r for r in rows[stalls].tolist() if r and epoch[r] > epoch[r - 1] != MISSING]
    if len(starts) >= 0.8 * len(stalls) > 0:
        return _epoch_starts(view, starts, share)
    facts: dict[str, Json] = {
        "data_share": share,
        "median_data_ms": usual,
        "median_compute_ms": float(np.median(rest)),
        "first": series.label(int(rows[0])),
        "last": series.label(int(rows[-1])),
    }
    steady = usual > 0.25 * float(np.median(whole))
    title = (
        f"Waiting for data takes {share:.0%} of the step time between "
        f"{series.label(int(rows[0]))} and {series.label(int(rows[-1]))}"
    )
    quoted, calm = [int(rows[0])], set[int]()
    workers = next((e.values.get("workers") for e in view.events("workers")), None)
    if not steady and len(stalls):
        worst = int(rows[stalls[np.argmax(wait[stalls])]])
        mean = float(np.mean(wait[stalls])) / 1000
        title += (
            f": {len(stalls)} steps wait {mean:.1f} s on average for the data loader (worst "
            f"{float(np.max(wait)) / 1000:.1f} s at {series.label(worst)}), the others "
            f"{usual:.0f} ms; compute stays at {float(np.median(rest)):.0f} ms"
        )
        quoted += [int(r) for r in rows[stalls[:4]]]
        quoted += [int(rows[stalls[0]]) - 1]
        calm = {*quoted} - {int(r) for r in rows[stalls]}
        period = _period(stalls)
        border = _epoch_distance(view, [series.step[int(r)] for r in rows[stalls]])
        if border:
            title += border
        elif period is not None:
            facts["period_batches"] = period
            title += f". Every {period}th batch stalls"
            if workers and int(workers) == period:
                title += f", and num_workers is {period}: all workers fall behind together"
            else:
                title += (
                    f", the pattern of num_workers={period}: each round of loader workers falls "
                    "behind together (storage or preprocessing too slow)"
                )
        elif len(stalls) < 3:
            return []
    else:
        worst = int(rows[int(np.argmax(wait))])
        quoted += [int(rows[len(rows) // 2]), worst]
        title += (
            f": {usual:.0f} ms of {float(np.median(whole)):.0f} ms in a usual step. The input "
            "pipeline is the bottleneck"
        )
    return [
        make_finding(
            "dataloader_stall",
            title,
            Level.CAUSE,
            Category.PERFORMANCE,
            view.evidence(quoted, usual=calm),
            confidence=Confidence.CONFIRMED,
            facts=facts,
        )
    ]


def _epoch_distance(view: View, steps: list[int]) -> str:
    """Say that the waits are as many steps apart as an epoch has, or so many that nothing else fits; or ''."""
    gaps = {b - a for a, b in pairwise(steps)}
    if NO_STEP in steps or len(steps) < 3 or len(gaps) != 1:
        return ""
    (every,) = gaps
    told = {int(n) for e in view.events("epoch_steps") for n in e.values.values()}
    workers = max((int(e.values["workers"]) for e in view.events("workers")), default=0)
    counted = (
        min((b - a for a, b in pairwise(view.lead.step) if b > a), default=0) == 1
    )  # steps, not samples
    if every not in told and (not counted or every < FARTHEST_ROUND or every <= 2 * workers):
        return ""
    epoch = "the length of an epoch" if every in told else "as at the borders of epochs"
    return (
        f". The waits are {every} steps apart, {epoch}: the loader is started anew for each epoch, its workers are shut down and "
        "forked again and the first batch waits for them (persistent_workers=False)"
    )


def _epoch_starts(view: View, rows: list[int], share: float) -> list[Finding]:
    """Waits at the first batch of an epoch only, where loader workers start anew."""
    label = view.lead.label(rows[0])
    return [
        make_finding(
            "epoch_start_wait",
            f"The first batch of an epoch waits for the data loader ({len(rows)} epochs, first at "
            f"{label}; {share:.0%} of all time): the workers start anew each epoch",
            Level.FAILURE if share >= 0.5 else Level.CONTEXT,
            Category.PERFORMANCE,
            view.evidence(
                [r for row in rows[:3] for r in (row - 1, row)],
                usual={r - 1 for r in rows} - set(rows),
            ),
            facts={"data_share": share, "epochs": len(rows)},
        )
    ]


def judge_pauses(view: View) -> list[Finding]:
    """Long steps at regular distance: checkpoint, evaluation, garbage collection, data."""
    import numpy as np

    pace = pace_of(view)
    if pace is None or len(pace.ms) < 16:
        return []
    series = view.lead
    usual = float(np.median(pace.ms))
    scatter = float(np.median(np.abs(pace.ms - usual))) * 1.4826
    long = np.flatnonzero(pace.ms > max(1.6 * usual, usual + 8 * scatter))
    if len(long) < 3 or len(long) > 0.34 * len(pace.ms):
        return _known_pauses(view, pace, usual, scatter)
    period = _period(long)
    if period is None:
        return _known_pauses(view, pace, usual, scatter)
    data = series.values("data_time_ms")[pace.rows[long]]
    if np.mean((data != MISSING) & (data > 0.5 * pace.ms[long])) > 0.5:
        return []  # reported as a data stall
    cost = float(np.sum(pace.ms[long] - usual) / np.sum(pace.ms))
    steps = [series.step[int(r)] for r in pace.rows[long]]
    every = int(np.median(np.diff(steps))) if NO_STEP not in steps else None
    rows = [int(r) for r in pace.rows[long]]
    near = _count_beside(view.events(*SAVES), rows, steps)
    evals = _count_beside(view.events("evaluation"), rows, ())
    workers = next((e.values.get("workers") for e in view.events("workers")), None)
    if near >= 0.6 * len(long):
        why, page = "checkpoints are saved at these steps", "checkpoint-slow"
    elif evals >= 0.6 * len(long):
        why, page = "evaluation runs at these steps", "throughput-drop"
    elif workers and every and every in (int(workers), period * int(workers)):
        why, page = f"the distance equals num_workers = {workers:.0f}", "dataloader-stall"
    else:
        why = "look at garbage collection, checkpoints, evaluation or the data loader"
        page = "throughput-drop"
    heavy = cost >= 0.2
    known = max(near, evals) >= 0.6 * len(long)
    rows = rows[:3]
    return [
        make_finding(
            "periodic_pauses",
            f"{len(long)} long steps at regular distance"
            + (f", every {every} steps" if every else f", every {period} rows")
            + f": {pace.show(float(np.median(pace.ms[long])))} against {pace.show(usual)} usually, first at "
            f"{series.label(rows[0])}, {cost:.0%} of all time; {why}",
            Level.CAUSE if heavy else Level.BENIGN if known else Level.CONTEXT,
            Category.PERFORMANCE,
            view.evidence([rows[0] - 1, *rows], usual=[rows[0] - 1]),
            page=page,
            confidence=Confidence.LIKELY,
            facts={
                "period_steps": every,
                "period_rows": period,
                "usual_ms": usual,
                "pause_ms": float(np.median(pace.ms[long])),
                "cost_share": cost,
                "steps": [int(s) for s in steps[:20]],
            },
        )
    ]


def _count_beside(events: Sequence[Event], rows: Sequence[int], steps: Sequence[int]) -> int:
    """Long rows within which something was done: by the row that follows it, or by the step it names."""
    done = {e.row + d for e in events for d in (-1, 0, 1)}
    named = {int(e.values["step"]) + d for e in events if "step" in e.values for d in (-1, 0, 1)}
    numbers = steps or [NO_STEP] * len(rows)
    return sum(1 for row, step in zip(rows, numbers, strict=True) if row in done or step in named)


def _known_pauses(view: View, pace: Pace, usual: float, scatter: float) -> list[Finding]:
    """Few long rows, every one of which covers a save or an evaluation: accounted for."""
    import numpy as np

    long = np.flatnonzero(pace.ms > max(1.2 * usual, usual + 8 * scatter))
    if not 1 <= len(long) <= 0.34 * len(pace.ms):
        return []
    cost = float(np.sum(pace.ms[long] - usual) / np.sum(pace.ms))
    series = view.lead
    events = view.events(*SAVES, "evaluation")
    rows = pace.rows[long].tolist()
    kinds: set[str] = set()
    for row in rows:
        near = {SAVES[0] if e.kind in SAVES else e.kind for e in events if e.row in (row, row - 1)}
        if not near:
            return []
        kinds |= near
    if cost >= 0.2:
        return []
    words = {"checkpoint_saved": "a checkpoint is saved", "evaluation": "evaluation runs"}
    why = " and ".join(words[k] for k in ("evaluation", "checkpoint_saved") if k in kinds)
    labels = ", ".join(series.label(int(r)) for r in rows[:4])
    return [
        make_finding(
            "known_pauses",
            f"The slower steps ({labels}: {pace.show(float(np.median(pace.ms[long])))} against {pace.show(usual)}) are those in "
            f"which {why}; all other steps take the usual time",
            Level.BENIGN,
            Category.PERFORMANCE,
            view.evidence([int(r) for r in rows[:3]]) + view.event_evidence(events[:2]),
            page="checkpoint-slow" if "checkpoint_saved" in kinds else "throughput-drop",
            facts={
                "pause_ms": float(np.median(pace.ms[long])),
                "usual_ms": usual,
                "cost_share": cost,
            },
        )
    ]


_LOAD = expression(
    r"(?i)\b(global[ _]batch[ _]size|batch[ _]size|actual seqlen|curriculum[ _]seqlen|seq[ _]?len|"
    r"sequence[ _]length)\W{1,4}(\d+)"
)


def _load_changed(before: str, after: str) -> str:
    """Say which printed amount of work a step changed between two step lines, or ''."""
    old = {name.lower(): value for name, value in _LOAD.findall(before)}
    for name, value in _LOAD.findall(after):
        if old.get(name.lower(), value) != value:
            return f"{name} changed from {old[name.lower()]} to {value}"
    return ""


def _throttled(view: View, pace: Pace, at: int) -> tuple[str, dict[str, Json]]:
    """Say when the printed SM clock fell with the throughput; '' otherwise."""
    import numpy as np

    said: list[str] = []
    facts: dict[str, Json] = {}
    fell = False
    for metric, name, unit in (
        ("sm_clock_mhz", "SM clock", "MHz"),
        ("temperature_c", "temperature", "C"),
        ("power_w", "power", "W"),
    ):
        values = view.lead.values(metric)[pace.rows]
        good = (values != MISSING) & np.isfinite(values)
        if good[:at].sum() < 3 or good[at:].sum() < 3:
            continue
        before = float(np.median(values[:at][good[:at]]))
        after = float(np.median(values[at:][good[at:]]))
        facts |= {f"{metric}_before": before, f"{metric}_after": after}
        said.append(f"{name} {number(before)} to {number(after)} {unit}")
        fell = fell or (metric == "sm_clock_mhz" and after < 0.92 * before)
    return ("; ".join(said) if fell else ""), facts


def _tell_growth(view: View, grown: Growth) -> Finding:
    """Longer steps that do more: no slowdown."""
    first, last = grown.rows
    return make_finding(
        "work_grew",
        grown.sentence(),
        Level.BENIGN,
        Category.PERFORMANCE,
        view.evidence([first, last]),
        facts={"work": list(grown.work), "ms": list(grown.ms), "ratio": grown.ratio},
    )


def judge_pace(view: View) -> list[Finding]:
    """Throughput that dropped at some step and stayed down, or that drifts down slowly."""
    pace = pace_of(view)
    if pace is None:
        return []
    shift, drift = find_shift(pace.ms), find_drift(pace.ms)
    longer = [change for change in (shift, drift) if change is not None and change.ratio > 1]
    if longer and pace.per_step and (grown := find_growth(view, pace.rows, pace.ms)) is not None:
        return [_tell_growth(view, grown)]
    if shift is not None and shift.ratio > 1:
        return [_tell_shift(view, pace, shift)]
    if drift is not None and drift.ratio > 1:
        return [_tell_drift(view, pace, drift)]
    return []


def _say_meant(view: View, pace: Pace) -> str:
    """Words for a load that somebody changed between the first row and the last; '' where nobody did."""
    ends = (int(pace.rows[0]), int(pace.rows[-1]))
    return _load_changed(*(view.text(view.lead, row) for row in ends))


def _tell_shift(view: View, pace: Pace, shift: Shift) -> Finding:
    series, last = view.lead, int(pace.rows[-1])
    first, before = int(pace.rows[shift.index]), int(pace.rows[max(0, shift.index - 1)])
    clocks, readings = _throttled(view, pace, shift.index)
    meant = _say_meant(view, pace)
    return make_finding(
        "step_load_changed" if meant else "throughput_drop",
        f"Steps take {shift.ratio:.2f} times as long since {series.label(first)}: "
        f"{pace.show(shift.before)} before, {pace.show(shift.after)} after, to the "
        f"end of the log at {series.label(last)}"
        + (f"; {meant}, so that is meant" if meant else "")
        + (f"; the GPU slowed down with it: {clocks}" if clocks else ""),
        Level.CONTEXT if meant else (Level.CAUSE if clocks else Level.FAILURE),
        Category.HARDWARE if clocks else Category.PERFORMANCE,
        view.evidence([before, first, last], usual=[before] if before < first else ()),
        page="thermal-and-power-slowdown" if clocks else "throughput-drop",
        facts={
            **readings,
            "since": series.label(first),
            "before": shift.before,
            "after": shift.after,
            "ratio": shift.ratio,
            "source": pace.source,
        },
    )


def _tell_drift(view: View, pace: Pace, drift: Shift) -> Finding:
    series = view.lead
    first, last = int(pace.rows[0]), int(pace.rows[-1])
    meant = _say_meant(view, pace)
    why = f"; {meant}, so that is meant" if meant else PILES_UP if drift.ratio > 2 else ""
    return make_finding(
        "step_load_changed" if meant else "throughput_drift",
        f"Steps slowly became {drift.ratio:.2f} times as long, from {pace.show(drift.before)}"
        f" around {series.label(first)} to {pace.show(drift.after)} around "
        f"{series.label(last)}{why}",
        Level.CONTEXT if meant else Level.FAILURE,
        Category.PERFORMANCE,
        view.evidence([first, int(pace.rows[len(pace.rows) // 2]), last], usual=[first]),
        page="throughput-drop",
        facts={"before": drift.before, "after": drift.after, "ratio": drift.ratio},
    )
