"""Copies of a file are told; logs of other ranks and states at two times are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.investigation.copies import find_copies
from firstfault_tools.registry import Artefact

LOG = "step 1 loss 2.5\n" * 40
STATE = '{"communicators": [' + '{"rank": 0, "count": 61},' * 20 + '{"rank": 1, "count": 61}]}\n'


@pytest.mark.parametrize(
    ("files", "copies"),
    [
        ({"train.log": LOG, "train (1).log": LOG}, {"train (1).log": "train.log"}),
        ({"train.log": LOG, "later.log": LOG + "step 2\n"}, {}),
        ({"rank0.log": LOG, "rank1.log": LOG}, {}),
        ({"exit": "1\n", "exit-2": "1\n"}, {}),
        ({"ras-1.json": STATE, "ras-2.json": STATE}, {}),
    ],
    ids=["dropped twice", "grown", "two ranks", "too short to tell", "nothing moved"],
)
def test_copies(tmp_path: Path, files: dict[str, str], copies: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    artefacts = [Artefact(name, tmp_path / name) for name in files]
    assert find_copies(artefacts) == copies
