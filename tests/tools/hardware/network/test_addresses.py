"""Is one address on two hosts found, and nothing where addresses are unequal or virtual?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.hardware.excerpt import NumberedLine
from firstfault_tools.hardware.network.addresses import find_in_lines


def _lines(*rows: str) -> list[NumberedLine]:
    return list(enumerate(rows, 1))


def _listing(addresses: dict[str, str], nic: str = "rail0") -> list[NumberedLine]:
    return _lines(*(f"{host}: {nic}  UP  {address}/24" for host, address in addresses.items()))


def test_same_address_names_both_hosts() -> None:
    rows = _listing({"node1": "10.1.0.1", "node2": "10.1.0.2", "node3": "10.1.0.1"})
    (found,) = find_in_lines(rows, "addr.txt")
    assert "node1 and node3" in found.title
    assert "10.1.0.1" in found.title
    assert [e.line for e in found.evidence] == [1, 3]


def test_one_line_format_is_read() -> None:
    rows = _lines(
        "node1: 4: eth1    inet 10.1.0.1/24 brd 10.1.0.255 scope global eth1",
        "node2: 4: eth1    inet 10.1.0.1/24 brd 10.1.0.255 scope global eth1",
        "node3: 4: eth1    inet 10.1.0.3/24 brd 10.1.0.255 scope global eth1",
    )
    assert len(find_in_lines(rows, "addr.txt")) == 1


@each_row(
    "rows",
    [
        _listing({"node1": "10.1.0.1", "node2": "10.1.0.2", "node3": "10.1.0.3"}),
        _listing({"node1": "10.1.0.1", "node2": "10.1.0.1"}),
        _listing({"node1": "172.17.0.1", "node2": "172.17.0.1", "node3": "172.17.0.1"}, "docker0"),
        _listing({"node1": "127.0.0.1", "node2": "127.0.0.1", "node3": "127.0.0.1"}, "lo"),
        _listing({"node1": "169.254.1.1", "node2": "169.254.1.1", "node3": "10.1.0.3"}),
        _listing({f"node{i}": "10.9.9.9" for i in range(1, 7)}, "vip0"),
        _listing({"node1": "999.1.0.1", "node2": "999.1.0.1", "node3": "10.1.0.3"}),
    ],
    ids=["unequal", "two hosts", "bridge", "loopback", "link-local", "everywhere", "no address"],
)
def test_harmless_listings_say_nothing(rows: list[NumberedLine]) -> None:
    assert find_in_lines(rows, "addr.txt") == ()


_FAILS = "n2:7:9 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.8.4.13<5112> failed : No route to host"
_TWO_ROUTES = (
    "[root@n1 ~]# ip route",
    "default via 10.8.0.1 dev eno1 proto dhcp src 10.8.3.13 metric 100",
    "10.8.0.0/20 dev ens9 proto kernel scope link src 10.8.4.13 metric 100",
    "10.8.0.0/20 dev eno1 proto kernel scope link src 10.8.3.13 metric 100",
)
_IFCONFIG = (
    "eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1500",
    "        inet {}  netmask 255.255.0.0  broadcast 172.17.255.255",
    "lo: flags=73<UP,LOOPBACK,RUNNING>  mtu 65536",
    "        inet 127.0.0.1  netmask 255.0.0.0",
)
_TUNNEL = (
    "[root@n1 ~]# ip addr",
    "2: rsx0: <POINTOPOINT,UP,LOWER_UP> mtu 1480 qdisc noqueue",
    "    inet 172.25.5.3/32 scope global rsx0",
    "3: ens9: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq",
    "    inet 10.8.4.13/20 brd 10.8.15.255 scope global ens9",
)


def _containers(*addresses: str) -> tuple[str, ...]:
    return tuple(row.format(a) for a in addresses for row in _IFCONFIG)


@each_row(
    ("rows", "words"),
    [
        ((_FAILS, *_TWO_ROUTES), ("n1 has two interfaces", "ens9", "eno1", "10.8.0.0/20")),
        (
            (_FAILS, *_containers("172.17.0.2", "172.17.0.3")),
            ("172.17.0.2", "private to each host"),
        ),
        (
            (_FAILS, "n1:7:9 [0] NCCL INFO Bootstrap : Using rsx0:172.25.5.3<0>", *_TUNNEL),
            ("rsx0", "ens9 (10.8.4.13/20) is the interface of the cluster"),
        ),
    ],
)
def test_interfaces_that_lead_nowhere(rows: tuple[str, ...], words: tuple[str, ...]) -> None:
    (found,) = find_in_lines(_lines(*rows), "net.txt")
    assert found.kind == "network.dead_end"
    assert all(word in found.title for word in words)


@each_row(
    "rows",
    [
        _TWO_ROUTES,
        (_FAILS, *_TWO_ROUTES[:3]),
        (_FAILS, *_containers("172.17.0.2")),
        (_FAILS, *_containers("10.8.0.2", "10.8.0.3")),
        (_FAILS, "n1:7:9 [0] NCCL INFO Bootstrap : Using ens9:10.8.4.13<0>", *_TUNNEL),
    ],
    ids=["nothing failed", "one route", "one container", "own network", "right interface"],
)
def test_other_listings_are_left_alone(rows: tuple[str, ...]) -> None:
    assert find_in_lines(_lines(*rows), "net.txt") == ()
