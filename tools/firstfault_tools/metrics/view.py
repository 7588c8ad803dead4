"""Which rows does a verdict look at, and how does it quote them? One view for all verdicts.

Ranks interleave in one log. A curve is judged on one rank only, the lead: the rank with the most
rows that hold a real loss. Verdicts that compare ranks use `all`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import (
    Category,
    Confidence,
    Evidence,
    Finding,
    Json,
    Level,
    Strength,
)
from firstfault_tools.metrics.series import MISSING, NO_RANK, NO_STEP, Event, StepSeries

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Quote = Callable[[int], "str | None"]
MAX_QUOTE = 600
PLACEHOLDER_LOSS = -1.0


@dataclass(frozen=True, slots=True)
class View:
    """all: every row. lead: rows of the lead rank. quote: text of a line, for rows not kept."""

    all: StepSeries
    lead: StepSeries
    file: str
    quote: Quote | None = None

    def text(self, series: StepSeries, row: int) -> str:
        """Text of a row, at most 600 characters; empty where it is no longer at hand."""
        text = series.texts.get(row)
        if text is None and self.quote is not None:
            text = self.quote(series.line[row])
        return (text or "").strip()[:MAX_QUOTE]

    def evidence(
        self, rows: Iterable[int], series: StepSeries | None = None, usual: Collection[int] = ()
    ) -> tuple[Evidence, ...]:
        """Quoted rows, in the order of the log, each once. usual: those of them that are as they should be."""
        source = self.lead if series is None else series
        quoted = []
        chosen = {int(r) for r in rows if 0 <= r < len(source)}
        bars = set[int]()
        for row in tuple(chosen):
            # A step number that comes from the progress bar above is quoted from there.
            if row and source.step[row - 1] == source.step[row] != NO_STEP:
                own, above = self.text(source, row), self.text(source, row - 1)
                number = str(source.step[row])
                if number not in own and number in above:
                    bars.add(row - 1)
        # a bar says how far the run is, and nothing of how it goes
        calm = bars - chosen | {*usual}
        for row in sorted(chosen | bars):
            rank, time = source.rank[row], source.time[row]
            quoted.append(
                Evidence(
                    file=self.file,
                    line=source.line[row],
                    text=self.text(source, row),
                    rank=None if rank == NO_RANK else rank,
                    time=None if time == MISSING else time,
                    usual=row in calm,
                )
            )
        return tuple(quoted)

    def event_evidence(self, events: Iterable[Event]) -> tuple[Evidence, ...]:
        """Quoted events."""
        return tuple(Evidence(self.file, e.line, e.text.strip()[:MAX_QUOTE]) for e in events)

    def events(self, *kinds: str) -> list[Event]:
        """Events of these kinds, in the order of the log."""
        return [event for event in self.lead.events if event.kind in kinds]

    def between(self, events: Iterable[Event], before: int, after: int) -> list[Event]:
        """Those of the events that stand between two rows of the lead rank."""
        start, end = self.lead.line[before], self.lead.line[after]
        return [event for event in events if start < event.line < end]

    def curve(self, metric: str) -> Curve:
        """Finite values of `metric` on the lead rank."""
        import numpy as np

        values = self.lead.values(metric)
        rows = np.flatnonzero((values != MISSING) & np.isfinite(values))
        return Curve(rows=rows, values=values[rows])

    def last_checkpoint_before(self, row: int) -> Event | None:
        """The last checkpoint saved before `row` at a step below that row's."""
        step = self.lead.step[row]
        found = None
        for event in self.events("checkpoint_saved"):
            at = event.values.get("step")
            if event.row <= row and (step == NO_STEP or at is None or at < step):
                found = event
        return found


@dataclass(frozen=True, slots=True)
class Curve:
    """Finite values of one metric with their row numbers in the lead series."""

    rows: NDArray[np.int64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)


def noise_of(values: NDArray[np.float64]) -> float:
    """Standard deviation of the noise on a slow curve, from second differences, robust to jumps."""
    import numpy as np

    if len(values) < 4:
        return 0.0
    bends = np.abs(values[2:] - 2 * values[1:-1] + values[:-2]) / np.sqrt(6.0)
    return float(np.median(bends) * 1.4826)


