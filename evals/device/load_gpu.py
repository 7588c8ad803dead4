"""Plant a slow rank: keep one GPU busy with matrix products until this process is ended.

Usage: python3 load_gpu.py GPU_INDEX [SECONDS]
"""

from __future__ import annotations

import sys
import time

import torch


def main() -> None:
    device = f"cuda:{sys.argv[1]}"
    until = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 600.0)
    left = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    right = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    print("loaded", flush=True)
    while time.monotonic() < until:
        for _ in range(20):
            left @ right
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
