"""Is one address on two hosts found, and nothing where addresses are unequal or virtual?"""

from __future__ import annotations

import pytest

from firstfault_tools.hardware.address_twice import find_in_lines
from firstfault_tools.hardware.excerpt import NumberedLine


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


@pytest.mark.parametrize(
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
