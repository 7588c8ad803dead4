"""How fast does one GPU compute, copy, and talk to the host and to its peers? Needs torch.

Each rate is the median of several windows, each long enough that the clock's resolution does not count.
A matrix product heats the card into its power limit within a tenth of a second, after which the rate is
that of the limit: it is measured in many short windows after a rest, and both the best window (what the
card can do) and the median (what it keeps up) are reported. Matrices hold random numbers: zeros draw less power and give rates a real step never sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WINDOWS = 3
# A card at its power limit lowers its clock within a tenth of a second; longer windows would compare
# heat, not cards. The spread between windows shows when that happens.
WINDOW_S = 0.05
GEMM_WINDOWS = 12
GEMM_WINDOW_S = 0.02
# Lets the power controller forget the shape before, which otherwise costs the next one 3-10 %.
REST_S = 0.3
GEMM_SHAPES = (("bf16", 4096), ("bf16", 8192), ("fp16", 8192), ("tf32", 8192), ("fp8", 8192))
COPY_BYTES = 2 * 1024**3
LINK_BYTES = 512 * 1024**2
# About the size of a bucket of gradients.
PEER_BYTES = 256 * 1024**2


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def time_call(
    torch: Any,
    device: int,
    call: Callable[[], object],
    least: int = 3,
    windows: int = WINDOWS,
    window_s: float = WINDOW_S,
) -> list[float]:
    """Seconds per call in each window, measured with events on the device's own stream."""
    with torch.cuda.device(device):
        for _ in range(3):
            call()
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize(device)
        single = max(time.perf_counter() - begin, 1e-6)
        repeats = max(least, min(2000, int(window_s / single)))
        seconds = []
        for _ in range(windows):
            first = torch.cuda.Event(enable_timing=True)
            last = torch.cuda.Event(enable_timing=True)
            first.record()
            for _ in range(repeats):
                call()
            last.record()
            torch.cuda.synchronize(device)
            seconds.append(first.elapsed_time(last) / 1e3 / repeats)
    return seconds


def _spread(seconds: list[float]) -> float:
    return round(100.0 * (max(seconds) - min(seconds)) / _median(seconds), 2)


def _time_product(torch: Any, device: int, call: Callable[[], object]) -> list[float]:
    torch.cuda.synchronize(device)
    time.sleep(REST_S)
    return time_call(torch, device, call, 3, GEMM_WINDOWS, GEMM_WINDOW_S)


def measure_gemm(torch: Any, device: int, dtype: str, size: int) -> dict[str, Any]:
    """TFLOP/s of a square matrix product, 2 n^3 operations. Raises RuntimeError where unsupported.

    rate_tflops: the best window. sustained_tflops: the median window, lower where the power limit holds.
    """
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
    place = f"cuda:{device}"
    if dtype == "fp8":
        if not hasattr(torch, "_scaled_mm") or torch.cuda.get_device_capability(device) < (8, 9):
            raise NotImplementedError("this card or this torch has no fp8 product")
        one = torch.ones((), device=place)
        left = torch.randn(size, size, device=place).to(torch.float8_e4m3fn)
        right = torch.randn(size, size, device=place).to(torch.float8_e4m3fn).t()

        def call() -> object:
            return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        seconds = _time_product(torch, device, call)
    else:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        try:
            left = torch.randn(size, size, device=place, dtype=types[dtype])
            right = torch.randn(size, size, device=place, dtype=types[dtype])
            result = torch.empty(size, size, device=place, dtype=types[dtype])
            seconds = _time_product(torch, device, lambda: torch.mm(left, right, out=result))
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    operations = 2.0 * size**3 / 1e12
    return {
        "dtype": dtype,
        "size": size,
        "rate_tflops": round(operations / min(seconds), 1),
        "sustained_tflops": round(operations / _median(seconds), 1),
        "spread_percent": _spread(seconds),
    }


def measure_copy(torch: Any, device: int) -> dict[str, Any]:
    """GB/s of a copy inside one GPU's memory, read and write counted."""
    free, _total = torch.cuda.mem_get_info(device)
    count = int(min(COPY_BYTES, free // 4))
    source = torch.empty(count, dtype=torch.uint8, device=f"cuda:{device}").fill_(1)
    target = torch.empty_like(source)
    seconds = time_call(torch, device, lambda: target.copy_(source))
    return {
        "bytes": count,
        "rate_read_write_gbs": round(2.0 * count / _median(seconds) / 1e9, 1),
        "spread_percent": _spread(seconds),
    }


def measure_host_link(torch: Any, device: int) -> dict[str, Any]:
    """GB/s between pinned host memory and the GPU, each way."""
    host = torch.empty(LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(LINK_BYTES, dtype=torch.uint8, device=f"cuda:{device}")
    up = time_call(torch, device, lambda: card.copy_(host, non_blocking=True))
    down = time_call(torch, device, lambda: host.copy_(card, non_blocking=True))
    return {
        "bytes": LINK_BYTES,
        "host_to_device_gbs": round(LINK_BYTES / _median(up) / 1e9, 2),
        "device_to_host_gbs": round(LINK_BYTES / _median(down) / 1e9, 2),
    }


def measure_peer(torch: Any, source: int, target: int) -> dict[str, Any]:
    """GB/s of a copy from one GPU to another, one way."""
    count = PEER_BYTES
    one = torch.empty(count, dtype=torch.uint8, device=f"cuda:{source}").fill_(1)
    other = torch.empty(count, dtype=torch.uint8, device=f"cuda:{target}")
    seconds = time_call(torch, source, lambda: other.copy_(one, non_blocking=True))
    direct = bool(torch.cuda.can_device_access_peer(source, target))
    return {
        "from_gpu": source,
        "to_gpu": target,
        "rate_gbs": round(count / _median(seconds) / 1e9, 1),
        "peer_access": direct,
    }


def check_memory(torch: Any, device: int, fraction: float = 0.9) -> dict[str, Any]:
    """Fill most of the free memory with a pattern, read it back, count wrong words.

    Raises torch.cuda.OutOfMemoryError where the driver reports memory free that cannot be had.
    """
    free, total = torch.cuda.mem_get_info(device)
    piece = 1024**3
    # The comparison needs a quarter of a piece beside it.
    count = max(1, int(free * fraction - piece) // piece)
    begin = time.perf_counter()
    blocks = []
    wrong = 0
    try:
        for number in range(count):
            block = torch.empty(piece // 4, dtype=torch.int32, device=f"cuda:{device}")
            block.fill_(0x5A5A0000 + number)
            blocks.append(block)
        for number, block in enumerate(blocks):
            wrong += int((block != 0x5A5A0000 + number).sum().item())
    finally:
        blocks.clear()
        torch.cuda.empty_cache()
    return {
        "free_gib": round(free / 1024**3, 2),
        "total_gib": round(total / 1024**3, 2),
        "tested_gib": float(count),
        "wrong_words": wrong,
        "elapsed_s": round(time.perf_counter() - begin, 3),
    }
