"""Lanes, curves and windows from real cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.cases import find_case

from firstfault.investigation.diagnosis import ChainRole, Citation, CitationKind, Diagnosis
from firstfault.service import Window
from firstfault.ui.card import choose_action, make_card
from firstfault.ui.curves import MAX_POINTS, Point, read_curves, thin_points
from firstfault.ui.evidence import evidence_of, merge_windows
from firstfault.ui.examples import list_examples
from firstfault.ui.figures import describe_lanes
from firstfault.ui.lanes import MAX_LANES, read_lanes
from firstfault.ui.verdict_card import write_verdict
from firstfault.workspace import Workspace

SKIPPED_BATCH = "public-comm-27-per-rank-continue-skips-backward"


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def files_of(case: str) -> dict[str, Path]:
    return {f.name: f for f in sorted(find_case(case).iterdir()) if f.name != "case.yaml"}


def diagnose(workspace: Workspace, case: str) -> Diagnosis:
    return workspace.diagnose_paths(list(files_of(case).values()))


def test_lanes_show_the_guilty_rank_before_its_victims(workspace: Workspace) -> None:
    lanes = read_lanes(diagnose(workspace, SKIPPED_BATCH), files_of(SKIPPED_BATCH))
    assert lanes is not None
    assert lanes.timed
    assert set(lanes.order) >= {str(r) for r in range(8)}
    first = min(lanes.stops, key=lambda s: s.at)
    assert (first.lane, first.role) == ("5", ChainRole.INITIATING)
    assert "rank 5" in describe_lanes(lanes)


def test_a_fault_read_from_a_dump_stands_before_what_follows(workspace: Workspace) -> None:
    case = "lab-missing_collective"
    lanes = read_lanes(diagnose(workspace, case), files_of(case))
    assert lanes is not None
    first = next(s for s in lanes.stops if s.role is ChainRole.INITIATING)
    assert first.lane == "1"
    assert all(first.at <= s.at for s in lanes.stops if s.role is ChainRole.TEARDOWN)


def test_one_lonely_rank_has_no_lanes(workspace: Workspace) -> None:
    case = "num-spike-not-recovered"
    assert read_lanes(diagnose(workspace, case), files_of(case)) is None


def test_lanes_are_bounded(workspace: Workspace, tmp_path: Path) -> None:
    lines = [f"[rank{r}] 2026-06-08 19:40:{r % 60:02d} INFO step 1 loss 2.0" for r in range(200)]
    lines.append(
        "[rank150]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    log = tmp_path / "log.txt"
    log.write_text("\n".join(lines))
    diagnosis = workspace.diagnose_paths([log])
    lanes = read_lanes(diagnosis, {"log.txt": log})
    if lanes is not None:
        assert len([lane for lane in lanes.order if lane.isdigit()]) <= MAX_LANES
        assert lanes.ranks_left_out >= 200 - MAX_LANES


def test_curves_of_a_diverging_run() -> None:
    curves = {c.metric: c for c in read_curves(files_of("num-spike-not-recovered"))}
    assert max(p.value or 0 for p in curves["loss"].points) == pytest.approx(6.914)
    assert "grad_norm" in curves


def test_nan_is_kept_as_a_gap() -> None:
    curves = {c.metric: c for c in read_curves(files_of("lab-nan"))}
    assert any(p.value is None for p in curves["loss"].points)


def test_thinning_keeps_peak_and_nan() -> None:
    points = [Point(i, 1.0 if i != 5_001 else 99.0, i) for i in range(10_000)]
    points[7_003] = Point(7_003, None, 7_003)
    thin = thin_points(points)
    assert len(thin) <= 2 * MAX_POINTS
    assert 99.0 in {p.value for p in thin}
    assert any(p.value is None for p in thin)


def test_binary_evidence_has_no_curves(tmp_path: Path) -> None:
    dump = tmp_path / "fr_rank_0"
    dump.write_bytes(b"\x80\x04\0\0step 1 loss 2\n" * 50)
    assert read_curves({"fr_rank_0": dump}) == ()


def cited(n: int, line: int) -> Citation:
    return Citation(n, CitationKind.LOG, f"line {line}", file="a.log", line=line)


def window(line: int, around: int = 2) -> Window:
    numbers = range(max(1, line - around), line + around + 1)
    return Window("a.log", line, tuple((k, f"line {k}") for k in numbers))


def test_windows_that_touch_become_one() -> None:
    merged = merge_windows([(cited(n, k), window(k)) for n, k in ((1, 12), (2, 40), (3, 15))])
    assert [tuple(c.n for c in cs) for cs, _ in merged] == [(1, 3), (2,)]
    lines = merged[0][1].lines if merged[0][1] else ()
    assert [k for k, _ in lines] == list(range(10, 18))


def test_a_quote_without_window_stands_alone() -> None:
    assert len(merge_windows([(cited(1, 3), None), (cited(2, 4), None)])) == 2


def test_examples_are_there_and_reach_their_verdict(workspace: Workspace) -> None:
    examples = list_examples()
    assert len(examples) == 6
    words = {}
    for example in examples:
        diagnosis = workspace.diagnose_paths(list(example.files))
        words[example.id] = diagnosis.verdict.value
        assert write_verdict(diagnosis, make_card(diagnosis)).count("<h2") == 1
    assert words.pop("lab-healthy") == "healthy"
    assert set(words.values()) == {"fault"}


def test_evidence_of_the_verdict_comes_first(workspace: Workspace) -> None:
    diagnosis = diagnose(workspace, SKIPPED_BATCH)
    assert evidence_of(diagnosis)[0].n in diagnosis.hypotheses[0].for_


def test_an_open_question_names_the_next_command(workspace: Workspace) -> None:
    step = choose_action(diagnose(workspace, "abstain-sigkill-no-host-log"), {})
    assert step is not None
    assert step.command
