"""Component tests: what two H200s recorded with a planted fault, and the file that scripts take along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.experiments.component import (
    compare_variants,
    find_refusal,
    read_folder,
    read_steps,
)

RECORDED = Path(__file__).parents[2] / "data" / "component"
KIT = Path(sys.modules["firstfault_tools.experiments.component"].__file__ or "").parent / "kit"


def test_a_slow_loader_on_two_gpus() -> None:
    first, *rest = compare_variants(read_folder(RECORDED / "slow_loader"))
    assert first.component == "synthetic_data"
    assert first.share == pytest.approx(0.67, abs=0.01)
    assert "67% of a step: 233 ms a step, 78 ms without it" in first.says
    assert not any(e.carries for e in rest)


def test_a_slow_rank_on_two_gpus() -> None:
    first, *rest = compare_variants(read_folder(RECORDED / "slow_rank"))
    assert first.ranks == (1,)
    assert first.says.startswith("rank 1 on gpu-a17 holds the others up")
    assert not any(e.carries for e in rest)


SCRIPT = """
import sys, time
sys.path.insert(0, {kit!r})
import firstfault_component as component

class Loader:
    dataset = "mine"
    def __len__(self): return 1000
    def __iter__(self):
        for i in range(1000):
            time.sleep(0.02)
            yield [i, dict(x=i)]

loader = component.watch(Loader())
assert loader.dataset == "mine" and len(loader) == 1000
for batch in loader:
    time.sleep(0.005)
    component.loss(0.5)
"""


def run(variant: str, out: Path, script: str = SCRIPT) -> list[dict[str, object]]:
    out.mkdir(parents=True)
    told = {"FIRSTFAULT_COMPONENT": variant, "FIRSTFAULT_COMPONENT_OUT": str(out), "FIRSTFAULT_COMPONENT_STEPS": "8", "RANK": "0", "WORLD_SIZE": "1"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script.format(kit=str(KIT))], env={**os.environ, **told}, capture_output=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in (out / "rank0.jsonl").read_text().splitlines()]


def test_the_file_beside_a_script_finds_its_slow_loader(tmp_path: Path) -> None:
    for variant in ("baseline", "synthetic_data", "no_collectives"):
        assert len(run(variant, tmp_path / f"001-{variant}")) == 8
    # on a busy machine any other variant may be off by some part, but none by as much as the loader
    first, *_ = compare_variants(read_folder(tmp_path))
    assert first.component == "synthetic_data"
    assert first.carries


def test_without_the_variable_the_script_is_as_it_was(tmp_path: Path) -> None:
    script = f"import sys; sys.path.insert(0, {str(KIT)!r})\nimport firstfault_component as c\nx = [1]\nassert c.watch(x) is x and c.path('/data') == '/data'"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_megatrons_step_is_given_timed_iterators(tmp_path: Path) -> None:
    script = """
import sys, time, types
sys.path.insert(0, {kit!r})
training = types.ModuleType("megatron.training.training")
def train_step(forward, data_iterator, model, optimizer, scheduler, config):
    next(data_iterator); next(data_iterator)
    return dict(loss=0.25), 0
training.train_step, training.save_checkpoint = train_step, lambda *a: 1 / 0
for name in ("megatron", "megatron.training"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["megatron.training.training"] = training
import firstfault_component as component
component.megatron()
def slow():
    while True:
        time.sleep(0.01); yield 1
batches = slow()
training.save_checkpoint("mine")
while True:
    training.train_step(None, batches, [], None, None, None)
"""
    rows = run("deterministic", tmp_path / "out", script)
    assert [r["step"] for r in rows] == list(range(8))
    assert all(r["loss"] == 0.25 and float(str(r["data_ms"])) >= 20 for r in rows)


TRAINERS = {
    "huggingface": """
class Trainer:
    def get_train_dataloader(self): return [1] * 1000
    def training_step(self, model, inputs): return 0.25
    def save_model(self): 1 / 0
    _save_checkpoint = save_model
trainer = component.huggingface(Trainer())
trainer.save_model(); trainer._save_checkpoint()
for inputs in trainer.get_train_dataloader():
    trainer.training_step(None, inputs)
""",
    "lightning": """
class Trainer: pass
package, library = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
library.Callback = object
sys.modules.update({{"lightning": package, "lightning.pytorch": library}})
trainer, callback = Trainer(), component.lightning()
callback.on_fit_start(trainer, None)
trainer.save_checkpoint("mine")
for number, batch in enumerate(component.watch([1] * 1000)):
    callback.on_train_batch_end(trainer, None, dict(loss=0.25), batch, number)
""",
}


@pytest.mark.parametrize("name", TRAINERS)
def test_trainers_are_watched_and_kept_from_saving(name: str, tmp_path: Path) -> None:
    head = (
        "import sys, types\nsys.path.insert(0, {kit!r})\nimport firstfault_component as component\n"
    )
    rows = run("deterministic", tmp_path / "out", head + TRAINERS[name])
    assert [r["step"] for r in rows] == list(range(8))
    assert all(r["loss"] == 0.25 for r in rows)


def test_a_variant_that_cannot_be_tried_says_why(tmp_path: Path) -> None:
    line = {"schema": "firstfault.component/1", "variant": "no_collectives", "run": "x", "rank": 0, "skipped": "sharded"}  # fmt: skip
    (tmp_path / "rank0.jsonl").write_text(json.dumps(line) + "\n")
    assert find_refusal(tmp_path) == "sharded"
    with pytest.raises(UnreadableArtefact):
        read_steps("nothing\n", "rank0.jsonl")


def test_losses_that_part() -> None:
    def line(run: str, step: int, loss: float) -> str:
        place = {"schema": "firstfault.component/1", "variant": "deterministic", "run": run}
        return json.dumps({**place, "rank": 0, "world": 1, "step": step, "step_ms": 9.0, "loss": loss})  # fmt: skip

    base = line("b", 9, 1.0).replace("deterministic", "baseline")
    text = "\n".join(
        [base.replace('"step": 9', f'"step": {n}') for n in range(9)]
        + [line(run, n, 1.0 + (n > 5 and run == "two")) for run in ("one", "two") for n in range(9)]
    )
    effects = compare_variants(read_steps(text, "x"))
    assert "part at step 6 on rank 0" in next(e for e in effects if e.component == "deterministic").says  # fmt: skip
