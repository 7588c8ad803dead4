"""How long does a page with many incidents at once take to the first verdict? Loopback only.

    python -m evals.bench_load [--counts 1,20,50] [--processes 2] [--database both] [--write]

A service with its own warm worker processes is given `count` incidents at the same moment by as many
threads, as by people; the clock runs from the call to the first verdict event. One incident alone stands
beside it, and the machine's load average before and after. PostgreSQL runs where a server is installed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evals.cases import load_cases

from firstfault.incidents.events import EventKind
from firstfault.service import NewIncident, Service, Upload, open_service
from firstfault.settings import Settings, WorkerMode

RESULTS = Path(__file__).parent / "results"
PATIENCE = 180.0
WARM = 8
"""Incidents before the clock runs: every worker has had some."""

LARGEST = 200_000
HEAD = (
    "| database | at once | p50 accepted s | p95 accepted s | p50 first verdict s | p95 first verdict s | CPU s of the workers | load before | after |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """Seconds from the call until it was durable, and until its verdict stood."""

    accepted: float
    verdict: float


def choose_inputs(count: int) -> list[NewIncident]:
    """`count` different incidents from the dev cases, spread over all of them."""
    cases = [
        c
        for c in load_cases()
        if c.inputs
        and all(p.is_file() for p in c.inputs)
        and sum(p.stat().st_size for p in c.inputs) <= LARGEST
    ]
    return [
        NewIncident(
            tuple(Upload(p.name, p.read_bytes()) for p in case.inputs),
            case.question or "what failed?",
        )
        for case in (cases[i * len(cases) // count] for i in range(count))
    ]


def measure(service: Service, incidents: Sequence[NewIncident]) -> list[Seen]:
    """Start all at once; raises RuntimeError where one has no verdict within PATIENCE."""
    gate = threading.Barrier(len(incidents) + 1)
    seen: list[Seen] = []

    def visit(new: NewIncident) -> None:
        gate.wait()
        begin = time.perf_counter()
        identity = service.start(new)
        accepted = time.perf_counter() - begin
        for event in service.follow(identity, timeout=PATIENCE):
            if event.kind is EventKind.VERDICT:
                seen.append(Seen(accepted, time.perf_counter() - begin))
                return

    visitors = [threading.Thread(target=visit, args=(new,)) for new in incidents]
    for visitor in visitors:
        visitor.start()
    gate.wait()
    for visitor in visitors:
        visitor.join()
    if len(seen) < len(incidents):
        raise RuntimeError(f"{len(incidents) - len(seen)} of {len(incidents)} had no verdict")
    return seen


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def bench(database: str, url: str, counts: Sequence[int], processes: int) -> list[str]:
    """One row a count."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        settings = Settings(
            data=Path(folder),
            database_url=url,
            worker=WorkerMode.PROCESS,
            worker_threads=processes,
        )
        with open_service(settings) as service:
            for new in choose_inputs(WARM):
                measure(service, [new])
            for count in counts:
                load = os.getloadavg()[0]
                used = _cpu_of_workers(service)
                if count == 1:
                    # one at a time, as many as make a median
                    seen = [s for new in choose_inputs(9) for s in measure(service, [new])]
                else:
                    seen = measure(service, choose_inputs(count))
                spent = _cpu_of_workers(service) - used
                said, told = [s.accepted for s in seen], [s.verdict for s in seen]
                rows.append(
                    f"| {database} | {count} | {statistics.median(said):.2f} | {quantile(said, 0.95):.2f} "
                    f"| {statistics.median(told):.2f} | {quantile(told, 0.95):.2f} | {spent:.1f} "
                    f"| {load:.1f} | {os.getloadavg()[0]:.1f} |"
                )
                print(rows[-1], flush=True)
    return rows


def _cpu_of_workers(service: Service) -> float:
    import psutil

    times = [psutil.Process(pid).cpu_times() for pid in service.worker_processes]
    return float(sum(t.user + t.system for t in times))


@contextmanager
def postgres() -> Iterator[str | None]:
    """URL of a throw-away PostgreSQL on a free loopback port; None where no server is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        yield None
        return
    programs = found[-1].parent
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="load-pg-", dir="/tmp"))
    if user:
        shutil.chown(folder, "postgres", "postgres")

    def call(*command: str) -> None:
        subprocess.run([*user, *command], check=True, capture_output=True, cwd=folder)

    data, control = str(folder / "data"), str(programs / "pg_ctl")
    call(str(programs / "initdb"), "-D", data, "-U", "firstfault", "-A", "trust", "-E", "UTF8")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
    call(control, "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start")
    try:
        yield f"postgresql://firstfault@127.0.0.1:{port}/postgres"
    finally:
        call(control, "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Parse arguments, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="1,20,50")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    counts = [min(200, int(n)) for n in arguments.counts.split(",")]
    machine = (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; load average at the start {os.getloadavg()[0]:.1f}"
    )
    print(machine, HEAD, sep="\n\n", flush=True)
    rows: list[str] = []
    if arguments.database != "postgres":
        rows += bench("SQLite", "", counts, arguments.processes)
    if arguments.database != "sqlite":
        with postgres() as url:
            if url is None:
                print("no PostgreSQL server is installed: not measured")
            else:
                rows += bench("PostgreSQL", url, counts, arguments.processes)
    if arguments.write:
        day = datetime.now(UTC).date()
        text = f"# Incidents at once ({day})\n\n{machine}; {arguments.processes} worker processes.\n\n{HEAD}\n"
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"load-{day}.md").write_text(text + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
