"""Times by rank from lines, Megatron's timers, named parts, traces and Inspector records."""

from __future__ import annotations

import json

import pytest
from tests.conftest import ROOT
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.slowdown.losses import find_losses
from firstfault_tools.slowdown.sources import read_times

BEGIN = 1_795_947_000_000_000


def record(rank: int, sn: int, us: float, stamped: bool = True) -> str:
    """One all-reduce of four ranks; a step of 100 ms begins with each."""
    about = {"hostname": f"gpu-{rank // 2}", **({"dump_timestamp_us": BEGIN + 100_000 * sn} if stamped else {})}  # fmt: skip
    done = {"coll": "AllReduce", "coll_sn": sn, "coll_msg_size_bytes": 1 << 24, "coll_exec_time_us": us}  # fmt: skip
    return json.dumps({"header": {"id": "0xa", "rank": rank, "n_ranks": 4, "nnodes": 2}, "metadata": about, "coll_perf": done})  # fmt: skip


TIMERS = "times across ranks (ms):\n" + "".join(
    f"  {name}:\n" + "".join(f"     rank {r:3d}: {ms * (1.4 if r == 3 else 1.0):.2f}\n" for r in range(4))
    for name, ms in (("forward-compute", 100.0), ("backward-compute", 200.0))
)  # fmt: skip
PARTS = "".join(
    f"rank {r} step {s}: data {180 if r == 2 else 20} ms forward 100 ms backward 200 ms allreduce wait {20 if r == 2 else 180} ms\n"
    for s in range(6)
    for r in range(4)
)
LINES = "".join(f"rank {r} gx-{r // 2} gpu {r}: compute {640 if r == 1 else 500}.0 allreduce wait {20 if r == 1 else 160}\n" for r in range(4))  # fmt: skip
LATE = "\n".join(
    record(r, sn, 5_000 if r == 2 else 45_000) for sn in range(1, 41) for r in range(4)
)


@each_row(
    ("text", "suspect", "gained"),
    [(LINES, "rank 1", 140 / 660), (TIMERS, "rank 3", 120 / 420), (PARTS, "rank 2", 160 / 480), (LATE, "rank 2", 1600 / 3900)],
    ids=["lines", "timers", "parts", "inspector"],
)  # fmt: skip
def test_what_the_slow_rank_costs(text: str, suspect: str, gained: float) -> None:
    times = read_times([("t.log", text.encode())])
    (loss,) = find_losses(times.workers)
    assert loss.suspect == suspect
    assert loss.share == pytest.approx(gained, abs=0.01)
    assert bool(times.note) == (text is LATE)


def test_records_of_several_files_are_read_together() -> None:
    files = [(f"r{r}.log", "\n".join(record(r, sn, 5_000 if r == 2 else 45_000) for sn in range(1, 9)).encode()) for r in range(4)]  # fmt: skip
    (loss,) = find_losses(read_times(files).workers)
    assert loss.suspect == "rank 2"
    with pytest.raises(InvalidParameter, match="every rank"):
        read_times(files[:1])


def test_records_without_a_time_are_refused_by_name() -> None:
    text = "\n".join(record(r, sn, 9_000, stamped=False) for sn in range(8) for r in range(4))
    with pytest.raises(InvalidParameter, match="dump_timestamp_us"):
        read_times([("x", text.encode())])


def test_traces_of_a_real_run() -> None:
    """The rank that works longer, by the profiles of two ranks."""
    folder = ROOT / "tests" / "data" / "profile"
    files = [(p.name, p.read_bytes()) for p in sorted(folder.glob("trace_rank_*.json.gz"))]
    times = read_times(files)
    assert [w.name for w in times.workers] == ["rank 0", "rank 1"]
    assert all(w.compute_ms > 0 and w.wait_ms >= 0 for w in times.workers)
    with pytest.raises(InvalidParameter, match="at least two"):
        read_times(files[:1])


def test_nothing_is_named_with_what_would_do() -> None:
    with pytest.raises(InvalidParameter, match="timing-log-option"):
        read_times([("x", b"hello\n")])
