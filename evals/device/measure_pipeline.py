"""How long do real pipeline steps take, and how far is the simulation fed with their own stage times?

Runs the schedules of torch.distributed.pipelining on every GPU of one host, one process a GPU, and
times each forward and backward chunk with events inside the running step, since a card under load
computes slower than one measured alone. The simulation gets those times and the measured transfer
time and nothing else. Needs torch; the tools folder on PYTHONPATH.

Usage: python3 measure_pipeline.py OUT.json [--limit-s 150]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules as torch_schedules

from firstfault_tools.errors import ToolError
from firstfault_tools.pipeline.bubble import plan_of, price_plan

WIDTH, TOKENS, LAYERS_A_RANK = 4096, 2048, 8
WARM_UP, STEPS = 2, 5
# name, class, chunks a rank, layout of the stages
RUNS = (
    ("gpipe", "ScheduleGPipe", 1),
    ("1f1b", "Schedule1F1B", 1),
    ("interleaved", "ScheduleInterleaved1F1B", 2),
    ("1f1b-unequal", "Schedule1F1B", 1),
    ("zb-v", "ScheduleZBVZeroBubble", 2),
)


class Layer(nn.Module):
    """A residual feed-forward block: two large products, nothing else of weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + self.down(torch.relu(self.up(value)))


