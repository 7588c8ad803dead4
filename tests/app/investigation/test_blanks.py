"""Commands hold the names of the incident, and what is left open is listed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evals.cases import find_case

from firstfault.investigation.blanks import PASTED, fill_command
from firstfault.investigation.diagnosis import Diagnosis, FirstLine
from firstfault.workspace import Workspace


@pytest.fixture(scope="module")
def eight() -> Diagnosis:
    log = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"
    return replace(
        Workspace().diagnose_paths([log]), citations=(), root_cause="", host=None, gpu=None
    )


@pytest.mark.parametrize(
    ("command", "line", "told", "left"),
    [
        ("ib_write_bw -d mlx5_0 HOST", "mlx5_core 0000:61:00.0 mlx5_3: Port: 1 Link DOWN", "ib_write_bw -d mlx5_3 gpu-a17", ()),
        ("nvme smart-log /dev/nvme0; mount", "nvme nvme2: Device not ready", "nvme smart-log /dev/nvme2; mount", ()),
        ("export NCCL_IB_HCA=mlx5_0,mlx5_1", "hca mlx5_3", "export NCCL_IB_HCA=mlx5_0,mlx5_1", ()),
        ("lspci -vv -s PCI | grep -E 'LnkCap:|PCI|AER'", "NVRM: Xid (PCI:0000:61:00.0): 79", "lspci -vv -s 0000:61:00.0 | grep -E 'LnkCap:|PCI|AER'", ()),
        ("sacct -j JOBID --format=JobID,State", "*** STEP 904122.0 ON c07 CANCELLED", "sacct -j 904122 --format=JobID,State", ()),
        ("df -h PATH; quota -s", "probe write to /lustre/p/ckpt failed: errno=122", "df -h /lustre/p/ckpt; quota -s", ()),
        ("df -h PATH", 'File "/usr/lib/python3/torch/x.py", line 3', "df -h PATH", ("PATH, the path",)),
        ("py-spy dump --pid PID", "step 3", "py-spy dump --pid PID", ("PID, the number of the process",)),
        ("export PATH=$PATH:/opt/bin", "step 3", "export PATH=$PATH:/opt/bin", ()),
        ("grep -n nan train.log", "loss nan", "grep -n nan log.txt", ()),
    ],
)  # fmt: skip
def test_a_command_is_filled_from_the_evidence(
    eight: Diagnosis, command: str, line: str, told: str, left: tuple[str, ...]
) -> None:
    incident = replace(eight, host="gpu-a17", first_line=FirstLine("log.txt", 1, line))
    assert fill_command(command, incident) == (told, left)


def test_what_was_pasted_is_no_file_to_read(eight: Diagnosis) -> None:
    incident = replace(eight, first_line=FirstLine(PASTED, 1, "loss nan"))
    assert fill_command("grep -n nan train.log", incident) == (
        "grep -n nan train.log",
        ("train.log, the log of the whole run",),
    )
