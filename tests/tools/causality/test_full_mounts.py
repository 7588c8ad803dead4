"""A full file system explains what was written there, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

DF = """Filesystem      Size  Used Avail Use% Mounted on
/dev/sda2       440G  260G  180G  60% /
/dev/sdc        2.0T  2.0T   20K 100% /mnt/ckpt
/dev/sdd        7.0T  3.9T  3.1T  56% /mnt/data
"""
SAVE = """[rank0]: step 2000 loss 2.304
[rank0]: saving checkpoint to {path}/step_2000/model.pt
[rank0]: Traceback (most recent call last):
[rank0]:   File "/work/train.py", line 288, in main
[rank0]:     torch.save(state, path)
[rank0]: {error}
"""
CUT = "RuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 9344 vs 9232"


def lead(tmp_path: Path, log: str) -> str:
    (tmp_path / "train.log").write_text(log)
    (tmp_path / "df.txt").write_text(DF)
    found = Workspace().diagnose_paths([tmp_path / "train.log", tmp_path / "df.txt"])
    return f"{found.signature}: {found.root_cause}"


@pytest.mark.parametrize(
    ("path", "error", "leads", "says_full"),
    [
        ("/mnt/ckpt/run", CUT, True, True),
        ("/mnt/data/run", CUT, False, False),
        ("/mnt/ckpt/run", "OSError: [Errno 28] No space left on device: '/mnt/ckpt/run/x'", False, True),
        ("/mnt/ckpt/run", "PermissionError: [Errno 13] Permission denied: '/mnt/ckpt/run/x'", False, False),
        ("/mnt/ckpt/run", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", False, False),
    ],
)  # fmt: skip
def test_what_was_written_there(
    tmp_path: Path, path: str, error: str, leads: bool, says_full: bool
) -> None:
    told = lead(tmp_path, SAVE.format(path=path, error=error))
    assert told.startswith("storage.mount_full") is leads, told
    assert ("/mnt/ckpt is 100% full" in told) is says_full, told
