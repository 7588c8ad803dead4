"""One lane a process: two nodes whose launchers label by local rank never share one."""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.cases import find_case

from firstfault.ui.curves import read_curves
from firstfault.ui.figures import describe_lanes, order_curves
from firstfault.ui.lanes import JOB, Lanes, draw_job, read_lanes
from firstfault.ui.timeline_chart import choose_bands
from firstfault.workspace import Workspace

SLOW = find_case("seed-002-throughput-collapse")
LABELLED = "[default{local}]:2026-03-01 02:0{minute}:00 {text}\n"
RANKED = "[default{local}]:[rank{rank}]: 2026-03-01 02:0{minute}:00 {text}\n"
FAULT = "OSError: [Errno 116] Stale file handle: '/mnt/nfs/shard-7.tar'"


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def write_node(folder: Path, node: int, form: str, faulty: int | None = None) -> Path:
    """Log of one of two nodes of eight processes."""
    path = folder / f"node{node}.log"
    rows = [
        form.format(
            local=local, rank=8 * node + local, minute=minute, text=f"step {minute} loss 2.1"
        )
        for minute in (1, 2, 3)
        for local in range(8)
    ]
    if faulty is not None:
        rows.append(form.format(local=faulty, rank=8 * node + faulty, minute=4, text=FAULT))
    path.write_text("".join(rows), encoding="utf-8")
    return path


def lanes_of(workspace: Workspace, paths: list[Path]) -> Lanes:
    found = read_lanes(workspace.diagnose_paths(paths), {p.name: p for p in paths})
    assert found is not None
    return found


def test_local_ranks_of_two_nodes_are_sixteen_lanes(workspace: Workspace, tmp_path: Path) -> None:
    paths = [write_node(tmp_path, 0, LABELLED), write_node(tmp_path, 1, LABELLED, faulty=3)]
    found = lanes_of(workspace, paths)
    assert len(found.order) == 16
    assert found.stops[0].lane == "node1.log local 3"


def test_ranks_of_two_nodes_are_sixteen_lanes(workspace: Workspace, tmp_path: Path) -> None:
    paths = [write_node(tmp_path, 0, RANKED), write_node(tmp_path, 1, RANKED, faulty=3)]
    found = lanes_of(workspace, paths)
    assert found.order == tuple(map(str, range(16)))
    assert found.stops[0].lane == "11"


def test_a_label_without_rank_finds_its_lane(workspace: Workspace, tmp_path: Path) -> None:
    path = write_node(tmp_path, 1, RANKED)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(LABELLED.format(local=3, minute=4, text=FAULT))
    found = lanes_of(workspace, [path])
    assert found.order == tuple(map(str, range(8, 16)))
    assert found.stops[0].lane == "11"


def test_a_job_without_ranks_has_one_lane_above_its_curves(workspace: Workspace) -> None:
    paths = [SLOW / n for n in ("train.log", "rank_times.txt", "nccl_tests.txt", "switch.txt")]
    files = {p.name: p for p in paths}
    diagnosis = workspace.diagnose_paths(paths, "Throughput fell. Why?")
    assert read_lanes(diagnosis, files) is None
    curves = order_curves(read_curves(files, None, 2026), diagnosis)
    found = draw_job(diagnosis, curves)
    assert found is not None
    assert (found.timed, found.order) == (True, (JOB,))
    assert len(found.stops) == len({(k.file, k.line) for k in diagnosis.cascade})
    assert [b.curve.metric for b in choose_bands(found, curves)][:2] == [
        "step_time_ms",
        "tokens_per_s",
    ]
    assert describe_lanes(found).startswith("The job over time")
    assert draw_job(diagnosis, ()) is None
