from __future__ import annotations

import faulthandler
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.registry import Artefact
from firstfault_tools.stacks.comparison import READER
from firstfault_tools.stacks.dump import parse_stacks, rank_of_file

CAPTURE = Path(__file__).parents[4] / "shared/cases/captures/pyspy.txt"
TORCH = "/opt/venv/lib/python3.12/site-packages/torch"

WAITING = [
    ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3068),
    ("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
    ("train_step", "/job/train.py", 84),
]
PLACES = {
    "data_loader": [
        ("wait", "/usr/lib/python3.12/threading.py", 359),
        ("get", "/usr/lib/python3.12/queue.py", 180),
        ("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1243),
        ("__next__", f"{TORCH}/utils/data/dataloader.py", 701),
        ("train_step", "/job/train.py", 80),
    ],
    "checkpoint_save": [
        ("save", f"{TORCH}/serialization.py", 944),
        ("save_checkpoint", "/job/train.py", 140),
    ],
    "garbage_collection": [("gc_collect", "/job/train.py", 33)],
    "lock": [
        ("acquire", "/usr/lib/python3.12/threading.py", 300),
        ("train_step", "/job/train.py", 71),
    ],
    "compilation": [
        ("compile", "/opt/venv/lib/python3.12/site-packages/triton/compiler/compiler.py", 240)
    ],
    "evaluation": [("evaluate", "/job/train.py", 120)],
}
CATEGORIES = {
    "data_loader": Category.DATA,
    "checkpoint_save": Category.CHECKPOINT,
    "lock": Category.CODE_BUG,
}
TAIL = [("main", "/job/train.py", 201), ("<module>", "/job/train.py", 203)]
Frames = list[tuple[str, str, int]]


def py_spy(frames: Frames, pid: int = 7, state: str = "idle") -> str:
    body = "".join(f"    {f} ({file}:{line})\n" for f, file, line in frames + TAIL)
    return (
        f"Process {pid}: python train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
        f'Thread {pid} ({state}): "MainThread"\n{body}'
        f'Thread {pid + 1} (idle): "Thread-1"\n    wait (threading.py:359)\n'
        "    _bootstrap (threading.py:1030)\n"
    )


def py_spy_json(frames: Frames, pid: int = 7) -> str:
    rows = [{"name": f, "filename": file, "line": line} for f, file, line in frames + TAIL]
    return json.dumps(
        [
            {
                "pid": pid,
                "thread_id": 1,
                "thread_name": "MainThread",
                "active": False,
                "owns_gil": False,
                "frames": rows,
            }
        ]
    )


def fault(frames: Frames, heading: str = "Timeout (0:00:04)!") -> str:
    body = "".join(f'  File "{file}", line {line} in {f}\n' for f, file, line in frames + TAIL)
    return (
        f"{heading}\nThread 0x00007f2c5a7fc640 (most recent call first):\n"
        '  File "/usr/lib/python3.12/threading.py", line 359 in wait\n'
        '  File "/usr/lib/python3.12/threading.py", line 1030 in _bootstrap\n\n'
        f"Thread 0x00007f2d8f5f0740 [python] (most recent call first):\n{body}"
    )


WRITERS = {"py-spy": py_spy, "json": py_spy_json, "faulthandler": fault}


def findings(folder: Path, texts: dict[str, str]) -> list[Finding]:
    artefacts = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        assert READER.recognise(name, path.read_bytes()), name
        artefacts.append(Artefact(name, path))
    return list(READER.read(tuple(artefacts)).findings)


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", PLACES)
def test_odd_one_out_is_named_with_its_reason(
    tmp_path: Path, place: str, writer: str, world: int
) -> None:
    write: Any = WRITERS[writer]
    texts = {
        f"stacks_rank_{r}.txt": write(PLACES[place] if r == world - 1 else WAITING)
        for r in range(world)
    }
    finding = findings(tmp_path, texts)[0]
    assert (finding.kind, finding.rank) == (f"stacks.{place}", world - 1)
    assert finding.level is Level.CAUSE
    assert finding.category == CATEGORIES.get(place, finding.category)


def test_quotes_are_lines_of_the_file(tmp_path: Path) -> None:
    for writer in (py_spy, fault):
        texts = {f"rank_{r}.txt": writer(PLACES["lock"] if r else WAITING) for r in range(2)}
        for quote in findings(tmp_path, texts)[0].evidence:
            assert texts[quote.file].splitlines()[quote.line - 1].strip() == quote.text


def test_many_processes_in_one_file_with_rank_headings(tmp_path: Path) -> None:
    text = "".join(
        f"===== rank {r} host gpu-{r} =====\n{py_spy(PLACES['data_loader'] if r == 2 else WAITING, 100 + r)}"
        for r in range(4)
    )
    finding = findings(tmp_path, {"pyspy.txt": text})[0]
    assert (finding.kind, finding.rank, finding.host) == ("stacks.data_loader", 2, "gpu-2")


@pytest.mark.parametrize(
    ("function", "file", "kind"),
    [
        ("wait", "/v/torch/utils/file_baton.py", "stacks.build_lock"),
        ("_acquire", "/v/filelock/_unix.py", "stacks.file_lock"),
    ],
)
def test_lock_that_all_wait_for_is_stale(
    tmp_path: Path, function: str, file: str, kind: str
) -> None:
    waiting = [(function, file, 42), ("main", "/job/train.py", 12)]
    finding = findings(tmp_path, {f"rank_{r}.txt": py_spy(waiting) for r in range(3)})[0]
    assert (finding.kind, finding.rank, finding.level) == (kind, None, Level.CAUSE)


def test_all_in_one_place_singles_out_nobody(tmp_path: Path) -> None:
    texts = {f"rank_{r}.txt": py_spy(WAITING) for r in range(4)}
    finding = findings(tmp_path, texts)[0]
    assert (finding.kind, finding.level) == ("stacks.same_place", Level.CONTEXT)


def test_moe_dispatch_on_all_ranks_is_named(tmp_path: Path) -> None:
    place: Frames = [
        ("token_dispatch", "/opt/megatron/core/transformer/moe/token_dispatcher.py", 9)
    ]
    texts = {f"rank_{r}.txt": py_spy([*WAITING[:2], *place]) for r in range(4)}
    finding = findings(tmp_path, texts)[0]
    assert "token dispatch" in finding.title
    assert finding.page == "moe-dispatch-hang"


def test_different_collectives(tmp_path: Path) -> None:
    other: Frames = [("broadcast", f"{TORCH}/distributed/distributed_c10d.py", 2800)]
    texts = {f"rank_{r}.txt": py_spy(other if r == 3 else WAITING) for r in range(4)}
    finding = findings(tmp_path, texts)[0]
    assert (finding.kind, finding.rank) == ("stacks.different_collectives", 3)


def test_unknown_place_is_a_failure_not_a_cause(tmp_path: Path) -> None:
    odd: Frames = [("tokenize", "/job/data.py", 7)]
    texts = {f"rank_{r}.txt": py_spy(odd if r == 1 else WAITING) for r in range(4)}
    finding = findings(tmp_path, texts)[0]
    assert (finding.kind, finding.rank) == ("stacks.odd_one_out", 1)
    assert finding.level is Level.FAILURE
    assert "tokenize" in finding.title


def test_real_faulthandler_output(tmp_path: Path) -> None:
    path = tmp_path / "stacks_rank_5.txt"
    with path.open("w") as stream:
        faulthandler.dump_traceback(file=stream, all_threads=True)
    threads = parse_stacks(path.read_bytes(), path.name)
    assert threads[-1].rank == 5
    assert threads[-1].frames[0].function == "test_real_faulthandler_output"


def test_fatal_error(tmp_path: Path) -> None:
    text = fault([("forward", "/job/kernels.py", 12)], "Fatal Python error: Segmentation fault\n")
    text = text.replace("Thread 0x00007f2d8f5f0740 [python]", "Current thread 0x00007f2d8f5f0740")
    finding = findings(tmp_path, {"crash_rank_1.txt": text})[0]
    assert (finding.kind, finding.rank) == ("stacks.fatal_error", 1)
    assert "Segmentation fault at forward (kernels.py:12)" in finding.title


def test_gdb(tmp_path: Path) -> None:
    def gdb(inner: str) -> str:
        return (
            'Thread 2 (Thread 0x7f2c5a7fc640 (LWP 812) "pt_autograd_0"):\n'
            "#0  0x00007f0d in pthread_cond_wait () from /lib/x86_64-linux-gnu/libc.so.6\n"
            "#1  0x00007f0e in clone () from /lib/x86_64-linux-gnu/libc.so.6\n\n"
            'Thread 1 (Thread 0x7f2d8f5f0740 (LWP 800) "python"):\n'
            f"#0  0x00007f0d in {inner} (x=1) at ../sysdeps/x.c:12\n"
            "#1  0x00007f0e in Py_RunMain () at ./Modules/main.c:709\n"
            "#2  0x00007f0f in main (argc=3) at ./Programs/python.c:15\n"
        )

    texts = {f"gdb_rank_{r}.txt": gdb("cuStreamSynchronize") for r in range(3)}
    texts["gdb_rank_3.txt"] = gdb("take_gil")
    finding = findings(tmp_path, texts)[0]
    assert (finding.kind, finding.rank) == ("stacks.gil", 3)


@pytest.mark.skipif(not CAPTURE.is_file(), reason="the shared captures are not here")
def test_real_py_spy_capture() -> None:
    artefact = Artefact(CAPTURE.name, CAPTURE)
    assert READER.recognise(artefact.name, artefact.head())
    finding = READER.read((artefact,)).findings[0]
    assert finding.kind == "stacks.lock"
    assert finding.facts["pid"] == 1282


def test_log_with_a_traceback_is_left_alone() -> None:
    log = b"".join(b"iteration %d\n" % i for i in range(20)) + fault(WAITING).encode()
    assert not READER.recognise("log.txt", log)


@each_row(
    ("name", "rank"),
    [("pyspy_rank_3.txt", 3), ("stacks_rank_0", 0), ("worker-12.dump", 12), ("pyspy.txt", None)],
)
def test_rank_of_file(name: str, rank: int | None) -> None:
    assert rank_of_file(name) == rank


def test_no_stack_is_unreadable() -> None:
    with pytest.raises(UnreadableArtefact):
        parse_stacks(b"hello", "x")


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_damaged_dumps_raise_tool_errors_only(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    base = data.draw(st.sampled_from([w(WAITING) for w in (py_spy, py_spy_json, fault)]))
    start, stop = data.draw(st.integers(0, len(base))), data.draw(st.integers(0, len(base)))
    body = (base[:start] + data.draw(st.text(max_size=30)) + base[stop:]).encode(
        "utf-8", "surrogatepass"
    )
    path = tmp_path_factory.getbasetemp() / "stacks_rank_0"
    path.write_bytes(body)
    READER.recognise(path.name, body)
    try:
        READER.read((Artefact(path.name, path),))
    except ToolError:
        return


def test_stacks_pasted_below_a_log(tmp_path: Path) -> None:
    from firstfault_tools.causality.incident import LogIncident
    from firstfault_tools.log.scan import build_set, scan_file
    from firstfault_tools.stacks.comparison import find_in_incident

    path = tmp_path / "log.txt"
    path.write_text(
        "[rank0] step 0\n$ py-spy dump --pid 11   # rank 1\n"
        'Thread 11 (active): "MainThread"\n    read_shard (data/sharded.py:8)\n    step (train.py:3)\n'
        "$ py-spy dump --pid 10   # rank 0\n"
        'Thread 10 (active): "MainThread"\n    barrier (torch/distributed/distributed_c10d.py:41)\n    step (train.py:2)\n'
    )
    signatures = build_set(())
    made = LogIncident((scan_file(path, "log.txt", signatures),), signatures)
    (found,) = find_in_incident(made, ())
    assert (found.kind, found.rank) == ("stacks.data_loader", 1)
