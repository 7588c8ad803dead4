"""Does the work still go on at the last line of a log? A counter that moves, told from a line that repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise

from firstfault_tools.averages import median
from firstfault_tools.causality.progress import Progress, ProgressReader
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.clock import read_time
from firstfault_tools.log.digest import Line

WINDOW = 400
"""Last lines of progress that are looked at."""

LEAST_COUNTERS = 2
STANDING_LINES, STANDING_TIMES = 3, 3.0
"""A last counter printed so often by one speaker, and so many times as often as those before, stands still."""

TAIL_LINES = 60
"""Lines that may follow the last progress: a save, an evaluation, a command that was pasted below."""

QUIET_STEPS, QUIET_S = 10.0, 300.0
"""The log goes on for so many usual steps and seconds without one: the work does not."""

LEAST_RISES = 3
LAST_LINES = 3
HEADING_WITHIN = 16
_STEPS, _TIMES = (
    ("step", "global_step", "iteration", "iter"),
    ("time", "timestamp", "datetime", "date"),
)
TAIL_READ, MAX_CHARS = 4_000, 600
_NAMED = expression(
    r"(?i)(?:^|[\s\[|,])(?:(?:epochs?|steps?|iter(?:ation)?s?|batch(?:es)?|updates?|rounds?|episodes?)\b|up\.)[^\w\n]{0,4}(\d{1,9})\b"
)
_WAITS = expression(
    r"(?i)\b(?:retry\w*|attempts?|wait\w*|timed? ?out|timeout|try(?:ing)?|heartbeat|restart\w*|still|every|num_\w+|max_\w+|total)\b"
)
"""What counts while nothing is done, and settings."""

_LIFE = expression(
    r"(?i)\b(?:saved?|saving|metrics?|eval\w*|val|valid\w*|test\w*|accuracy|checkpoint)\b[^\n]{0,200}[\d/]"
)
"""An evaluation that was printed or a file that was written: work, where it follows the last step at once."""

_STAMP = expression(r"\d{4}[-/]\d\d[-/]\d\d[T ,_]?|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,6})?")


@dataclass(frozen=True, slots=True)
class Advance:
    """Progress of one log up to its end. `halted` is why it does not go on to the last line, else empty."""

    first: Line
    last: Line
    counter: int | None
    total: int | None
    stride: float
    """Usual distance of two counters."""
    begun: int | None = None
    """The first counter of the whole log."""
    halted: str = ""

    @property
    def unfinished(self) -> bool:
        """The total is known and was not reached."""
        return self.counter is not None and bool(self.total) and self.counter < 0.98 * (self.total or 0)  # fmt: skip


def read_advance(reader: ProgressReader) -> Advance | None:
    """How the counter of a log moves at its end; None where no work was seen."""
    rows = (
        _training(reader)
        or _recognised(reader)
        or _named(reader)
        or _tabled(reader)
        or _preparing(reader)
    )
    if not rows:
        return None
    values = [_value(p) for p in rows]
    last = rows[-1]
    counters = [p.counter for p in rows if p.counter is not None]
    strides = [abs(b - a) for a, b in pairwise(counters) if a != b]
    return Advance(
        first=reader.line(rows[0]),
        last=reader.line(last),
        counter=last.counter,
        total=last.total,
        stride=float(median(strides)) if strides else 0.0,
        begun=next(
            (p.counter for p in reader.after(0) if p.training and p.counter is not None), None
        ),
        halted=_halt(reader, rows, values),
    )


def _value(progress: Progress) -> str:
    """What moves from line to line: the counter, or all that is no time stamp."""
    if progress.counter is not None:
        return str(progress.counter)
    return _STAMP.sub("", progress.text)


def _training(reader: ProgressReader) -> list[Progress]:
    """Training steps in order: those that count, where there are any."""
    found = list(islice((p for p in reader.before(2**62) if p.training), WINDOW))[::-1]
    counted = [p for p in found if p.counter is not None]
    rows = counted if len({p.counter for p in counted}) >= LEAST_COUNTERS else found
    return rows if len({_value(p) for p in rows}) >= LEAST_COUNTERS or _repeats(rows) else []


def _repeats(rows: Sequence[Progress]) -> bool:
    return len(rows) >= STANDING_LINES


def _recognised(reader: ProgressReader) -> list[Progress]:
    """Step lines in a form that only the metrics room knows."""
    lines, steps = reader.recognised_steps()
    texts = reader.digest.kept
    rows = []
    for number, step in list(zip(lines, steps, strict=False))[-WINDOW:]:
        position = reader.digest.position(number)
        rows.append(Progress(number, texts[position][1] if position >= 0 else "", step, None, True))
    return rows if len(set(steps[-WINDOW:])) >= LEAST_COUNTERS else []


def _named(reader: ProgressReader) -> list[Progress]:
    """Lines of any other form whose counter of steps, epochs or updates rises."""
    rows: list[Progress] = []
    for number, text in reader.digest.kept[-TAIL_READ:]:
        found = None if len(text) > MAX_CHARS or _WAITS.search(text) else _NAMED.search(text)
        if found is not None:
            rows.append(Progress(number, text, int(found[1]), None, True))
    counters = [p.counter or 0 for p in rows]
    rises = sum(b > a for a, b in pairwise(counters))
    return rows[-WINDOW:] if rises >= LEAST_RISES and rises * 2 >= len(counters) - 1 else []


def _read_heading(text: str) -> tuple[int, int] | None:
    """(number of columns, which of them counts steps) of a heading that names times and steps."""
    names = [name.strip().lower() for name in text.split(",")]
    at = [i for i, name in enumerate(names) if name in _STEPS]
    return (len(names), at[0]) if len(at) == 1 and any(n in _TIMES for n in names) else None


def _tabled(reader: ProgressReader) -> list[Progress]:
    """Rows of a table with a column of times and one of steps: a monitor wrote down where the run stood."""
    heads = [_read_heading(text[:MAX_CHARS]) for _, text in reader.digest.kept[:HEADING_WITHIN]]
    start = next((i for i, head in enumerate(heads) if head is not None), None)
    head = heads[start] if start is not None else None
    if start is None or head is None:
        return []
    width, at = head
    rows: list[Progress] = []
    for number, text in reader.digest.kept[start + 1 :][-TAIL_READ:]:
        cells = text.split(",")
        if len(cells) == width and (step := cells[at].strip()).isdecimal():
            rows.append(Progress(number, text, int(step), None, True))
    rises = [(b.counter or 0) - (a.counter or 0) for a, b in pairwise(rows)]
    return rows[-WINDOW:] if len(rises) >= LEAST_RISES and all(r >= 0 for r in rises) else []


def _preparing(reader: ProgressReader) -> list[Progress]:
    """A count of other work (tokenising, loading) that has not reached its total."""
    found = list(islice((p for p in reader.before(2**62) if p.counter is not None), WINDOW))[::-1]
    if not found or found[-1].full:
        return []
    same = [p for p in found if p.total == found[-1].total]
    return same if len({p.counter for p in same}) >= LEAST_COUNTERS else []


def _halt(reader: ProgressReader, rows: Sequence[Progress], values: Sequence[str]) -> str:
    if len(set(values)) < LEAST_COUNTERS:
        return "its lines repeat one step and the counter does not move"
    if _stands(reader, rows, values):
        return f"its last lines repeat step {rows[-1].counter}" if rows[-1].counter is not None else "its last line of progress repeats"  # fmt: skip
    digest = reader.digest
    after = digest.kept[digest.position(rows[-1].number) + 1 :]
    tail = sum(1 for _, text in after if text.strip())
    if tail > TAIL_LINES:
        return f"{tail} lines follow its last step and none of them is another step"
    quiet = _quiet_s(reader, rows, after)
    return f"the last {quiet / 60:.0f} min of it hold no step" if quiet else ""


def _stands(reader: ProgressReader, rows: Sequence[Progress], values: Sequence[str]) -> bool:
    """One speaker prints the last counter again and again, the earlier ones not."""
    if values.count(values[-1]) < STANDING_LINES:
        return False
    who = [reader.line(p).place.key for p in rows]
    counts = Counter(zip(values, who, strict=True))
    end = max((n for (value, _), n in counts.items() if value == values[-1]), default=0)
    before = [n for (value, _), n in counts.items() if value != values[-1]]
    return end >= STANDING_LINES and end >= STANDING_TIMES * median(before or [1])


def _quiet_s(
    reader: ProgressReader, rows: Sequence[Progress], after: Sequence[tuple[int, str]]
) -> float:
    """Seconds that the log goes on after its last step, where that is far longer than a step takes; else 0."""
    digest = reader.digest
    told = [text[:MAX_CHARS] for _, text in after if text.strip()]
    if len(told) <= LAST_LINES and any(map(_LIFE.search, told)):
        return 0.0
    later = _first_time(reversed(after), digest.year)
    last = _first_time(((p.number, p.text) for p in reversed(rows)), digest.year)
    if later is None or last is None or later - last <= QUIET_S:
        return 0.0
    times = [t for p in rows if (t := read_time(p.text, digest.year)) is not None]
    if len(times) < LEAST_COUNTERS:
        return 0.0
    gaps = [b - a for a, b in pairwise(times) if b > a]
    usual = median(gaps) if gaps else 0.0
    quiet = later - last
    return quiet if quiet > QUIET_STEPS * usual else 0.0


def _first_time(lines: Iterable[tuple[int, str]], year: int) -> float | None:
    """The time of the first line that tells one."""
    return next((t for _, text in lines if (t := read_time(text, year)) is not None), None)
