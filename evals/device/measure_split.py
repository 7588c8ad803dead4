"""How much does each rank hold at its peak when a step is split, beside what the estimator says?

Every plan that the GPUs of this host allow: tensor parallel with sequence parallel, pipeline (1F1B), both,
with and without full recomputation (layers after Megatron's, split_model.py), and FSDP2 on a Hugging
Face Llama where transformers is installed. Any number of GPUs (one gives the unsplit plans); the tools folder on PYTHONPATH.

Usage: python3 measure_split.py OUT.json [--limit-s 150]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from split_model import MixedAdam, Pipeline, Stage
from split_plans import Plan, list_plans, predict_rank, shape_of

from firstfault_tools.memory.check import score_rows
from firstfault_tools.memory.sizes import GIB

STEPS = 3


def measure_plan(plan: Plan, device: torch.device) -> dict[str, object]:
    """Peak bytes of every rank over the last steps, and the estimate of each rank's stage."""
    rank, world = dist.get_rank(), dist.get_world_size()
    shape = shape_of(plan)
    groups = [list(range(start, start + plan.tensor)) for start in range(0, world, plan.tensor)]
    mine = [dist.new_group(ranks) for ranks in groups][rank // plan.tensor]
    torch.manual_seed(rank)
    # what libraries keep for themselves is not the model's
    torch.cuda.synchronize()
    floor = torch.cuda.memory_allocated()
    stage = Stage(shape, rank // plan.tensor, mine, plan.recompute)
    stage = stage.to(device=device, dtype=torch.bfloat16)
    optimizer = MixedAdam(stage)
    pipeline = Pipeline(stage, list(range(rank % plan.tensor, world, plan.tensor)), device)
    tokens = torch.randint(shape.vocab, (shape.sequence, shape.batch), device=device)
    dist.broadcast(tokens, 0)
    peak = 0
    for step in range(STEPS):
        if step:
            torch.cuda.reset_peak_memory_stats()
        pipeline.step(tokens, plan.micro_batches)
        torch.cuda.synchronize()
        peak = max(peak, torch.cuda.max_memory_allocated()) if step else 0
        optimizer.step()
    terms = predict_rank(plan, rank // plan.tensor)
    row = {
        "rank": rank,
        "measured_gib": round((peak - floor) / GIB, 3),
        "estimated_gib": round(sum(terms.values()) / GIB, 3),
        "terms_gib": {name: round(size / GIB, 3) for name, size in terms.items()},
    }
    row["error_percent"] = round(100 * (row["estimated_gib"] / row["measured_gib"] - 1), 2)
    rows: list[object] = [None] * world
    dist.all_gather_object(rows, row)
    return {**asdict(plan), "ranks": rows}


def measure_fsdp(world: int, recompute: bool, micro_batch: int) -> dict[str, object]:
    """One FSDP2 row in the form that `firstfault memory --check` reads."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM

    values = {"hidden": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "ffn": 8192}
    config = LlamaConfig(
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=8192,
        vocab_size=128_256,
        tie_word_embeddings=True,
        use_cache=False,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    floor = torch.cuda.memory_allocated()
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    tokens = torch.randint(128_256, (micro_batch, 2048), device="cuda")
    peaks: dict[str, float] = {}
    for _ in range(STEPS):
        peaks["params"] = (torch.cuda.memory_allocated() - floor) / GIB
        torch.cuda.reset_peak_memory_stats()
        loss = model(input_ids=tokens, labels=tokens).loss
        peaks["peak_forward"] = (torch.cuda.max_memory_allocated() - floor) / GIB
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        peaks["peak_backward"] = (torch.cuda.max_memory_allocated() - floor) / GIB
        del loss
        optimizer.step()
        optimizer.zero_grad()
    peaks["peak_allocated"] = max(peaks["peak_forward"], peaks["peak_backward"])
    row = {
        "arch": "llama", **values, "vocab": 128_256, "tied": True, "precision": "amp", "attn": "sdpa",
        "recompute": "full" if recompute else "none", "seq": 2048, "mbs": micro_batch,
        "parallel": "fsdp", "optimizer": "adamw_fused", "world": world,
        "measured": {name: round(size, 3) for name, size in peaks.items()},
    }  # fmt: skip
    scored = score_rows([row])["rows"][0]
    gathered: list[object] = [None] * world
    dist.all_gather_object(gathered, row["measured"]["peak_allocated"])
    return {
        **row,
        "all_ranks_gib": gathered,
        "estimated_gib": round(scored["predicted_gib"], 3),
        "error_percent": round(100 * scored["error"], 2),
    }


def clean() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def work(rank: int, world: int, port: int, options: argparse.Namespace) -> None:
    device = torch.device("cuda", rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=device)
    warm = torch.ones(256, 256, device=device, dtype=torch.bfloat16)
    (warm @ warm).sum().item()
    began = time.monotonic()
    rows: list[dict[str, object]] = []
    tasks = [(measure_plan, (plan, device)) for plan in list_plans(world)]
    tasks += [(measure_fsdp, (world, *how)) for how in ((False, 1), (False, 4), (True, 4))]
    for measure, arguments in tasks:
        late = torch.tensor([time.monotonic() - began > options.limit_s], device=device)
        dist.broadcast(late, 0)
        if late.item():
            rows.append({"skipped": str(arguments)})
            continue
        rows.append(measure(*arguments))
        clean()
        if rank == 0:
            print(json.dumps(rows[-1]), flush=True)
            head = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "gpus": world}
            options.out.write_text(json.dumps({**head, "rows": rows}, indent=1))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit-s", type=float, default=150.0)
    options = parser.parse_args()
    world = torch.cuda.device_count()
    if not world:
        sys.exit("no GPU is visible")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, (world, port, options), nprocs=world)


if __name__ == "__main__":
    main()
