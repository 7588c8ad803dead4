"""Which rank sits at a PCI address: by listing, by the launcher's pids, by visible devices, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.placement.gpus import GpuTable

RANKS = "".join(f"[rank{i}]: RuntimeError: CUDA error: unknown error\n" for i in range(4))
TABLE = """|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                    0 |
|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0F:00.0 Off |                    0 |
|   2  NVIDIA A100-SXM4-80GB          On  | 00000000:47:00.0 Off |                    0 |
|   3  NVIDIA A100-SXM4-80GB          On  | 00000000:4E:00.0 Off |                    0 |
"""
QUERY = "0, 00000000:07:00.0\n1, 00000000:0F:00.0\n2, 00000000:47:00.0\n3, 00000000:4E:00.0\n"
NAMED = "0, NVIDIA H100, 00000000:07:00.0\n1, NVIDIA H100, 00000000:0F:00.0\n2, NVIDIA H100, 00000000:47:00.0\n3, NVIDIA H100, 00000000:4E:00.0\n"
ROCM = "".join(
    f"GPU[{i}]\t\t: PCI Bus: 0000:{b}:00.0\n" for i, b in enumerate(("07", "0F", "47", "4E"))
)
ROCM_CSV = "device,PCI Bus\n" + "".join(
    f"card{i},0000:{b}:00.0\n" for i, b in enumerate(("07", "0F", "47", "4E"))
)
PAIRS = "# gpus: 0 -> 00000000:07:00.0  1 -> 00000000:0F:00.0  2 -> 00000000:47:00.0  3 -> 00000000:4E:00.0\n"
UUIDS = """GPU 0: NVIDIA A100 (UUID: GPU-aaaaaaaa-1111-2222-3333-444444444440)
GPU 1: NVIDIA A100 (UUID: GPU-bbbbbbbb-1111-2222-3333-444444444440)
GPU 2: NVIDIA A100 (UUID: GPU-cccccccc-1111-2222-3333-444444444440)
GPU 3: NVIDIA A100 (UUID: GPU-dddddddd-1111-2222-3333-444444444440)
[11.2] NVRM: GPU at PCI:0000:07:00: GPU-aaaaaaaa-1111-2222-3333-444444444440
[11.2] NVRM: GPU at PCI:0000:0f:00: GPU-bbbbbbbb-1111-2222-3333-444444444440
[11.2] NVRM: GPU at PCI:0000:47:00: GPU-cccccccc-1111-2222-3333-444444444440
[11.2] NVRM: GPU at PCI:0000:4e:00: GPU-dddddddd-1111-2222-3333-444444444440
"""
LAUNCHER = """W0518 03:11:49.5 1800 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 1901 closing signal SIGTERM
W0518 03:11:49.5 1800 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 1903 closing signal SIGTERM
W0518 03:11:49.5 1800 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 1904 closing signal SIGTERM
E0518 03:11:49.5 1800 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 1 (pid: 1902) of binary: /usr/bin/python
[11.2] NVRM: Xid (PCI:0000:0f:00): 45, pid=1904, name=python, Ch 00000001
"""


def gpus(tmp_path: Path, text: str) -> GpuTable:
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    signatures = build_set(())
    return LogIncident((scan_file(path, "run.log", signatures),), signatures).gpu_table


@pytest.mark.parametrize("listing", [TABLE, QUERY, NAMED, ROCM, ROCM_CSV, PAIRS, UUIDS])
def test_listings_give_the_rank_on_one_host(tmp_path: Path, listing: str) -> None:
    found = gpus(tmp_path, RANKS + listing)
    assert found.rank_at("0000:47:00.0") == 2
    assert found.rank_at("0000:aa:00.0") is None


def test_a_launch_command_tells_the_first_rank_of_its_node(tmp_path: Path) -> None:
    launch = "+ torchrun --nproc-per-node 4 --nnodes 2 --node-rank 1 --master-addr n0 train.py\n"
    assert gpus(tmp_path, launch + TABLE).rank_at("00000000:47:00.0") == 6
    both = launch + launch.replace("node-rank 1", "node-rank 0")
    assert gpus(tmp_path, both + TABLE).rank_at("00000000:47:00.0") is None


def test_pids_in_the_order_of_their_start(tmp_path: Path) -> None:
    found = gpus(tmp_path, RANKS + LAUNCHER)
    assert found.rank_at("0000:0f:00") == 3
    assert found.rank_of_pid(1902) == 1


def test_pids_that_the_launcher_contradicts(tmp_path: Path) -> None:
    assert gpus(tmp_path, RANKS + LAUNCHER.replace("local_rank: 1", "local_rank: 3")).pids == {}


def test_visible_devices_shift_the_local_rank(tmp_path: Path) -> None:
    text = "CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node=2 t.py\n" + TABLE
    found = gpus(tmp_path, text)
    assert found.rank_at("00000000:47:00.0") == 0
    assert found.rank_at("00000000:07:00.0") is None


@pytest.mark.parametrize(
    "other", ["torchrun --nnodes=2 --nproc_per_node=4 t.py\n", "world_size=8\n"]
)
def test_no_rank_where_the_job_has_other_hosts(tmp_path: Path, other: str) -> None:
    text = RANKS.replace("[rank3]", "[rank6]") + other + QUERY
    assert gpus(tmp_path, text).rank_at("0000:47:00.0") is None


def test_a_second_node_whose_ranks_all_speak(tmp_path: Path) -> None:
    own = "".join(f"[rank{i}]: RuntimeError: CUDA error: unknown error\n" for i in range(4, 8))
    assert gpus(tmp_path, own + "world_size=8\n" + QUERY).rank_at("0000:47:00.0") == 6
