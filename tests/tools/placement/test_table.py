"""Which rank sits on a host, a GPU or a pod: from Ray's list, PCI tables, prefixes and siblings."""

from __future__ import annotations

from pathlib import Path

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.log.place import Place
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.log.signature import Signature, load_signatures
from firstfault_tools.placement.table import PlacementTable

HARDWARE = Path(__file__).parents[3] / "knowledge" / "signatures" / "hardware"


def placement(tmp_path: Path, text: str, known: tuple[Signature, ...] = ()) -> PlacementTable:
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    signatures = build_set(known)
    return LogIncident((scan_file(path, "run.log", signatures),), signatures).placement


def test_ray_list_gives_the_rank_of_a_host(tmp_path: Path) -> None:
    row = "(TorchTrainer pid=9) - (node_id=a{0}, ip=10.3.0.1{0}, pid=4{0}) world_rank={0}, local_rank=0, node_rank={0}\n"
    found = placement(tmp_path, "world_size=3\n" + "".join(row.format(i) for i in range(3)))
    assert found.by_host("10.3.0.12") == 2
    assert found.by_host("10.3.0.99") is None


def test_gpu_of_a_host_by_counting_its_block(tmp_path: Path) -> None:
    text = "Rank=13 Node=n9 Score=0.97\nRank=9 Node=n9 Score=0.98\nRank=2 Node=n8 Score=0.97\n"
    found = placement(tmp_path, text)
    assert found.by_gpu("n9", 5, 8) == 13
    assert found.by_gpu("n8", 0, 8) == 0
    assert found.by_gpu("n7", 0, 8) is None
    assert found.by_gpu("n9", 9, 8) is None


def test_blocks_that_overlap_are_not_counted(tmp_path: Path) -> None:
    found = placement(tmp_path, "Rank=13 Node=n9 Score=0.9\nRank=12 Node=n8 Score=0.9\n")
    assert found.by_gpu("n9", 5, 8) is None


def test_tables_of_ranks_and_gpus(tmp_path: Path) -> None:
    text = "# rank -> PCI: 0=0c:00.0 1=22:00.0 2=38:00.0\n   dp 5 (rank 22, oak-03 gpu 6): 0e77ab13d9\n"
    found = placement(tmp_path, text)
    assert found.ranks_of(Place(pci="0000:22:00.0")).only == 1
    assert found.by_gpu("oak-03", 6, None) == 22


def test_pods_follow_their_siblings(tmp_path: Path) -> None:
    text = (
        "j-worker-2 train [rank3]: a\nj-worker-7 train [rank8]: b\nother-1 train loss [rank0]: c\n"
    )
    found = placement(tmp_path, text)
    assert found.by_pod("j-worker-5") == 6
    assert found.by_pod("other-2") is None
    mixed = placement(tmp_path, "j-0 t [rank0]: a\nj-1 t [rank1]: b\nj-1 t [rank5]: b\n")
    assert mixed.by_pod("j-3") is None


def test_host_that_no_placed_rank_has_is_that_of_the_rank_left_over(tmp_path: Path) -> None:
    row = "(TorchTrainer pid=9) - (node_id=a{0}, ip=10.3.0.1{0}, pid=4{0}) world_rank={0}, local_rank=0, node_rank={0}\n"
    found = placement(tmp_path, "world_size=4\n" + "".join(row.format(i) for i in (0, 1, 3)))
    assert found.by_exclusion("10.3.0.77") == 2
    assert found.by_exclusion("10.3.0.11") is None
    assert found.by_exclusion("ip-10-3-0-11.us-west-2.compute.internal") is None


def test_srun_names_the_hosts_of_its_tasks_and_of_their_place_in_it(tmp_path: Path) -> None:
    lines = ["[rank0]: world_size=8"]
    lines += [
        f"{n}: n{1 + n // 4}:90{n}:90{n} [{n % 4}] NCCL INFO NET/IB: using" for n in (0, 1, 4)
    ]
    lines += ["5: [rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered"]
    lines += [
        "srun: error: n2: task 5: Aborted (core dumped)",
        "srun: error: n2: tasks 6-7: Terminated",
    ]
    lines += ["srun: error: n1: tasks 2-3: Terminated"]
    found = placement(tmp_path, "\n".join(lines) + "\n", tuple(load_signatures(HARDWARE)))
    assert found.place_of(5) == Place(5, 1, host="n2")


