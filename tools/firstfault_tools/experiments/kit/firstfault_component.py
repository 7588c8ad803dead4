"""Which part of my training step carries the time or the fault? Copy this file beside your script.

It does nothing unless FIRSTFAULT_COMPONENT is set, which `firstfault experiment component` does for each run.

torch         import firstfault_component as component
              loader = component.watch(loader)                 # for batch in loader: ...
              data = component.path("/shared/data")            # optional: copied to this node in one variant
              component.loss(loss)                             # optional: compared in the deterministic variant
Lightning     trainer = Trainer(callbacks=[component.lightning()]); trainer.fit(model, component.watch(loader))
Hugging Face  component.huggingface(trainer)                   # before trainer.train()
Megatron      component.megatron()                             # before pretrain(...)

Each rank writes one line a step and the run ends by itself after FIRSTFAULT_COMPONENT_STEPS steps (30; 0: never).
Variants other than the baseline save nothing to your folders, since what they compute is not your training.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIANT = os.environ.get("FIRSTFAULT_COMPONENT", "")
STEPS = int(os.environ.get("FIRSTFAULT_COMPONENT_STEPS", "30"))
COPY_BYTES = int(float(os.environ.get("FIRSTFAULT_COMPONENT_COPY_GIB", "20")) * 2**30)
SCHEMA = "firstfault.component/1"
SEED = 1234
_SHARDED = "its parameters are gathered by collectives, so a step without them cannot run"


class _Recorder:
    """One file of this rank, and what the step under way has cost so far."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)
        self.world = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1)
        folder = os.environ.get("FIRSTFAULT_COMPONENT_OUT") or "."
        self.run = os.path.basename(os.path.abspath(folder))
        self.folder = folder
        self.step = 0
        self.begun: float | None = None
        self.data_ms = self.save_ms = 0.0
        self.loss: float | None = None
        self.ready = False

    def write(self, **row: Any) -> None:
        """Append one line; a full disk must not end the user's run."""
        whole = {"schema": SCHEMA, "variant": VARIANT, "run": self.run, "rank": self.rank, **row}
        try:
            with open(os.path.join(self.folder, f"rank{self.rank}.jsonl"), "a", encoding="utf-8") as out:  # fmt: skip
                out.write(json.dumps(whole) + "\n")
        except OSError as error:
            sys.stderr.write(f"firstfault_component: {error}\n")

    def begin_step(self) -> None:
        """The step before is over on this GPU; the next one begins."""
        _synchronize()
        now = time.perf_counter()
        if self.begun is not None:
            self.write(
                world=self.world,
                host=socket.gethostname(),
                step=self.step,
                step_ms=round(1000 * (now - self.begun), 3),
                data_ms=round(self.data_ms, 3),
                save_ms=round(self.save_ms, 3),
                loss=self.loss,
            )
            self.step += 1
        self.data_ms = self.save_ms = 0.0
        self.loss = None
        if STEPS and self.step >= STEPS:
            _leave()
        if not self.ready:
            self.ready = True
            _take_out()
        self.begun = time.perf_counter()

    def skip(self, reason: str) -> None:
        """Say that this variant cannot be tried here, and end."""
        self.write(skipped=reason)
        sys.stderr.write(f"firstfault_component: {VARIANT} cannot be tried: {reason}\n")
        raise SystemExit(125)


_recorder = _Recorder()


def _torch() -> Any:
    """torch where the script uses it; this file imports it for nobody."""
    return sys.modules.get("torch")


def _synchronize() -> None:
    torch = _torch()
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _leave() -> None:
    torch = _torch()
    distributed = getattr(torch, "distributed", None)
    if VARIANT != "no_collectives" and distributed is not None and distributed.is_available() and distributed.is_initialized():  # fmt: skip
        distributed.destroy_process_group()
    raise SystemExit(0)


# ---- what each variant takes out


