from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.workspace import Workspace
from firstfault_tools.errors import HostileArtefact, ToolError, UnreadableArtefact
from firstfault_tools.findings import Finding, Level
from firstfault_tools.profile.memory_snapshot import READER
from firstfault_tools.profile.snapshot import site_of
from firstfault_tools.registry import Artefact

MIB = 1024**2
TORCH = "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py"


def frames(function: str, line: int) -> list[dict[str, Any]]:
    return [
        {"filename": TORCH, "line": 134, "name": "forward"},
        {"filename": "/job/train.py", "line": line, "name": function},
    ]


def history(kept_mib: list[int], churn: int = 8) -> list[dict[str, Any]]:
    """Steps that each allocate and free `churn` buffers and keep one of the given size."""
    events: list[dict[str, Any]] = []
    address = 1 << 40
    for kept in kept_mib:
        passing = []
        for _ in range(churn):
            address += 1
            passing.append(address)
            events.append(
                {
                    "action": "alloc",
                    "addr": address,
                    "size": 64 * MIB,
                    "frames": frames("forward", 20),
                }
            )
        if kept:
            address += 1
            events.append(
                {
                    "action": "alloc",
                    "addr": address,
                    "size": kept * MIB,
                    "frames": frames("log_loss", 44),
                }
            )
        for old in passing:
            for action in ("free_requested", "free_completed"):
                events.append({"action": action, "addr": old, "size": 64 * MIB, "frames": []})
    return events


def snapshot(
    events: list[dict[str, Any]], live_mib: int = 900, free_pieces: tuple[int, ...] = ()
) -> bytes:
    blocks = [
        {"size": live_mib * MIB, "state": "active_allocated", "frames": frames("build_model", 11)},
        {"size": 10 * MIB, "state": "active_allocated", "frames": []},
        *({"size": mib * MIB, "state": "inactive", "frames": []} for mib in free_pieces),
    ]
    segments = [
        {
            "device": 0,
            "address": 1,
            "total_size": sum(b["size"] for b in blocks),
            "allocated_size": (live_mib + 10) * MIB,
            "blocks": blocks,
        }
    ]
    content = {
        "segments": segments,
        "device_traces": [events],
        "allocator_settings": {"expandable_segments": False},
    }
    return pickle.dumps(content, protocol=4)


def findings(folder: Path, body: bytes) -> list[Finding]:
    path = folder / "snapshot_rank_2.pickle"
    path.write_bytes(body)
    assert READER.recognise(path.name, body[: 64 * 1024])
    return list(READER.read((Artefact(path.name, path),)).findings)


def test_top_site_is_user_code(tmp_path: Path) -> None:
    finding = findings(tmp_path, snapshot([]))[0]
    assert finding.kind == "memory.snapshot"
    assert "build_model (/job/train.py:11) (0.88 GiB)" in finding.title


def test_who_says_that_memory_grows_hears_who_holds_it(tmp_path: Path) -> None:
    """A snapshot without history shows no growth; what holds the memory is said in words all the same."""
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(snapshot([]))
    told = Workspace().diagnose_paths([path], "GPU memory grows")
    assert "build_model (/job/train.py:11)" in told.root_cause + told.explanation


def test_slope_is_growth_at_the_site_that_keeps(tmp_path: Path) -> None:
    finding = findings(tmp_path, snapshot(history([16] * 40)))[0]
    assert (finding.kind, finding.rank) == ("memory.growth", 2)
    assert "log_loss (/job/train.py:44)" in finding.title
    assert finding.facts["shape"] == "slope"


def test_staircase_every_tenth_step(tmp_path: Path) -> None:
    kept = [160 if step % 13 == 5 else 1 for step in range(40)]
    finding = findings(tmp_path, snapshot(history(kept)))[0]
    assert finding.facts["shape"] == "staircase"


def test_warm_up_is_no_growth(tmp_path: Path) -> None:
    found = findings(tmp_path, snapshot(history([200, 200, 200] + [0] * 40)))
    assert [f.kind for f in found] == ["memory.snapshot"]


def test_out_of_memory_event_names_the_site(tmp_path: Path) -> None:
    oom = {
        "action": "oom",
        "size": 2048 * MIB,
        "device_free": 512 * MIB,
        "frames": frames("attend", 7),
    }
    finding = findings(tmp_path, snapshot([oom]))[0]
    assert (finding.kind, finding.level) == ("memory.out_of_memory", Level.CAUSE)
    assert "2.00 GiB at attend (/job/train.py:7)" in finding.title


def test_fragmentation(tmp_path: Path) -> None:
    oom = {"action": "oom", "size": 512 * MIB, "device_free": 0, "frames": frames("attend", 7)}
    finding = findings(tmp_path, snapshot([oom], free_pieces=(100,) * 8))[0]
    assert finding.kind == "memory.fragmentation"
    assert "pieces of at most 0.10 GiB" in finding.title


def test_site_of_library_only_stack_is_its_first_frame() -> None:
    assert site_of(frames("f", 1)[:1]).startswith("forward (")
    assert site_of([]) == "unknown"


def test_hostile_snapshot_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "total_size": print}, 4))
    with pytest.raises(HostileArtefact, match="print"):
        READER.read((Artefact(path.name, path),))


def test_other_pickle_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"a": 1}, 4))
    with pytest.raises(UnreadableArtefact):
        READER.read((Artefact(path.name, path),))


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_damaged_snapshots_raise_tool_errors_only(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    body = bytearray(snapshot(history([1] * 8, churn=2)))
    for _ in range(data.draw(st.integers(1, 6))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "snapshot_fuzz"
    path.write_bytes(bytes(body[: data.draw(st.integers(1, len(body)))]))
    try:
        READER.read((Artefact(path.name, path),))
    except ToolError:
        return


ODD = st.none() | st.integers() | st.text(max_size=4) | st.lists(st.integers(), max_size=3)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_odd_values_raise_tool_errors_only(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = pickle.loads(snapshot(history([1] * 8, churn=2)))
    target: Any = content
    for _ in range(data.draw(st.integers(0, 4))):
        inner = list(target.values()) if isinstance(target, dict) else list(target)
        deeper = [v for v in inner if isinstance(v, dict | list) and v]
        if not deeper:
            break
        target = data.draw(st.sampled_from(deeper))
    key = data.draw(
        st.sampled_from(list(target) if isinstance(target, dict) else range(len(target)))
    )
    target[key] = data.draw(ODD)
    path = tmp_path_factory.getbasetemp() / "snapshot_odd"
    path.write_bytes(pickle.dumps(content, 4))
    try:
        READER.read((Artefact(path.name, path),))
    except ToolError:
        return


def test_real_snapshot_names_the_function_that_keeps_memory() -> None:
    path = Path(__file__).parents[2] / "data/profile/snapshot_rank_0.pickle"
    assert READER.recognise(path.name, path.read_bytes()[: 64 * 1024])
    finding = READER.read((Artefact(path.name, path),)).findings[-1]
    assert "remember_activations (/job/train.py:" in finding.title
