"""What has to be trained again, and how long did the run stand still? From its checkpoints, steps and ends.

One reading for the post-mortem's cost and for questions such as "which checkpoint do I resume from".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.waits import wait_in
from firstfault.postmortem.evidence import Artefacts, TimedLine
from firstfault_tools.averages import median
from firstfault_tools.checkpoint.saves import Checkpoints, SaveEvent, SaveState, read_checkpoints
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.metrics.series import MISSING, NO_STEP

FAR_OUT = 4.0
"""Standard deviations, estimated from the median absolute deviation, that noise of a curve does not reach for several rows."""
LEAST_ROWS = 8
LEAST_SPREAD = 0.25
"""Least spread of the first rows, as a share of their value: a curve that rises from its start on is held against them."""
AWAY_S = 60.0
"""Seconds without a line, after a run ended and before it began again, that count as away."""
STAMP_S = 1.0
"""How exact most stamps are: what is nearer to the fault than this began with it."""
NEAR_LINES = 60
"""Lines above one without a time among which its rank's last words with a time are looked for."""
NEAR_ROWS = 8
"""Logged steps before a departure within which something else that was written stands beside it."""
_CURVES = ("grad_norm", "loss")
_ENDS = expression(
    r"(?i)\bclosing signal SIG|\bfailed \(exitcode: |\bChildFailedError\b|\bCANCELLED AT\b|\bExited with exit code \d|"
    r"\b\d+ (?:GPUs|nodes) released\b|\breleasing \d+ (?:nodes|GPUs)\b|\bSTEPD TERMINATED ON\b|\bjob \d+ state=[A-Z]+\b|"
    r"\bTerminating StepId=|\bprocess group watchdog thread terminated\b|\bjob (?:is )?(?:terminated|killed|cancelled)\b|"
    r"\b(?:attempt|try) \d{1,3} (?:exited|failed|ended)\b|\bgiving up\b"
)
"""What a launcher or scheduler prints when it ends the processes: from then on the GPUs are free."""


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One step line. time None: it prints none."""

    file: str
    line: int
    step: int
    time: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Onset:
    """First row at which a curve left what it was before, and stayed away up to the fault."""

    metric: str
    value: float
    before: float
    row: LoggedStep


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lost time: seconds since the epoch, with the lines it begins and ends at."""

    start: float
    end: float
    begins: TimedLine | None
    ends: TimedLine | None

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class RunRecord:
    """Steps, checkpoints and ends of one run, as its lines tell them."""

    diagnosis: Diagnosis
    artefacts: Artefacts

    @cached_property
    def steps(self) -> tuple[LoggedStep, ...]:
        """Logged steps of all files, in order of their lines; a row without a time takes that of a line since the row before it."""
        out: list[LoggedStep] = []
        for name, series in self.artefacts.steps.items():
            beside: float | None = None
            for r in range(len(series)):
                line, time = int(series.line[r]), float(series.time[r])
                text = self.artefacts.text_of(name, line)
                own = time if time != MISSING else None
                if own is None:
                    near = self.artefacts.time_at(name, line, text)[0]
                    own, beside = (near if near != beside else None), near
                if series.step[r] != NO_STEP:
                    out.append(LoggedStep(name, line, int(series.step[r]), own, text))
        return tuple(out)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """What the lines tell of checkpoints."""
        lines = ((x.file, x.line, x.text, x.time) for x in self.artefacts.lines)
        return read_checkpoints(lines, [(s.file, s.line, s.step) for s in self.steps])

    @cached_property
    def fault_time(self) -> float | None:
        """When the first fault was written; of a line without a time, that of the nearest one."""
        first = self.diagnosis.first_line
        if first is None:
            return None
        about = self.artefacts.time_at(first.file, first.line, first.text)[1]
        said = self._said_before(first.file, first.line, first.text) if about else None
        return said or self.artefacts.begun_at(first.file, first.line, first.text)

    @cached_property
    def first_told(self) -> float | None:
        """Time of the first failure that has one, where the line of the cause has none."""
        links = [x for x in self.diagnosis.cascade if x.file and x.line]
        times = [self.artefacts.time_at(x.file, x.line, x.text) for x in links if x.file and x.line]
        return min((at for at, about in times if at is not None and not about), default=None)

    def _said_before(self, file: str, line: int, text: str) -> float | None:
        """Time of what the same rank wrote last before one of its lines without a time, such as those of a traceback."""
        rank = read_prefix(text)[0].rank
        if rank is None:
            return None
        near = [
            x for x in self.artefacts.lines if x.file == file and line - NEAR_LINES <= x.line < line
        ]
        own = [x for x in near if read_prefix(x.text)[0].rank == rank]
        timed = [self.artefacts.time_at(x.file, x.line, x.text) for x in reversed(own)]
        return next((at for at, about in timed if at is not None and not about), None)

    def _before_fault(self, file: str, line: int, time: float | None) -> bool:
        first = self.diagnosis.first_line
        if first is None:
            return True
        if file == first.file:
            return line <= first.line
        return time is None or self.fault_time is None or time <= self.fault_time

    @cached_property
    def last_step(self) -> LoggedStep | None:
        """The last step logged before the fault."""
        before = [s for s in self.steps if self._before_fault(s.file, s.line, s.time)]
        return max(before, key=lambda s: s.step, default=None)

    @cached_property
    def last_trained(self) -> LoggedStep | None:
        """The last step of the attempt that met the fault: a fault that slows or grows lets training go on for a while."""
        last = self.last_step
        if last is None:
            return None
        loads = [e.line for e in self.checkpoints.events if e.state is SaveState.LOADED and e.file == last.file and e.line > last.line]  # fmt: skip
        until = min(loads, default=None)
        later = [s for s in self.steps if s.file == last.file and s.line > last.line and (until is None or s.line < until)]  # fmt: skip
        for s in later:
            if s.step <= last.step:
                break
            last = s
        return last

    @cached_property
    def onset(self) -> Onset | None:
        """Where the numbers of a run that went wrong first left their noise; None for other faults."""
        if self.diagnosis.category is not Category.NUMERICAL or self.diagnosis.first_line is None:
            return None
        found = [o for o in map(self._departure, _CURVES) if o is not None]
        return min(found, key=lambda o: o.row.step, default=None)

    def _departure(self, metric: str) -> Onset | None:
        first = self.diagnosis.first_line
        series = self.artefacts.steps.get(first.file) if first is not None else None
        if series is None or first is None or not series.has(metric):
            return None
        values = series.values(metric)
        rows = [int(r) for r in series.rows_with(metric) if series.line[int(r)] <= first.line]
        if len(rows) < LEAST_ROWS:
            return None
        usual, spread = _spread(
            [float(values[r]) for r in rows[: max(LEAST_ROWS, len(rows) - LEAST_ROWS)]]
        )
        begins, narrow = _spread([float(values[r]) for r in rows[:LEAST_ROWS]])
        if usual + FAR_OUT * spread > begins + FAR_OUT * max(narrow, LEAST_SPREAD * begins) > 0:
            usual, spread = begins, max(narrow, LEAST_SPREAD * begins)
        away = None
        for r in reversed(rows):
            value = float(values[r])
            if value == value and value <= usual + FAR_OUT * spread:
                break
            away = r
        if away is None:
            return None
        place = next(s for s in self.steps if s.file == first.file and s.line == int(series.line[away]))  # fmt: skip
        return Onset(metric, float(values[away]), usual, place)

    def written_before(self, row: LoggedStep) -> list[TimedLine]:
        """Lines that are no steps and no saves, within the rows before one of the curve."""
        own = {s.line for s in self.steps if s.file == row.file}
        near = sorted(n for n in own if n <= row.line)[-NEAR_ROWS:]
        saves = {e.line for e in self.checkpoints.events if e.file == row.file}
        return [
            x
            for x in self.artefacts.lines
            if x.file == row.file
            and near
            and near[0] < x.line < row.line
            and x.line not in own | saves
            and len(x.text.strip()) > 12
        ][-2:]

    @cached_property
    def safe_step(self) -> int | None:
        """Last step before the numbers went wrong; None where no curve tells."""
        if self.onset is None:
            return None
        earlier = [s.step for s in self.steps if s.step < self.onset.row.step]
        return max(earlier, default=None)

    @cached_property
    def resume_from(self) -> SaveEvent | None:
        """The newest checkpoint that is whole and older than what spoiled the weights."""
        kept = tuple(e for e in self.checkpoints.events if not self.is_after_spoiling(e))
        return replace(self.checkpoints, events=kept).usable(self.safe_step)

    def is_after_spoiling(self, event: SaveEvent) -> bool:
        """Saved after the line at which the numbers went wrong, where no curve with steps tells when they did.

        NaN in the weights stays: each later save holds it, until an older checkpoint is loaded.
        """
        spoils = self.onset is None and self._numbers_went_wrong
        if not spoils or self._before_fault(event.file, event.line, event.time):
            return False
        last = self.last_step
        if self.diagnosis.category is not Category.NUMERICAL and last is not None and (event.step or 0) <= last.step:  # fmt: skip
            return False
        events = self.checkpoints.events
        sound = {e.step for e in events if self._before_fault(e.file, e.line, e.time)}
        loaded = [e for e in events if e.state is SaveState.LOADED and e.step in sound]
        return not any(
            e.file == event.file
            and e.line <= event.line
            and not self._before_fault(e.file, e.line, e.time)
            for e in loaded
        )

    @property
    def _numbers_went_wrong(self) -> bool:
        """The verdict or one of its consequences is that loss or gradients are no longer right."""
        d = self.diagnosis
        return d.verdict is not Verdict.HEALTHY and Category.NUMERICAL in (d.category, *(h.category for h in d.hypotheses))  # fmt: skip

    @cached_property
    def spoiled(self) -> SaveEvent | None:
        """The newest whole checkpoint, where it was saved after the numbers had gone wrong."""
        newest, safe = self.checkpoints.usable(), self.resume_from
        return newest if newest is not None and newest != safe else None

    @cached_property
    def stopped_at(self) -> float | None:
        """When useful work ended: the fault, or one usual interval after the last step where it is told later."""
        if self.onset is not None and self.onset.row.time is not None:
            return self._end
        last, waits = self.last_trained, self._waits_began
        if last is None or last.time is None:
            went_on = last is not None and last != self.last_step
            return None if went_on else min((x for x in (self.fault_time, waits) if x is not None), default=None)  # fmt: skip
        times = [s.time for s in self.steps if s.file == last.file and s.time is not None and s.line <= last.line]  # fmt: skip
        gaps = [b - a for a, b in pairwise(times) if b > a]
        reached = last.time + (median(gaps) if gaps else 0.0)
        silent = self.last_sign
        told = [x for x in (self.fault_time, waits, silent.time if silent is not None else None) if x is not None and x >= last.time]  # fmt: skip
        ended = min((reached, *told))
        fault = self.fault_time
        return fault if fault is not None and 0 < fault - ended < STAMP_S else ended

    @cached_property
    def _waits_began(self) -> float | None:
        """When the collective began in which ranks waited until a watchdog gave up; None where no watchdog tells."""
        links = [x for x in self.diagnosis.cascade if x.file and x.line and wait_in(x.text) > 0]
        begun = [self.artefacts.begun_at(x.file, x.line, x.text) for x in links if x.file and x.line]  # fmt: skip
        return min((x for x in begun if x is not None), default=None)

    @cached_property
    def last_sign(self) -> TimedLine | None:
        """The last line of the rank at fault before the fault, where it wrote after the last logged step and then no more."""
        rank, last, fault = self.diagnosis.first_failing_rank, self.last_step, self.fault_time
        if rank is None or last is None or last.time is None or fault is None:
            return None
        own = [x for x in self.artefacts.lines if x.time is not None and x.time >= last.time and read_prefix(x.text)[0].rank == rank]  # fmt: skip
        newest = max(own, key=lambda x: x.time or 0.0, default=None)
        return newest if newest is not None and (newest.time or 0.0) < fault else None

    @cached_property
    def _later(self) -> list[TimedLine]:
        """Lines with a time from the fault on, by time."""
        start = self.fault_time if self.fault_time is not None else self.first_told
        if start is None:
            return []
        kept = [x for x in self.artefacts.lines if x.time is not None and x.time >= start]
        return sorted(kept, key=lambda x: x.time or 0.0)

    @cached_property
    def restart(self) -> tuple[TimedLine, TimedLine] | None:
        """(last line of the run, first of the next), where the same log goes on with a restart."""
        later = self._later
        fault, events = self.fault_time, self.checkpoints.events
        loads = [e for e in events if e.state is SaveState.LOADED and e.time and fault and e.time > fault and self.checkpoints.is_whole(e)]  # fmt: skip
        if not loads or len(later) < 2:
            return None
        until = [(a, b) for a, b in pairwise(later) if (b.time or 0) <= (loads[0].time or 0)]
        widest = max(until, key=lambda p: (p[1].time or 0) - (p[0].time or 0), default=None)
        if widest is None or (widest[1].time or 0) - (widest[0].time or 0) < AWAY_S:
            return None
        return widest

    @cached_property
    def _last(self) -> TimedLine | None:
        """The last line of the run: that of the launcher that ends it, else the last before a restart, else of all."""
        until = self.restart[0] if self.restart is not None else None
        own = [x for x in self._later if until is None or (x.time or 0.0) <= (until.time or 0.0)]
        ends = [x for x in own if _ENDS.search(x.text)]
        return ends[-1] if ends else until or (own[-1] if own else None)

    @property
    def ended(self) -> float | None:
        """When the job ended, by the last line of its launcher or scheduler."""
        return self._end

    @property
    def _end(self) -> float | None:
        return self._last.time if self._last is not None else None

    @property
    def repeated(self) -> Stretch | None:
        """Work that was done and is lost: since the checkpoint to resume from, else since the first line."""
        end = self.stopped_at
        if end is None:
            return None
        saved = self.resume_from
        line: TimedLine | None
        if saved is not None:
            start = self._saved_at(saved)
            line = TimedLine(saved.file, saved.line, saved.text, saved.time)
        else:
            # a run that loaded what it did not save is not new; without any checkpoint all of it is lost
            line = None if self._came_from else self._first_before(end)
            start = line.time if line is not None else None
        if start is None or end <= start:
            return None
        last = self.last_step
        ends = TimedLine(last.file, last.line, last.text, last.time) if last is not None else None
        return Stretch(start, end, line, ends)

    def _first_before(self, end: float) -> TimedLine | None:
        """The first line of the run: of a log with steps, where there is one; a kernel's log begins with its host."""
        own = {s.file for s in self.steps}
        lines = [x for x in self.artefacts.lines if not own or x.file in own]
        timed = [(x.time, x) for x in lines if x.time is not None and x.time <= end]
        return min(timed, key=lambda p: p[0])[1] if timed else None

    @property
    def _came_from(self) -> bool:
        return any(e.state is SaveState.LOADED for e in self.checkpoints.events)

    def _saved_at(self, saved: SaveEvent) -> float | None:
        """When the saved step was trained: its own step line, else the first line of its save."""
        own = next(
            (s.time for s in self.steps if s.step == saved.step and s.time is not None), None
        )
        begun = [
            e.time for e in self.checkpoints.events if e.name == saved.name and e.time is not None
        ]
        told = own if own is not None else min(begun, default=saved.time)
        if told is None and saved.state is SaveState.LOADED:  # trained from there on
            later = (x.time for x in self.artefacts.lines if x.file == saved.file and x.line > saved.line and x.time)  # fmt: skip
            told = next(later, None)
        return told

    @property
    def idle(self) -> Stretch | None:
        """GPUs held and nothing done: from the end of useful work to the last line of the run."""
        start, end = self.stopped_at, self._end
        if start is None or end is None or end - start < 1:
            return None
        return Stretch(start, end, None, self._last)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Median of some values, and their spread about it."""
    usual = median(values)
    return usual, 1.4826 * median(abs(v - usual) for v in values)
