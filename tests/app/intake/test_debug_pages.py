"""Pages of torch's debug server: read rank by rank, and diagnosed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.tools.collectives.test_flight_recorder import missing_rank

from firstfault.intake.collect import collect_paths
from firstfault.intake.debug_pages import is_page, split_page
from firstfault.workspace import Workspace

HUNG = ROOT / "tests" / "data" / "hung_run" / "gpu-a17"


def page(title: str, parts: list[str], failed: int | None = None) -> str:
    """As its templates render it."""
    shown = "".join(
        f"\n        <h2>Rank {n}: http://gpu-a17:4000{n}</h2>\n        \n"
        + ("            <p>Failed to fetch: status=500</p>\n" if n == failed else "")
        + f"            <pre>{text}</pre>\n        \n"
        for n, text in enumerate(parts)
    )
    return (
        "<!doctype html>\n<head>\n    <title>x</title>\n    <style>pre { white-space: pre-wrap; }</style>\n</head>\n<nav>\n"
        f"    <h1>Torch Distributed Debug Server</h1>\n</nav>\n<section>\n    <h1>{title}</h1>\n{shown}</section>\n"
    )


def stacks() -> list[str]:
    return [(HUNG / f"rank{n}-stacks.txt").read_text(encoding="utf-8") for n in (0, 1)]


@pytest.mark.parametrize("form", ["page", "periodic dump"])
def test_stacks_of_all_ranks_name_the_odd_one(form: str, tmp_path: Path) -> None:
    text = page("py-spy Stack Traces", stacks())
    if form != "page":
        text = "\n".join(f"=== Rank {n}: http://gpu-a17:4000{n} ===\n{x}" for n, x in enumerate(stacks()))  # fmt: skip
    path = tmp_path / "debug-stacks.html"
    path.write_text(text)
    assert is_page(path.read_bytes()[:65536])
    assert [p.rank for p in split_page(text)] == [0, 1]
    diagnosis = Workspace().diagnose_paths([path], "The run hangs, which rank?")
    assert diagnosis.first_failing_rank == 1
    assert "read_next_shard" in diagnosis.root_cause
    assert diagnosis.first_line is not None
    assert diagnosis.first_line.file == "debug-stacks.html/rank_1.txt"


@pytest.mark.parametrize("kind", ["nccl", "torchcomms"])
def test_recorders_of_all_ranks_name_who_never_entered(kind: str, tmp_path: Path) -> None:
    dumps = [r.json() if kind == "nccl" else r.torchcomms() for r in missing_rank()]
    path = tmp_path / "debug-recorder.html"
    path.write_text(page("FlightRecorder NCCL", [dump.decode() for dump in dumps]))
    diagnosis = Workspace().diagnose_paths([path], "The run hangs, which rank?")
    assert diagnosis.first_failing_rank == 2


def test_a_rank_that_did_not_answer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "stacks.html"
    path.write_text(page("Stacks", [*stacks(), "gone"], failed=2))
    collection = collect_paths([path], tmp_path / "spool")
    assert [a.name for a in collection.artefacts] == [f"stacks.html/rank_{n}.txt" for n in (0, 1)]
    (skipped,) = collection.skipped
    assert (skipped.what, skipped.why) == ("stacks.html/rank_2.txt", "Failed to fetch: status=500")


def test_a_page_without_ranks_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tcpstore.html"
    path.write_text(page("TCPStore Keys", []))
    assert [a.name for a in collect_paths([path], tmp_path / "spool").artefacts] == ["tcpstore.html"]  # fmt: skip
