"""Which step rows does a log hold? The entry point of the metrics room.

Lines come in one by one; step lines become rows of a `StepSeries`, a few others become events, all
else is passed over after a cheap look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.log.line import counts_preparation
from firstfault_tools.metrics.series import (
    MAX_RANK,
    MISSING,
    NO_RANK,
    NO_STEP,
    Event,
    RankOf,
    StepSeries,
    read_counter,
)
from firstfault_tools.metrics.sources.columns import (
    ColumnTable,
    count_apart,
    read_numbers,
    read_stamp,
    read_stamps,
)
from firstfault_tools.metrics.sources.events import (
    EventRule,
    choose_rules,
    matters_later,
    may_hold_event,
    read_events,
)
from firstfault_tools.metrics.sources.templates import BAR, MAX_LINE, STAMP, Template, make_template
from firstfault_tools.metrics.sources.tokens import Field, LineReading, read_line, to_number

MAX_TEMPLATES = 48
MAX_SHAPES = 20_000
MAX_EVENTS = 20_000
BATCH = 4_096
STREAK, BLOCK = 48, 512

_HEADING = expression(r"(?i)^\W*(?:step|epoch)\W+training loss\b")
_COLUMN = expression(r"training loss|validation loss|step|epoch|[a-z0-9_]+")
_ROW = expression(r"^[\s|]*\d+(?:[\s|]+(?:[-+.\de]+|nan|inf))+[\s|]*$", re.IGNORECASE)
_TABLE = {"step": "step", "epoch": "epoch", "training loss": "loss", "validation loss": "eval_loss"}
_NUMBERS = b"0123456789.+- "
"""What a line's shape leaves out."""


def holds_step_word(lower: str) -> bool:
    """A line, in lower case, holds a word without which it is no step line."""
    return (
        "loss" in lower
        or "step" in lower
        or "iter" in lower
        or "epoch" in lower
        or "it/s" in lower
        or "s/it" in lower
        or "rss" in lower
        or "ram" in lower
        or "host mem" in lower
        or "sec/tick" in lower
    )


