"""Hosts whose NCCL differs, told by banner, exception or list of packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.intake.collect import collect_paths
from firstfault.investigation.examination import examine
from firstfault.workspace import Workspace

FAILS = "n2: n2:31:41 [0] misc/socket.cc:484 NCCL WARN ncclSocketInit: connecting to address  with family 0 is neither AF_INET(2) nor AF_INET6(10)"


@pytest.mark.parametrize(
    ("lines", "differs"),
    [
        (["n1: nvidia-nccl-cu12==2.20.5", "n2: nvidia-nccl-cu12==2.19.3"], True),
        (["n1: n1:7:7 [0] NCCL INFO NCCL version 2.20.5+cuda12.4", "n2: n2:7:7 [0] NCCL INFO NCCL version 2.27.7+cuda12.8"], True),
        (["n1: nvidia-nccl-cu12==2.20.5", "n2: nvidia-nccl-cu12==2.20.5"], False),
        # two environments on a host do not tell which one runs
        (["n1: nvidia-nccl-cu12==2.20.5", "n1: nvidia-nccl-cu12==2.19.3", "n2: nvidia-nccl-cu12==2.19.3"], False),
    ],
)  # fmt: skip
def test_versions_are_compared_by_host(tmp_path: Path, lines: list[str], differs: bool) -> None:
    log = tmp_path / "job.log"
    log.write_text("\n".join([*lines, FAILS, FAILS]) + "\n")
    workspace = Workspace()
    artefacts = collect_paths([log], workspace.spool).artefacts
    found = examine(artefacts, workspace.knowledge.signatures).findings
    told = [f for f in found if f.kind == "nccl.host_differences"]
    assert bool(told) is differs
