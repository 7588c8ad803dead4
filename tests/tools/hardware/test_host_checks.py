"""BMC event logs, pings of full size, settings that differ from host to host, memory kills."""

from __future__ import annotations

from firstfault_tools.findings import Finding, Level
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.hardware.host import dmesg, event_log, host_settings
from firstfault_tools.hardware.network import path_mtu

ROW = " 3e{} | {} | {} | {} | {} | Asserted\n"


def sel(*rows: tuple[str, str, str, str]) -> tuple[Finding, ...]:
    text = "$ ipmitool -H n7-bmc sel elist\n" + "".join(
        ROW.format(i, *row) for i, row in enumerate(rows)
    )
    return event_log.find_in_lines(number_lines(text), "bmc.txt")


def test_power_loss_is_a_cause_and_names_the_host() -> None:
    (found,) = sel(
        ("01/19/2025", "17:31:50", "Power Supply PSU3_Status", "Power Supply AC lost"),
        ("01/19/2025", "17:37:49", "Power Unit Pwr_Unit", "Power off/down"),
    )
    assert (found.kind, found.level, found.host) == ("hardware.sel_power", Level.CAUSE, "n7")
    assert "PSU3_Status: Power Supply AC lost at 17:31:50" in found.title


def test_one_supply_of_several_is_no_proof() -> None:
    (found,) = sel(("01/19/2025", "17:31:50", "Power Supply PS1", "Failure detected"))
    assert found.level is Level.FAILURE


def test_old_events_and_harmless_ones_are_passed_over() -> None:
    assert sel(
        ("01/19/2024", "17:37:49", "Power Unit Pwr_Unit", "Power off/down"),
        ("01/19/2025", "17:37:49", "Power Supply PS1", "Presence detected"),
    ) == ()  # fmt: skip


def test_memory_processor_heat_and_bus_are_told_apart() -> None:
    day = ("05/14/2026", "04:09:44")
    kinds = [
        f.kind
        for f in sel(
            (*day, "Memory #0xf1", "Uncorrectable ECC (@DIMM A1)"),
            (*day, "Processor CPU2", "IERR"),
            (*day, "Temperature GPU3 Temp", "Upper Critical going high"),
            (*day, "Critical Interrupt PCIe", "Bus Fatal Error"),
        )
    ]
    assert kinds == [
        "hardware.sel_memory", "hardware.sel_processor", "hardware.sel_heat", "hardware.sel_bus",
    ]  # fmt: skip


PING = """n1$ ping -c3 -M do -s 8972 10.0.0.2
PING 10.0.0.2 (10.0.0.2) 8972(9000) bytes of data.

--- 10.0.0.2 ping statistics ---
3 packets transmitted, {} received, {}% packet loss, time 2043ms
n1$ ping -c3 10.0.0.2
PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.
64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.121 ms

--- 10.0.0.2 ping statistics ---
3 packets transmitted, {} received, {}% packet loss, time 2043ms
"""


def test_lost_full_size_packets_beside_small_ones_prove_the_path() -> None:
    (found,) = path_mtu.find_in_lines(number_lines(PING.format(0, 100, 3, 0)), "log")
    assert found.level is Level.CAUSE
    assert "9000 bytes to 10.0.0.2 are lost" in found.title


def test_a_peer_that_answers_nothing_or_everything_proves_nothing() -> None:
    for numbers in ((3, 0, 3, 0), (3, 0, 0, 100)):
        assert path_mtu.find_in_lines(number_lines(PING.format(*numbers)), "log") == ()
    silent = PING.replace("64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.121 ms\n", "")
    assert path_mtu.find_in_lines(number_lines(silent.format(0, 100, 0, 100)), "log") == ()


QOS = "== {}\nPriority trust state: {}\nPFC configuration:\n\tenabled     {}\n"


def settings_of(text: str) -> tuple[Finding, ...]:
    return host_settings.find_in_lines(number_lines(text), "qos.txt")


