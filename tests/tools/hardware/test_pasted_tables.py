"""The odd row of a pasted table: port rates, ACS, uplinks, drives, nccl-tests pairs, CPU limits."""

from __future__ import annotations

from firstfault_tools.findings import Level
from firstfault_tools.hardware.gpu import pcie, shared_gpu
from firstfault_tools.hardware.host import cpu_heat, cpu_limits, host_pressure
from firstfault_tools.hardware.network import nccl_tests, port_rates, uplinks


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.strip("\n").split("\n"), start=1))


def test_port_below_the_rate_of_its_peers() -> None:
    rows = [f"nx{i:02}: mlx5_0 State: Active Rate: {100 if i == 4 else 400}" for i in range(1, 9)]
    (found,) = port_rates.find_in_lines(list(enumerate(rows, start=1)), "x.txt")
    assert found.host == "nx04"
    assert found.level is Level.CAUSE


def test_storage_port_that_is_slower_on_every_host_is_meant() -> None:
    rows = [
        f"nx{i:02}: mlx5_{p} Rate: {100 if p == 4 else 400}" for i in range(1, 5) for p in range(5)
    ]
    assert port_rates.find_in_lines(list(enumerate(rows, start=1)), "x.txt") == ()


def test_ethtool_speed_of_one_host() -> None:
    rows = [
        r
        for i in range(1, 5)
        for r in (
            f"== n{i}: ethtool eth0",
            "Settings for eth0:",
            f"\tSpeed: {1000 if i == 2 else 25000}Mb/s",
        )
    ]
    (found,) = port_rates.find_in_lines(list(enumerate(rows, start=1)), "x.txt")
    assert found.host == "n2"


def test_learning_rate_is_no_port() -> None:
    assert port_rates.find_in_lines([(1, "eth0 iteration 3 learning rate: 1.0")], "x.txt") == ()


def test_acs_on_one_host() -> None:
    text = """
[root@n1 ~]# lspci -vvv | grep ACSCtl
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
[root@n2 ~]# lspci -vvv | grep ACSCtl
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
"""
    (found,) = pcie.find_in_lines(number(text), "x")
    assert (found.host, found.level) == ("n1", Level.CAUSE)
    assert pcie.find_in_lines(number("\n".join(text.split("\n")[3:])), "x") == ()


def uplink_table(shares: list[float]) -> list[tuple[int, str]]:
    rows = ["leaf3# show interfaces counters rates", "Port   Name   Intvl  In Mbps  %  Out Mbps  %"]
    rows += [
        f"Et{i}/1   spine{i}   0:30   9000.0  20.0%  1000.0  {s}%" for i, s in enumerate(shares, 1)
    ]
    return list(enumerate(rows, start=1))


def test_few_uplinks_carry_all() -> None:
    (found,) = uplinks.find_in_lines(uplink_table([97.0, 8.0, 9.0, 96.0, 8.0, 9.0]), "x")
    assert "Et1/1, Et4/1" in found.title
    assert uplinks.find_in_lines(uplink_table([50.0, 52.0, 49.0, 51.0]), "x") == ()


def test_full_drive_is_context() -> None:
    text = "Device r/s rMB/s w/s wMB/s await aqu-sz %util\nnvme0n1 10.0 1400.0 5.0 3.0 2.0 9.0 99.8\nnvme1n1 0.0 0.0 0.0 0.0 0.0 0.0 0.1"
    (found,) = host_pressure.find_in_lines(number(text), "x")
    assert found.level is Level.CONTEXT
    assert "nvme1n1 is idle" in found.title
    assert host_pressure.find_in_lines(number(text.replace("99.8", "40.0")), "x") == ()


def test_host_that_all_slow_pairs_share() -> None:
    rows = []
    for pair, bus in (("n1 n2", 48.0), ("n1 n3", 20.0), ("n2 n3", 21.0), ("n1 n4", 47.0)):
        rows += [
            f"### {pair}",
            f" 1073741824 268435456 float sum -1 43331 24.78 {bus} 0 43504 24.68 {bus} 0",
        ]
    found = nccl_tests.check_runs(nccl_tests.read_runs(list(enumerate(rows, start=1)), "x"))
    assert [f.host for f in found if f.kind == "network.nccl_slow_node"] == ["n3"]


def test_limit_of_the_container_that_is_throttled() -> None:
    text = """
== worker-0
max 100000
nr_periods 0
nr_throttled 0
== worker-1
200000 100000
nr_periods 5000
nr_throttled 4900
"""
    free, limited = cpu_limits.read_limits(number(text))
    assert (free.cores, free.share) == (None, 0.0)
    assert (limited.name, limited.cores, limited.share) == ("worker-1", 2.0, 0.98)


def test_cpu_heat_needs_many_events() -> None:
    line = "mce: CPU1: Core temperature above threshold, cpu clock throttled (total events = {})"
    assert cpu_heat._read([(1, line.format(4))], "dmesg-node7.txt") is None
    found = cpu_heat._read([(1, line.format(4000))], "dmesg-node7.txt")
    assert found is not None
    assert (found.host, found.level) == ("node7", Level.CONTEXT)


def test_process_that_shares_a_gpu() -> None:
    text = "0, 100, python, 60000 MiB\n1, 101, python, 60000 MiB\n1, 777, /home/kim/bin/python, 4000 MiB"
    (found,) = shared_gpu.find_in_lines(number(text), "x")
    assert found.facts["pid"] == 777
    assert (found.gpu, found.level) == ("1", Level.CONTEXT)
    assert shared_gpu.find_in_lines(number(text)[:2], "x") == ()


def test_storage_port_of_one_host_is_context_and_a_port_that_is_down_none() -> None:
    rows = [f"mlx5_{p}: State: Active Rate: {100 if p == 4 else 400}" for p in range(9)]
    (found,) = port_rates.find_in_lines(list(enumerate(rows, start=1)), "x.txt")
    assert found.level is Level.CONTEXT
    rows[4] = "mlx5_4: State: Down Rate: 10"
    assert port_rates.find_in_lines(list(enumerate(rows, start=1)), "x.txt") == ()


TOPOLOGY = """        GPU0    GPU1    GPU2    GPU3    CPU Affinity
GPU0     X      {near}     {far}     {far}     0-19
GPU1    {near}      X      {far}     {far}     0-19
GPU2    {far}     {far}      X      {near}     20-39
GPU3    {far}     {far}     {near}      X      20-39"""


def test_gpus_of_two_sockets_without_nvlink() -> None:
    from firstfault_tools.hardware.gpu.topology import find_in_lines as find

    def found(near: str, far: str) -> list[str]:
        text = TOPOLOGY.format(near=near, far=far)
        return [f.kind for f in find(list(enumerate(text.split("\n"), start=1)), "a.log")]

    assert found("PIX", "SYS") == ["hardware.topology_split"]
    assert found("NV4", "SYS") == []
    assert found("PIX", "PHB") == []
