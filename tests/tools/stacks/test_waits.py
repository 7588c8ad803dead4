"""What a blocked rank waits for and where it parted, on dumps of several frameworks (dumps.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from firstfault_tools.findings import Finding
from firstfault_tools.registry import Artefact
from firstfault_tools.stacks.comparison import READER
from firstfault_tools.stacks.dump import StackFrame, ThreadStack
from firstfault_tools.stacks.parting import find_parting

ROWS = yaml.safe_load(Path(__file__).with_name("dumps.yaml").read_text())
Row = Mapping[str, Any]


def write_dump(row: Row) -> str:
    standing = dict(row["ranks"])
    for rank, others in row.get("same", {}).items():
        standing |= dict.fromkeys(others, standing[rank])
    parts = []
    for rank, frames in sorted(standing.items()):
        pid = 9000 + 10 * rank
        parts += [f"== rank {rank} ==", f"Process {pid}: python train.py", "Python v3.12.3 (/x)"]
        parts += _thread(pid, "MainThread", frames)
        for n, (name, inner) in enumerate(row.get("threads", {}).get(rank, {}).items(), 1):
            parts += _thread(pid + n, name, inner)
        if worker := row.get("workers", {}).get(rank):
            parts += [f"Process {pid + 5}: python train.py", "Python v3.12.3 (/x)"]
            parts += _thread(pid + 5, "MainThread", worker)
    return "\n".join(parts) + "\n"


def _thread(number: int, name: str, frames: str) -> list[str]:
    lines = [f"    {line}" for line in frames.strip().splitlines()]
    return ["", f'Thread {number} (idle): "{name}"', *lines]


def read_dump(folder: Path, text: str) -> Finding:
    path = folder / "pyspy.txt"
    path.write_text(text)
    return READER.read((Artefact(path.name, path),)).findings[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_who_waits_for_what_and_where_they_parted(tmp_path: Path, row: Row) -> None:
    finding, expect = read_dump(tmp_path, write_dump(row)), row["expect"]
    assert (finding.kind, finding.rank) == (f"stacks.{expect['kind']}", expect["rank"])
    assert finding.category == expect.get("category", finding.category)
    assert finding.page == expect.get("page", finding.page)
    for words in expect.get("says", ()):
        assert words in finding.title
    if "parted" in expect:
        parted: Any = finding.facts.get("parted")
        told = parted and [parted["function"], *(side["line"] for side in parted["sides"])]
        assert told == expect["parted"]


FRAMES = st.lists(
    st.builds(StackFrame, st.sampled_from("fgh"), st.sampled_from(["a.py", "b.py"]), st.integers(0, 3)),
    max_size=8,
)  # fmt: skip


def made(frames: list[StackFrame]) -> ThreadStack:
    return ThreadStack("x", 1, 0, None, 1, "MainThread", "", "", "", False, tuple(frames))


@given(FRAMES, FRAMES)
def test_parting_is_one_function_at_two_lines_whoever_asks(
    one: list[StackFrame], other: list[StackFrame]
) -> None:
    parting, turned = find_parting(made(one), made(other)), find_parting(made(other), made(one))
    assert (parting is None) == (turned is None)
    if parting is None or turned is None:
        return
    assert (parting.here, parting.there) == (turned.there, turned.here)
    assert (parting.here.function, parting.here.file) == (parting.there.function, parting.there.file)  # fmt: skip
    assert parting.here.line != parting.there.line
    assert parting.here in one
    assert parting.there in other


@given(FRAMES)
def test_equal_stacks_never_parted(frames: list[StackFrame]) -> None:
    assert find_parting(made(frames), made(frames)) is None


@given(FRAMES, st.integers(1, 5))
def test_recursion_and_lost_outer_frames_do_not_hide_it(
    shared: list[StackFrame], lost: int
) -> None:
    """Both sides go the same way into `step`, where they stand at lines 10 and 20; one paste lacks outer frames."""
    outer = [StackFrame(f"outer{n}", "main.py", n + 1) for n in range(lost)]
    here = [StackFrame("save", "c.py", 1), StackFrame("step", "t.py", 10)]
    there = [StackFrame("barrier", "d.py", 2), StackFrame("step", "t.py", 20)]
    parting = find_parting(made([*here, *outer]), made(there))
    assert parting is not None
    assert (parting.here.line, parting.there.line, parting.calls_here) == (10, 20, "save")
    recursive = [StackFrame("step", "t.py", 10)] * len(shared)
    parting = find_parting(made([*here, *recursive, *outer]), made([*there, *recursive, *outer]))
    assert parting is not None
    assert {parting.here.line, parting.there.line} == {10, 20}
