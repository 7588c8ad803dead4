"""Logs of several nodes side by side: the one that the others wait for is named as it names itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

HEAD = "node={node} host=h{node} ranks={first}-{last} torch=2.8.0\n"
ROW = "2026-09-02 00:{minute:02d}:{second:02d} step={step} loss={loss:.3f} data_s={data} fwd_bwd_s=1.70 grad_sync_s={sync} step_s=4.2\n"


def write(folder: Path, late: int | None) -> list[Path]:
    paths = []
    for node in range(4):
        rows = [HEAD.format(node=node, first=8 * node, last=8 * node + 7)]
        for step in range(1, 60):
            held = step >= 20 and late is not None
            data, sync = (2.2, 0.23) if held and node == late else (0.03, 2.4 if held else 0.23)
            rows.append(ROW.format(minute=step // 15, second=4 * step % 60, step=step, loss=7 - 0.01 * step, data=data, sync=sync))  # fmt: skip
        path = folder / f"node{node}.log"
        path.write_text("".join(rows))
        paths.append(path)
    return paths


@pytest.mark.parametrize("late", [0, 2, None], ids=["first", "third", "none"])
def test_the_log_that_the_others_wait_for(tmp_path: Path, late: int | None) -> None:
    said = Workspace().diagnose_paths(write(tmp_path, late), "the steps are slow")
    if late is None:
        assert said.signature != "metrics.rank_waits"
        return
    assert said.signature == "metrics.rank_waits"
    assert f"h{late} (node {late}, ranks {8 * late}-{8 * late + 7})" in said.root_cause
    assert (said.host, said.first_failing_rank) == (f"h{late}", None)
