"""How fast is an all-reduce by size, and how far apart are the ranks' clocks? Needs torch and NCCL."""

from __future__ import annotations

import datetime
import time
from typing import Any

SIZES_MIB = (1, 64, 1024)
REPEATS = {1: 300, 64: 30, 1024: 8}
# The median of several windows passes over one that something else on the links disturbed.
WINDOWS = 5


def open_group(torch: Any, device: int, rank: int, world: int, address: str, limit_s: float) -> Any:
    """Join the NCCL group at tcp://address, or the one of the environment for an empty address."""
    import torch.distributed as distributed

    torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl",
        init_method=f"tcp://{address}" if address else "env://",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=limit_s),
        device_id=torch.device("cuda", device),
    )
    return distributed


def close_group(distributed: Any) -> None:
    """Leave the group."""
    distributed.destroy_process_group()


def measure_all_reduce(torch: Any, distributed: Any, device: int, size_mib: int) -> dict[str, Any]:
    """Bus bandwidth as nccl-tests defines it: 2 (n-1)/n of size over time; GB/s of 10^9 bytes."""
    world = distributed.get_world_size()
    count = size_mib * 1024**2 // 2
    # Zeros stay zero however often they are summed.
    block = torch.zeros(count, dtype=torch.bfloat16, device=f"cuda:{device}")
    for _ in range(5):
        distributed.all_reduce(block)
    torch.cuda.synchronize(device)
    repeats = REPEATS.get(size_mib, 20)
    windows = []
    for _ in range(WINDOWS):
        distributed.barrier()
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        for _ in range(repeats):
            distributed.all_reduce(block)
        torch.cuda.synchronize(device)
        windows.append((time.perf_counter() - begin) / repeats)
    seconds = sorted(windows)[WINDOWS // 2]
    algorithm = size_mib * 1024**2 / seconds / 1e9
    return {
        "size_mib": size_mib,
        "ranks": world,
        "bus_bandwidth_gbs": round(algorithm * 2 * (world - 1) / world, 1),
        "time_us": round(seconds * 1e6, 1),
    }


def measure_skew(torch: Any, distributed: Any, device: int) -> dict[str, Any]:
    """Wall-clock difference of this rank to rank 0 at the end of a barrier; bound by its length."""
    best: tuple[float, float] | None = None
    for _ in range(5):
        begin = time.perf_counter()
        distributed.barrier()
        torch.cuda.synchronize(device)
        stamp = time.time()
        length = time.perf_counter() - begin
        both = torch.tensor([stamp], dtype=torch.float64, device=f"cuda:{device}")
        distributed.broadcast(both, src=0)
        offset = stamp - float(both.item())
        if best is None or length < best[1]:
            best = (offset, length)
    assert best is not None
    return {
        "offset_to_rank0_ms": round(best[0] * 1e3, 3),
        "uncertainty_ms": round(best[1] * 1e3, 3),
    }