def test_lists_of_hosts_and_brackets_place_ranks(tmp_path: Path) -> None:
    listed = "world_size=4 nnodes=2 nproc_per_node=2 hosts=t-01,t-02\n"
    assert placement(tmp_path, listed + "[rank3] step 1\n").place_of(3).host == "t-02"
    told = "world_size=4\n[rank3][WARNING] OSError: stale file (host t-02), retry 1\n"
    assert placement(tmp_path, told).place_of(3).host == "t-02"
    info = "[INFO] [launch.py:146:main] WORLD INFO DICT: {'a-1': [0, 1], 'a-2': [0, 1]}\nworld_size=4\n"
    assert placement(tmp_path, info).place_of(3) == Place(3, 1, host="a-2")


SEATS = "".join(
    f"{n:2d}: m-0{1 + n // 4} local_rank {n % 4} Instinct bdf 0000:{b}:00.0 HIP 6.4\n"
    for n, b in enumerate(("05", "26", "46", "65") * 2)
)
"""What every task tells of itself: host, number there, address of its GPU."""

ECC = "6: [rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
DRIVER = "".join(
    f"[9.1] NVRM: Xid (PCI:0000:{b}:00): 45, pid={n}, name=python3, Ch 1\n"
    for n, b in ((7003, "5d"), (7002, "4c"), (7001, "3b"), (7000, "19"))
)


def test_tasks_tell_their_host_and_address(tmp_path: Path) -> None:
    found = placement(tmp_path, SEATS + ECC, tuple(load_signatures(HARDWARE)))
    assert found.ranks_of(Place(host="m-02", pci="0000:46:00.0")).only == 6
    assert found.ranks_of(Place(pci="0000:46:00.0")).only is None


def test_all_cards_that_the_driver_names_count_by_address(tmp_path: Path) -> None:
    rows = "".join(
        f"[rank: {n}] host m-0{1 + n // 4} local_rank {n % 4} starts\n" for n in range(8)
    )
    found = placement(tmp_path, rows + DRIVER)
    assert found.ranks_of(Place(host="m-02", pci="0000:4c:00.0")).only == 6
    few = placement(tmp_path, rows + DRIVER.split("\n", 1)[1])
    assert few.ranks_of(Place(host="m-02", pci="0000:4c:00.0")).only is None


def test_a_listing_counts_in_the_block_of_its_host(tmp_path: Path) -> None:
    lines = [f"{n}: [rank{n}]: loss" for n in range(8)] + ["srun: error: m-02: tasks 4-7: Aborted"]
    listed = [f"{i}, 00000000:{b}:00.0, 16509" for i, b in enumerate(("1B", "43", "52", "61"))]
    text = "\n".join(lines + listed) + "\n" + ECC
    found = placement(tmp_path, text, tuple(load_signatures(HARDWARE)))
    assert found.ranks_of(Place(host="m-02", pci="0000:52:00.0")).only == 6


def test_a_host_before_the_rank_of_a_timer_row(tmp_path: Path) -> None:
    rows = "".join(f"2026-03-28 06:00:04.1 h1-c0{1 + n // 4} rank={n} step=900 comp=2.4\n" for n in range(8))  # fmt: skip
    assert placement(tmp_path, rows).by_gpu("h1-c02", 1, 4) == 5


def incident(tmp_path: Path, files: dict[str, str]) -> LogIncident:
    signatures = build_set(())
    digests = []
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        digests.append(scan_file(tmp_path / name, name, signatures))
    return LogIncident(tuple(digests), signatures)


def test_a_host_whose_note_gives_its_ranks(tmp_path: Path) -> None:
    note = "# nvidia-smi -q on c12 (ranks 24-31)\nAttached GPUs : 8\n"
    logs = incident(tmp_path, {"smi.txt": note, "train.log": "[rank0]: step 1 loss 2.0\n"})
    assert logs.placement.host_told("smi.txt") == "c12"
    assert logs.placement.by_gpu("c12", 5, 8) == 29
    assert logs.placement.by_gpu("c12", 8, 8) is None


def test_a_name_of_the_file_means_the_host_of_its_note(tmp_path: Path) -> None:
    logs = incident(tmp_path, {"gpu-c4_dmesg.txt": "# host: gpu-c4 (ranks 24-31)\nboot\n"})
    assert logs.placement.by_gpu("c4", 2, 8) == 26


def test_the_number_of_a_node_and_its_gpus_give_ranks(tmp_path: Path) -> None:
    note = "# dmesg of lx-7 (node_rank 3)\n"
    logs = incident(tmp_path, {"dmesg.txt": note, "train.log": "world_size=32\n[rank0]: step 1\n"})
    assert logs.placement.by_gpu("lx-7", 1, 8) == 25
    assert logs.placement.by_gpu("lx-7", 1, None) is None  # how many sit on one host is not told
    assert logs.placement.by_gpu("lx-7", 1, 16) is None  # beyond the job


