"""Tasks that never registered with JAX's coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.members import find_in_incident
from firstfault_tools.log.scan import build_set, scan_file

HEAD = "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Timed out task names:"


@pytest.mark.parametrize(
    ("lines", "words", "rank"),
    [
        (["initialize(num_processes=3, process_id=0)", HEAD, "/job:jax_worker/replica:0/task:1", "/job:jax_worker/replica:0/task:2"], "started once", None),
        (["initialize(num_processes=4)", HEAD, "/job:jax_worker/replica:0/task:2"], "task 2 never came", 2),
        (["initialize(num_processes=4)", HEAD], None, None),
        (["/job:jax_worker/replica:0/task:2"], None, None),
    ],
)  # fmt: skip
def test_tasks(tmp_path: Path, lines: list[str], words: str | None, rank: int | None) -> None:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    made = LogIncident((scan_file(path, "log.txt", signatures),), signatures)
    found = find_in_incident(made, [])
    if words is None:
        assert found == []
    else:
        assert words in found[0].title
        assert found[0].rank == rank
