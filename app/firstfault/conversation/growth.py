"""Does a memory fill up step by step, when is it full, and which one does not move? By the "used/limit" columns of step lines."""

from __future__ import annotations

import re

from firstfault.conversation.evidence import Line
from firstfault.conversation.facts import Facts
from firstfault.conversation.telling import Telling
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

LEAST_ROWS, LEAST_RISE = 6, 0.1
"""Step lines that make a column, and the rise over them, as a share of the limit, that is growth."""
_COLUMN = expression(
    r"(?i)(?P<name>[a-z][a-z ()_-]{2,24}?)\s{0,2}[:=]?\s{0,2}(?P<used>\d{1,6}(?:\.\d+)?)\s?/\s?(?P<limit>\d{1,6}(?:\.\d+)?) ?(?P<unit>[GMT]i?B)\b"
)
_AMOUNT = expression(r"(?i)\b(\d{2,5}(?:\.\d+)?) ?(G|T)(?:i?B)?\b")
_STEPS = expression(r"(?i)\b(\d{2,9})k? (?:more )?(?:steps|iterations)\b|\b(?:step|iteration) (\d{2,9})\b")  # fmt: skip
_MEMORY = expression(r"(?i)\bmem|\bram\b|\brss\b|\bvram\b")


@dataclass(frozen=True, slots=True)
class Column:
    """One used/limit column. rows: (step, used, line), in order."""

    name: str
    limit: float
    unit: str
    rows: tuple[tuple[int, float, Line], ...]

    @property
    def rise(self) -> float:
        return self.rows[-1][1] - self.rows[0][1]

    @property
    def grows(self) -> bool:
        """It rises nearly every time, and far."""
        ups = sum(b[1] >= a[1] for a, b in zip(self.rows, self.rows[1:], strict=False))
        return self.rise >= LEAST_RISE * self.limit and ups >= 0.8 * (len(self.rows) - 1)

    @property
    def per_step(self) -> float:
        return self.rise / max(1, self.rows[-1][0] - self.rows[0][0])

    def at_step(self, step: int) -> float:
        """Where a straight line goes on to."""
        return self.rows[0][1] + self.per_step * (step - self.rows[0][0])

    def step_of(self, amount: float) -> int:
        """Step at which a straight line reaches an amount."""
        return int(self.rows[0][0] + (amount - self.rows[0][1]) / self.per_step)


def read_columns(t: Telling) -> list[Column]:
    """The memory columns of the step lines."""
    rows: dict[tuple[str, float, str], list[tuple[int, float, Line]]] = {}
    for line in t.evidence.stepped:
        for m in _COLUMN.finditer(line.text):
            if _MEMORY.search(m["name"]) and line.step is not None:
                key = (m["name"].strip(" |"), float(m["limit"]), m["unit"])
                rows.setdefault(key, []).append((line.step, float(m["used"]), line))
    return [Column(n, limit, unit, tuple(r)) for (n, limit, unit), r in rows.items() if len(r) >= LEAST_ROWS and r[-1][0] > r[0][0]]  # fmt: skip


def say_flat(t: Telling, wanted: re.Pattern[str]) -> str:
    """That a column of the wanted name never moved, with its ends; '' where none is there or it grew."""
    column = next((c for c in read_columns(t) if wanted.search(c.name)), None)
    if column is None or column.grows:
        return ""
    values = [used for _, used, _ in column.rows]
    line = column.rows[-1][2]
    return (
        f"The {column.name} speaks against it: between {min(values):g} and {max(values):g} of {column.limit:g} {column.unit} in all "
        f"{len(values)} step lines, the last at {line.file}:{line.number} {t.sources.add(line.cited)}."
    )


def say_growth(t: Telling) -> str:
    """What rises from step to step, and how fast; '' where nothing does."""
    column = next((c for c in read_columns(t) if c.grows), None)
    if column is None:
        return ""
    first, last = column.rows[0], column.rows[-1]
    marks = " and ".join(f"{x.file}:{x.number} {t.sources.add(x.cited)}" for x in (first[2], last[2]))  # fmt: skip
    return (
        f"The {column.name} rises by {100 * column.per_step:.1f} {column.unit} in 100 steps, from {first[1]:g} at step {first[0]} to "
        f"{last[1]:g} of {column.limit:g} at step {last[0]} ({marks})."
    )


def tell_last_long(f: Facts) -> str:
    """Whether more memory would last to a step, where it fills up in a straight line; '' where the question or the log has no such figure."""
    column = next((c for c in read_columns(f) if c.grows), None)
    amount, wanted = _AMOUNT.search(f.text), _STEPS.search(f.text)
    if column is None or (amount is None and wanted is None):
        return ""
    parts = []
    steps = int(wanted[1] or wanted[2]) if wanted is not None else None
    enough = True
    if amount is not None:
        size = float(amount[1]) * (1024 if amount[2].upper() == "T" else 1)
        full = column.step_of(size)
        parts.append(
            f"At that rate {size:g} {column.unit} are full at about step {full:,} of a run that starts empty"
        )
        enough = steps is not None and full >= steps
    if steps is not None:
        parts.append(f"{steps:,} steps without a restart need about {column.at_step(steps):,.0f} {column.unit}")  # fmt: skip
        enough = enough and (amount is not None or column.at_step(steps) <= column.limit)
    head = "Yes, if the growth stays as it is" if enough else "No, that only delays it"
    best = f.record.resume_from
    resume = f" Resume from {best.name}." if best is not None else ""
    return (
        f"{head}: {'; '.join(parts)}. {say_growth(f)} Whether it levels off later is not in what was read. "
        f"It is removed where the growth is: {f.cause} {f.main}.{resume}"
    )
