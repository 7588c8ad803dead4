"""What do the step lines inside a log say? The metric verdicts as a finder over numbered lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.findings import Finding
from firstfault_tools.log.kept import read_once
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.series import StepSeries
from firstfault_tools.metrics.sources.steps import parse_steps

OF_ONE_RANK = frozenset({"metrics.straggler", "metrics.rank_value", "metrics.rank_waits"})
"""Verdicts that compare ranks and name one."""


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Findings of all metric judges over the step lines of one log."""
    series = read_steps(lines)
    if not len(series) and not series.events:
        return ()
    texts = dict(lines) if len(lines) < 200_000 else {}
    found = judge_steps(series, file, texts.get)
    # what the printing rank reports holds for the whole job, unless ranks were compared
    return tuple(f if f.kind in OF_ONE_RANK else replace(f, rank=None) for f in found)


def read_steps(lines: Sequence[tuple[int, str]]) -> StepSeries:
    """Step rows of a log's lines, with the ranks their prefixes tell."""
    return read_once(_parse, lines)


def _parse(lines: Sequence[tuple[int, str]]) -> StepSeries:
    return parse_steps(lines, rank_of)


def rank_of(text: str) -> int | None:
    """Rank of a step line by its prefixes."""
    if "rank" not in text[:80].lower() and not text.startswith(("[", "(")):
        return None
    return read_prefix(text)[0].rank
