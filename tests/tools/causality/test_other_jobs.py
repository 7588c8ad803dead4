"""Which logs are laid aside as another job's, and which stay because something ties them to the run?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict

OTHER = Path(__file__).parents[3] / "evals" / "variants" / "other-job.log"
DIED = """2026-06-10 08:00:0{n} INFO [rank3] restore: reading 214 arrays
2026-06-10 08:10:00 INFO [rank3] restore: 34/214 arrays
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.10 GiB of which 1.02 GiB is free.
"""
STEPS = "".join(
    f"2026-06-10 08:{m:02d}:00 INFO step {10 * m}/400 loss 2.{99 - m} step time 4.0 s\n"
    for m in range(1, 30)
)


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def _files(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / f"{name}.log").write_text(text, encoding="utf-8")
    return [folder / f"{name}.log" for name in texts]


def test_a_good_end_of_another_job_does_not_speak_for_the_run(
    workspace: Workspace, tmp_path: Path
) -> None:
    files = _files(tmp_path, rank3=DIED.replace("{n}", "1"))
    found = workspace.diagnose_paths([OTHER, *files])
    assert found.verdict is Verdict.FAULT
    assert any(s.what == OTHER.name and "another job" in s.why for s in found.input.skipped)


def test_nor_does_it_make_steps_that_just_stop_a_finished_run(
    workspace: Workspace, tmp_path: Path
) -> None:
    files = _files(tmp_path, run=STEPS)
    alone = workspace.diagnose_paths(files, "it hangs since an hour")
    beside = workspace.diagnose_paths([*files, OTHER], "it hangs since an hour")
    assert (alone.verdict, beside.verdict) == (Verdict.UNKNOWN, Verdict.UNKNOWN)


@pytest.mark.parametrize(
    "tie",
    [
        "2026-06-10 08:00:00 INFO resuming job 881204\n",
        "".join(
            f"2026-06-10 07:5{n}:00 INFO step {n}0/240 loss 2.{9 - n} time 4.2 s\n"
            for n in range(1, 9)
        ),
    ],
)
def test_what_shares_a_job_or_its_steps_stays(
    workspace: Workspace, tmp_path: Path, tie: str
) -> None:
    files = _files(tmp_path, rank3=tie + DIED.replace("{n}", "1"))
    found = workspace.diagnose_paths([OTHER, *files])
    assert not any("another job" in s.why for s in found.input.skipped)
