"""What does the memory estimator still take on trust? Measured with plain torch on one GPU.

1. Does a grouped attention in fp32 keep its score matrix, as the plain kernel does?
2. How large are the temporaries of each AdamW implementation at the step?

Usage: python3 measure_memory.py OUT.json    (under half a minute)
"""

from __future__ import annotations

import json
import sys

import torch
import torch.nn.functional as functional

MIB = 2**20
HEADS, LENGTH, WIDTH = 32, 2048, 64


def measure_attention(dtype: torch.dtype, kv_heads: int) -> dict[str, object]:
    torch.cuda.empty_cache()
    query, key, value = (
        torch.randn(1, heads, LENGTH, WIDTH, device="cuda", dtype=dtype, requires_grad=True)
        for heads in (HEADS, kv_heads, kv_heads)
    )
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=kv_heads != HEADS
    )
    kept = torch.cuda.memory_allocated() - before
    forward = torch.cuda.max_memory_allocated() - before
    out.sum().backward()
    return {
        "question": "attention",
        "dtype": str(dtype).removeprefix("torch."),
        "heads": HEADS,
        "kv_heads": kv_heads,
        "sequence": LENGTH,
        "head_width": WIDTH,
        "kept_mib": kept / MIB,
        "forward_peak_mib": forward / MIB,
        "peak_mib": (torch.cuda.max_memory_allocated() - before) / MIB,
        "fp32_score_matrix_mib": HEADS * LENGTH * LENGTH * 4 / MIB,
    }


def measure_optimizer(mode: dict[str, bool]) -> dict[str, object]:
    torch.cuda.empty_cache()
    weights = [torch.nn.Parameter(torch.randn(2**26, device="cuda")) for _ in range(8)]
    optimizer = torch.optim.AdamW(weights, lr=1e-3, **mode)
    above = 0
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        optimizer.step()
        above = torch.cuda.max_memory_allocated() - before
    size = sum(weight.numel() * 4 for weight in weights)
    return {"question": "adamw", **mode, "tensors": 8, "temporaries_share": above / size}


def main() -> None:
    rows = [{"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}]
    for dtype in (torch.bfloat16, torch.float32):
        rows += [measure_attention(dtype, heads) for heads in (8, HEADS)]
    rows += [
        measure_optimizer(mode) for mode in ({"fused": True}, {"foreach": True}, {"foreach": False})
    ]
    with open(sys.argv[1], "w", encoding="utf-8") as stream:
        json.dump(rows, stream, indent=1)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
