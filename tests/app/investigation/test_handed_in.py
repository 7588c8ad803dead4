"""Is a check that was handed in with the logs not asked for again, and any other still?"""

from __future__ import annotations

import pytest

from firstfault.investigation.handed_in import find_handed_in, was_handed_in

LINES = """node-a $ ip -br -4 addr
[root@hv4 ~]# lspci -vvv | grep ACSCtl | sort | uniq -c
$ ssh hx-001 'ss -s; cat /proc/sys/net/ipv4/ip_local_port_range'
$ nvidia-smi --query-gpu=index,memory.used --format=csv
$ kubectl get pods -o wide
# step 12 of the run
rank0: no prompt df -h
"""


def test_commands_after_a_prompt_and_files_by_name_are_known() -> None:
    found = find_handed_in(LINES, ("df.txt", "train.log", "show_gids_a.txt"))
    assert {"ip addr", "lspci", "ss", "kubectl get", "df", "show_gids"} <= set(found)
    assert "nvidia-smi --query-gpu=index,memory.used" in found


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("df -h /scratch; df -i /scratch", True),
        ("show_gids", True),
        ("sudo lspci -vvv", True),
        ("ss -tan | wc -l; sysctl net.ipv4.ip_local_port_range", True),
        ('grep -nEi "nan|inf" train.log | head', True),
        ("grep -rn Killed logs/", False),
        ("nvidia-smi --query-gpu=index,clocks.sm --format=csv", False),
        ("nvidia-smi topo -m", False),
        ("kubectl describe pod x", False),
        ("dmesg -T | grep -i xid", False),
        ("", False),
    ],
)
def test_what_was_looked_at_is_not_asked_for(command: str, known: bool) -> None:
    handed_in = find_handed_in(LINES, ("df.txt", "train.log", "show_gids_a.txt"))
    assert was_handed_in(command, handed_in, ("df.txt", "train.log")) is known
