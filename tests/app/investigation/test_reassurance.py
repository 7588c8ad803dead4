"""A worried question about a healthy run is answered by the mechanism; a run that dies of it is a fault."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from firstfault.investigation import reassurance
from firstfault.workspace import Workspace

STEPS = "".join(f"step {i * 10} loss {3 - 0.05 * i:.3f} 0.51 s\n" for i in range(1, 15))
TITAN = " iteration {n:8d}/ 500000 | elapsed time per iteration (ms): 811.0 | lm loss: 2.4E+00 |\n"
EVALUATION = " validation loss at iteration {n} | lm loss value: 2.4E+00 |\n"
ECC = "        DRAM Correctable              : 3\n        DRAM Uncorrectable            : {bad}\n"


def _megatron(evaluates: bool) -> str:
    out = ""
    for n in range(9600, 11200, 100):
        out += TITAN.format(n=n)
        if evaluates and n % 500 == 0:
            out += EVALUATION.format(n=n)
    return out


def _noise(last: str) -> str:
    values = ["0.021", "0.311", "0.12", "0.08", "0.05", "0.21", "0.009", last]
    return "".join(
        f"Steps:   1%|          | {i * 60}/15000 [0{i}:12<2:10:11,  1.9it/s, step_loss={v}]\n"
        for i, v in enumerate(values, start=1)
    )


@pytest.mark.parametrize(
    ("question", "log", "says"),
    [
        ("Every 500 iterations the GPUs are idle for 90 s, hang?", _megatron(True), "evaluation"),
        ("Diffusion loss does not go down, it jumps. Wrong?", _noise("0.1"), "timestep"),
        ("Corrected ECC errors. Replace the card?", ECC.format(bad=0) + STEPS, "corrected single bits"),
        (
            "nvidia-smi counts corrected errors, replace it?",
            "index, ecc.errors.corrected.volatile.total, ecc.errors.uncorrected.volatile.total\n0, 0, 0\n1, 3, 0\n" + STEPS,
            "corrected single bits",
        ),
        ("Is my model corrupted?", "WARNING: infoROM is corrupted at gpu 0000:B1:00.0\n" + STEPS, "no part in computing"),
        (
            "After resume nothing happens for 20 min, hang?",
            "  Will skip the first 1 epochs then the first 14210 batches in the first epoch.\n" + STEPS,
            "drops the batches",
        ),
        (
            "Unable to register cuDNN factory: broken?",
            "E cuda_dnn.cc:8454] Unable to register cuDNN factory: Attempting to register factory for plugin "
            "cuDNN when one has already been registered\n" + STEPS,
            "one process",
        ),
    ],
)  # fmt: skip
def test_healthy_answer_tells_the_reason(
    tmp_path: Path, question: str, log: str, says: str
) -> None:
    path = tmp_path / "run.log"
    path.write_text(log)
    told = Workspace().diagnose_paths([path], question)
    assert told.verdict.value == "healthy"
    assert says in told.root_cause
    assert told.citations


@pytest.mark.parametrize(
    ("question", "log"),
    [
        ("Every 500 iterations the GPUs are idle for 90 s", _megatron(False)),
        ("Diffusion loss does not go down, it jumps", _noise("nan") * 2),
        ("The loss does not go down, it jumps", _noise("7.5")),
    ],
)
def test_same_question_without_the_harmless_sign(tmp_path: Path, question: str, log: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(log)
    assert Workspace().diagnose_paths([path], question).verdict.value != "healthy"


def test_uncorrectable_errors_get_no_reassurance(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(ECC.format(bad=2) + STEPS)
    told = Workspace().diagnose_paths([path], "ECC errors, replace the card?")
    assert "no reason to replace" not in told.root_cause


XID = "[Mon Mar  2 04:11:09 2026] NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(("mark", "verdict"), [("> ", "healthy"), ("", "warning")])
def test_xid_quoted_from_elsewhere(tmp_path: Path, mark: str, verdict: str) -> None:
    path = tmp_path / "run.log"
    path.write_text(mark + XID + STEPS)
    assert Workspace().diagnose_paths([path]).verdict.value == verdict


def test_table_is_well_formed() -> None:
    table = json.loads(Path(reassurance.__file__).with_suffix(".json").read_text())
    names = [entry["id"] for entry in table["entries"]]
    assert len(names) == len(set(names))
    for entry in table["entries"]:
        groups = re.compile(entry["line"]).groupindex
        re.compile(entry["asked"])
        numeric = {"falls", "below", "settles", "starts_highest"} & set(entry)
        assert bool(numeric) == ("value" in groups), entry["id"]
