"""A setting that is on already is no fix."""

from __future__ import annotations

import pytest

from firstfault.investigation.in_force import is_in_force

TOLD = 'config: remat_policy: full\n--micro-batch-size 1 --bf16\n{"stage": 3}\nper_device_train_batch_size=4'


@pytest.mark.parametrize(
    ("command", "on"),
    [
        ("remat_policy=full", True),
        ("remat_policy=full attention=flash", False),
        ("--micro-batch-size 1", True),
        ("--micro-batch-size 2", False),
        ("--micro_batch_size 1", True),
        ('"stage": 3', True),
        ("--per_device_train_batch_size 4", True),
        ("nvidia-smi -q -d ECC", False),
        ("torch.cuda.empty_cache()", False),
        ("", False),
    ],
)
def test_in_force(command: str, on: bool) -> None:
    assert is_in_force(command, TOLD) is on