def _take_out() -> None:
    """Before the first step: models and process groups exist by then."""
    _redirect_saves()
    if VARIANT == "no_collectives":
        _stop_collectives()
    elif VARIANT == "deterministic":
        _fix_seeds()


def _fix_seeds() -> None:
    import random

    random.seed(SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(SEED)
    if (torch := _torch()) is not None:
        torch.manual_seed(SEED)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False


def _stop_collectives() -> None:
    torch = _torch()
    if torch is None or not torch.distributed.is_available():
        return
    import gc

    for thing in gc.get_objects():
        module = type(thing).__module__ or ""
        if not isinstance(thing, torch.nn.Module):
            continue
        names = {c.__name__ for c in type(thing).__mro__}
        if "FullyShardedDataParallel" in names or "FSDPModule" in names:
            _recorder.skip(f"the model is sharded by FSDP: {_SHARDED}")
        if module.startswith("deepspeed") and any(hasattr(p, "ds_id") for p in thing.parameters()):
            _recorder.skip(f"the model is sharded by ZeRO-3: {_SHARDED}")
        if names & {"DistributedDataParallel"} and hasattr(type(thing), "no_sync"):
            # a data descriptor on the class wins over whatever the loop sets on the object
            for name in ("require_backward_grad_sync", "require_forward_param_sync"):
                setattr(type(thing), name, property(lambda _self: False, lambda _self, _value: None))  # fmt: skip
    for name, stand_in in _STAND_INS.items():
        if hasattr(torch.distributed, name):
            setattr(torch.distributed, name, stand_in)


class _Done:
    """A collective that is over."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _keep(*_: Any, async_op: bool = False, **__: Any) -> Any:
    return _Done() if async_op else None


def _gather(out: Any, one: Any, *_: Any, async_op: bool = False, **__: Any) -> Any:
    for part in out if isinstance(out, list) else out.view(-1, *one.shape):
        part.copy_(one)
    return _Done() if async_op else None


def _scatter(out: Any, whole: Any, *_: Any, async_op: bool = False, **__: Any) -> Any:
    mine = whole[0] if isinstance(whole, list) else whole.view(-1, *out.shape)[0]
    out.copy_(mine)
    return _Done() if async_op else None


_STAND_INS: dict[str, Any] = {
    "all_reduce": _keep, "reduce": _keep, "broadcast": _keep, "barrier": _keep, "monitored_barrier": _keep,
    "all_gather": _gather, "all_gather_into_tensor": _gather,
    "reduce_scatter": _scatter, "reduce_scatter_tensor": _scatter, "all_to_all_single": _scatter,
}  # fmt: skip


def _redirect_saves() -> None:
    """Time saving; in other variants than the baseline nothing goes to the user's folders."""
    torch = _torch()
    if torch is None:
        return
    real = torch.save

    def save(thing: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        begun = time.perf_counter()
        if VARIANT == "baseline":
            real(thing, file, *args, **kwargs)
        elif VARIANT == "local_files":
            with tempfile.TemporaryFile() as local:
                real(thing, local, *args, **kwargs)
                local.flush()
                os.fsync(local.fileno())
        _recorder.save_ms += 1000 * (time.perf_counter() - begun)

    torch.save = save


def path(name: str) -> str:
    """The path itself; in the variant `local_files` a copy on this node's own disk."""
    if VARIANT != "local_files":
        return name
    source = Path(name)
    files = [source] if source.is_file() else [f for f in source.rglob("*") if f.is_file()]
    if sum(f.stat().st_size for f in files) > COPY_BYTES:
        _recorder.skip(f"{name} is larger than FIRSTFAULT_COMPONENT_COPY_GIB")
    target = Path(tempfile.mkdtemp(prefix="firstfault-local-")) / source.name
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)
    return str(target)


def loss(value: Any) -> None:
    """The loss of this step, compared between two runs with the same seeds."""
    if VARIANT == "deterministic":
        number = float(value.item() if hasattr(value, "item") else value)
        _recorder.loss = number if math.isfinite(number) else None


# ---- the loop


def _copy(batch: Any) -> Any:
    """A batch as good as new: a step may change its tensors in place."""
    if hasattr(batch, "clone"):
        return batch.clone()
    if isinstance(batch, dict):
        return type(batch)({k: _copy(v) for k, v in batch.items()}) if type(batch) is dict else batch  # fmt: skip
    if type(batch) in (list, tuple):
        return type(batch)(_copy(v) for v in batch)
    return batch


class _Batches:
    """Batches of one iterator, timed; after the first the same again where the loader is taken out."""

    def __init__(self, inner: Iterator[Any]) -> None:
        self.inner = inner
        self.first: Any = None

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        begun = time.perf_counter()
        if self.first is not None:
            batch = _copy(self.first)
        else:
            batch = next(self.inner)
            if VARIANT == "synthetic_data":
                self.first = _copy(batch)
        _recorder.data_ms += 1000 * (time.perf_counter() - begun)
        return batch


class _Watched:
    """A loader whose steps are recorded. Everything else is the loader's own."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        batches = _Batches(iter(self._loader))
        left = len(self._loader) if hasattr(self._loader, "__len__") else -1
        while left:
            _recorder.begin_step()
            try:
                batch = next(batches)
            except StopIteration:
                break
            yield batch
            left -= 1

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def watch(loader: Any) -> Any:
    """The loader of the training loop; a step is what lies between two of its batches."""
    return _Watched(loader) if VARIANT else loader


def lightning() -> Any:
    """A callback for Lightning's Trainer: takes the loss, keeps other variants from saving."""
    import importlib

    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            library = importlib.import_module(name)
            break
        except ImportError:
            continue
    else:
        raise ImportError("neither lightning nor pytorch_lightning can be imported")

    class Component(library.Callback):  # type: ignore[name-defined,misc]
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            if VARIANT not in ("", "baseline"):
                trainer.save_checkpoint = lambda *_args, **_kwargs: None

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            value = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if value is not None:
                loss(value)

    return Component()


def huggingface(trainer: Any) -> Any:
    """Watch a transformers.Trainer; returns it."""
    if not VARIANT:
        return trainer
    make = trainer.get_train_dataloader
    trainer.get_train_dataloader = lambda: watch(make())
    if VARIANT != "baseline":
        trainer.save_model = trainer._save_checkpoint = lambda *_args, **_kwargs: None
    real = trainer.training_step

    def training_step(*args: Any, **kwargs: Any) -> Any:
        value = real(*args, **kwargs)
        loss(value)
        return value

    trainer.training_step = training_step
    return trainer


def megatron() -> None:
    """Watch Megatron-LM: its train_step is given timed iterators, its saving is kept in."""
    if not VARIANT:
        return
    import importlib

    training: Any = importlib.import_module("megatron.training.training")
    real = training.train_step
    known: dict[int, _Batches] = {}

    def timed(iterator: Any) -> Any:
        if isinstance(iterator, list):
            return [timed(one) for one in iterator]
        return None if iterator is None else known.setdefault(id(iterator), _Batches(iterator))

    def train_step(forward_step_func: Any, data_iterator: Any, *args: Any, **kwargs: Any) -> Any:
        _recorder.begin_step()
        told = real(forward_step_func, timed(data_iterator), *args, **kwargs)
        losses = told[0] if isinstance(told, tuple) and told else None
        if isinstance(losses, dict) and losses:
            loss(next(iter(losses.values())))
        return told

    training.train_step = train_step
    if VARIANT != "baseline":
        for name in ("save_checkpoint", "save_checkpoint_and_time"):
            if hasattr(training, name):
                setattr(training, name, lambda *_args, **_kwargs: None)


if VARIANT == "deterministic":
    _fix_seeds()
