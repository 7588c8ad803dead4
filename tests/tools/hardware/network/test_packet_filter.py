"""Which rule sets shut out what a peer tried, and which do not?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

REFUSED = "NCCL WARN Net : Connect to 10.0.0.2<54263> failed : No route to host"
STORE = "[c10d] The client socket has failed to connect to [10.0.0.2]:29500 (errno: 110 - Connection timed out)."
SHUT = {
    "firewalld, one port": (["  target: default", "  services: ssh", "  ports: 29500/tcp"], REFUSED),
    "firewalld, services only": (["  target: default", "  services: cockpit dhcpv6-client ssh", "  ports:"], STORE),
    "firewalld, udp": (["  target: default", "  services: ssh", "  ports: 54263/udp"], REFUSED),
    "two hosts in one paste": (["[node-a]   target: default", "[node-a]   services: ssh", "[node-a]   ports: 29500/tcp"], REFUSED),
    "ufw": (["Status: active", "22/tcp                     ALLOW       Anywhere"], REFUSED),
    "ufw verbose": (["Status: active", "Default: deny (incoming), allow (outgoing), disabled (routed)"], STORE),
    "iptables -L": (["REJECT     all  --  0.0.0.0/0            0.0.0.0/0            reject-with icmp-host-prohibited"], REFUSED),
    "iptables -S": (["-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT", "-A INPUT -j REJECT --reject-with icmp-host-prohibited"], REFUSED),
    "policy": (["-P INPUT DROP"], STORE),
    "chain": (["Chain INPUT (policy DROP 0 packets, 0 bytes)"], STORE),
    "nftables": (["  type filter hook input priority filter; policy drop;", "    tcp dport { 22, 29500 } accept"], REFUSED),
}  # fmt: skip
LETS_IN = {
    "port is open": (["  target: default", "  services: ssh", "  ports: 29500/tcp"], STORE),
    "range is open": (["-P INPUT DROP", "-A INPUT -p tcp -m tcp --dport 32768:60999 -j ACCEPT"], REFUSED),
    "peers are let in": (["-P INPUT DROP", "-A INPUT -s 10.0.0.0/24 -j ACCEPT"], REFUSED),
    "ufw, peers": (["Status: active", "Anywhere                   ALLOW       10.0.0.0/24"], REFUSED),
    "accept": (["  target: ACCEPT", "  services: ssh", "  ports:"], REFUSED),
    "forward only": (["-P INPUT ACCEPT", "-P FORWARD DROP"], REFUSED),
    "nothing failed": (["-P INPUT DROP"], "step 10 loss 2.1"),
    "a page on the web": (["-P INPUT DROP"], "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='example.org', port=443): Connection timed out"),
    "a subprocess": (["-P INPUT DROP"], "subprocess.TimeoutExpired: Command '['nvidia-smi']' timed out after 30 seconds"),
}  # fmt: skip


def _kinds(tmp_path: Path, rules: list[str], failure: str) -> str:
    log = tmp_path / "log.txt"
    log.write_text("\n".join([failure, *rules]) + "\n", encoding="utf-8")
    return str(Workspace().diagnose_paths([log]).signature)


@pytest.mark.parametrize("name", SHUT)
def test_rules_that_shut_out(tmp_path: Path, name: str) -> None:
    assert _kinds(tmp_path, *SHUT[name]) == "network.firewall"


@pytest.mark.parametrize("name", LETS_IN)
def test_rules_that_let_in(tmp_path: Path, name: str) -> None:
    assert _kinds(tmp_path, *LETS_IN[name]) != "network.firewall"
