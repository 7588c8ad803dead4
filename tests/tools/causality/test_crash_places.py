"""Where native code crashed, whose a tool's words are, and which port an earlier attempt left."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

START = "".join(f"loaded part {n} of the settings\n" for n in range(8))
IMPORTED = (
    START
    + """Fatal Python error: Segmentation fault

Current thread 0x00007f1c2a7fe700 (most recent call first):
  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed
  File "/v/lib/python3.10/site-packages/cv2/__init__.py", line 65 in <module>
  File "/w/train.py", line 6 in <module>
"""
)
IN_A_CALL = (
    START
    + """Fatal Python error: Segmentation fault

Current thread 0x00007f1c2a7fe700 (most recent call first):
  File "/v/lib/python3.10/site-packages/decord/reader.py", line 175 in get_batch
  File "/w/data.py", line 61 in fetch
"""
)
PLUGIN = """[h1:00310] *** Process received signal ***
[h1:00310] Signal: Segmentation fault (11)
[h1:00310] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x42520)[0x7f]
[h1:00310] [ 1] /opt/plugin/lib/libnccl-net.so(+0x8f12)[0x7f]
"""
AFTER = """step 10 loss 2.0
step 20 loss 1.9
saved final checkpoint /o/final.pt
training finished successfully
terminate called without an active exception
"""
BUILD = """[1/2] c++ -c op.cpp -o op.o
/v/include/torch/csrc/python_headers.h:12:10: fatal error: Python.h: No such file or directory
ninja: build stopped: subcommand failed.
[rank2]: Traceback (most recent call last):
[rank2]:   File "/w/train.py", line 7, in main
[rank2]: RuntimeError: Error building extension 'op'
"""
PORT = """[rank2]: Traceback (most recent call last):
[rank2]:   File "/w/opt.py", line 31, in build
[rank2]:     lr = cfg["scale"]
[rank2]: KeyError: 'scale'
W0101 00:01:11 7 api.py:900] [default] Worker group FAILED. 3/3 attempts left; will restart worker group
[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29400, code: -98, name: EADDRINUSE
"""


@pytest.mark.parametrize(
    ("text", "category", "words"),
    [
        (IMPORTED, "environment", "while it imported cv2"),
        (IN_A_CALL, "code_bug", "get_batch (reader.py:175) of decord"),
        (PLUGIN, "environment", "libnccl-net.so, a plugin"),
        (AFTER, None, "after the run had finished"),
        (BUILD, "environment", "Python.h"),
        (PORT, "code_bug", "scale"),
    ],
    ids=["import", "call", "plugin", "after", "build", "port"],
)
def test_place_is_said(text: str, category: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text, encoding="utf-8")
    found = Workspace().diagnose_paths([path])
    assert words in found.root_cause, found.root_cause
    if category is not None:
        assert found.category == category


@pytest.mark.parametrize(("text", "rank"), [(BUILD, 2), (PORT, 2)], ids=["build", "port"])
def test_rank_is_that_of_the_first_fault(text: str, rank: int, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text, encoding="utf-8")
    assert Workspace().diagnose_paths([path]).first_failing_rank == rank
