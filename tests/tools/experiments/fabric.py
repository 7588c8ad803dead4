"""A fabric of 32 nodes: 4 leaves, 4 spines, routes by the ends; switch-04 port 17 leads to one leaf."""

from __future__ import annotations

from itertools import combinations

from firstfault_tools.experiments.pairs import Routes

HOSTS = tuple(f"node-{i:02}" for i in range(32))
PORT = "switch-04 port 17"


def leaf_of(host: str) -> str:
    return f"leaf-{int(host[5:]) // 8 + 1}"


def between(a: str, b: str) -> tuple[str, ...]:
    """Ports of the spine that two leaves meet at."""
    if leaf_of(a) == leaf_of(b):
        return ()
    spine = 1 + (int(a[5:]) + int(b[5:])) % 4
    return tuple(f"switch-{spine:02} port {11 + 3 * int(leaf_of(h)[-1])}" for h in (a, b))


def routes() -> Routes:
    pairs = combinations(HOSTS, 2)
    return Routes({h: (leaf_of(h),) for h in HOSTS}, {f"{a} {b}": between(a, b) for a, b in pairs})
