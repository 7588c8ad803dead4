"""Stack dumps behind step lines are read like a file of their own; other text is left alone."""

from __future__ import annotations

from firstfault_tools.stacks.comparison import find_in_lines

STEPS = "".join(f"step {n} loss {3 - n / 10:.1f}\n" for n in range(1, 12))
LOADER = """$ py-spy dump --pid 30112
Process 30112: python train.py
Python v3.10.12 (/usr/bin/python3.10)

Thread 30112 (idle): "MainThread"
    get (queue.py:170)
    _try_get_data (torch/utils/data/dataloader.py:1120)
    train (train.py:41)
"""
SAVE = """$ py-spy dump --pid 30190
Process 30190: python train.py
Python v3.10.12 (/usr/bin/python3.10)

Thread 30190 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2050)
    train (train.py:60)
"""


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.splitlines(), start=1))


def test_a_dump_behind_the_steps() -> None:
    (found,) = find_in_lines(number(STEPS + LOADER), "a.log")
    assert found.kind == "stacks.one_process"
    lines = dict(number(STEPS + LOADER))
    assert all(e.text.strip() in lines[e.line] for e in found.evidence)


def test_two_dumps_are_compared() -> None:
    (found,) = find_in_lines(number(STEPS + LOADER + SAVE), "a.log")
    assert found.kind == "stacks.data_loader"


def test_what_is_no_pasted_dump() -> None:
    assert find_in_lines(number(LOADER), "a.log") == ()
    assert find_in_lines(number(STEPS), "a.log") == ()
    assert find_in_lines(number(STEPS + 'the "MainThread" is fine\n'), "a.log") == ()
