"""Which tests run on this node, in which order, and when are they refused or cut short?

Three ways in: plainly (`python3 firstfault-probe.pyz`: one process for each GPU of this node), as one
rank of a job (`torchrun`, or `srun` with RANK set: this process is the rank), or `--worker N` (what the
first way starts).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from . import collective, health, ports, rates, storage, surroundings
from .command import ALLOWED
from .crew import Crew, find_port
from .ranked import run_rank
from .record import SCHEMA, Sink, make_record, show_progress
from .worker import serve

KIT_VERSION = "1"
HOST_TESTS = ("kernel_log", "environment", "clock", "ports", "storage", "loader")
GPU_TESTS = ("gemm", "copy", "memory", "host_link", "peer", "all_reduce", "skew")
COMPONENTS = {
    "compute": ("gemm",),
    "communication": ("ports", "peer", "all_reduce", "skew"),
    "memory": ("copy", "memory", "host_link"),
    "data": ("storage", "loader"),
}
LIGHT = ("health", "kernel_log", "environment", "clock", "ports")


class Stopped(Exception):
    """A person or the scheduler asked the probe to stop."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise Stopped


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Command line of the kit."""
    parser = argparse.ArgumentParser(
        prog="firstfault-probe",
        description="Measure this node: GPUs, links, memory, storage. Reads and measures, changes nothing.",
    )
    parser.add_argument("--tests", help="comma-separated names; default: all")
    parser.add_argument("--only", choices=sorted(COMPONENTS), help="test one component alone")
    parser.add_argument("--light", action="store_true", help="read state only, no load on the GPUs")
    parser.add_argument("--gpus", help="comma-separated indices as nvidia-smi counts them")
    parser.add_argument("--allow-busy", action="store_true", help="measure GPUs that are in use")
    parser.add_argument("--data-path", help="file or folder whose read rate counts")
    parser.add_argument(
        "--limit-s", type=float, default=150.0, help="time limit of the whole probe"
    )
    parser.add_argument(
        "--out", help="also write the records to this file; {host} and {rank} are filled in"
    )
    parser.add_argument("--show", action="store_true", help="list what would run, and end")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def choose_tests(options: argparse.Namespace) -> tuple[str, ...]:
    """Names of the tests to run, in running order. Raises ValueError for an unknown name."""
    order = ("health", *HOST_TESTS, *GPU_TESTS)
    if options.light:
        return LIGHT
    if options.only:
        return ("health", *(name for name in order if name in COMPONENTS[options.only]))
    if options.tests:
        wanted = [name.strip() for name in options.tests.split(",") if name.strip()]
        unknown = sorted(set(wanted) - set(order))
        if unknown:
            raise ValueError(f"unknown tests: {', '.join(unknown)}; known: {', '.join(order)}")
        return tuple(name for name in order if name in wanted)
    return order


def show_plan(tests: tuple[str, ...]) -> None:
    """Print the tests and every command the kit may start."""
    sys.stdout.write("tests: " + " ".join(tests) + "\n")
    sys.stdout.write("commands, all of them read-only:\n")
    for argv in ALLOWED.values():
        sys.stdout.write("  " + " ".join(argv) + "\n")


class Probe:
    """One plain run on this node."""

    def __init__(self, options: argparse.Namespace, tests: tuple[str, ...], sink: Sink) -> None:
        self.options, self.tests, self.sink = options, tests, sink
        self.deadline = time.monotonic() + options.limit_s
        self.crew: Crew | None = None
        self.gpus: list[dict[str, Any]] = []

    def left(self, wanted: float) -> float:
        """Seconds a test may take: its own limit, or less where the whole runs out."""
        return max(0.1, min(wanted, float(self.deadline) - time.monotonic()))

    def run(self) -> None:
        """All chosen tests; every one that cannot run says why."""
        records, gpus = health.check_health()
        for record in records:
            self.sink.write(record)
        ready = self._choose_gpus(gpus)
        wanted = [name for name in self.tests if name in GPU_TESTS]
        if wanted and ready:
            visible = health.list_visible(len(gpus))
            pairs = [(g["gpu_index"], visible.index(g["gpu_index"])) for g in ready]
            self.gpus = ready
            # Importing torch takes seconds: the workers do it while the host tests run.
            self.crew = Crew(pairs)
            for number in range(len(pairs)):
                self.crew.members[number].ask("hello", {})
        self._run_host_tests(before_loader=True)
        if self.crew is not None:
            self._run_gpu_tests(wanted)
            self.crew.close()
        elif wanted and not gpus:
            for name in wanted:
                self._say(name, "unavailable", "not available here: no GPU")
        self._run_host_tests(before_loader=False)

    def _say(self, test: str, status: str, reason: str, gpu: int | None = None) -> None:
        self.sink.write(make_record(test, status, reason=reason, gpu_index=gpu))

    def _choose_gpus(self, gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
        visible = health.list_visible(len(gpus))
        chosen = [gpu for gpu in gpus if gpu["gpu_index"] in visible]
        if self.options.gpus:
            asked = {int(part) for part in self.options.gpus.split(",") if part.strip().isdecimal()}
            for missing in sorted(asked - {gpu["gpu_index"] for gpu in chosen}):
                self._say("health", "failed", f"GPU {missing} is not there or not visible", missing)
            chosen = [gpu for gpu in chosen if gpu["gpu_index"] in asked]
        ready = []
        reasons = {gpu["gpu_index"]: health.explain_busy(gpu) for gpu in chosen}
        users = health.list_processes() if any(reasons.values()) else {}
        for gpu in chosen:
            busy = reasons[gpu["gpu_index"]]
            if busy:
                refused = not self.options.allow_busy
                advice = "; heavy tests refused, --allow-busy measures it all the same"
                self.sink.write(
                    make_record(
                        "busy",
                        "refused" if refused else "ok",
                        {"utilisation_percent": gpu.get("utilisation_percent"),
                         "memory_used_mib": gpu.get("memory_used_mib"), "processes": users.get(str(gpu.get("uuid")), [])},
                        gpu_index=gpu["gpu_index"],
                        reason=busy + (advice if refused else ""),
                    )
                )  # fmt: skip
                if refused:
                    continue
            ready.append(gpu)
        return ready

    def _run_host_tests(self, before_loader: bool) -> None:
        for name in self.tests:
            if name not in HOST_TESTS or (name == "loader") == before_loader:
                continue
            show_progress(f"test: {name}")
            if name == "kernel_log":
                self.sink.write(health.check_kernel_log())
            elif name == "environment":
                self.sink.write(surroundings.check_environment())
            elif name == "clock":
                self.sink.write(surroundings.check_clock())
            elif name == "ports":
                for record in ports.check_ports():
                    self.sink.write(record)
            elif name == "storage":
                for record in storage.measure_storage(self.options.data_path, self.left(8.0)):
                    self.sink.write(record)
            else:
                self.sink.write(storage.measure_loader())

    def _record(self, test: str, answers: list[dict[str, Any]], elapsed_s: float) -> None:
        for gpu, answer in zip(self.gpus, answers):  # noqa: B905 - Python 3.9 has no strict
            self.sink.write(
                make_record(
                    test,
                    answer.get("status", "failed"),
                    answer.get("values"),
                    gpu_index=gpu["gpu_index"],
                    reason=answer.get("reason"),
                    elapsed_s=elapsed_s,
                )
            )

    def _order(
        self, test: str, order: str, limit_s: float, arguments: Any = None
    ) -> list[dict[str, Any]]:
        assert self.crew is not None
        begin = time.monotonic()
        answers = self.crew.order(order, self.left(limit_s), arguments)
        self._record(test, answers, time.monotonic() - begin)
        return answers

    def _run_gpu_tests(self, wanted: list[str]) -> None:
        assert self.crew is not None
        begin = time.monotonic()
        deadline = begin + self.left(60.0)
        answers = [member.hear(deadline) for member in self.crew.members]
        self._record("start", answers, time.monotonic() - begin)
        for name in wanted:
            show_progress(f"test: {name}")
            if name == "gemm":
                for dtype, size in rates.GEMM_SHAPES:
                    self._order("gemm", "gemm", 20.0, {"dtype": dtype, "size": size})
            elif name in ("copy", "memory"):
                self._order(name, name, 30.0)
            elif name == "host_link":
                self._run_in_turn(name)
            elif name == "peer":
                self._run_peers()
            elif name == "all_reduce":
                self._run_collectives("skew" in wanted)

    def _run_in_turn(self, name: str) -> None:
        # GPUs share links to the host, so that each is measured while the others are idle.
        assert self.crew is not None
        begin = time.monotonic()
        answers = [
            self.crew.order_one(place, name, self.left(20.0)) for place in range(len(self.gpus))
        ]
        self._record(name, answers, time.monotonic() - begin)

    def _run_peers(self) -> None:
        assert self.crew is not None
        if len(self.gpus) < 2:
            self._say("peer", "unavailable", "not available here: one GPU has no peer")
            return
        visible = health.list_visible(1 + max(gpu["gpu_index"] for gpu in self.gpus))
        for source in range(len(self.gpus)):
            for target in range(len(self.gpus)):
                if source == target:
                    continue
                one, other = self.gpus[source]["gpu_index"], self.gpus[target]["gpu_index"]
                pair = {"source": visible.index(one), "target": visible.index(other)}
                answer = self.crew.order_one(0, "peer", self.left(20.0), pair)
                values = answer.get("values")
                if values:
                    values.update(from_gpu=one, to_gpu=other)
                self.sink.write(
                    make_record(
                        "peer",
                        answer.get("status", "failed"),
                        values or {"from_gpu": one, "to_gpu": other},
                        gpu_index=one,
                        reason=answer.get("reason"),
                    )
                )

    def _run_collectives(self, with_skew: bool) -> None:
        count = len(self.gpus)
        if count < 2:
            self._say("all_reduce", "unavailable", "not available here: one GPU has no partner")
            return
        assert self.crew is not None
        gone = [member.gpu_index for member in self.crew.members if member.dead]
        if gone:
            names = ", ".join(str(index) for index in gone)
            self._say("all_reduce", "failed", f"not run: the process of GPU {names} is gone")
            return
        address = f"127.0.0.1:{find_port()}"
        each = [
            {"rank": rank, "world": count, "address": address, "limit_s": 40.0}
            for rank in range(count)
        ]
        joined = self._order("all_reduce_start", "join", 60.0, each)
        if any(answer["status"] != "ok" for answer in joined):
            self._say(
                "all_reduce", "failed", "not every GPU joined the group; see all_reduce_start"
            )
            return
        for size in collective.SIZES_MIB:
            self._order("all_reduce", "all_reduce", 30.0, {"size_mib": size})
        if with_skew:
            self._order("skew", "skew", 15.0)
        self.crew.order("leave", self.left(15.0))


def main(argv: list[str] | None = None) -> int:
    """Run the kit. Returns 0 when it ran (whatever it found), 2 for bad usage, 130 when stopped."""
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    if options.worker is not None:
        return serve(options.worker)
    try:
        tests = choose_tests(options)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if options.show:
        show_plan(tests)
        return 0
    rank = os.environ.get("RANK")
    ranked = rank is not None and "WORLD_SIZE" in os.environ and "MASTER_ADDR" in os.environ
    header = make_record("header", kind="header", rank=int(rank) if ranked and rank else None)
    path = options.out
    if path:
        path = path.replace("{host}", header["host"]).replace("{rank}", rank or "0")
    sink = Sink(path)
    header["values"] = {"kit_version": KIT_VERSION, "schema": SCHEMA, "tests": list(tests)}
    sink.write(header)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    begin = time.monotonic()
    probe = Probe(options, tests, sink)
    status = "ok"
    try:
        if ranked:
            run_rank(options, tests, sink)
        else:
            probe.run()
    except Stopped:
        status = "stopped"
    finally:
        if probe.crew is not None:
            probe.crew.stop()
        elapsed = time.monotonic() - begin
        counts: dict[str, int] = {}
        for record in sink.records:
            counts[record["status"]] = counts.get(record["status"], 0) + 1
        sink.write(
            make_record("summary", status, {"records": counts}, kind="summary", elapsed_s=elapsed)
        )
        sink.close()
    return 130 if status == "stopped" else 0


if __name__ == "__main__":
    sys.exit(main())
