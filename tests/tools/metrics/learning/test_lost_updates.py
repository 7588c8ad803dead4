"""Counted changes of the weights, with the type that swallows the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.metrics.learning.lost_updates import find_in_incident


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("debug: params changed after step(): 0.4%", True),
        ("weights changed by the optimizer: 0.0009 of all", True),
        ("elements changed by optimizer.step: 37.2% of 8e9", False),
        ("2 parameters changed in the config", False),
        ("params changed: 0%", False),
    ],
)
def test_counted_changes(line: str, told: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(f"model dtype: torch.bfloat16\n{line}\n", encoding="utf-8")
    signatures = build_set(())
    found = find_in_incident(LogIncident((scan_file(path, "a.log", signatures),), signatures), ())
    assert bool(found) is told
    assert not told or "bfloat16 without an fp32 master copy" in found[0].title
