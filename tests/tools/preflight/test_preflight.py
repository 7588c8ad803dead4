"""Are checklist items ticked from what was given, and left open where nothing was?"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.errors import InvalidParameter, UnreadableArtefact
from firstfault_tools.metrics.checklist import CheckState
from firstfault_tools.preflight.checks import CHECKS, Given, run_preflight, summarise
from firstfault_tools.preflight.items import answer_own, load_own_items
from firstfault_tools.preflight.scaling import run_scaling

MODEL = {"model": "llama-3-8b", "sequence": 4096, "micro_batch": 1, "world": 8}


def states(given: Given) -> dict[str, CheckState]:
    return {a.id: a.state for a in run_preflight(given)}


def test_what_was_not_given_stays_open() -> None:
    answers = run_preflight(Given())
    assert {a.id for a in answers} >= CHECKS.keys()
    assert all(a.state in (CheckState.UNKNOWN, CheckState.MANUAL) for a in answers)
    assert all(a.reason for a in answers if a.state is CheckState.UNKNOWN)
    assert summarise(answers).startswith("Nothing failed: 0 passed")


@each_row(
    ("card", "sharding", "state"),
    [("H100-80GB", "fsdp", CheckState.PASSED), ("A100-40GB", "fsdp", CheckState.FAILED)],
)
def test_memory(card: str, sharding: str, state: CheckState) -> None:
    given = Given(card=card, settings={**MODEL, "sharding": sharding})
    assert states(given)["memory-fits"] is state


def test_a_setting_that_nobody_knows_is_said_not_raised() -> None:
    given = Given(card="H100-80GB", settings={"model": "no-such-model"})
    answer = next(a for a in run_preflight(given) if a.id == "memory-fits")
    assert answer.state is CheckState.UNKNOWN
    assert "no-such-model" in answer.reason


@each_row(("second", "state"), [("2.21.5", CheckState.PASSED), ("2.20.5", CheckState.FAILED)])
def test_versions_of_nodes(second: str, state: CheckState) -> None:
    files = tuple(
        (f"node{n}.txt", f"torch==2.6.0\nnvidia-nccl-cu12=={v}\n")
        for n, v in ((1, "2.21.5"), (2, second))
    )
    assert states(Given(files=files))["software-equal"] is state


def test_store(tmp_path: Path) -> None:
    given = Given(store=tmp_path, settings={"model": "llama-3-8b"})
    small = next(a for a in run_preflight(given) if a.id == "storage-room")
    assert "GiB needed" in small.reason
    assert states(Given(store=tmp_path / "none"))["storage-room"] is CheckState.FAILED


def test_a_folder_without_a_checkpoint_fails() -> None:
    assert states(Given(load=("[]", {})))["load-path"] is CheckState.FAILED


def test_own_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FF_OWN", "1")
    text = f"""items:
  - {{id: a, text: A., exists: {tmp_path}}}
  - {{id: b, text: B., exists: {tmp_path}/none}}
  - {{id: c, text: C., variable: FF_OWN, value: 1}}
  - {{id: d, text: D., variable: FF_NONE}}
  - {{id: e, text: E., limit: nofile, at_least: 1}}
  - {{id: f, text: F., free_gib: {tmp_path}, at_least: 1e9}}
  - {{id: g, text: G., writable: {tmp_path}}}
  - {{id: h, text: H.}}
"""
    got = {a.id: a.state.value for a in map(answer_own, load_own_items(text, "own.yaml"))}
    assert got == {
        "a": "passed", "b": "failed", "c": "passed", "d": "failed", "e": "passed", "f": "failed",
        "g": "passed", "h": "manual",
    }  # fmt: skip


@each_row(
    "text", ["items: 3", "items: [{id: a}]", "items: [{id: a, text: b, run: 'rm -rf /'}]", "[1"]
)
def test_own_items_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UnreadableArtefact, match=r"own\.yaml"):
        load_own_items(text, "own.yaml")


def test_scaling() -> None:
    found = run_scaling(64, 128, pipeline=4, global_batch=512, save_seconds=60.0)
    told = {row["id"]: row["answer"] for row in found["items"]}  # type: ignore[index, union-attr, call-overload]
    # (p-1)/(m+p-1): 3/35 and 3/19; a failure every 50,673 GPU-hours
    assert "8.6% to 15.8%" in told["bubble"]
    assert "396 h instead of 792 h" in told["interval"]
    assert "accumulation goes from 32 to 16" in told["batch-and-rate"]


def test_scaling_refuses_what_does_not_divide() -> None:
    with pytest.raises(InvalidParameter, match="gpus_after"):
        run_scaling(8, 12, tensor=8)
    assert "does not divide" in str(run_scaling(8, 12, global_batch=32)["sentence"])
