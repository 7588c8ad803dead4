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


def time_windows(call, repeats: int, windows: int) -> list[float]:
    """Seconds per call of each window, sorted. One window alone was once off by a third."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    spent = []
    for _ in range(windows):
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
        spent.append((time.perf_counter() - begin) / repeats)
    return sorted(spent)


def seconds_per_call(call, repeats: int, windows: int = 5) -> float:
    return time_windows(call, repeats, windows)[windows // 2]


def measure(rank: int, world: int, path: str) -> None:
    torch.cuda.set_device(rank)
    row: dict[str, object] = {"gpu": torch.cuda.get_device_name(rank), "rank": rank}
    for size, repeats in ((4096, 100), (8192, 14)):
        left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        right = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        time.sleep(0.3)
        spent = time_windows(lambda left=left, right=right: left @ right, repeats, 12)
        row[f"gemm_bf16_{size}_tflops"] = round(2 * size**3 / spent[0] / 1e12, 1)
        row[f"gemm_bf16_{size}_sustained_tflops"] = round(2 * size**3 / spent[6] / 1e12, 1)
    one = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(one)
    spent = seconds_per_call(lambda: other.copy_(one), 20)
    row["d2d_gbs_read_plus_write"] = round(2 * one.numel() / spent / 1e9, 1)
    host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        dist.init_process_group("nccl", rank=rank, world_size=world)
    for turn in range(world):
        if turn == rank:
            spent = seconds_per_call(lambda: card.copy_(host, non_blocking=True), 5)
            row["h2d_gbs"] = round(card.numel() / spent / 1e9, 2)
            spent = seconds_per_call(lambda: host.copy_(card, non_blocking=True), 5)
            row["d2h_gbs"] = round(card.numel() / spent / 1e9, 2)
        if world > 1:
            dist.barrier()
    if world > 1:
        for mib, repeats in ((1, 300), (64, 30), (1024, 8)):
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
            spent = seconds_per_call(lambda: far.copy_(near, non_blocking=True), 20)
            row["p2p_0to1_gbs"] = round(near.numel() / spent / 1e9, 1)
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    target = sys.argv[1]
    count = torch.cuda.device_count()
    mp.spawn(measure, (count, target), nprocs=count)
