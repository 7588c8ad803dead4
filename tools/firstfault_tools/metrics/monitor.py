"""What is wrong with a run that is still going? Verdicts over a growing log in constant memory.

Each condition is reported once: a divergence that goes on is one alert, not one a step. The window of
rows is bounded, so a log can be followed for weeks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Level
from firstfault_tools.metrics.baseline import compare_baseline
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.series import MISSING, StepSeries
from firstfault_tools.metrics.sources.steps import StepParser

WINDOW = 10_000
COLOUR = expression(r"\x1b\[[0-9;]*[A-Za-z]")
ALERTING = (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)


class Monitor:
    """Takes lines, gives new findings. How long it is silent, triage/silence.py judges.

    file: name for the evidence. window: rows kept. baseline: a healthy run to compare with. reported: what was
    told already, shared by the logs of one job.
    """

    def __init__(
        self,
        file: str,
        window: int = WINDOW,
        baseline: StepSeries | None = None,
        reported: set[tuple[str, int | None]] | None = None,
    ) -> None:
        self.file, self.window, self.baseline = file, window, baseline
        self.parser = StepParser()
        self.number = 0
        self.reported = set() if reported is None else reported

    def _numbered(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        for line in lines:
            self.number += 1
            yield self.number, COLOUR.sub("", line).rstrip("\r\n")

    def feed(self, lines: Iterable[str]) -> int:
        """Take lines, some thousands at most; how many of them are step lines."""
        before = self.parser.rows()
        self.parser.consume(self._numbered(lines))
        grown = self.parser.rows() - before
        if self.parser.rows() > 2 * self.window:
            self.parser.trim(self.window)
        return grown

    def times(self) -> list[float]:
        """Printed times of the step lines."""
        return [time for time in self.parser.finish().time if time != MISSING]

    def check(self) -> list[Finding]:
        """Findings that were not reported before."""
        series = self.parser.finish()
        found = list(judge_steps(series, self.file))
        if self.baseline is not None:
            found += compare_baseline(series, self.baseline, self.file)
        fresh = []
        for finding in found:
            if finding.level not in ALERTING:
                continue
            key = (finding.kind, finding.rank)
            if key not in self.reported:
                self.reported.add(key)
                fresh.append(finding)
        return fresh
