"""What does the process beside one GPU do? It takes orders on standard input and answers in JSON lines.

One process a GPU: a GPU that hangs takes only its own process with it, and the parent sees who is silent.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

from . import collective, rates


def _explain(error: BaseException) -> str:
    return (
        f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300] if str(error) else ''}"
    )


class Worker:
    """State of one process: its device and, while collectives run, the group."""

    def __init__(self, device: int) -> None:
        import torch

        self.torch: Any = torch
        self.device = device
        self.distributed: Any = None
        self.orders: dict[str, Callable[..., dict[str, Any]]] = {
            "hello": self.hello,
            "gemm": lambda dtype, size: rates.measure_gemm(self.torch, self.device, dtype, size),
            "copy": lambda: rates.measure_copy(self.torch, self.device),
            "host_link": lambda: rates.measure_host_link(self.torch, self.device),
            "peer": lambda source, target: rates.measure_peer(self.torch, source, target),
            "memory": lambda: rates.check_memory(self.torch, self.device),
            "join": self.join,
            "all_reduce": lambda size_mib: collective.measure_all_reduce(
                self.torch, self.distributed, self.device, size_mib
            ),
            "skew": lambda: collective.measure_skew(self.torch, self.distributed, self.device),
            "leave": self.leave,
        }

    def hello(self) -> dict[str, Any]:
        """Create the context and name the card."""
        free, total = self.torch.cuda.mem_get_info(self.device)
        return {
            "name": self.torch.cuda.get_device_name(self.device),
            "free_gib": round(free / 1024**3, 2),
            "total_gib": round(total / 1024**3, 2),
        }

    def join(self, rank: int, world: int, address: str, limit_s: float) -> dict[str, Any]:
        """Enter the group and run one collective, so that set-up time is not measured later."""
        self.distributed = collective.open_group(
            self.torch, self.device, rank, world, address, limit_s
        )
        self.distributed.barrier()
        return {"ranks": world}

    def leave(self) -> dict[str, Any]:
        """Leave the group."""
        if self.distributed is not None:
            collective.close_group(self.distributed)
            self.distributed = None
        return {}

    def obey(self, order: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run one order; failures come back as an answer with a status and a reason."""
        try:
            values = self.orders[order](**arguments)
        except NotImplementedError as error:
            return {"status": "unavailable", "reason": f"not available here: {error}"}
        except (RuntimeError, ValueError, OSError, AttributeError, TypeError) as error:
            return {"status": "failed", "reason": _explain(error)}
        finally:
            if order in ("gemm", "copy", "host_link", "peer", "all_reduce"):
                # After a device fault every call fails; the order's own answer already says so.
                with contextlib.suppress(RuntimeError):
                    self.torch.cuda.empty_cache()
        return {"status": "ok", "values": values}


def serve(device: int) -> int:
    """Answer orders until standard input closes."""
    # Libraries print to standard output; the answers must not mix with that.
    answers = sys.stdout
    sys.stdout = sys.stderr
    try:
        worker = Worker(device)
    except ImportError:
        answers.write(
            json.dumps({"status": "unavailable", "reason": "not available here: no torch"}) + "\n"
        )
        answers.flush()
        return 1
    for line in sys.stdin:
        order = json.loads(line)
        answer = worker.obey(order["order"], order["arguments"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0
