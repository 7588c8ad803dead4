"""What is wrong with a run that is still going? Verdicts over a growing log in constant memory.

Each condition is reported once: a divergence that goes on is one alert, not one a step. The window of
rows is bounded, so a log can be followed for weeks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.metrics.baseline import compare_baseline
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.series import StepSeries
from firstfault_tools.metrics.sources.steps import StepParser

WINDOW = 10_000
COLOUR = expression(r"\x1b\[[0-9;]*[A-Za-z]")
ALERTING = (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
STALL_STEPS = 10.0
STALL_LEAST = 120.0


class Monitor:
    """Takes lines, gives new findings.

    file: name for the evidence. window: rows kept. baseline: a healthy run to compare with. stall_after:
    seconds of silence that count as a stall; by default ten usual steps and at least two minutes.
    """

    def __init__(
        self,
        file: str,
        window: int = WINDOW,
        baseline: StepSeries | None = None,
        stall_after: float | None = None,
    ) -> None:
        self.file, self.window, self.baseline, self.stall_after = (
            file,
            window,
            baseline,
            stall_after,
        )
        self.parser = StepParser()
        self.number = 0
        self.reported: set[tuple[str, int | None]] = set()
        self.last_row_at: float | None = None
        self.gaps: list[float] = []
        self.last_line = ""

    def _numbered(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        for line in lines:
            self.number += 1
            self.last_line = COLOUR.sub("", line).rstrip("\r\n")
            yield self.number, self.last_line

    def feed(self, lines: Iterable[str], now: float) -> None:
        """Take lines that arrived at `now` (seconds on a monotonic clock), some thousands at most."""
        before = self.parser.rows()
        self.parser.consume(self._numbered(lines))
        grown = self.parser.rows() - before
        if grown:
            if self.last_row_at is not None and now > self.last_row_at:
                self.gaps = [*self.gaps[-99:], (now - self.last_row_at) / grown]
            self.last_row_at = now
        if self.parser.rows() > 2 * self.window:
            self.parser.trim(self.window)

    def check(self, now: float | None = None) -> list[Finding]:
        """Findings that were not reported before. now: to notice a stall as well."""
        series = self.parser.finish()
        found = list(judge_steps(series, self.file))
        if self.baseline is not None:
            found += compare_baseline(series, self.baseline, self.file)
        if now is not None:
            found += self._stall(now)
        fresh = []
        for finding in found:
            if finding.level not in ALERTING:
                continue
            key = (finding.kind, finding.rank)
            if key not in self.reported:
                self.reported.add(key)
                fresh.append(finding)
        return fresh

    def _stall(self, now: float) -> list[Finding]:
        if self.last_row_at is None:
            return []
        usual = sorted(self.gaps)[len(self.gaps) // 2] if self.gaps else 0.0
        limit = self.stall_after
        if limit is None:
            limit = max(STALL_LEAST, STALL_STEPS * usual)
        silent = now - self.last_row_at
        if silent < limit:
            self.reported.discard(("metrics.stalled", None))
            return []
        return [
            Finding(
                kind="metrics.stalled",
                title=f"No step line for {silent:.0f} s (usually every {usual:.1f} s): the run stands "
                "still",
                level=Level.SYMPTOM,
                category=Category.COMMUNICATION,
                confidence=Confidence.LIKELY,
                evidence=(Evidence(self.file, self.number, self.last_line[:600]),),
                page="training-stall",
                facts={"silent_s": silent, "usual_s": usual},
            )
        ]


def watch_lines(
    monitor: Monitor, lines: Iterable[str], alert: Callable[[Finding], object], every: int = 200
) -> int:
    """Read lines to their end, checking every so many; number of alerts."""
    alerts, batch = 0, []
    for line in lines:
        batch.append(line)
        if len(batch) >= every:
            monitor.feed(batch, 0.0)
            batch = []
            for finding in monitor.check():
                alert(finding)
                alerts += 1
    monitor.feed(batch, 0.0)
    for finding in monitor.check():
        alert(finding)
        alerts += 1
    return alerts
