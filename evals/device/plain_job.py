"""How do plain PyTorch programs around a small language model fail? One method a fault; `framework_job.py` has the rest.

Single processes on one GPU, and pairs of gloo ranks on processors.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCAB, LENGTH = 512, 64


def say(text: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] [rank{os.environ.get('RANK', '0')}] {text}", flush=True)  # fmt: skip


class Texts(Dataset[Any]):
    """Token records for a causal language model."""

    def __init__(self, count: int = 64, length: int = LENGTH, **how: Any) -> None:
        self.count, self.length, self.how = count, length, how

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        torch.manual_seed(index)
        length = self.length + (index % 7 if self.how.get("ragged") else 0)
        tokens = torch.randint(3, self.how.get("vocab", VOCAB), (length,))
        record: dict[str, Any] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if not self.how.get("unlabelled"):
            labels = tokens.clone()
            if self.how.get("ignored"):
                labels[:] = -100
            record["labels"] = labels
        return record


def make_config(**more: Any) -> Any:
    from transformers import LlamaConfig

    values = {
        "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 384, "vocab_size": VOCAB, "max_position_embeddings": 256,
    }  # fmt: skip
    return LlamaConfig(**(values | more))


def make_model(**more: Any) -> Any:
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(make_config(**more))


class PlainJob:
    """Programs without a framework."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plain_loop(self, model: nn.Module, steps: int = 6, **how: Any) -> None:
        device = how.get("device", "cuda")
        model = model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step in range(1, steps + 1):
            batch = {k: v.to(device) for k, v in next(iter(DataLoader(Texts(), 4))).items()}
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            say(f"step {step} | loss {loss.item():.4f} | lr 1.0e-03")

    def backward_twice(self) -> None:
        model = make_model().cuda()
        total = torch.zeros((), device="cuda")
        for step, batch in enumerate(DataLoader(Texts(), 4)):
            total = total + model(**{k: v.cuda() for k, v in batch.items()}).loss
            total.backward()
            say(f"step {step} | loss {total.item():.4f}")

    def forget_gradients(self) -> None:
        model = make_model().cuda()
        self.plain_loop(model, 3)
        batch = {k: v.cuda() for k, v in next(iter(DataLoader(Texts(), 4))).items()}
        with torch.no_grad():
            loss = model(**batch).loss
        loss.backward()

    def count_with_floats(self) -> None:
        self.plain_loop(make_model(), 3)
        scores = torch.randn(8, 10, device="cuda", requires_grad=True)
        labels = torch.randint(10, (8,), device="cuda").float()
        nn.functional.nll_loss(scores.log_softmax(-1), labels).backward()

    def label_beyond_classes(self) -> None:
        head = nn.Linear(32, 10).cuda()
        for step in range(6):
            labels = torch.randint(10, (16,), device="cuda")
            if step == 4:
                labels[3] = 10
            loss = nn.functional.cross_entropy(head(torch.randn(16, 32, device="cuda")), labels)
            loss.backward()
            say(f"step {step} | loss {loss.item():.4f}")

    def fork_after_cuda(self) -> None:
        table = torch.randn(64, 8, device="cuda")

        class Rows(Dataset[Any]):
            def __len__(self) -> int:
                return 64

            def __getitem__(self, index: int) -> torch.Tensor:
                return table[index].to("cuda")

        for step, rows in enumerate(DataLoader(Rows(), 8, num_workers=2)):
            say(f"step {step} {rows.shape}")

    def wait_for_loader(self) -> None:
        class Slow(Texts):
            def __getitem__(self, index: int) -> dict[str, Any]:
                time.sleep(30 if index == 17 else 0.01)
                return super().__getitem__(index)

        for step, _ in enumerate(DataLoader(Slow(), 4, num_workers=2, timeout=6)):
            say(f"step {step} done")

    def exceed_host_memory(self) -> None:
        import numpy

        self.plain_loop(make_model(), 3)
        resource.setrlimit(resource.RLIMIT_AS, (400 << 30, 400 << 30))
        say("loading the token cache into memory")
        numpy.ones((4_000_000, 32_768), dtype=numpy.float32)

    def change_recomputation(self) -> None:
        from torch.utils.checkpoint import checkpoint

        block = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).cuda()
        calls = [0]

        def run(value: torch.Tensor) -> torch.Tensor:
            calls[0] += 1
            return block(value) if calls[0] % 2 else block[0](value)

        for step in range(3):
            out = checkpoint(run, torch.randn(4, 64, device="cuda", requires_grad=True), use_reentrant=False)  # fmt: skip
            out.sum().backward()
            say(f"step {step} done")

    def compile_without_compiler(self) -> None:
        os.environ["CC"] = "/nowhere/cc"
        self.plain_loop(torch.compile(make_model()), 3)

    def recompile_often(self) -> None:
        block = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.GELU()).cuda(), dynamic=False)
        for step in range(40):
            begin = time.perf_counter()
            block(torch.randn(4 + step, 64, device="cuda")).sum().backward()
            torch.cuda.synchronize()
            say(f"step {step} | {1e3 * (time.perf_counter() - begin):.1f} ms")

    def ask_too_much_shared_memory(self) -> None:
        import triton
        import triton.language as tl

        @triton.jit
        def product(a, b, c, K: tl.constexpr, M: tl.constexpr):
            rows, cols = tl.arange(0, M), tl.arange(0, M)
            total = tl.zeros((M, M), dtype=tl.float32)
            for start in tl.range(0, K, 256, num_stages=6):
                inner = start + tl.arange(0, 256)
                left = tl.load(a + rows[:, None] * K + inner[None, :])
                right = tl.load(b + inner[:, None] * M + cols[None, :])
                total += tl.dot(left, right)
            tl.store(c + rows[:, None] * M + cols[None, :], total)

        self.plain_loop(make_model(), 3)
        left = torch.randn(128, 2048, device="cuda", dtype=torch.bfloat16)
        right = torch.randn(2048, 128, device="cuda", dtype=torch.bfloat16)
        product[(1,)](left, right, torch.empty(128, 128, device="cuda"), 2048, 128)

    def read_past_the_end(self) -> None:
        import triton
        import triton.language as tl

        @triton.jit
        def copy(source, target, far):
            at = tl.program_id(0) * 128 + tl.arange(0, 128)
            tl.store(target + at, tl.load(source + at.to(tl.int64) * far))

        self.plain_loop(make_model(), 3)
        source = torch.randn(1024, device="cuda")
        copy[(8,)](source, torch.empty_like(source), 1 << 40)
        torch.cuda.synchronize()

    def train_beside_full_card(self) -> None:
        say("rank 0 starts on cuda:0")
        weight = torch.empty(1 << 20, device="cuda")
        say(f"allocated {weight.numel() * 4 >> 20} MiB")
        left = torch.randn(512, 512, device="cuda")
        (left @ left).sum().item()
        self.plain_loop(make_model(), 6)

    # -- two gloo ranks on processors -------------------------------------------------------------

    def meet(self, timeout_s: int = 15) -> int:
        from datetime import timedelta

        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
        return int(dist.get_rank())

    def stop_early_alone(self) -> None:
        rank = self.meet()
        model = nn.parallel.DistributedDataParallel(make_model())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        best = 9.0
        for epoch, batch in enumerate(DataLoader(Texts(80), 4)):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            say(f"epoch {epoch} train loss {loss.item():.4f}")
            if rank == 0 and epoch == 5 and loss.item() < best:
                say("early stopping: no improvement for 3 epochs, leaving the loop")
                break
        say("evaluating the best checkpoint")

    def say_unpicklable(self) -> None:
        import torch.distributed as dist

        rank = self.meet()
        found = [{"step": 4, "schedule": lambda step: step}] if rank == 0 else [None]
        dist.broadcast_object_list(found)

    def miss_monitored_barrier(self) -> None:
        from datetime import timedelta

        import torch.distributed as dist

        rank = self.meet()
        say("reached the end of epoch 3")
        if rank == 1:
            say("writing validation images")
            time.sleep(20)
        dist.monitored_barrier(timeout=timedelta(seconds=6))

    def gather_unequal(self) -> None:
        import torch.distributed as dist

        rank = self.meet()
        mine = torch.ones(4 + rank)
        say(f"gathering {tuple(mine.shape)}")
        dist.all_gather([torch.empty(4), torch.empty(4)], mine)
        dist.barrier()

    def leave_parameters_out(self) -> None:
        self.meet()

        class Two(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.main, self.side = nn.Linear(8, 8), nn.Linear(8, 8)

            def forward(self, value: torch.Tensor) -> torch.Tensor:
                return self.main(value)

        model = nn.parallel.DistributedDataParallel(Two())
        for step in range(3):
            model(torch.randn(4, 8)).sum().backward()
            say(f"step {step} done")
