"""How does one rank of a job probe its own GPU, together with the ranks of other nodes?

Used under torchrun, or under srun where RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR are set.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from typing import Any

from . import collective, health, ports, rates, storage, surroundings
from .record import Sink, make_record
from .worker import Worker

PER_RANK = ("copy", "memory", "host_link")


class _Clock:
    """Ends the process when an order hangs: a stuck kernel cannot be interrupted from Python."""

    def __init__(self, sink: Sink, rank: int) -> None:
        self.sink, self.rank = sink, rank
        self._timer: threading.Timer | None = None

    def start(self, test: str, limit_s: float, gpu: int) -> None:
        self._timer = threading.Timer(limit_s, self._expire, (test, limit_s, gpu))
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self, test: str, limit_s: float, gpu: int) -> None:
        reason = f"no answer within {limit_s:.0f} s"
        self.sink.write(make_record(test, "timeout", reason=reason, gpu_index=gpu, rank=self.rank))
        self.sink.close()
        os._exit(124)


def run_rank(options: argparse.Namespace, tests: tuple[str, ...], sink: Sink) -> None:
    """Host tests on local rank 0, GPU tests on every rank, collectives over the whole job."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")))
    records, gpus = health.check_health()
    visible = health.list_visible(len(gpus))
    gpu = visible[local] if local < len(visible) else local
    for record in records:
        if record.get("gpu_index", gpu) == gpu:
            record["rank"] = rank
            sink.write(record)
    if local == 0:
        _run_host_tests(options, tests, sink)
    if not gpus:
        sink.write(
            make_record("start", "unavailable", reason="not available here: no GPU", rank=rank)
        )
        return
    mine = next((one for one in gpus if one["gpu_index"] == gpu), {"gpu_index": gpu})
    busy = health.explain_busy(mine)
    if busy and not options.allow_busy:
        reason = f"{busy}; heavy tests refused, --allow-busy measures it all the same"
        sink.write(make_record("busy", "refused", reason=reason, gpu_index=gpu, rank=rank))
        return
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    _run_gpu_tests(tests, sink, (rank, world, local, gpu))


def _run_host_tests(options: argparse.Namespace, tests: tuple[str, ...], sink: Sink) -> None:
    if "kernel_log" in tests:
        sink.write(health.check_kernel_log())
    if "environment" in tests:
        sink.write(surroundings.check_environment())
    if "clock" in tests:
        sink.write(surroundings.check_clock())
    if "ports" in tests:
        for record in ports.check_ports():
            sink.write(record)
    if "storage" in tests:
        for record in storage.measure_storage(options.data_path):
            sink.write(record)


class _Tester:
    """Gives a worker its orders one after the other, and writes down what each gave."""

    def __init__(self, worker: Worker, sink: Sink, rank: int, gpu: int) -> None:
        self.worker, self.sink, self.rank, self.gpu = worker, sink, rank, gpu
        self.clock = _Clock(sink, rank)

    def obey(self, test: str, order: str, budget_s: float, **arguments: Any) -> bool:
        self.clock.start(test, budget_s, self.gpu)
        begin = time.monotonic()
        answer = self.worker.obey(order, arguments)
        self.clock.stop()
        self.sink.write(
            make_record(
                test,
                answer["status"],
                answer.get("values"),
                gpu_index=self.gpu,
                rank=self.rank,
                reason=answer.get("reason"),
                elapsed_s=time.monotonic() - begin,
            )
        )
        return bool(answer["status"] == "ok")


def _run_gpu_tests(tests: tuple[str, ...], sink: Sink, who: tuple[int, int, int, int]) -> None:
    rank, world, local, gpu = who
    try:
        worker = Worker(local)
    except ImportError:
        sink.write(
            make_record("start", "unavailable", reason="not available here: no torch", rank=rank)
        )
        return
    obey = _Tester(worker, sink, rank, gpu).obey
    if not obey("start", "hello", 60.0):
        return
    if "gemm" in tests:
        for dtype, size in rates.GEMM_SHAPES:
            obey("gemm", "gemm", 20.0, dtype=dtype, size=size)
    for name in filter(tests.__contains__, PER_RANK):
        obey(name, name, 40.0)
    if "all_reduce" not in tests or world < 2:
        return
    if obey("all_reduce_start", "join", 120.0, rank=rank, world=world, address="", limit_s=90.0):
        for size in collective.SIZES_MIB:
            obey("all_reduce", "all_reduce", 60.0, size_mib=size)
        if "skew" in tests:
            obey("skew", "skew", 30.0)
        obey("leave", "leave", 30.0)
