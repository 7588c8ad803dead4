"""No dev case answers otherwise than accepted, and the comparison tells better from worse."""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.baseline import Accepted, Change, compare, load_baseline, measure, write_baseline
from evals.cases import load_cases
from evals.diagnosed import Diagnoses
from tests.rows import each_row

LINE: Accepted = {
    "case": "a", "verdict": "fault", "category": "oom", "rank": 3, "host": None, "gpu": None,
    "root": "cuda-oom", "confidence": "confirmed", "right": ["category", "rank"],
}  # fmt: skip


@pytest.mark.xdist_group("cases")
@pytest.mark.timeout(1200)
def test_every_case_answers_as_accepted(diagnoses: Diagnoses) -> None:
    cases = load_cases()
    lines = [measure(diagnoses.of(case)).line for case in cases]
    changes = compare(load_baseline(), lines, [case.id for case in cases])
    told = "\n".join(map(str, changes))
    assert not changes, f"`make accept` takes what is right so:\n{told}"


@each_row(
    ("now", "judgement"),
    [
        ({"right": ["category", "rank", "cause"]}, "better"),
        ({"right": ["category", "rank", "cause anywhere"]}, "better"),
        ({"right": ["category"]}, "worse"),
        ({"right": []}, "worse"),
        ({"right": [], "confidence": "likely"}, "worse"),
        ({"root": "host-oom"}, "neither"),
    ],
)
def test_a_change_is_judged_by_what_is_right(now: dict[str, object], judgement: str) -> None:
    (change,) = compare({"a": LINE}, [{**LINE, **now}], ["a"])
    assert change.judgement == judgement
    assert all(f"{name}: " in str(change) for name in now)
    assert str(change).startswith(f"{judgement}: a: ")


def test_cases_come_and_go() -> None:
    assert compare({"a": LINE}, [LINE], ["a"]) == []
    assert [c.judgement for c in compare({"a": LINE}, [{**LINE, "case": "b"}], ["b"])] == ["new", "gone"]  # fmt: skip
    assert compare({"a": LINE, "c": LINE}, [LINE], ["a", "c"]) == []
    assert str(Change("a", LINE, None)).startswith("gone: a: verdict: fault -> None")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "baseline.jsonl"
    other = {**LINE, "case": "0"}
    write_baseline([LINE, other], path)
    assert list(load_baseline(path)) == ["0", "a"]
    assert load_baseline(path)["a"] == LINE
    assert load_baseline(tmp_path / "none.jsonl") == {}
