"""How does a training program really fail? One method a fault, named as user code would be.

The job of every scenario of `induce_training.py`, which copies this file to `train.py` and starts it
on two ranks: `train.py METHOD FOLDER`. Steps are printed by every rank; then the fault strikes.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader
from training_loop import VOCAB, WIDTH, Decoder, Loop, Records, say


class Job(Loop):
    """A program for every fault."""

    # -- program errors ---------------------------------------------------------------------------

    def build_with_adapter(self) -> None:
        self.start()
        self.train(self.ddp(Decoder(5 if self.rank == 1 else 4)))

    def scale_hidden(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 3)
        hidden = model.module.embed(self.batch())
        act = torch.sigmoid(model.module.blocks[0].up(hidden))
        act += 1.0
        act.sum().backward()

    def flatten_tail(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 4)
        tokens = self.batch(3 if self.rank == 1 else 4)
        model(tokens).view(4, 256, VOCAB).sum().backward()
        self.end()

    def project_half(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 2)
        hidden = model.module.embed(self.batch()).to(torch.bfloat16)
        model.module.head(hidden).sum().backward()

    def mask_tokens(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 2)
        mask = torch.ones(4, 256, dtype=torch.bool)
        hidden = model.module.embed(self.batch())
        hidden = torch.where(mask.unsqueeze(-1), hidden, torch.zeros_like(hidden))
        hidden.sum().backward()

    def choose_device(self) -> None:
        torch.cuda.set_device(0)
        dist.init_process_group("nccl", timeout=timedelta(seconds=20))
        say(f"init done world={dist.get_world_size()} torch={torch.__version__}")
        dist.all_reduce(torch.ones(1, device="cuda"))
        torch.cuda.synchronize()

    def load_records_spawned(self) -> None:
        self.start()
        records = Records(transform=lambda x: x)
        for tokens in DataLoader(records, 4, num_workers=2, multiprocessing_context="spawn"):
            say(f"batch {tuple(tokens.shape)}")
        self.end()

    def wrap_frozen(self) -> None:
        from torch.distributed.fsdp import FullyShardedDataParallel

        self.start()
        model = Decoder().cuda()
        model.embed.requires_grad_(False)
        FullyShardedDataParallel(model, use_orig_params=False)
        self.end()

    def shard_blocks(self) -> None:
        from torch.distributed.fsdp import fully_shard

        self.start()
        model = Decoder().cuda()
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        weight = model.head.weight
        (weight.float() @ torch.ones(WIDTH, 1, device="cuda")).sum().backward()
        self.end()

    def read_config(self) -> None:
        self.start()
        self.train(self.ddp(Decoder()), 2)
        if self.rank == 1:
            options = {"eval_interval": 100}
            say(f"evaluating every {options['eval_iters']} steps")
        self.end()

    def leave_early(self) -> None:
        self.start()
        self.train(self.ddp(Decoder()), 3)
        if self.rank == 1:
            sys.exit(3)
        self.train(self.ddp(Decoder()), 3, 4)

    def call_native(self) -> None:
        import ctypes

        self.start()
        self.train(self.ddp(Decoder()), 3)
        if self.rank == 1:
            ctypes.string_at(0)
        self.train(self.ddp(Decoder()), 3, 4)

    def gather_index(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 3)
        positions = torch.full((4, 256), 300 if self.rank == 0 else 10, device="cuda")
        table = torch.zeros(256, device="cuda")
        table.index_select(0, positions.flatten()).sum().item()
        self.train(model, 3, 4)

    # -- data -------------------------------------------------------------------------------------

    def _load(self, broken: str, only_rank: int | None, workers: int = 2) -> None:
        self.start()
        self.train(self.ddp(Decoder()), 2)
        bad = broken if only_rank in (None, self.rank) else ""
        for index, tokens in enumerate(DataLoader(Records(bad), 4, num_workers=workers)):
            dist.all_reduce(torch.ones(1, device="cuda"))
            say(f"step {index} batch {tuple(tokens.shape)}")
        self.end()

    def load_records(self) -> None:
        self._load("key", 1)

    def load_lines(self) -> None:
        self._load("json", 1)

    def load_lengths(self) -> None:
        self._load("length", None)

    def load_native(self) -> None:
        self._load("crash", 0)

    def embed_tokens(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 3)
        vocab = VOCAB + 64 if self.rank == 1 else VOCAB
        self.train(model, 40, 4, tokens=lambda _: self.batch(4, 2048, vocab))

    # -- checkpoints ------------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self.folder / name

    def resume_truncated(self) -> None:
        self.start()
        model = Decoder().cuda()
        path = self._path("latest.pt")
        if self.rank == 0:
            torch.save(model.state_dict(), path)
            with path.open("r+b") as stream:
                stream.truncate(path.stat().st_size // 2)
        dist.barrier()
        say(f"loading checkpoint from {path}")
        model.load_state_dict(torch.load(path, map_location="cuda"))
        self.end()

    def resume_state(self) -> None:
        self.start()
        path = self._path("state.pt")
        if self.rank == 0:
            torch.save({"args": Path("/data"), "step": 10, "sampler": Records()}, path)
        dist.barrier()
        say(f"resuming from {path}")
        torch.load(path)
        self.end()

    def resume_shards(self) -> None:
        import torch.distributed.checkpoint as dcp

        self.start()
        state = {
            "weight": torch.arange(1 << 20, device="cuda").float() + self.rank,
            f"rank{self.rank}": torch.ones(1 << 10, device="cuda"),
        }
        path = self._path("step_100")
        dcp.save(state, checkpoint_id=path)
        dist.barrier()
        if self.rank == 0:
            sorted(path.glob("*.distcp"))[-1].unlink()
        dist.barrier()
        say(f"resuming from {path}")
        dcp.load(state, checkpoint_id=path)
        self.end()

    def resume_keys(self) -> None:
        import torch.distributed.checkpoint as dcp

        self.start()
        path = self._path("step_200")
        dcp.save({"model": {"w": torch.ones(8)}}, checkpoint_id=path)
        say(f"resuming from {path}")
        dcp.load({"model": {"w": torch.ones(8), "router_bias": torch.zeros(8)}}, checkpoint_id=path)
        self.end()

    def resume_optimizer(self) -> None:
        self.start()
        model = Decoder().cuda()
        old = torch.optim.AdamW(list(model.parameters())[:-2])
        new = torch.optim.AdamW(
            [
                {"params": [p for p in model.parameters() if p.dim() > 1]},
                {"params": [p for p in model.parameters() if p.dim() <= 1]},
            ]
        )
        say("loading optimizer state")
        new.load_state_dict(old.state_dict())
        self.end()

    def save_to_readonly(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 3)
        if self.rank == 0:
            say("saving checkpoint at iteration 3 to /proc/checkpoints/iter_0000003")
            Path("/proc/checkpoints").mkdir()
        self.train(model, 3, 4)

    # -- numbers ----------------------------------------------------------------------------------

    def train_hot(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        optimizer = torch.optim.SGD(model.parameters(), lr=900.0)
        self.train(model, 14, optimizer=optimizer, lr=900.0, clip=1e9)
        self.end()

    def train_half(self) -> None:
        self.start()
        model = Decoder().cuda().half()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
        for step in range(1, 12):
            scale = 4.0**step
            loss = self.loss_of(model, self.batch())
            (loss * scale).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            say(
                f"iteration {step:8d}/{100:8d} | lm loss: {loss.item():.6E} | loss scale: {scale:.1f} | grad norm: {norm.item():.3f}"
            )
        self.end()

    def watch_anomaly(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 3)
        with torch.autograd.detect_anomaly():
            logits = model(self.batch())
            length = torch.zeros(1, device="cuda", requires_grad=True)
            penalty = torch.sqrt(length) if self.rank == 1 else length
            (logits.float().mean() + penalty.sum() * 0).backward()
        self.end()

    def scale_down(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
        for step in range(1, 14):
            with torch.autocast("cuda", torch.float16):
                loss = self.loss_of(model, self.batch()) * (1e38 if step > 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            say(f"step {step} loss {loss.item():.4f} loss_scale {scaler.get_scale():.6g}")
        self.end()

    # -- memory -----------------------------------------------------------------------------------

    def train_long(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 2)
        self.train(model, 2, 3, tokens=lambda _: self.batch(1024, 4096))

    def evaluate_whole(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 3)
        if self.rank == 0:
            say("running evaluation on 40960 sequences")
            kept = [model.module(self.batch(64, 1024)) for _ in range(64)]
            say(f"eval done {len(kept)}")
        self.train(model, 2, 4)

    def train_beside(self) -> None:
        """Another program fills GPU 1 before this one starts; the scenario starts it."""
        self.start()
        self.train(self.ddp(Decoder()), 3)
        self.end()

    def keep_losses(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        history = []
        for step in range(1, 400):
            loss = self.loss_of(model, self.batch(16, 1024))
            history.append(loss)
            held = torch.cuda.memory_allocated() / 2**30
            say(
                f"iteration {step:8d}/{400:8d} | lm loss: {loss.item():.6E} | mem-allocated-gb: {held:.2f}"
            )
        self.end()

    # -- environment ------------------------------------------------------------------------------

    def import_kernel(self) -> None:
        self.start()
        if self.rank == 1:
            import flash_attn_3_hopper  # noqa: F401
        self.train(self.ddp(Decoder()), 2)
        self.end()

    def open_library(self) -> None:
        import ctypes

        ctypes.CDLL("libnvshmem_host.so.9")

    def open_files(self) -> None:
        self.start()
        self.train(self.ddp(Decoder()), 2)
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
        shards = [open(os.devnull, "rb") for _ in range(200)]  # noqa: SIM115
        say(f"opened {len(shards)} shards")
        self.end()

    def see_no_gpu(self) -> None:
        self.start()

    def plain(self) -> None:
        self.start(timeout_s=15)
        self.train(self.ddp(Decoder()), 3)
        self.end()

    def gloo_meet(self) -> None:
        dist.init_process_group("gloo", timeout=timedelta(seconds=10))
        say(f"init done world={dist.get_world_size()}")
        if self.rank == 1:
            time.sleep(25)
        dist.monitored_barrier(timeout=timedelta(seconds=6))

    def gloo_lost(self) -> None:
        dist.init_process_group("gloo", timeout=timedelta(seconds=20))
        total = torch.ones(1 << 20)
        for step in range(6):
            dist.all_reduce(total)
            say(f"step {step} synced")
        if self.rank == 1:
            raise PermissionError(13, "Permission denied", "/mnt/shared/tokens/part-0007.bin")
        dist.all_reduce(total)

    # -- signals, speed, health -------------------------------------------------------------------

    def train_on(self) -> None:
        self.start(timeout_s=120)
        model = self.ddp(Decoder())
        for step in range(1, 2000):
            self.train(model, 1, step)
            time.sleep(0.2)

    def stand_still(self) -> None:
        self.start(timeout_s=600)
        model = self.ddp(Decoder())
        self.train(model, 4)
        if self.rank == 1:
            time.sleep(3600)
        self.train(model, 4, 5)

    def read_slowly(self) -> None:
        self.start(timeout_s=120)

        def tokens(step: int) -> torch.Tensor:
            if self.rank == 1 and step > 8:
                time.sleep(0.9)
            return self.batch()

        self.train(self.ddp(Decoder()), 26, tokens=tokens)
        self.end()

    def pause_often(self) -> None:
        self.start(timeout_s=120)
        model = self.ddp(Decoder())
        for step in range(1, 40):
            if step % 8 == 0 and self.rank == 0:
                gc.collect()
                time.sleep(1.5)
            self.train(model, 1, step)
        self.end()

    def finish_noisily(self) -> None:
        import numpy

        self.start()
        frozen = numpy.arange(8)
        frozen.flags.writeable = False
        torch.from_numpy(frozen)
        model = self.ddp(Decoder(), find_unused_parameters=True)
        self.train(model, 4)
        warnings.warn(
            "Failed to read /sys/class/power: [Errno 2] No such file or directory; energy is not logged",
            stacklevel=1,
        )
        self.train(model, 4, 5)
        say("training finished")

    def recover_from_memory(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        self.train(model, 2)
        rows = 2048
        while True:
            try:
                self.loss_of(model.module, self.batch(rows, 4096))
                break
            except torch.OutOfMemoryError as error:
                say(
                    f"WARNING batch of {rows} does not fit ({str(error)[:120]}); trying {rows // 8}"
                )
                rows //= 8
                torch.cuda.empty_cache()
        self.train(model, 5, 3)
        self.end()

    def skip_first_steps(self) -> None:
        self.start()
        model = self.ddp(Decoder())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 5))
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**32)
        for step in range(1, 30):
            with torch.autocast("cuda", torch.float16):
                loss = self.loss_of(model, self.batch())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            optimizer.zero_grad()
            say(f"step {step} loss {loss.item():.4f} loss_scale {scaler.get_scale():.6g}")
        self.end()


if __name__ == "__main__":
    getattr(Job(Path(sys.argv[2])), sys.argv[1])()
