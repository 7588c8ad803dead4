"""Why processes did not meet: addresses, hosts of the store, late nodes, ranks, processes and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch import conflicts as launch_conflicts
from firstfault_tools.causality.launch import meeting
from firstfault_tools.causality.launch.master_address import explain_address
from firstfault_tools.collectives import environment, host_differences
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.scan import build_set, scan_file

Find = Callable[[LogIncident, Sequence[Finding]], list[Finding]]


def incident(folder: Path, **files: str) -> LogIncident:
    signatures = build_set(())
    digests = []
    for name, text in files.items():
        path = folder / f"{name}.log"
        path.write_text(text, encoding="utf-8")
        digests.append(scan_file(path, path.name, signatures))
    return LogIncident(tuple(digests), signatures)


AT_START = frozenset({FindingRole.NOT_MET, FindingRole.NOT_MET_AT_START})
ROLES = {
    "store-connect-timeout": AT_START | {FindingRole.NO_STORE},
    "rendezvous-connection": AT_START | {FindingRole.NO_STORE},
    "store-get-timeout": frozenset({FindingRole.NOT_MET, FindingRole.TRANSPORT}),
    "nccl-bootstrap-connect": frozenset({FindingRole.NOT_MET, FindingRole.TRANSPORT}),
    "cuda-oom": frozenset({FindingRole.OOM_PLAIN}),
}


def failed(kind: str, file: str, line: int = 1, text: str = "x") -> Finding:
    return Finding(
        f"signature.{kind}",
        "x",
        Level.FAILURE,
        Category.COMMUNICATION,
        evidence=(Evidence(file, line, text),),
        roles=ROLES[kind],
    )


@each_row(
    ("address", "words"),
    [
        ("5123456", "0.78.45.128"),
        ("10.010.1.2", "octal"),
        ("n[01-04]", "list of nodes"),
        ("n1,n2", "list of nodes"),
        ("tcp://n1", "URL"),
        ("root@n1", "user"),
        ("$HEAD", "not expanded"),
        ("<master_ip>", "placeholder"),
        ("None", "placeholder"),
        ("0.0.0.0", "listening"),
        ("n1", None),
        ("10.0.1.2", None),
        ("10.0.1.2:29500", None),
        ("job-master-0.job.svc.cluster.local", None),
        ("fe80::1", None),
        ("[::1]", None),
    ],
)
def test_master_addresses(address: str, words: str | None) -> None:
    why = explain_address(address)
    assert (why is None) == (words is None)
    assert words is None or (why is not None and words in why)


@given(st.text(max_size=80))
def test_any_address_is_judged(address: str) -> None:
    why = explain_address(address)
    assert why is None or why


TIMEOUT = "The client socket has timed out after 600s while trying to connect to (10.0.0.1, 29500)."
LATE = f"""[n0] 2026-01-08 19:50:44 pip install -r requirements.txt
[n1] 2026-01-08 19:51:12 + torchrun --nnodes 2 --node_rank 1 --master_addr 10.0.0.1 train.py
[n0] 2026-01-08 19:58:02   Downloading torch-2.5.1-cp310-none-manylinux1_x86_64.whl (906.4 MB)
[n1] 2026-01-08 20:01:14 {TIMEOUT}
"""
STARTED = "[n0] 2026-01-08 20:05:42 + torchrun --nnodes 2 --node_rank 0 train.py\n"


def test_a_late_node_is_named(tmp_path: Path) -> None:
    finding = failed("store-connect-timeout", "a.log", 4, TIMEOUT)
    (found,) = meeting.find_in_incident(incident(tmp_path, a=LATE + STARTED), [finding])
    assert found.title.startswith("n0 was late: it was still installing packages")
    assert "20:05:42" in found.title
    early = STARTED.replace("20:05:42", "19:50:01") + LATE
    finding = failed("store-connect-timeout", "b.log", 5, TIMEOUT)
    assert not meeting.find_in_incident(incident(tmp_path, b=early), [finding])


HOSTLESS = """$ torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint 10.1.0.7 train.py
$ hostname; getent hosts $(hostname)
box1
172.20.0.9  box1
$ ip -br -4 addr
eth0             UP             172.20.0.9/24
eth1             UP             10.1.0.7/16
"""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (HOSTLESS, 1),
        (HOSTLESS.replace("172.20.0.9  box1", "10.1.0.7  box1"), 0),
        (HOSTLESS.replace("10.1.0.7/16", "10.1.0.8/16"), 0),
        (HOSTLESS + "Process 12 hosts the TCP store for the C10d rendezvous backend.\n", 0),
    ],
)
def test_an_endpoint_on_another_interface(tmp_path: Path, text: str, count: int) -> None:
    finding = failed("rendezvous-connection", "a.log")
    found = meeting.find_in_incident(incident(tmp_path, a=text), [finding])
    assert len(found) == count
    assert all("nobody listens on port 29400" in f.title for f in found)


EXPORT = "[root@{0} x]# NNODES=2 RANK={1} MASTER_ADDR=10.0.0.1 train-cli run.yaml\n"
RUNS = "[root@{0} x]# ps -ef | grep torchrun\nroot 9 torchrun --nnodes 2 --node_rank {1} run.py\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a": EXPORT.format("n-1", 0), "b": EXPORT.format("n-2", 1) + RUNS.format("n-2", 0)}, "RANK=1"),
        ({"a": EXPORT.format("n-1", 0), "b": EXPORT.format("n-2", 1) + RUNS.format("n-2", 1)}, None),
        ({"a": "[A] rank=0 world_size=2\n[B] rank=0 world_size=2\n"}, "same rank"),
        ({"a": "[A] rank=0 world_size=2\n[B] rank=1 world_size=2\n"}, None),
        ({"a": "[A] nnodes=2, num_local_procs=8, node_rank=0\n[B] nnodes=2, num_local_procs=8, node_rank=0\n"}, "same rank"),
        ({"a": "[A] MASTER_PORT=1 NNODES=2 NODE_RANK=0\n[B] MASTER_PORT=2 NNODES=2 NODE_RANK=1\n"}, "master port"),
        ({"a": "[A1] master_addr=10.0.0.1, world_size=2\n[B1] master_addr=10.0.0.2, world_size=2\n"}, "master address"),
        ({"a": "[A1] MASTER_ADDR: 127.0.0.1\n[B1] MASTER_ADDR: 127.0.0.1\n"}, "localhost"),
        ({"rank0": "MASTER_ADDR: 127.0.0.1\n", "rank1": "MASTER_ADDR: 127.0.0.1\n"}, None),
        (
            {"a": "[A1] accelerate launch --num_machines 1 x.py\n[B1] accelerate launch --num_machines 2 x.py\n"},
            "number of nodes",
        ),
    ],
)  # fmt: skip
def test_ranks_of_nodes(tmp_path: Path, files: dict[str, str], words: str | None) -> None:
    found = launch_conflicts.find_in_incident(
        incident(tmp_path, **files), [failed("store-get-timeout", "a.log")]
    )
    assert bool(found) == (words is not None)
    assert words is None or words in found[0].title


ORDINAL = "3: RuntimeError: CUDA error: invalid device ordinal\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("srun --ntasks-per-node=8 --gpus-per-node=4 x\n" + ORDINAL, 1),
        ("srun --ntasks-per-node=8 --gpus-per-node=4 x\n", 0),
        ("srun --ntasks-per-node=4 --gpus-per-node=a100:4 x\n" + ORDINAL, 0),
        ("torchrun --nproc_per_node 2 x\nCUDA_VISIBLE_DEVICES=1\n" + ORDINAL, 1),
        ("torchrun --nproc_per_node 2 x\nGPU 1: NVIDIA A100 (UUID: GPU-1)\n" + ORDINAL, 0),
    ],
)
def test_more_processes_than_gpus(tmp_path: Path, text: str, count: int) -> None:
    assert len(launch_conflicts.find_in_incident(incident(tmp_path, a=text), [])) == count


BRIDGE = """9be01c4477aa:51:51 [0] NCCL INFO Bootstrap : Using [0]eth0:{0}<0>
71d46aa8dab5:52:52 [0] NCCL INFO Bootstrap : Using [0]eth0:{1}<0>
71d46aa8dab5:52:62 [0] include/socket.h:390 NCCL WARN Connect to {0}<37551> failed : Connection refused
"""


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("172.17.0.3", "172.17.0.5", "bridge"),
        ("172.19.0.3", "172.19.0.5", "bridge"),
        ("172.31.0.3", "172.31.0.5", None),
        ("10.4.0.3", "10.4.0.5", None),
    ],
)
def test_addresses_of_bridges(tmp_path: Path, one: str, other: str, words: str | None) -> None:
    found = host_differences.find_in_incident(
        incident(tmp_path, a=BRIDGE.format(one, other)), [failed("nccl-bootstrap-connect", "a.log")]
    )
    assert [f for f in found if "Docker" in f.title] if words else not found


CHANNEL = "{0}:1:2 [0] NCCL INFO Channel 0{1}/0 : 9[1a000] -> 2[6b000] [send] via NET/IB/0{2}\n"


@pytest.mark.parametrize(
    ("one", "other", "count"), [("/GDRDMA", "", 1), ("", "", 0), ("/GDRDMA", "/GDRDMA", 0)]
)
def test_direct_rdma_on_some_hosts(tmp_path: Path, one: str, other: str, count: int) -> None:
    text = "".join(CHANNEL.format(h, c, s) for h, s in (("h1", one), ("h2", other)) for c in (0, 1))
    found = host_differences.find_in_incident(incident(tmp_path, a=text), [])
    assert len(found) == count
    assert all(f.host == "h2" and f.category is Category.PERFORMANCE for f in found)


HANG = "srun --nodes 2 x --num_processes 16\n{0}\n(no more output)\n"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("export CUDA_LAUNCH_BLOCKING=1", 1),
        ("python train.py --full_determinism True", 1),
        ("export CUDA_LAUNCH_BLOCKING=0", 0),
        ("For debugging consider passing CUDA_LAUNCH_BLOCKING=1", 0),
        ("python train.py --full_determinism False", 0),
    ],
)
def test_settings_that_hang(tmp_path: Path, line: str, count: int) -> None:
    one = incident(tmp_path, a=HANG.format(line))
    assert len(environment.find_in_incident(one, [])) == count
    assert not environment.find_in_incident(one, [failed("cuda-oom", "a.log")])


PODS = "NAME READY STATUS RESTARTS AGE\nj-master-0 1/1 Running 0 9m\nj-worker-0 1/1 Running 0 9m\nj-worker-1 0/1 {} 9m\n"


@pytest.mark.parametrize(("row", "told"), [("Error 4 (2m ago)", True), ("Error 0", False)])
def test_a_pod_that_was_restarted_alone(tmp_path: Path, row: str, told: bool) -> None:
    made = incident(tmp_path, a=PODS.format(row))
    refusal = failed("nccl-bootstrap-connect", "a.log", text="Connection refused")
    found = meeting.find_in_incident(made, [refusal])
    assert [("restarted" in f.title) for f in found] == ([True] if told else [])


def test_an_endpoint_under_a_longer_name_of_the_host(tmp_path: Path) -> None:
    text = (
        "$ hostname\nh-0\n$ torchrun --rdzv_endpoint $E:29400 t.py\n"
        "[c10d] The client socket has failed to connect to [h-0.h]:29400 (errno: 111 - Connection refused).\n"
    )
    found = meeting.find_in_incident(incident(tmp_path, a=text), [failed("rendezvous-connection", "a.log")])  # fmt: skip
    assert [("is_host" in f.title) for f in found] == [True]
    other = text.replace("[h-0.h]", "[g-1.h]")
    assert not meeting.find_in_incident(incident(tmp_path, a=other), [failed("rendezvous-connection", "a.log")])  # fmt: skip
