"""Attempts within one log that met the same fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.postmortem.attempts import count_meetings
from firstfault.postmortem.evidence import Artefacts
from firstfault.workspace import Workspace

AGENT = "ERROR:torch.distributed.elastic.agent.server.api:[default] Worker group FAILED. {0}/3 attempts left; will restart worker group\n"
OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {0}.00 GiB. GPU 2 has a total capacity of 79.10 GiB of which 1.02 GiB is free.\n"
KEY = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 3, in <module>\n[rank1]: KeyError: 'lr{0}'\n"


@pytest.mark.parametrize(
    ("log", "met"),
    [(OOM.format(2), 0),
     (OOM.format(2) * 3, 0),
     (OOM.format(2) + AGENT.format(2) + OOM.format(4), 1),
     (OOM.format(2) + AGENT.format(2) + OOM.format(4) + AGENT.format(1) + OOM.format(8), 2),
     (KEY.format("a") + AGENT.format(2) + OOM.format(4), 0)],
    ids=["one", "ranks of one attempt", "twice", "three times", "another fault"],
)  # fmt: skip
def test_meetings(log: str, met: int, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(log)
    diagnosis = Workspace().diagnose_paths([path])
    assert count_meetings(diagnosis, Artefacts({path.name: path}, diagnosis.citations)) == met