def running_median(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Centred running median of odd `width`, edges repeated.

    Above 20,000 values the medians of adjacent blocks stand in for it: a hundred times cheaper, and
    a block is then a thousandth of the run at most.
    """
    import numpy as np

    count, width = len(values), max(1, width | 1)
    if count <= width:
        return np.full(count, float(np.median(values))) if count else values
    if count > 20_000:
        whole = count // width * width
        blocks = np.median(values[:whole].reshape(-1, width), axis=1)
        return np.concatenate([np.repeat(blocks, width), np.full(count - whole, blocks[-1])])
    half = width // 2
    padded = np.pad(values, half, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    smooth: NDArray[np.float64] = np.median(windows, axis=1)
    return smooth


def blocks_of(values: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Borders of at most `most` equal blocks; len(borders) is the number of blocks + 1."""
    import numpy as np

    count = min(most, len(values))
    return np.linspace(0, len(values), count + 1).astype(np.int64)


def block_medians(values: NDArray[np.float64], most: int = 64) -> NDArray[np.float64]:
    """Medians of at most `most` equal blocks of a curve."""
    import numpy as np

    borders = blocks_of(values, most)
    return np.array(
        [np.median(values[a:b]) for a, b in itertools.pairwise(borders.tolist()) if b > a]
    )


def lead_of(series: StepSeries) -> StepSeries:
    """Rows of the rank that shows a real loss most often; all rows where ranks are not printed."""
    import numpy as np

    ranks = series.ranks()
    known = np.unique(ranks[ranks != NO_RANK])
    if len(known) <= 1:
        return series
    loss = series.values("loss")
    real = (loss != MISSING) & (loss != PLACEHOLDER_LOSS)
    best = max(known.tolist(), key=lambda r: (int(np.sum(real & (ranks == r))), -r))
    mine = np.sum(ranks == best)
    unnamed = np.sum(ranks == NO_RANK)
    if unnamed > mine:
        return series.select(np.flatnonzero(ranks == NO_RANK))
    return series.select(np.flatnonzero(ranks == best))


MAX_RUNS = 20


def split_runs(view: View) -> list[View]:
    """One view for each run that a log holds: a new one begins where the counter falls to 0 or 1.

    A sweep or a restart from nothing writes several runs into one log; a curve is judged within one.
    At most the last twenty.
    """
    import numpy as np

    lead = view.lead
    if lead.step_unit not in ("step", "iteration"):
        return [view]
    steps = lead.steps()
    named = np.flatnonzero(steps != NO_STEP)
    fresh = np.flatnonzero((np.diff(steps[named]) < 0) & (steps[named][1:] <= 1))
    if not len(fresh):
        return [view]
    borders = [0, *named[fresh + 1].tolist(), len(lead)][-MAX_RUNS - 1 :]
    return [
        View(view.all, lead.select(np.arange(a, b)), view.file, view.quote)
        for a, b in itertools.pairwise(borders)
    ]


def number(value: float) -> str:
    """A number as a sentence shows it."""
    if value != value:
        return "NaN"
    size = abs(value)
    if size != 0 and (size >= 1e6 or size < 1e-3):
        return f"{value:.4g}"
    text = f"{value:.4f}" if size < 100 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


ONE_LINE = Strength()


def make_finding(
    kind: str,
    title: str,
    level: Level,
    category: Category | None,
    evidence: tuple[Evidence, ...],
    page: str | None = None,
    confidence: Confidence = Confidence.LIKELY,
    rank: int | None = None,
    facts: dict[str, Json] | None = None,
    host: str | None = None,
    strength: Strength = ONE_LINE,
) -> Finding:
    """A finding of this room; its time is that of the first quoted line that has one."""
    time = next((e.time for e in evidence if e.time is not None), None)
    return Finding(
        kind=f"metrics.{kind}",
        title=title,
        level=level,
        category=category,
        confidence=confidence,
        evidence=evidence,
        rank=rank,
        host=host,
        time=time,
        page=page,
        facts=facts or {},
        strength=strength,
    )
