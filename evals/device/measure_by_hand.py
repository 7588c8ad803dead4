"""What are this machine's rates, measured with a plain loop that shares nothing with the probe kit?

Usage: python3 measure_by_hand.py OUT.jsonl    (one process for each GPU; needs torch)
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def seconds_per_call(call, repeats: int) -> float:
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def measure(rank: int, world: int, path: str) -> None:
    torch.cuda.set_device(rank)
    row: dict[str, object] = {"gpu": torch.cuda.get_device_name(rank), "rank": rank}
    for size, repeats in ((4096, 500), (8192, 100)):
        left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        right = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        spent = seconds_per_call(lambda left=left, right=right: left @ right, repeats)
        row[f"gemm_bf16_{size}_tflops"] = round(2 * size**3 / spent / 1e12, 1)
    one = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(one)
    spent = seconds_per_call(lambda: other.copy_(one), 50)
    row["d2d_gbs_read_plus_write"] = round(2 * one.numel() / spent / 1e9, 1)
    host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        dist.init_process_group("nccl", rank=rank, world_size=world)
    for turn in range(world):
        if turn == rank:
            spent = seconds_per_call(lambda: card.copy_(host, non_blocking=True), 20)
            row["h2d_gbs"] = round(card.numel() / spent / 1e9, 2)
            spent = seconds_per_call(lambda: host.copy_(card, non_blocking=True), 20)
            row["d2h_gbs"] = round(card.numel() / spent / 1e9, 2)
        if world > 1:
            dist.barrier()
    if world > 1:
        for mib, repeats in ((1, 1000), (64, 50), (1024, 12)):
            block = torch.zeros(mib << 19, dtype=torch.bfloat16, device="cuda")
            spent = seconds_per_call(lambda block=block: dist.all_reduce(block), repeats)
            bus = (mib << 20) / spent / 1e9 * 2 * (world - 1) / world
            row[f"allreduce_{mib}MiB_busbw_gbs"] = round(bus, 1)
        dist.barrier()
        dist.destroy_process_group()
        # The peer's process has nothing left to run: a kernel that waits in a barrier there costs 5 %.
        if rank == 0:
            near = torch.empty(1 << 28, dtype=torch.uint8, device="cuda:0")
            far = torch.empty(1 << 28, dtype=torch.uint8, device="cuda:1")
            spent = seconds_per_call(lambda: far.copy_(near, non_blocking=True), 40)
            row["p2p_0to1_gbs"] = round(near.numel() / spent / 1e9, 1)
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    target = sys.argv[1]
    count = torch.cuda.device_count()
    mp.spawn(measure, (count, target), nprocs=count)