def test_a_known_first_rank_is_not_counted_anew(tmp_path: Path) -> None:
    text = "world_size=16\n[default1]:[rank9]: x\n"
    table = incident(tmp_path, {"train.log": text}).placement
    table.note_shift(8, "b2", "")
    table.ranks_on["b2"] = {9}
    assert table.by_gpu("b2", 6, 8) == 14
    assert table.by_gpu("b2", 6, None) is None


def test_sixteen_ranks_are_not_taken_for_one_host(tmp_path: Path) -> None:
    assert not placement(tmp_path, "world_size=16\n[rank0]: x\n").no_second_node
    assert placement(tmp_path, "world_size=8\n[rank0]: x\n").no_second_node


def test_two_hosts_in_one_note_name_no_host_of_the_file(tmp_path: Path) -> None:
    note = "# ranks 0-7 on a05, 8-15 on a06\n"
    assert incident(tmp_path, {"map.txt": note}).placement.host_told("map.txt") is None


COLUMNS = "step,rank,host,fwd_ms\n" + "".join(f"5,{r},kx{r // 4},9.{r}\n" for r in range(8))


def test_columns_of_rank_and_host_place_the_ranks(tmp_path: Path) -> None:
    found = placement(tmp_path, COLUMNS)
    assert found.by_gpu("kx1", 2, 4) == 6
    assert found.by_gpu("kx2", 2, 4) is None
    assert found.host_of(6) is None or found.host_of(6) == "kx1"
    moved = placement(tmp_path, COLUMNS + "6,6,kx0,9.1\n")
    assert moved.by_gpu("kx1", 2, 4) is None


ENDED = """  host      : {host}
  rank      : {rank} (local_rank: {local})
  exitcode  : -6 (pid: {pid})
"""


def list_ends(*rows: tuple[str, int, int, int]) -> str:
    body = "".join(ENDED.format(host=h, rank=r, local=n, pid=p) for h, r, n, p in rows)
    return f"world_size=8\nx FAILED\nFailures:\n{body}"


def test_workers_started_in_turn_tell_the_rank_of_another_process(tmp_path: Path) -> None:
    found = placement(tmp_path, list_ends(("n1", 2, 2, 902), ("n1", 5, 5, 905)))
    assert found.ranks_of(Place(pid=900)).only == 0
    assert found.ranks_of(Place(pid=907, host="n1")).only == 7
    assert found.ranks_of(Place(pid=908)).only is None
    one = placement(tmp_path, list_ends(("n1", 2, 2, 902)))
    assert one.ranks_of(Place(pid=900)).only is None
    apart = placement(tmp_path, list_ends(("n1", 2, 2, 902), ("n1", 5, 5, 913)))
    assert apart.ranks_of(Place(pid=900)).only is None


def test_the_host_that_is_left_has_the_ranks_that_are_left(tmp_path: Path) -> None:
    head = "+ srun torchrun --nnodes=2 --nproc-per-node=8 t.py\n"
    row = ENDED.format(host="n1", rank=3, local=3, pid=903)
    found = placement(tmp_path, f"{head}world_size=16\nx FAILED\nFailures:\n{row}")
    assert found.by_gpu("n2", 4, 8) == 12
    assert found.by_gpu("n1", 4, 8) == 4
    three = placement(tmp_path, f"{head.replace('=2', '=3')}world_size=24\nx FAILED\n{row}")
    assert three.by_gpu("n2", 4, 8) is None


def test_a_gpu_counts_by_its_place_in_the_visible_ones(tmp_path: Path) -> None:
    buses = ("1b", "2a", "3a", "5d")
    proc = "".join(f"Bus Location: \t 0000:{bus}:00.0\n" for bus in buses)
    text = (
        "+ export CUDA_VISIBLE_DEVICES=3,2,1,0\n+ torchrun --nnodes=2 --nproc-per-node=4 t.py\n"
        f"world_size=8\nn2 rank 4 (n2 gpu 3)\n{proc}GPU1: 0000:2A:00.0: Unknown Error\n"
        "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x1 - Init\n"
        "n2:1:2 [0] NCCL INFO comm 0x1 rank 4 nranks 8 cudaDev 0 nvmlDev 0 busId 5d000 commId 0x1 - Init\n"
        "n2:1:3 [1] NCCL INFO comm 0x1 rank 5 nranks 8 cudaDev 1 nvmlDev 1 busId 3a000 commId 0x1 - Init\n"
    )
    found = placement(tmp_path, text)
    assert found.ranks_of(Place(pci="0000:2a:00.0", host="n2")).only == 6
    assert found.place_of(6).host == "n2"
