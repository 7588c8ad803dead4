"""Questions and logs told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault.intake.message import looks_like_log, read_paths, split_message

CASES = Path(__file__).parent.parent.parent.parent / "evals" / "cases"
QUESTIONS = [
    "Why did my run hang?",
    "what does Xid 79 mean",
    "My 70B run on 64 GPUs is at half its usual speed since this morning. What should I look at first?",
    "is 0.3 a normal grad norm?",
    "How do I set NCCL_SOCKET_IFNAME?",
]
LOGS = [
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nKeyError: 1',
    "[rank3]:[E1127 22:50:58.807 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.",
    "step 100 | loss 2.31 | lr 1e-4",
]


@each_row("text", QUESTIONS)
def test_a_question_stays_a_question(text: str) -> None:
    assert split_message(text) == type(split_message(text))(text, "")


@each_row("text", LOGS)
def test_a_log_line_is_a_log(text: str) -> None:
    assert split_message(text).log == text


@pytest.mark.parametrize("text", LOGS)
@pytest.mark.parametrize("between", ["\n\n", "\n"])
def test_a_lead_in_is_the_question_about_the_log(text: str, between: str) -> None:
    found = split_message(f"Why did this die?{between}{text}")
    assert (found.question, found.log) == ("Why did this die?", text)


NO_LOGS = frozenset(
    {
        "a1-77/env.txt", "a1-07/overrides.txt", "a1-80/main_excerpt.txt", "a1-38/pyspy.txt", "a1-17/dmesg_a100-16.txt",
        "a1-73/barrier.txt", "a1-65/describe.txt", "a1-69/sacct.txt",
        "s5-all-eight-ranks-of-node-a-wait-in-the-same-allreduce/README.txt",
        "c2-23-no-step-for-14-minutes/pyspy_0810.txt", "c2-33-illegal-memory-access-async/pip_freeze.txt",
        "c2-33-illegal-memory-access-async/notes.txt", "c2-28-allreduce-timeout-logs-of-two-nodes/dmesg_n0_n1.txt",
        "c1-28-mfu-drop-metrics-only/note.txt",
    }
)  # fmt: skip
"""Settings, code, tables and excerpts of a few lines: files that are dropped, not logs that are pasted."""


def test_every_case_is_a_log() -> None:
    files = [
        f
        for f in (CASES / "dev").rglob("*.txt")
        if f.stat().st_size < 1_000_000 and f"{f.parent.name}/{f.name}" not in NO_LOGS
    ]
    assert len(files) > 50
    missed = [str(f) for f in files if not looks_like_log(f.read_text(errors="replace"))]
    assert missed == []


@given(st.text(max_size=2_000))
def test_nothing_that_was_typed_is_lost(text: str) -> None:
    found = split_message(text)
    kept = "".join((found.question + found.log).split())
    assert kept == "".join(text.split())


@each_row(
    ("text", "count"),
    [("/a/b\n/c", 2), ("'/a b/c'", 1), ("~/x", 1), ("a/b", 0), ("/a\nwhy?", 0), ("", 0)],
)
def test_paths(text: str, count: int) -> None:
    assert len(read_paths(text)) == count