def test_the_host_without_pfc_is_named_with_its_drops() -> None:
    good = [QOS.format(f"n{i}", "dscp", "0   0   0   1   0   0   0   0") for i in (1, 2, 3)]
    bad = QOS.format("n4", "pcp", "0   0   0   0   0   0   0   0")
    (found,) = settings_of("".join([*good, bad]) + "n4  rx_discards_phy: 7718204\n")
    assert (found.host, found.level) == ("n4", Level.CAUSE)
    assert "no priority" in found.title
    assert "7,718,204" in found.title
    assert settings_of("".join(good)) == ()


def test_two_hosts_that_differ_are_both_named() -> None:
    line = "2: ens1f0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {} qdisc mq state UP\n"
    (found,) = settings_of(
        f"$ ssh n1 ip link\n{line.format(9000)}$ ssh n2 ip link\n{line.format(1500)}"
    )
    assert (found.kind, found.host) == ("network.mtu_differs", None)
    assert "9000 on ens1f0 at n1 and 1500 at n2" in found.title
    other = "3: docker0: <BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue\n"
    assert settings_of(f"== n1\n{other}== n2\n{other.replace('1500', '1450')}") == ()


KILL = (
    "[1.1001] Node 1 Normal free:463310228kB boost:0kB min:90312kB\n"
    "[1.1002] oom-kill:constraint={},nodemask={},cpuset=u,mems_allowed=0-1,{}task_memcg=/u,task=python,pid=7,uid=1\n"
    "[1.1003] {}: Killed process 7 (python) total-vm:9kB, anon-rss:135280010kB\n"
)


def kill(constraint: str, nodes: str, group: str, words: str) -> str:
    text = KILL.format(constraint, nodes, group, words)
    found = dmesg.find_in_lines(number_lines(text), "dmesg")
    return next(f.title for f in found if f.kind == "kernel.oom_kill")


def test_a_kill_says_what_limited_the_memory() -> None:
    policy = kill("CONSTRAINT_MEMORY_POLICY", "0", "global_oom,", "Out of memory")
    assert "numactl --membind" in policy
    assert "node 1 had 442 GiB free" in policy
    pod = kill(
        "CONSTRAINT_MEMCG", "(null)", "oom_memcg=/kubepods/p,", "Memory cgroup out of memory"
    )
    assert "cgroup /kubepods/p (the memory limit of the pod)" in pod
    plain = kill("CONSTRAINT_NONE", "(null)", "global_oom,", "Out of memory")
    assert "NUMA" not in plain


def test_records_of_racadm_are_read_too() -> None:
    record = (
        "Record:      1\nDate/Time:   01/19/2025 17:37:4{}\nSeverity:    {}\nDescription: {}\n---\n"
    )
    text = (
        "$ racadm -r n4-idrac getsel\n"
        + record.format(1, "Ok", "The system board Pwr lost.")
        + record.format(2, "Critical", "The power input for power supply 1 is lost.")
    )
    (found,) = event_log.find_in_lines(number_lines(text), "bmc.txt")
    assert (found.host, found.level) == ("n4", Level.FAILURE)
    worse = text + record.format(3, "Critical", "The system board Pwr lost.")
    (found,) = event_log.find_in_lines(number_lines(worse), "bmc.txt")
    assert found.level is Level.CAUSE


def test_a_lower_open_file_limit_is_blamed_where_files_ran_out() -> None:
    limits = "".join(f"== n{i}\nopen files                      (-n) {v}\n" for i, v in ((1, 1048576), (2, 1048576), (3, 1024)))  # fmt: skip
    (found,) = settings_of(limits)
    assert (found.host, found.level) == ("n3", Level.FAILURE)
    (blamed,) = settings_of("[rank9]: OSError: [Errno 24] Too many open files\n" + limits)
    assert (blamed.host, blamed.level, blamed.page) == (
        "n3",
        Level.CAUSE,
        "file-and-process-limits",
    )
