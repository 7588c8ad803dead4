"""Tables of nccl-tests against the rate of the card and of the fabric."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.metrics.checklist import CheckState
from firstfault_tools.preflight.bandwidth import check_bandwidth


def table(busbw: float, hosts: tuple[str, ...] = ("node-09",), card: str = "NVIDIA H100 80GB HBM3", size: int = 1 << 30) -> str:  # fmt: skip
    ranks = "".join(
        f"#  Rank  {n} Group  0 Pid  {4321 + n} on    {hosts[n % len(hosts)]} device  {n} [0x1b] {card}\n"
        for n in range(2)
    )
    row = f"  {size}     268435456     float     sum      -1   109880    {busbw / 1.75:.2f}   {busbw:.2f}      0   109860    {busbw / 1.75:.2f}   {busbw:.2f}      0\n"
    return f"# nThread 1 nGpus 2 minBytes 1073741824\n# Using devices\n{ranks}#\n{row}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {busbw}\n"


@each_row(
    ("text", "fabric", "state", "says"),
    [
        (table(362.0), None, CheckState.PASSED, "node-09: 362.0 GB/s of 450"),
        (table(17.1), None, CheckState.FAILED, "17.1 GB/s of 450 that NVLink"),
        (table(330.0, ("a", "b")), 400.0, CheckState.PASSED, "330.0 GB/s of 400 that the network of a node"),
        (table(42.3, ("a", "b")), 400.0, CheckState.FAILED, "below 60 %"),
    ],
)  # fmt: skip
def test_held_against_a_rate(text: str, fabric: float | None, state: CheckState, says: str) -> None:
    held = check_bandwidth([("t.txt", text)], fabric)
    assert held is not None
    assert held[0] is state
    assert says in held[1]


@each_row(
    "text",
    [table(42.3, ("a", "b")), table(17.1, card="Some Card 7"), table(0.4, size=1 << 16), "hello\n"],
)
def test_without_a_rate_nothing_is_said(text: str) -> None:
    assert check_bandwidth([("t.txt", text)], None) is None
