"""How can one training job be broken in many ways, each named as user code would be?

The job of every scenario of `induce_collectives.py`, which copies this file to `train.py` and
starts it on two ranks: `train.py METHOD FOLDER`. A few healthy steps come first, then the fault, a
method of `Job`. Nothing here is named after the fault, since names end up in the stacks.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

COLLECTIVE_TIMEOUT_S = 8
STACKS_AFTER_S = 4
LIMIT_S = 50
FAULT_STEP = 4
STEPS = 6


class Job:
    """The training loop of one rank; every scenario is one method, named as user code would be."""

    def __init__(self, folder: Path) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.folder = torch, dist, folder
        self.rank = int(os.environ["RANK"])
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(
            "nccl",
            timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
            device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])),
        )
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        self.say(f"init done world={dist.get_world_size()} torch={torch.__version__} nccl={nccl}")
        self.model = torch.nn.Linear(1024, 1024, device="cuda")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def say(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"[{stamp}] [rank{self.rank}] {text}", flush=True)

    def tensor(self, numel: int, dtype: Any = None) -> Any:
        return self.torch.ones(numel, device="cuda", dtype=dtype)

    def watch_stacks(self) -> None:
        """Write all Python stacks of this rank once it has been stuck for a while."""
        import faulthandler

        stream = (self.folder / f"stacks_rank_{self.rank}.txt").open("w")
        faulthandler.dump_traceback_later(STACKS_AFTER_S, file=stream)

    def train_step(self, step: int) -> None:
        batch = self.torch.randn(8, 1024, device="cuda")
        loss = self.model(batch).square().mean()
        loss.backward()
        for parameter in self.model.parameters():
            self.dist.all_reduce(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.say(f"iteration {step:8d}/{STEPS:8d} | lm loss: {loss.item():.6E} | grad norm: 0.750")

    def run(self, method: str) -> None:
        if method == "captures":
            self.capture()
            return
        for step in range(1, FAULT_STEP):
            self.train_step(step)
        if method != "healthy":
            self.watch_stacks()
            getattr(self, method)()
            self.torch.cuda.synchronize()
        for step in range(FAULT_STEP, STEPS + 1):
            self.train_step(step)
        self.torch.cuda.synchronize()
        self.keep_dump()
        self.say("training finished")
        self.dist.destroy_process_group()

    def keep_dump(self) -> None:
        """Write the recorder by hand where no watchdog did: misuse of NCCL may also complete."""
        path = self.folder / f"fr_rank_{self.rank}"
        if not path.exists():
            path.write_bytes(self.torch._C._distributed_c10d._dump_nccl_trace())

    # -- the faults -------------------------------------------------------------------------------

    def log_and_clip(self) -> None:
        if self.rank == 1:
            self.say("entering eval")
            self.evaluate()
        self.clip_gradients()

    def clip_gradients(self) -> None:
        norm = self.tensor(1 << 20)
        self.dist.all_reduce(norm)
        self.torch.cuda.synchronize()

    def evaluate(self) -> None:
        time.sleep(LIMIT_S)

    def checkpoint_and_clip(self) -> None:
        if self.rank == 0:
            self.say("saving checkpoint at iteration 4 to checkpoints/iter_0000004")
            self.save_checkpoint()
        self.clip_gradients()

    def save_checkpoint(self) -> None:
        with (self.folder / "shard.bin").open("wb") as stream:
            for _ in range(10 * LIMIT_S):
                stream.write(b"\0" * 4096)
                stream.flush()
                time.sleep(0.1)

    def sync_metrics(self) -> None:
        metrics = self.tensor(1 << 20)
        if self.rank == 1:
            self.dist.broadcast(metrics, src=1)
            self.dist.broadcast(metrics, src=0)
        else:
            self.dist.all_reduce(metrics)
            self.dist.all_reduce(metrics)

    def count_tokens(self) -> None:
        tokens = self.tensor((1 << 22) + (1 << 20) * self.rank)
        self.dist.all_reduce(tokens)

    def average_activations(self) -> None:
        kind = self.torch.bfloat16 if self.rank == 1 else self.torch.float32
        self.dist.all_reduce(self.tensor(1 << 24, kind))

    def finish_step(self) -> None:
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self.clip_gradients()

    def fetch_and_clip(self) -> None:
        if self.rank == 1:
            self.next_batch()
        self.clip_gradients()

    def next_batch(self) -> Any:
        from torch.utils.data import DataLoader

        loader = DataLoader(SlowFiles(), batch_size=2, num_workers=1)
        return next(iter(loader))

    def publish_metrics(self) -> None:
        lock = threading.Lock()
        if self.rank == 1:
            threading.Thread(target=self.flush_metrics, args=(lock,), daemon=True).start()
            time.sleep(0.5)
            with lock:
                self.say("metrics flushed")
        self.clip_gradients()

    def flush_metrics(self, lock: threading.Lock) -> None:
        with lock:
            time.sleep(LIMIT_S)

    def tokenize_and_clip(self) -> None:
        if self.rank == 1:
            self.tokenize_native()
        self.clip_gradients()

    def tokenize_native(self) -> None:
        import ctypes

        ctypes.PyDLL(None).sleep(LIMIT_S)

    def exchange_activations(self) -> None:
        activations = self.tensor(1 << 24)
        peer = 1 - self.rank
        self.connect_stages()
        self.dist.send(activations, peer)
        self.torch.cuda.synchronize()
        self.dist.recv(activations, peer)

    def connect_stages(self) -> None:
        """One exchange that works: without it both sides are still setting up the connection."""
        for source in (0, 1):
            move = self.dist.send if source == self.rank else self.dist.recv
            move(self.tensor(1 << 10), 1 - self.rank)
        self.torch.cuda.synchronize()

    def receive_activations(self) -> None:
        self.connect_stages()
        if self.rank == 0:
            self.dist.recv(self.tensor(1 << 20), 1)
            self.torch.cuda.synchronize()
        else:
            self.evaluate()

    def reduce_over_groups(self) -> None:
        limit = timedelta(seconds=COLLECTIVE_TIMEOUT_S)
        first, second = (self.dist.new_group([0, 1], timeout=limit) for _ in range(2))
        for group in (first, second):
            self.dist.all_reduce(self.tensor(1), group=group)
        self.torch.cuda.synchronize()
        order = (first, second) if self.rank == 0 else (second, first)
        for group in order:
            self.dist.all_reduce(self.tensor(1 << 22), group=group)
            self.torch.cuda.synchronize()

    def collate_and_clip(self) -> None:
        if self.rank == 1:
            self.collate([3, -7])
        self.clip_gradients()

    def collate(self, lengths: list[int]) -> None:
        if min(lengths) < 0:
            raise ValueError(f"sample 104213 has negative length {min(lengths)}")

    def dispatch_tokens(self) -> None:
        rows = 1 << 20
        sends = [rows, rows] if self.rank == 0 else [rows, 3 * rows]
        takes = [rows, 2 * rows] if self.rank == 0 else [rows, 3 * rows]
        self.dist.all_to_all_single(self.tensor(sum(takes)), self.tensor(sum(sends)), takes, sends)

    def guarded_steps(self) -> None:
        for step in range(FAULT_STEP, FAULT_STEP + 3):
            try:
                if self.rank == 1 and step == FAULT_STEP + 1:
                    raise RuntimeError("CUDA out of memory in step, batch skipped")
                self.clip_gradients_async()
            except RuntimeError as error:
                self.say(f"WARNING step {step}: {error}")
                continue
        self.torch.cuda.synchronize()
        if self.rank == 1:
            self.evaluate()

    def clip_gradients_async(self) -> None:
        self.dist.all_reduce(self.tensor(1 << 20))

    def gather_outputs(self) -> None:
        if self.rank == 1:
            self.say("data exhausted after 3 batches")
            self.dist.broadcast(self.tensor(1 << 18), src=1)
        else:
            self.dist.all_gather_into_tensor(self.tensor(1 << 21), self.tensor(1 << 20))

    # -- captures of a healthy run ----------------------------------------------------------------

    def capture(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        memory = self.torch.cuda.memory
        memory._record_memory_history(max_entries=2000)
        kept = []
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for step in range(1, 5):
                self.train_step(step)
                self.clip_gradients()
                kept.append(self.remember_activations())
                time.sleep(0.02)
        profiler.export_chrome_trace(str(self.folder / f"trace_rank_{self.rank}.json.gz"))
        memory._dump_snapshot(str(self.folder / f"snapshot_rank_{self.rank}.pickle"))
        self.keep_dump()
        self.say(f"training finished, kept {len(kept)} activations")
        self.dist.destroy_process_group()

    def remember_activations(self) -> Any:
        return self.torch.randn(4 << 20, device="cuda")


class SlowFiles:
    """A dataset whose third sample never arrives."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        if index >= 1:
            time.sleep(LIMIT_S)
        return index


def work(method: str, folder: Path) -> None:
    """The body of one rank. SIGALRM's default action ends it even while the GIL is held."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S + 5)
    (folder / f"pid_{os.environ['RANK']}").write_text(str(os.getpid()))
    Job(folder).run(method)


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]))
