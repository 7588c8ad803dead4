"""What is a training run as numbers? Columns of step metrics with the log line each row came from.

Columns are `array` objects, so that a million rows stay small and numpy can view them without a
copy. A metric that a line did not print is `MISSING`, which is no number any log prints: a column
that vanishes is a finding, and must not be mixed up with a logged NaN.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MISSING = -1.7976931348623157e308
NO_STEP = -1
NO_RANK = -1
MAX_COUNTER, MAX_RANK = 2**62, 2**31 - 1
"""What the columns can hold; a larger number in a log is damage, not a step."""


def read_counter(value: str | float) -> int:
    """A step or total as a whole number within bounds. Raises ValueError for no number."""
    number = float(value)
    return int(min(max(number, -MAX_COUNTER), MAX_COUNTER)) if number == number else 0


@dataclass(frozen=True, slots=True)
class Event:
    """A line beside the step lines that a verdict needs: a checkpoint saved, a scale reduced.

    row: number of step rows that came before it. values: numbers the line names.
    """

    kind: str
    line: int
    text: str
    row: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StepSeries:
    """All step rows of one file, in the order they were logged.

    step: as logged, NO_STEP where the line names none. step_unit: what `step` counts: step or
    iteration, sample (open_clip counts samples) or batch (within an epoch). line: 1-based. rank: NO_RANK where not
    printed. time: seconds since the epoch, MISSING where not printed. columns: metric -> values.
    texts: row -> line text; complete up to a bound, beyond it only rows that matter.
    """

    step: array[int]
    line: array[int]
    rank: array[int]
    time: array[float]
    columns: Mapping[str, array[float]]
    step_unit: str = "step"
    total_steps: int | None = None
    texts: Mapping[int, str] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    def __len__(self) -> int:
        return len(self.step)

    def has(self, metric: str) -> bool:
        """Whether any row printed `metric`."""
        return metric in self.columns

    def values(self, metric: str) -> NDArray[np.float64]:
        """The column as float64, MISSING where a row did not print it."""
        import numpy as np

        column = self.columns.get(metric)
        if column is None:
            return np.full(len(self), MISSING)
        return np.frombuffer(column, dtype=np.float64)

    def rows_with(self, metric: str) -> NDArray[np.int64]:
        """Row numbers that printed `metric`, NaN included."""
        import numpy as np

        return np.flatnonzero(self.values(metric) != MISSING)

    def steps(self) -> NDArray[np.int64]:
        """`step` as an integer array."""
        import numpy as np

        return np.frombuffer(self.step, dtype=np.int64)

    def ranks(self) -> NDArray[np.int32]:
        """`rank` as an integer array."""
        import numpy as np

        return np.frombuffer(self.rank, dtype=np.int32)

    def label(self, row: int) -> str:
        """How a row is called in a sentence, in words that stand in the log."""
        step = self.step[row]
        epoch = self.columns.get("epoch")
        at = MISSING if epoch is None else epoch[row]
        if step != NO_STEP:
            if self.step_unit in ("step", "iteration") or at == MISSING:
                return f"{self.step_unit} {step}"
            return f"epoch {at:g} {self.step_unit} {step}"
        if at != MISSING:
            return f"epoch {at:g}"
        return f"line {self.line[row]}"

    def select(self, rows: Any) -> StepSeries:
        """A series of these rows only (an index array); events keep their place by line."""
        import numpy as np

        chosen = np.asarray(rows, dtype=np.int64)

        def take(values: array[Any]) -> array[Any]:
            return array(values.typecode, np.asarray(values)[chosen].tobytes())

        texts = {}
        for new, old in enumerate(chosen.tolist()):
            text = self.texts.get(old)
            if text is not None:
                texts[new] = text
        where = np.searchsorted(chosen, [event.row for event in self.events])
        return StepSeries(
            step=take(self.step),
            line=take(self.line),
            rank=take(self.rank),
            time=take(self.time),
            columns={
                name: kept
                for name, kept in ((n, take(c)) for n, c in self.columns.items())
                if any(v != MISSING for v in kept)
            },
            step_unit=self.step_unit,
            total_steps=self.total_steps,
            texts=texts,
            events=tuple(
                Event(e.kind, e.line, e.text, int(row), e.values)
                for e, row in zip(self.events, where.tolist(), strict=True)
            ),
        )


RankOf = Callable[[str], "int | None"]