class StepParser:
    """Reads lines one by one; `feed` each, then `finish`. Memory grows with the rows only.

    Rows of one template are collected as strings and converted a few thousand at a time, which is
    several times faster than number by number.
    """

    def __init__(self, rank_of: RankOf | None = None) -> None:
        self.rank_of = rank_of
        self.table = ColumnTable()
        self.events: list[Event] = []
        self.templates: list[Template] = []
        self.seen: dict[bytes, int] = {}
        self.dull: set[bytes] = set()
        self.rules: dict[bytes, tuple[EventRule, ...]] = {}
        self.bar_step = NO_STEP
        self.bar_total: int | None = None
        self.current: Template | None = None
        self.groups: list[tuple[str, ...]] = []
        self.numbers: list[int] = []
        self.lines: list[str] = []
        self.bars: list[int] = []
        self.heading: tuple[str, ...] = ()

    def rows(self) -> int:
        """Rows read so far and not forgotten."""
        return len(self.table.line) + len(self.numbers)

    def _flush(self) -> None:
        """Convert the collected rows of the current template and append them to the table."""
        template, table = self.current, self.table
        if template is None or not self.groups:
            return
        table.pad()
        columns = list(zip(*self.groups, strict=True))
        odd: set[int] = set()
        for metric, group, factor in zip(
            template.metrics, template.groups, template.factors, strict=True
        ):
            values = read_numbers(columns[group], factor)
            total = sum(values)
            if total != total:
                odd.update(i for i, value in enumerate(values) if value != value)
            table.column(metric).extend(values)
        count = len(self.numbers)
        if template.step >= 0:
            try:
                table.step.extend(map(int, columns[template.step]))
            except (ValueError, OverflowError):
                del table.step[len(table.line) :]
                table.step.extend([read_counter(value) for value in columns[template.step]])
            table.units[template.unit] = table.units.get(template.unit, 0) + count
        else:
            table.step.extend(self.bars)
            if self.bar_step != NO_STEP:
                table.units["step"] = table.units.get("step", 0) + count
                table.total = self.bar_total
        table.line.extend(self.numbers)
        if template.rank >= 0:
            told = columns[template.rank]
            alike = told[0] == told[-1] and told.count(told[0]) == count
            ranks = [int(told[0])] * count if alike else [int(value) for value in told]
        else:
            ranks = self._told_ranks()
        table.rank.extend(ranks)
        if template.stamp >= 0:
            table.time.extend(read_stamps(columns[template.stamp]))
        else:
            table.time.extend([MISSING] * count)
        table.keep(self.lines, odd)
        self.groups, self.numbers, self.lines, self.bars = [], [], [], []

    def _told_ranks(self) -> list[int]:
        """Ranks of the collected lines by their prefixes, for lines that print none themselves.

        Lines of one template have one shape, so where the first and the last name no rank none does,
        and where the first word alone names it every word is looked at once.
        """
        lines, rank_of = self.lines, self.rank_of
        if rank_of is None or (rank_of(lines[0]) is None and rank_of(lines[-1]) is None):
            return [NO_RANK] * len(lines)
        heads = [text.partition(" ")[0] for text in lines]
        if rank_of(heads[0] + " ") == rank_of(lines[0]) is not None:
            known = {head: rank_of(head + " ") for head in set(heads)}
            told = [known[head] for head in heads]
        else:
            told = [rank_of(text) for text in lines]
        return [NO_RANK if rank is None else rank for rank in told]

    def _event(self, number: int, text: str, lower: str, rules: Sequence[EventRule]) -> None:
        if len(self.events) < MAX_EVENTS:
            self.events += [
                Event(kind, number, text[:MAX_LINE], self.rows(), values)
                for kind, values in read_events(text[:MAX_LINE], lower, rules)
            ]

    def _add_reading(self, number: int, text: str, reading: LineReading) -> None:
        table = self.table
        self._flush()
        table.pad()
        for item in reading.fields:
            table.column(item.metric).append(item.value)
        step = NO_STEP
        unit = reading.unit
        if reading.step is not None:
            step = read_counter(reading.step.value)
        elif self.bar_step != NO_STEP:
            step, unit = self.bar_step, "step"
            table.total = self.bar_total
        table.step.append(step)
        table.line.append(number)
        rank = NO_RANK
        if reading.rank is not None:
            rank = min(int(text[slice(*reading.rank)]), MAX_RANK)
        elif self.rank_of is not None:
            told = self.rank_of(text)
            rank = rank if told is None else min(told, MAX_RANK)
        table.rank.append(rank)
        stamp = STAMP.search(text, 0, 120)
        table.time.append(read_stamp(stamp.group()) if stamp else MISSING)
        if reading.total is not None:
            table.total = reading.total
        if step != NO_STEP:
            table.units[unit] = table.units.get(unit, 0) + 1
        table.keep([text], {0})

    def feed(self, number: int, text: str) -> None:
        """Read one line. number: 1-based. text: colour codes removed."""
        self.consume(((number, text),))

    def consume(self, lines: Iterable[tuple[int, str]]) -> None:
        """Read many lines; most of them are expected to look like the step line before."""
        streak = 0
        held: list[tuple[int, str]] = []
        for item in lines:
            if streak < STREAK:
                streak = streak + 1 if self._take(*item) else 0
                continue
            held.append(item)
            if len(held) >= BLOCK:
                streak = STREAK if self._take_block(held) else 0
                held = []
        if held:
            self._take_block(held)

    def _take(self, number: int, text: str) -> bool:
        """Read one line; whether it is one more step line of the current shape, without a bar."""
        current = self.current
        found = None if current is None else current.match(text)
        if found is None or current is None:
            self._other(number, text)
            return False
        self.groups.append(found.groups())
        self.numbers.append(number)
        self.lines.append(text)
        if current.aside:
            self._note_bar(current, found)
        if len(self.numbers) >= BATCH:
            self._flush()
        return not current.aside

    def _take_block(self, held: list[tuple[int, str]]) -> bool:
        """Read many lines at once; False where they were not all step lines of the current shape."""
        current = self.current
        numbers, texts = zip(*held, strict=True)
        if current is not None and not current.aside:
            groups = current.find("\n".join(texts))
            if len(groups) == len(texts):
                self.groups += groups
                self.numbers += numbers
                self.lines += texts
                if len(self.numbers) >= BATCH:
                    self._flush()
                return True
        for number, text in held:
            self._take(number, text)
        return False

    def _note_bar(self, template: Template, found: re.Match[str]) -> None:
        """Keep the step of a progress bar for the lines after it that name none."""
        if template.step >= 0:
            self.bar_step, self.bar_total = (
                read_counter(found.group(template.step + 1)),
                template.total,
            )
        else:
            self.bars.append(self.bar_step)

    def _take_table_row(self, number: int, text: str) -> bool:
        """Read a row of the table that a notebook prints: a step or epoch, then its losses."""
        cells = text.replace("|", " ").split()
        if len(cells) != len(self.heading) or not _ROW.match(text):
            if text.strip():
                self.heading = ()
            return False
        fields, step, at = [], None, 0
        for name, cell in zip(self.heading, cells, strict=True):
            start = text.index(cell, at)
            at = start + len(cell)
            metric = _TABLE.get(name)
            if metric is None or cell == "No":
                continue
            item = Field(metric, to_number(cell), start, at, 1.0)
            if metric == "step":
                step = item
            else:
                fields.append(item)
        self._add_reading(number, text, LineReading(tuple(fields), step, None, "step", None))
        return True

    def _take_known_shape(self, number: int, text: str) -> bool:
        """Read a step line of one of the shapes seen before, which is the current one from now on."""
        for index, other in enumerate(self.templates):
            found = other.match(text)
            if found is None:
                continue
            if other is not self.current:
                self._flush()
                self.current = other
            if index > 3:
                self.templates.insert(0, self.templates.pop(index))
            self.groups.append(found.groups())
            self.numbers.append(number)
            self.lines.append(text)
            if other.aside:
                self._note_bar(other, found)
            return True
        return False

    def _rules_of(self, shape: bytes, lower: str) -> Sequence[EventRule]:
        rules = self.rules.get(shape)
        if rules is None:
            rules = choose_rules(lower)
            if len(self.rules) < MAX_SHAPES:
                self.rules[shape] = rules
        return rules

    def _other(self, number: int, text: str) -> None:
        """Read a line that does not look like the step line before."""
        shape = text.encode("utf-8", "replace").translate(None, _NUMBERS)
        if shape in self.dull and not self.heading:
            return
        if self._take_known_shape(number, text):
            return
        if (self.heading and self._take_table_row(number, text)) or shape in self.dull:
            return
        lower = text.lower()
        # Ahead of the first step a log prints its arguments; later only some words matter.
        rules = self._rules_of(shape, lower)
        if rules and (matters_later(lower) or not self.rows()):
            self._event(number, text, lower, rules)
        if not holds_step_word(lower):
            if len(self.dull) < MAX_SHAPES and not may_hold_event(lower):
                self.dull.add(shape)
            return
        if len(text) > 4 * MAX_LINE:
            return
        if "training loss" in lower and _HEADING.match(text):
            self.heading = tuple(_COLUMN.findall(text.strip().lower()))
            return
        bar = BAR.search(text)
        if bar and not counts_preparation(text):
            self.bar_step, self.bar_total = read_counter(bar.group(1)), read_counter(bar.group(2))
        self._read(number, text, shape)

    def _read(self, number: int, text: str, shape: bytes) -> None:
        """Read a line token by token; the second of a shape becomes a template."""
        count = self.seen.get(shape, 0)
        if count < 0:
            return
        reading = read_line(text)
        if reading is None:
            if len(self.seen) < MAX_SHAPES:
                self.seen[shape] = -1
            return
        if len(self.seen) < MAX_SHAPES:
            self.seen[shape] = count + 1
        if count == 1 and len(self.templates) < MAX_TEMPLATES:
            template = make_template(text, reading)
            if template is not None:
                self.templates.insert(0, template)
        self._add_reading(number, text, reading)

    def trim(self, keep: int) -> None:
        """Forget all but the last `keep` rows, so that a log can be followed for ever."""
        self._flush()
        table = self.table
        table.pad()
        gone = len(table.line) - keep
        if gone <= 0:
            return
        for counter in (table.step, table.line, table.rank):
            del counter[:gone]
        for column in (table.time, *table.columns.values()):
            del column[:gone]
        table.columns = {
            name: column
            for name, column in table.columns.items()
            if any(value != MISSING for value in column)
        }
        table.texts = {row - gone: text for row, text in table.texts.items() if row >= gone}
        table.recent = [(row - gone, text) for row, text in table.recent if row >= gone]
        self.events = [
            Event(e.kind, e.line, e.text, max(0, e.row - gone), e.values)
            for e in self.events[-MAX_EVENTS // 2 :]
        ]
        if len(self.seen) >= MAX_SHAPES:
            self.seen.clear()
        if len(self.dull) >= MAX_SHAPES:
            self.dull.clear()
            self.rules.clear()

    def finish(self) -> StepSeries:
        """The series of everything fed so far."""
        self._flush()
        return self.table.series(self.events)


def parse_steps(lines: Iterable[tuple[int, str]], rank_of: RankOf | None = None) -> StepSeries:
    """Step rows and events of a log.

    lines: (1-based number, text without colour codes). rank_of: says which rank a line belongs to,
    by its text; None falls back to what the line itself prints.
    """
    parser = StepParser(rank_of)
    parser.consume(lines)
    return count_apart(parser.finish())
