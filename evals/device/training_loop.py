"""What does the training program do when nothing is wrong? Model, records and loop of `training_job.py`."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

WIDTH, VOCAB, STEPS = 1024, 32_000, 8


def say(text: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"[{stamp}] [rank{os.environ.get('RANK', '?')}] {text}", flush=True)


class Block(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.relu(self.up(hidden)))


class Decoder(nn.Module):
    def __init__(self, layers: int = 4, vocab: int = VOCAB) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, vocab, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


class Records(Dataset[Any]):
    """Token records; `broken` names what is wrong with record 37."""

    def __init__(self, broken: str = "", transform: Any = None) -> None:
        self.broken, self.transform = broken, transform

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 37 and self.broken == "key":
            return torch.tensor({"tokens": [1, 2]}["input_ids"])
        if index == 37 and self.broken == "json":
            return torch.tensor(json.loads('{"input_ids": [1, 2, 3'))
        if index == 37 and self.broken == "length":
            return torch.randint(VOCAB, (77,))
        if index == 37 and self.broken == "crash":
            import ctypes

            ctypes.string_at(0)
        return torch.randint(VOCAB, (128,))


class Loop:
    """One rank's program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rank, self.local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])

    def start(self, backend: str = "nccl", timeout_s: int = 20) -> None:
        if backend == "nccl":
            torch.cuda.set_device(self.local)
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        say(f"init done world={dist.get_world_size()} torch={torch.__version__}")

    def batch(self, rows: int = 4, length: int = 256, vocab: int = VOCAB) -> torch.Tensor:
        return torch.randint(vocab, (rows, length), device="cuda")

    def loss_of(self, model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        logits = model(tokens[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def train(self, model: nn.Module, steps: int = STEPS, first: int = 1, **options: Any) -> None:
        optimizer = options.get("optimizer") or torch.optim.AdamW(
            model.parameters(), lr=options.get("lr", 1e-4)
        )
        for step in range(first, first + steps):
            begin = time.perf_counter()
            tokens = options["tokens"](step) if "tokens" in options else self.batch()
            data_ms = 1e3 * (time.perf_counter() - begin)
            loss = self.loss_of(model, tokens)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), options.get("clip", 1.0))
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
            took = 1e3 * (time.perf_counter() - begin)
            say(
                f"iteration {step:8d}/{100:8d} | elapsed time per iteration (ms): {took:.1f} | data time (ms): {data_ms:.1f} | "
                f"learning rate: {options.get('lr', 1e-4):.3E} | lm loss: {loss.item():.6E} | grad norm: {norm.item():.3f}"
            )

    def ddp(self, model: nn.Module, **options: Any) -> DistributedDataParallel:
        return DistributedDataParallel(model.cuda(), device_ids=[self.local], **options)

    def end(self) -> None:
        dist.barrier()
        say("training finished")
        dist.destroy_process_group()
