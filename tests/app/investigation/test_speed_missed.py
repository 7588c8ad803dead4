"""A library's notice that something could be faster is a fault only where the person misses speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

NOTICE = (
    "[rank0] torch._dynamo hit config.recompile_limit (8)\n"
    "[rank0]    function: 'forward' (/app/model.py:88)\n"
    "[rank0]    last reason: 2/7: tensor 'x' size mismatch at index 1. expected 512, actual 640\n"
)
STEPS = "".join(
    f"[rank0] step {n} loss {9 - 0.01 * n:.3f} {1000 + n % 3} ms\n" for n in range(1, 80)
)


@pytest.mark.parametrize(
    ("question", "healthy"),
    [
        ("Is the loss fine, can I launch the long run?", True),
        ("The steps are slower than last week.", False),
        ("", False),
    ],
    ids=["other worry", "speed missed", "no question"],
)
def test_notice_of_speed(tmp_path: Path, question: str, healthy: bool) -> None:
    log = tmp_path / "train.log"
    log.write_text(STEPS[: len(STEPS) // 2].rsplit("\n", 1)[0] + "\n" + NOTICE + STEPS[len(STEPS) // 2 :].split("\n", 1)[1] + "[rank0] Training completed\n")  # fmt: skip
    verdict = str(Workspace().diagnose_paths([log], question).verdict)
    assert (verdict == "healthy") is healthy
