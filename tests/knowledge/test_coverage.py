"""COVERAGE.md is what the pages say."""

from __future__ import annotations

from evals.coverage import TARGET, write_coverage


def test_coverage_is_up_to_date() -> None:
    assert TARGET.read_text(encoding="utf-8") == write_coverage(), "run: python -m evals.coverage"