class Watch:
    """Times the chunks of one rank with events on the compute stream, after its waits."""

    def __init__(self, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.marks: list[tuple[str, int, object, object]] = []

    def mark(self) -> object:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def attach(self, stage: object) -> None:
        for kind, name in (
            ("F", "forward_one_chunk"),
            ("B", "backward_one_chunk"),
            ("W", "backward_weight_one_chunk"),
        ):
            setattr(stage, name, self.wrap(kind, stage.stage_index, getattr(stage, name)))

    def wrap(self, kind: str, stage: int, call):
        def timed(*arguments, **named):
            begin = self.mark()
            answer = call(*arguments, **named)
            self.marks.append((kind, stage, begin, self.mark()))
            return answer

        return timed

    def read(self) -> dict[str, float]:
        """Median milliseconds by 'kind:stage' since the last reading."""
        found = defaultdict(list)
        for kind, stage, begin, end in self.marks:
            spent = begin.elapsed_time(end) if self.on_gpu else 1e3 * (end - begin)
            found[f"{kind}:{stage}"].append(spent)
        self.marks.clear()
        return {key: statistics.median(values) for key, values in found.items()}


def count_layers(name: str, stages: int, chunks: int) -> list[int]:
    """Layers of every stage; the last stage of the unequal run has half of the others'."""
    layers = [LAYERS_A_RANK // chunks] * stages
    if name.endswith("unequal"):
        layers[-1] //= 2
    return layers


def place_stages(name: str, rank: int, world: int, chunks: int) -> list[int]:
    if name == "zb-v":
        return [rank, 2 * world - 1 - rank]
    return [rank + chunk * world for chunk in range(chunks)]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_transfer(rank: int, world: int, device: torch.device, options) -> float:
    """Milliseconds one activation takes to the next rank, median over a ring of sends."""
    block = torch.zeros(1, options.tokens, options.width, dtype=torch.bfloat16, device=device)
    spent = []
    for _ in range(15):
        dist.barrier()
        wait(device)
        begin = time.perf_counter()
        if rank == 0:
            dist.send(block, 1)
            dist.recv(block, 1)
        elif rank == 1:
            dist.recv(block, 0)
            dist.send(block, 0)
        wait(device)
        spent.append((time.perf_counter() - begin) / 2 * 1e3)
    value = torch.tensor([statistics.median(spent[5:])], device=device)
    dist.broadcast(value, 0)
    return float(value.item())


def run_schedule(name: str, kind: str, chunks: int, m: int, device, options) -> dict[str, object]:
    """One measured row on every rank; the times of all ranks are gathered."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = count_layers(name, world * chunks, chunks)
    watch = Watch(device.type == "cuda")
    stages = []
    for index in place_stages(name, rank, world, chunks):
        body = nn.Sequential(*(Layer(options.width) for _ in range(layers[index])))
        body = body.to(device=device, dtype=torch.bfloat16)
        # Given, since asking the neighbours for it takes a V for a ring.
        example = torch.empty(1, options.tokens, options.width, dtype=torch.bfloat16, device=device)
        stage = pipelining.PipelineStage(
            body, index, world * chunks, device, input_args=(example,), output_args=(example,)
        )
        watch.attach(stage)
        stages.append(stage)
    maker = getattr(torch_schedules, kind)
    whole = issubclass(maker, torch_schedules.PipelineScheduleMulti)
    schedule = maker(stages if whole else stages[0], m, loss_fn=lambda y, t: (y * t).float().mean())
    block = torch.randn(m, options.tokens, options.width, dtype=torch.bfloat16, device=device)
    first = any(stage.is_first for stage in stages)
    last = any(stage.is_last for stage in stages)
    inputs = (block,) if first else ()
    seconds = []
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            watch.read()
        dist.barrier()
        wait(device)
        begin = time.perf_counter()
        schedule.step(*inputs, **({"target": block, "losses": []} if last else {}))
        wait(device)
        mine = torch.tensor([time.perf_counter() - begin], device=device)
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        seconds.append(float(mine.item()))
    gathered: list[dict[str, float] | None] = [None] * world
    dist.all_gather_object(gathered, watch.read())
    chunk_ms = {key: spent for one in gathered for key, spent in (one or {}).items()}
    return {
        "schedule": name,
        "p": world,
        "m": m,
        "v": chunks,
        "step_ms": round(statistics.median(seconds[WARM_UP:]) * 1e3, 3),
        "chunk_ms": {key: round(spent, 4) for key, spent in sorted(chunk_ms.items())},
    }


def predict_step(row: dict, transfer_ms: float) -> dict[str, object]:
    """The simulation of the same schedule with the row's own chunk times."""
    p, v, chunk_ms = row["p"], row["v"], row["chunk_ms"]
    layout = [place_stages(row["schedule"], rank, p, v) for rank in range(p)]

    def total(letter: str) -> list[float]:
        return [sum(chunk_ms.get(f"{letter}:{stage}", 0.0) for stage in mine) for mine in layout]

    forward, weight = total("F"), total("W")
    backward = [b + w for b, w in zip(total("B"), weight, strict=True)]
    name = row["schedule"].removesuffix("-unequal")
    split = {"weight": weight} if any(weight) else {}
    bubble = price_plan(
        plan_of(name, p, row["m"], v, forward, backward, latency=transfer_ms, **split)
    )
    return {
        "simulated_ms": round(bubble.makespan, 3),
        "error_percent": round(100 * (bubble.makespan / row["step_ms"] - 1), 2),
        "measured_fraction": round(1 - bubble.ideal / row["step_ms"], 4),
        "simulated_fraction": round(bubble.fraction_of_total, 4),
    }


def work(rank: int, world: int, port: int, options: argparse.Namespace) -> None:
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if on_gpu:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", rank=rank, world_size=world, device_id=device)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    began = time.monotonic()
    transfer_ms = time_transfer(rank, world, device, options)
    head = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(device) if on_gpu else "none",
        "gpus": world,
        "width": options.width,
        "tokens": options.tokens,
        "layers_a_rank": LAYERS_A_RANK,
        "transfer_ms": round(transfer_ms, 4),
    }
    rows: list[dict[str, object]] = []
    for name, kind, chunks in RUNS:
        for m in (world, 2 * world, 4 * world, 8 * world):
            late = torch.tensor([time.monotonic() - began > options.limit_s], device=device)
            dist.broadcast(late, 0)
            if late.item():
                rows.append({"schedule": name, "m": m, "skipped": "out of time"})
                continue
            try:
                row = run_schedule(name, kind, chunks, m, device, options)
                row.update(predict_step(row, transfer_ms))
            except (RuntimeError, ValueError, AttributeError, TypeError, ToolError) as error:
                row = {"schedule": name, "m": m, "failed": f"{type(error).__name__}: {error}"[:300]}
                print(f"rank {rank}: {row}", flush=True)
            rows.append(row)
            # A stage and its wrapped methods refer to each other: a cycle that holds gigabytes.
            gc.collect()
            if on_gpu:
                torch.cuda.empty_cache()
            if rank == 0:
                print({key: value for key, value in row.items() if key != "chunk_ms"}, flush=True)
                options.out.write_text(json.dumps({**head, "rows": rows}, indent=1))
            if "failed" in row:
                # The other ranks wait for this one in a collective; leaving ends them too.
                raise SystemExit(1)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit-s", type=float, default=150.0)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--processes", type=int, default=0, help="without a GPU: ranks on the CPU")
    options = parser.parse_args()
    world = options.processes or torch.cuda.device_count()
    if world < 2:
        raise SystemExit("a pipeline needs two GPUs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, (world, port, options), nprocs=world)


if __name__ == "__main__":
    main()
