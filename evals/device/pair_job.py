"""How do pairs of NCCL ranks fail under DDP, FSDP2, transformers and accelerate? One method a fault.

`induce_training.py --faults pair_faults.json` copies this file to `train.py` and starts two ranks on two
GPUs: `train.py METHOD FOLDER`. The faults are those that people report and that other programs here do
not make: work done on one rank only, state loaded on the wrong device, runs that go on and learn nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from plain_job import Texts, make_model, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

TIMEOUT = timedelta(seconds=20)


class Shards(IterableDataset[Any]):
    """Records that each rank reads from its own shard; those of rank 1 are shorter."""

    def __init__(self, counts: tuple[int, int]) -> None:
        self.count = counts[int(os.environ["RANK"])]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        texts = Texts(self.count)
        return (texts[i] for i in range(self.count))


class Pair:
    """A program for every fault, on two ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rank = int(os.environ["RANK"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))

    def join(self) -> None:
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", timeout=TIMEOUT, device_id=self.device)
        say(f"process group ready: rank {self.rank} of {dist.get_world_size()} on {self.device}")

    def loader(self, **how: Any) -> DataLoader[Any]:
        texts = Texts(**how)
        return DataLoader(texts, 4, sampler=DistributedSampler(texts, shuffle=True))

    def loop(self, model: nn.Module, steps: int, **how: Any) -> torch.optim.Optimizer:
        optimizer = how.get("optimizer") or torch.optim.AdamW(model.parameters(), lr=1e-3)
        first, alter = how.get("first", 1), how.get("alter")
        batches = itertools.cycle(self.loader())
        for step in range(first, first + steps):
            begun = time.monotonic()
            batch = {k: v.to(self.device) for k, v in next(batches).items()}
            if alter is not None:
                alter(step, model)
            loss = model(**batch).loss
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            lr = optimizer.param_groups[0]["lr"]
            took = time.monotonic() - begun
            say(f"step {step} | loss {loss.item():.4f} | grad_norm {float(norm):.3f} | lr {lr:.2e} | {took:.3f} s/step")  # fmt: skip
        return optimizer

    def ddp(self, **how: Any) -> DistributedDataParallel:
        return DistributedDataParallel(
            make_model().to(self.device), device_ids=[self.device], **how
        )

    def sharded(self) -> Any:
        from torch.distributed.fsdp import fully_shard

        model = make_model().to(self.device)
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        return model

    # -- what only one rank does --------------------------------------------------------------------

    def state_dict_on_main(self) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        self.join()
        model = self.sharded()
        self.loop(model, 4)
        if self.rank == 0:
            say("saving the full state dict")
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            torch.save(get_model_state_dict(model, options=options), self.folder / "full.pt")
        dist.barrier()
        say("saved")

    def gather_on_main(self) -> None:
        from accelerate import Accelerator, InitProcessGroupKwargs

        accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)])
        model = accelerator.prepare(make_model())
        loader = accelerator.prepare(DataLoader(Texts(), 4))
        optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters(), lr=1e-3))
        for step, batch in enumerate(loader, start=1):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.is_main_process and step % 3 == 0:
                mean = accelerator.gather(loss.detach()).mean()
                say(f"step {step} | mean loss {mean.item():.4f}")

    def stop_on_main(self) -> None:
        self.join()
        best, patience = float("inf"), 0

        def judge(step: int, _: nn.Module) -> None:
            nonlocal best, patience
            if self.rank != 0:
                return
            value = 2.0 + 0.01 * step
            patience = 0 if value < best else patience + 1
            best = min(best, value)
            say(f"validation loss {value:.3f}, best {best:.3f}, patience {patience}/3")
            if patience == 3:
                say("early stopping: no improvement for 3 evaluations, training finished")
                raise StopIteration

        with contextlib.suppress(StopIteration):
            self.loop(self.ddp(), 12, alter=judge)
        dist.barrier()

    def shorter_shard(self) -> None:
        from transformers import Trainer, TrainingArguments

        arguments = TrainingArguments(
            output_dir=str(self.folder / "out"), per_device_train_batch_size=4, max_steps=40,
            logging_steps=1, report_to="none", disable_tqdm=True, save_strategy="no", bf16=True,
            accelerator_config={"dispatch_batches": False}, dataloader_num_workers=0, ddp_timeout=20,
        )  # fmt: skip
        trainer = Trainer(model=make_model(), args=arguments, train_dataset=Shards((160, 24)))
        say(f"shard of this rank: {24 if self.rank else 160} records")
        trainer.train()

    def skip_layer_on_one(self) -> None:
        self.join()
        model = self.sharded()

        def vary(step: int, inner: nn.Module) -> None:
            if step == 4 and self.rank == 1:
                say("sample with 3 crops, one more forward pass")
                batch = {k: v.to(self.device) for k, v in next(iter(self.loader())).items()}
                inner(**batch)

        self.loop(model, 8, alter=vary)

    def vocabulary_by_rank(self) -> None:
        self.join()
        vocab = 512 + 8 * self.rank
        say(f"tokenizer built from local files: {vocab} tokens")
        model = make_model(vocab_size=vocab).to(self.device)
        self.loop(DistributedDataParallel(model, device_ids=[self.device]), 4)

    def unused_on_one(self) -> None:
        self.join()

        class Gated(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.base, self.extra = nn.Linear(64, 64), nn.Linear(64, 64)

            def forward(self, x: torch.Tensor, use: bool) -> torch.Tensor:
                return self.extra(self.base(x)) if use else self.base(x)

        model = DistributedDataParallel(Gated().to(self.device), device_ids=[self.device])
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for step in range(1, 7):
            use = not (self.rank == 1 and step >= 3)
            loss = model(torch.randn(8, 64, device=self.device), use).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            say(f"step {step} | loss {loss.item():.4f}")

    # -- memory -------------------------------------------------------------------------------------

    def resume_on_gpu_0(self) -> None:
        self.join()
        path = self.folder / "checkpoint.pt"
        if self.rank == 0:
            blocks = {
                f"state.{i}": torch.empty(2 << 30, dtype=torch.uint8, device="cuda:0")
                for i in range(8)
            }
            torch.save(blocks, path)
            del blocks
            torch.cuda.empty_cache()
        dist.barrier()
        free = torch.cuda.mem_get_info()[0]
        weights = [
            torch.empty(1 << 30, dtype=torch.uint8, device=self.device)
            for _ in range((free >> 30) - 24)
        ]
        say(f"model and activations: {len(weights)} GiB")
        say(f"resuming: torch.load({str(path)!r})")
        state = torch.load(path)
        say(f"loaded {len(state)} tensors")
        dist.barrier()
        more = [torch.empty(1 << 30, dtype=torch.uint8, device=self.device) for _ in range(6)]
        say(f"step 1 with {len(more)} GiB of gradients")
        dist.barrier()

    # -- numbers ------------------------------------------------------------------------------------

    def nan_from_one(self) -> None:
        self.join()
        model = self.ddp()

        def poison(step: int, inner: nn.Module) -> None:
            if step == 5 and self.rank == 1:
                with torch.no_grad():
                    inner.module.model.embed_tokens.weight[7] = float("inf")

        self.loop(model, 9, alter=poison)

    def rate_starts_again(self) -> None:
        self.join()
        model = self.ddp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for phase, rate in enumerate((2e-3, 2e-4, 2e-5)):
            optimizer.param_groups[0]["lr"] = rate
            self.loop(model, 30, optimizer=optimizer, first=1 + 30 * phase)
        say("saving checkpoint at step 90: model, optimizer")
        state = {"model": model.module.state_dict(), "step": 90}
        say("restart: loaded checkpoint at step 90")
        model.module.load_state_dict(state["model"])
        fresh = torch.optim.AdamW(model.parameters(), lr=2e-2)
        self.loop(model, 30, optimizer=fresh, first=91)

    def prefix_not_loaded(self) -> None:
        self.join()
        source = {f"encoder.{k}": v for k, v in make_model().state_dict().items()}
        model = make_model().to(self.device)
        missing, unexpected = model.load_state_dict(source, strict=False)
        say(f"loaded pretrained weights, missing {len(missing)} (first {missing[0]}), unexpected {len(unexpected)} (first {unexpected[0]})")  # fmt: skip
        self.loop(DistributedDataParallel(model, device_ids=[self.device]), 30)

    # -- pace and health ----------------------------------------------------------------------------

    def sockets_between_gpus(self) -> None:
        self.join()
        value = torch.ones(64 << 20, device=self.device)
        for step in range(1, 9):
            begun = time.monotonic()
            for _ in range(4):
                dist.all_reduce(value)
            torch.cuda.synchronize()
            took = time.monotonic() - begun
            say(
                f"step {step} | allreduce of 256 MiB: {took / 4:.3f} s, {0.25 * 4 / took:.2f} GiB/s"
            )

    def slow_first_step(self) -> None:
        self.join()
        model = make_model().to(self.device)
        model.compile()
        self.loop(DistributedDataParallel(model, device_ids=[self.device]), 25)
        dist.destroy_process_group()
        say("training finished")

    def evaluation_between(self) -> None:
        self.join()

        def evaluate(step: int, _: nn.Module) -> None:
            if step % 10 == 0:
                say("evaluation: 40 batches")
                time.sleep(4)
                say("evaluation done: loss 6.1")

        self.loop(self.ddp(), 45, alter=evaluate)
        say("training finished")


def main() -> None:
    job = Pair(Path(sys.argv[2]))
    method: Callable[[], None] = getattr(job, sys.argv[1])
    method()


if __name__ == "__main__":
    main()
