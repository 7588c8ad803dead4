"""Are fixes, non-fixes, regressions and too few trials told apart? And baselines, and checklists?"""

import re

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.findings import Level
from firstfault_tools.metrics.baseline import compare_baseline
from firstfault_tools.metrics.checklist import (
    CHECKS,
    CheckState,
    checklist_items,
    run_checklist,
)
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.series import StepSeries
from firstfault_tools.metrics.sources.steps import parse_steps
from firstfault_tools.metrics.verification import (
    FixVerdict,
    Trial,
    chance_of,
    trial_of,
    verify_fix,
)


def trials(problems: str, ms: float = 100.0) -> list[Trial]:
    return [
        Trial(mark == "x", {"step_time_ms": ms + i % 2, "tokens_per_s": 1e6 / ms})
        for i, mark in enumerate(problems)
    ]


@each_row(
    ("before", "after", "verdict"),
    [
        ("xxx", "...", FixVerdict.FIXED),
        ("xxx", "..", FixVerdict.INCONCLUSIVE),
        ("xxx", "xx.", FixVerdict.NOT_FIXED),
        ("xxxx", "x.....", FixVerdict.INCONCLUSIVE),
        ("x...", "....", FixVerdict.INCONCLUSIVE),
        ("....", "....", FixVerdict.INCONCLUSIVE),
        ("....", ".x..", FixVerdict.REGRESSION),
        ("x....x....x....x....x...." * 2, "." * 40, FixVerdict.FIXED),
    ],
)
def test_verdicts(before: str, after: str, verdict: FixVerdict) -> None:
    assert verify_fix(trials(before), trials(after)).verdict is verdict


def test_a_fix_that_costs_speed_is_a_regression() -> None:
    found = verify_fix(trials("xxxx"), trials("....", ms=120.0))
    assert found.verdict is FixVerdict.REGRESSION
    assert {c.name for c in found.changes if c.worse} == {"step_time_ms", "tokens_per_s"}
    assert verify_fix(trials("xxxx"), trials("....", ms=90.0)).verdict is FixVerdict.FIXED


def test_inconclusive_says_how_many_trials_are_needed() -> None:
    found = verify_fix(trials("xxxxx....."), trials("..."))
    need = int(re.search(r"(\d+) clean trials", found.reason).group(1))  # type: ignore[union-attr]
    assert verify_fix(trials("xxxxx....."), trials("." * need)).verdict is FixVerdict.FIXED
    assert (
        verify_fix(trials("xxxxx....."), trials("." * (need - 1))).verdict
        is FixVerdict.INCONCLUSIVE
    )


def test_chance_is_fishers() -> None:
    from scipy.stats import fisher_exact

    for a, n, b, m in [(3, 3, 0, 3), (4, 10, 1, 8), (2, 5, 2, 5), (0, 4, 1, 4)]:
        table = [[b, m - b], [a, n - a]]
        assert chance_of(a, n, b, m) == pytest.approx(fisher_exact(table, "less").pvalue)


def test_bad_input() -> None:
    with pytest.raises(InvalidParameter, match="trials"):
        verify_fix([], trials("."))


def run(loss: float = 0.0, ms: float = 100.0, lr: float = 1e-4, count: int = 100) -> StepSeries:
    return parse_steps(
        (
            i,
            f"step {i} | loss {3 - i / 100 + (i % 4) / 100 + (loss if i > 50 else 0):.4f} | lr {lr:.2e} | "
            f"grad_norm 1.0 | step_time {ms + i % 3:.1f}ms | gpu mem 40.0 GB",
        )
        for i in range(1, count + 1)
    )


def test_trial_from_a_log() -> None:
    series = run(loss=6.0)
    trial = trial_of(series, judge_steps(series, "x"), ("metrics.divergence",))
    assert trial.problem
    assert trial.metrics["step_time_ms"] == pytest.approx(101, abs=1)


def test_baseline_comparison() -> None:
    assert compare_baseline(run(), run(), "log") == ()
    by_kind = {f.kind: f for f in compare_baseline(run(0.8, 130.0, 2e-4), run(), "log")}
    assert by_kind["metrics.baseline_loss"].facts["at"] == "step 51"
    assert by_kind["metrics.baseline_step_time_ms"].level is Level.FAILURE
    assert by_kind["metrics.baseline_lr"].facts["at"] == "step 1"
    assert all(f.evidence[0].text.startswith("step ") for f in by_kind.values())


def test_checklist_is_answered_from_a_run() -> None:
    series = run()
    good = {c.item.id: c.state for c in run_checklist("during", series, judge_steps(series, "x"))}
    assert good["loss-finite"] is CheckState.PASSED
    assert good["no-straggler"] is CheckState.UNKNOWN
    assert good["disk-room"] is CheckState.MANUAL
    sick = run(loss=6.0)
    bad = {c.item.id: c for c in run_checklist("during", sick, judge_steps(sick, "x"))}
    assert bad["no-divergence"].state is CheckState.FAILED
    assert "diverged" in bad["no-divergence"].reason
    assert run_checklist("first_steps")[0].state is CheckState.UNKNOWN
    with pytest.raises(InvalidParameter, match="before_start"):
        run_checklist("never")


def test_checklist_data_is_sound() -> None:
    from pathlib import Path

    pages = {p.stem for p in (Path(__file__).parents[3] / "knowledge" / "pages").rglob("*.md")}
    for item in checklist_items():
        assert item.check is None or item.check in CHECKS
        assert item.page is None or item.page in pages
        assert item.text.endswith(".")
    assert set(CHECKS) == {i.check for i in checklist_items() if i.check}
