from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row
from tests.tools.collectives.recorder_builder import world

from firstfault_tools.artefact import HEAD_BYTES, Artefact
from firstfault_tools.collectives import environment, flight_recorder, ras
from firstfault_tools.collectives.recorder_dump import rank_of_name
from firstfault_tools.errors import ToolError
from firstfault_tools.profile import memory_snapshot, profiler
from firstfault_tools.registry import Reader, readers
from firstfault_tools.stacks import comparison

MODULES = (flight_recorder, ras, environment, comparison, profiler, memory_snapshot)
MINE: tuple[Reader, ...] = tuple(module.READER for module in MODULES)
SAMPLES = {
    "flight_recorder": pickle.dumps(world(2)[0].dump(), 2),
    "nccl_ras": b"Job summary\n===========\n\n  Nodes  Processes\n",
    "environment": b"export NCCL_DEBUG=INFO\n",
    "stacks": b"Timeout (0:00:04)!\nThread 0x00007f (most recent call first):\n",
    "profiler": b'{"schemaVersion": 1, "traceEvents": []}',
    "memory_snapshot": pickle.dumps({"segments": [{"total_size": 1}], "device_traces": []}, 4),
}
STARTS = (b"", b"\x80\x02", b"\x80\x04", b"\x1f\x8b\x08", b"{", b"[", b'{"traceEvents": [')


def test_every_reader_is_discovered_by_its_presence() -> None:
    assert {r.name for r in MINE} <= {r.name for r in readers()}


@each_row("name", SAMPLES)
def test_one_reader_and_no_other_claims_a_sample(name: str) -> None:
    file = "run.sh" if name == "environment" else "artefact"
    claims = [r.name for r in MINE if r.recognise(file, SAMPLES[name][:HEAD_BYTES])]
    assert claims == [name]


@each_row("text", [b"iteration 1 | loss 2.0\nNCCL INFO x\n", b"", b"\xff\xfe\x00"])
def test_logs_are_claimed_by_nobody(text: bytes) -> None:
    assert not [r.name for r in MINE if r.recognise("log.txt", text)]


@each_row(
    ("name", "rank"),
    [("snapshot_rank_2.pickle", 2), ("snapshot_2026.pickle", None), ("trace7", None)],
)
def test_dates_are_no_ranks(name: str, rank: int | None) -> None:
    assert rank_of_name(name, named_only=True) == rank


@settings(deadline=None, max_examples=300)
@given(start=st.sampled_from(STARTS), rest=st.binary(max_size=300))
def test_random_bytes_raise_tool_errors_only(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, rest: bytes
) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "fuzz_rank_0"
    path.write_bytes(start + rest)
    for reader in MINE:
        reader.recognise(path.name, start + rest)
        try:
            reader.read((Artefact(path.name, path),))
        except ToolError:
            continue
