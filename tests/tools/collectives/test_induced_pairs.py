"""Dumps, stacks and RAS answers of faults that were really induced on two GPUs."""

from __future__ import annotations

import pytest
from evals.cases import CASES
from tests.rows import each_row

from firstfault_tools.collectives import flight_recorder, ras
from firstfault_tools.findings import Finding, Level
from firstfault_tools.registry import Artefact, Reader
from firstfault_tools.stacks import comparison

INDUCED = {p.name: p for p in (CASES / "dev").glob("*/induced-*")}

# What the dumps themselves can prove; the log and the stacks add the reason.
VERDICTS: dict[str, tuple[str, int | None, int]] = {
    "all-to-all-splits": ("mismatch", None, 7),
    "checkpoint-holds-rank0": ("never_entered", 0, 7),
    "crashed-rank": ("no_dump", 1, 7),
    "dead-rank": ("no_dump", 1, 7),
    "different-dtype": ("mismatch", None, 7),
    "different-op": ("mismatch", None, 7),
    "different-size": ("mismatch", None, 7),
    "gil-held": ("never_entered", 1, 7),
    "group-order": ("order", None, 2),
    "missing-rank-branch": ("never_entered", 1, 7),
    "p2p-both-send": ("order", None, 0),
    "p2p-missing-send": ("never_entered", 1, 0),
    "stuck-dataloader": ("never_entered", 1, 7),
    "stuck-lock": ("never_entered", 1, 7),
    "swallowed-error": ("never_entered", 1, 9),
    "uneven-batches": ("mismatch", None, 7),
}
STACKS = {
    "checkpoint-holds-rank0": ("stacks.checkpoint_save", 0),
    "missing-rank-branch": ("stacks.evaluation", 1),
    "stuck-dataloader": ("stacks.data_loader", 1),
    "stuck-lock": ("stacks.odd_one_out", 1),
    "gil-held": ("stacks.odd_one_out", 1),
    "swallowed-error": ("stacks.evaluation", 1),
}
RAS = {
    "checkpoint-holds-rank0": ("collective.lagging_rank", 0),
    "crashed-rank": ("collective.unresponsive_rank", 1),
    "dead-rank": ("collective.unresponsive_rank", 1),
    "different-op": ("collective.different_operations", None),
    "missing-rank-branch": ("collective.lagging_rank", 1),
    "stuck-dataloader": ("collective.lagging_rank", 1),
    "swallowed-error": ("collective.lagging_rank", 1),
    "uneven-batches": ("collective.different_operations", None),
}


def first(name: str, reader: Reader) -> Finding:
    folder = INDUCED.get(f"induced-{name}", CASES)
    if not (folder / "fr_rank_0").is_file():
        pytest.skip(f"{name} has not been induced")
    artefacts = [Artefact(p.name, p) for p in sorted(folder.iterdir()) if p.is_file()]
    own = tuple(a for a in artefacts if reader.recognise(a.name, a.head()))
    assert own
    return reader.read(own).findings[0]


def test_ten_pairs_or_more_are_here() -> None:
    assert len([n for n in VERDICTS if f"induced-{n}" in INDUCED]) >= 10


@each_row("name", VERDICTS)
def test_flight_recorder(name: str) -> None:
    kind, rank, seq = VERDICTS[name]
    finding = first(name, flight_recorder.READER)
    assert (finding.kind, finding.rank) == (f"collective.{kind}", rank)
    assert "/job/train.py" in finding.title
    if seq:
        assert finding.facts["seq"] == seq


@each_row("name", STACKS)
def test_stacks(name: str) -> None:
    finding = first(name, comparison.READER)
    assert (finding.kind, finding.rank) == STACKS[name]


@each_row("name", RAS)
def test_ras(name: str) -> None:
    finding = first(name, ras.READER)
    assert (finding.kind, finding.rank) == RAS[name]


def test_healthy_run_has_context_only() -> None:
    assert first("healthy", flight_recorder.READER).level is Level.CONTEXT
