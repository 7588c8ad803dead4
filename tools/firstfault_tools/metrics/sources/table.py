"""How do rows from a file that is no log become a `StepSeries`? Names mean what they mean in a log."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Finding, Json
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP, StepSeries
from firstfault_tools.metrics.sources.tokens import meaning_of, unit_factor
from firstfault_tools.metrics.view import View, lead_of

MAX_ROWS = 2_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """One row as the file holds it. values: by the file's own names. line, text: where it stands."""

    values: Mapping[str, float]
    line: int
    text: str
    step: int | None = None
    time: float | None = None


def _name_values(row: Row) -> tuple[int, dict[str, float]]:
    """Step and metrics of a row, each in the metric's own unit."""
    named: dict[str, float] = {}
    at = NO_STEP if row.step is None else row.step
    for key, value in row.values.items():
        metric, unit = meaning_of(key) or ("batch", "")
        if metric in ("step", "global_step") and row.step is None:
            at = int(value) if abs(value) < 1e15 else NO_STEP
        elif metric not in ("step", "global_step", "batch"):
            named.setdefault(metric, value * unit_factor(metric, unit))
    total = named.pop("total_loss", None)
    if total is not None:
        named.setdefault("loss", total)
    return at, named


def build_series(rows: Iterable[Row], total_steps: int | None = None) -> StepSeries:
    """Rows as a series; names without a meaning are left out, rows without any as well."""
    step, line, rank, time = array("q"), array("q"), array("i"), array("d")
    columns: dict[str, array[float]] = {}
    texts: dict[int, str] = {}
    for row in rows:
        if len(line) >= MAX_ROWS:
            break
        at, named = _name_values(row)
        if not named or set(named) == {"epoch"}:
            continue
        count = len(line)
        for metric, value in named.items():
            column = columns.setdefault(metric, array("d"))
            column.extend([MISSING] * (count - len(column)))
            column.append(value)
        step.append(at)
        line.append(row.line)
        rank.append(NO_RANK)
        time.append(MISSING if row.time is None else row.time)
        texts[count] = row.text
    for column in columns.values():
        column.extend([MISSING] * (len(line) - len(column)))
    return StepSeries(step, line, rank, time, columns, total_steps=total_steps, texts=texts)


def summarise_series(series: StepSeries, file: str) -> dict[str, Json]:
    """Rows, step range and last finite value of each metric, for the page and the model."""
    view = View(all=series, lead=lead_of(series), file=file)
    last: dict[str, Json] = {}
    for metric in view.lead.columns:
        curve = view.curve(metric)
        if len(curve):
            last[metric] = float(curve.values[-1])
    known = [s for s in view.lead.step if s != NO_STEP]
    return {
        "file": file,
        "rows": len(series),
        "first_step": known[0] if known else None,
        "last_step": known[-1] if known else None,
        "last_values": last,
    }


def judge_rows(
    rows: Iterable[Row], file: str, total_steps: int | None = None
) -> tuple[tuple[Finding, ...], dict[str, Json]]:
    """Findings and summary of a file's rows."""
    series = build_series(rows, total_steps)
    return judge_steps(series, file), summarise_series(series, file)
