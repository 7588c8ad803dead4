"""Free memory that the page cache took is no leak; what is available decides."""

from __future__ import annotations

import pytest
from tests.rows import each_row

from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.metrics.page_cache import find_in_lines

HEADS = ("time,memory_free_gb,memory_available_gb,cached_gb", "free avail buff/cache when")
MEMINFO = "MemFree: {free} kB\nMemAvailable: {left} kB\nBuffers: 12 kB\nCached: {cache} kB\n"


def table(head: str, rows: list[tuple[float, float, float]]) -> str:
    if "," in head:
        return "\n".join([head, *(f"10:{i:02d},{f},{a},{c}" for i, (f, a, c) in enumerate(rows))])
    return "\n".join([head, *(f"{f} {a} {c} 10:{i:02d}" for i, (f, a, c) in enumerate(rows))])


CACHED = [(900.0 - 80 * i, 940.0 - i, 30.0 + 80 * i) for i in range(10)]
LEAKS = [(900.0 - 80 * i, 940.0 - 80 * i, 30.0) for i in range(10)]
BOTH = [(900.0 - 80 * i, 940.0 - 40 * i, 30.0 + 40 * i) for i in range(10)]
LEVEL = [(900.0, 940.0, 30.0)] * 10


@pytest.mark.parametrize("head", HEADS)
@each_row(
    ("rows", "benign"), [(CACHED, True), (LEAKS, False), (BOTH, False), (LEVEL, False), (CACHED[:4], False)]
)  # fmt: skip
def test_a_table(head: str, rows: list[tuple[float, float, float]], benign: bool) -> None:
    found = find_in_lines(number_lines(table(head, rows)), "mem.csv")
    assert [f.kind for f in found] == (["metrics.page_cache"] if benign else [])


@each_row(("rows", "benign"), [(CACHED, True), (LEAKS, False)])
def test_snapshots_of_meminfo(rows: list[tuple[float, float, float]], benign: bool) -> None:
    text = "".join(
        MEMINFO.format(free=int(f * 2**20), left=int(a * 2**20), cache=int(c * 2**20))
        for f, a, c in rows
    )
    assert bool(find_in_lines(number_lines(text), "meminfo.txt")) is benign
