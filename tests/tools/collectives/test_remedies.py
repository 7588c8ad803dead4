"""A setting that helps names what is at fault; one that does not help names nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.collectives.last_error import find_in_lines as find_last_error
from firstfault_tools.collectives.remedies import find_in_lines, read_question
from firstfault_tools.findings import Category


@each_row(
    ("question", "category"),
    [
        ("It works with NCCL_P2P_DISABLE=1.", Category.ENVIRONMENT),
        ("Two nodes hang. With NCCL_IB_DISABLE=1 the job runs. Why?", Category.COMMUNICATION),
        ("It only trains if find_unused_parameters=True is set.", Category.CODE_BUG),
        ("After setting NCCL_SOCKET_IFNAME=ens5 everything works.", Category.ENVIRONMENT),
        ("Started with --ipc=host it runs, why?", Category.ENVIRONMENT),
        ("NCCL_P2P_DISABLE=1 does not help.", None),
        ("Even with NCCL_IB_DISABLE=1 it hangs.", None),
        ("I set NCCL_P2P_DISABLE=1 and it still fails.", None),
        ("We run with NCCL_DEBUG=INFO.", None),
        ("", None),
    ],
)
def test_question(question: str, category: Category | None) -> None:
    told = read_question(question)
    assert (told[0].category if told is not None else None) is category


@each_row(
    ("text", "told"),
    [
        ("Could not find NET with id 0", True),
        ("socketProgress: Connection closed by remote peer n2<4711>", False),
        ("Cuda failure 'out of memory'", False),
        ("", False),
    ],
)
def test_last_error(text: str, told: bool) -> None:
    lines = [
        (1, "[rank0]: ncclInternalError: x"),
        (2, "[rank0]: Last error:"),
        (3, f"[rank0]: {text}"),
    ]
    assert bool(find_last_error(lines, "log.txt")) is told


@given(st.lists(st.text(max_size=120), max_size=20))
def test_any_lines(texts: list[str]) -> None:
    lines = list(enumerate(texts, 1))
    find_in_lines(lines, "log.txt")
    find_last_error(lines, "log.txt")
    for text in texts:
        read_question(text)


def test_a_run_stopped_by_hand_before_the_setting_helped() -> None:
    lines = [
        "$ torchrun --nproc_per_node=2 train.py",
        "n1:1:1 [0] NCCL INFO Launch mode Parallel",
        "^C   (after 25 minutes)",
        "$ NCCL_P2P_DISABLE=1 torchrun --nproc_per_node=2 train.py",
        "step 10 loss 6.412 1.9 it/s",
    ]
    (found,) = find_in_lines(list(enumerate(lines, 1)), "a.log")
    assert "NCCL_P2P_DISABLE=1" in found.title
    assert find_in_lines(list(enumerate(lines[:2] + lines[3:], 1)), "a.log") == ()
