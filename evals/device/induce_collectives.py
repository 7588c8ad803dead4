"""What do real collective faults on two GPUs leave behind?

Runs a small data-parallel loop once per scenario, breaks it in one known way, and keeps what an
engineer would have: the interleaved log, the flight-recorder dumps, the Python stacks of both
ranks while they are stuck, and two NCCL RAS answers. Each scenario is a process tree of its own
with a time limit, so that a hang costs seconds and never the next scenario.

    python3 evals/device/induce_collectives.py --out "$OUT"        # everything, under six minutes
    python3 evals/device/induce_collectives.py --out /tmp/o --only different_op --parallel 1

Writes `<out>/induced_collectives.tar.gz` (one folder a scenario, with case.yaml) and
`<out>/induced_summary.json`. Needs two GPUs and a stock PyTorch, nothing else.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from collective_job import LIMIT_S, STACKS_AFTER_S

SETTLE_S = 9
BAD_CURE = "increase the timeout as the first fix"


@dataclass(frozen=True)
class Scenario:
    """One planted fault and the answer an investigator should give.

    method: of the job, which plants it. dumps: ranks that can still write a flight-recorder dump. launcher: `direct` starts the ranks
    without torchrun, which would stop the survivors before their watchdog dumps.
    """

    name: str
    method: str
    title: str
    category: str | None
    accept: tuple[str, ...]
    rank: int | None
    mention: tuple[str, ...]
    fix: tuple[str, ...]
    dumps: tuple[int, ...]
    launcher: str
    severity: str


def scenarios() -> tuple[Scenario, ...]:
    """The planted faults, from the data file beside this script."""
    rows = json.loads(Path(__file__).with_name("collective_faults.json").read_text())
    return tuple(map(scenario, rows))


def scenario(row: dict[str, Any]) -> Scenario:
    """One row of the data file; its lists become tuples."""
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Scenario(**fields)


def free_port() -> int:
    """A TCP port of this host that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(folder: Path, ras_port: int) -> dict[str, str]:
    """Environment of a scenario; recorder variables in the names that the installed torch reads."""
    new_names = tuple(int(p) for p in version("torch").split("+")[0].split(".")[:2]) >= (2, 10)
    size, target = (
        ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")
        if new_names
        else ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    )
    return {
        **os.environ,
        size: "2000",
        target: str(folder / "fr_rank_"),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "12",
        # The watchdog sleeps four times this long between the dump and the end of the process.
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1200",
        "NCCL_DEBUG": "INFO" if folder.name in ("healthy", "reduce_over_groups") else "WARN",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_RAS_ADDR": f"127.0.0.1:{ras_port}",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def commands(scenario: Scenario, script: Path) -> list[tuple[list[str], dict[str, str]]]:
    """Processes to start: torchrun, or one per rank where torchrun would stop the survivors."""
    tail = [str(script), scenario.method, str(script.parent)]
    if scenario.launcher == "torchrun":
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return [([sys.executable, *launch, *tail], {})]
    port = str(free_port())
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    return [
        ([sys.executable, *tail], {**shared, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in (0, 1)
    ]


def ask_ras(port: int, request: str) -> str:
    """One answer of the RAS service, "" where it does not answer in five seconds."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=3) as link:
            link.settimeout(5)
            link.sendall(request.encode())
            chunks = []
            while chunk := link.recv(65536):
                chunks.append(chunk)
            return b"".join(chunks).decode(errors="replace").removeprefix("OK\n")
    except OSError:
        return ""


def kill_tree(folder: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    """Stop the launcher gently, then whatever of its workers is left, each by its own pid."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and any(p.poll() is None for p in processes):
        time.sleep(0.2)
    for pid_file in folder.glob("pid_*"):
        try:
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            continue
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=10)


def follow(
    scenario: Scenario, folder: Path, processes: list[subprocess.Popen[bytes]], ras: int
) -> None:
    """Wait until the dumps are there and settled, asking RAS twice while the ranks are stuck."""
    begun = time.monotonic()
    dumped: float | None = None
    stuck_since = 0.0
    asked = 0
    while time.monotonic() - begun < LIMIT_S and any(p.poll() is None for p in processes):
        stuck = any(folder.glob("stacks_rank_*"))
        if stuck and asked == 0:
            stuck_since, asked = time.monotonic(), 1
        if asked == 1 and time.monotonic() - stuck_since > STACKS_AFTER_S - 1:
            (folder / "ras_1.txt").write_text(ask_ras(ras, "verbose status\n"))
            asked = 2
        if asked == 2 and time.monotonic() - stuck_since > STACKS_AFTER_S + 1.5:
            (folder / "ras_2.txt").write_text(ask_ras(ras, "verbose status\n"))
            (folder / "ras_2.json").write_text(ask_ras(ras, "set format json\nstatus\n"))
            asked = 3
        present = all((folder / f"fr_rank_{r}").exists() for r in scenario.dumps)
        if dumped is None and present and scenario.dumps:
            dumped = time.monotonic()
        if dumped is not None and time.monotonic() - dumped > SETTLE_S:
            break
        time.sleep(0.25)


def describe(scenario: Scenario, folder: Path, inputs: list[str]) -> str:
    """case.yaml of a scenario. JSON scalars are YAML, so no YAML library is needed."""
    source = f"induced on two GPUs, PyTorch {version('torch')}"
    verdict = scenario.severity == "ok"
    rows = [
        f"id: induced-{scenario.name.replace('_', '-')}",
        f"source: {json.dumps(source)}",
        f"title: {json.dumps(scenario.title)}",
        'question: "The job died (or hangs). What is the root cause and the fix?"',
        f"inputs: {json.dumps(inputs)}",
        'tags: ["collective", "flight-recorder", "two-gpus"]',
        "expect:",
        f"  category: {json.dumps(scenario.category)}",
        f"  accept_categories: {json.dumps(list(scenario.accept))}",
        f"  root_cause: {json.dumps(scenario.title)}",
        f"  first_failing_rank: {json.dumps(scenario.rank)}",
        f"  must_mention: {json.dumps(list(scenario.mention))}",
        f"  must_not_claim: {json.dumps([] if verdict else [BAD_CURE])}",
        f"  fix: {json.dumps(list(scenario.fix))}",
        f"  severity: {scenario.severity}",
    ]
    return "\n".join(rows) + "\n"


def tidy(folder: Path, names: dict[str, str]) -> None:
    """Replace this machine's paths in everything a scenario left, so that cases read alike.

    The pickles were written by this run; they are rewritten in the recorder's protocol 2.
    """
    for path in folder.iterdir():
        data = path.read_bytes()
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(renamed(gzip.decompress(data).decode(), names).encode()))
        elif data[:1] == b"\x80":
            path.write_bytes(pickle.dumps(renamed(pickle.loads(data), names), protocol=2))  # noqa: S301
        else:
            path.write_bytes(renamed(data.decode(errors="replace"), names).encode())


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The same value with names replaced in every text of it."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, dict):
        return {renamed(k, names): renamed(v, names) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(renamed(v, names) for v in value)
    return value


def induce(scenario: Scenario, root: Path) -> dict[str, Any]:
    """Run one scenario; returns what came of it."""
    folder = root / scenario.method
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    script = folder / "train.py"
    shutil.copy(Path(__file__).with_name("collective_job.py"), script)
    ras_port = free_port()
    env = environment(folder, ras_port)
    begun = time.monotonic()
    processes = []
    with (folder / "log.txt").open("ab") as log:
        for command, extra in commands(scenario, script):
            processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, env={**env, **extra}, cwd=folder
                )
            )
        try:
            follow(scenario, folder, processes, ras_port)
        finally:
            kill_tree(folder, processes)
    for name in ("train.py", "shard.bin", *(p.name for p in folder.glob("pid_*"))):
        (folder / name).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_size == 0:
            path.unlink()
    tidy(folder, {str(folder): "/job", sys.prefix: "/opt/venv"})
    inputs = sorted(p.name for p in folder.iterdir() if p.is_file())
    (folder / "case.yaml").write_text(describe(scenario, folder, inputs))
    return {
        "scenario": scenario.name,
        "seconds": round(time.monotonic() - begun, 1),
        "exit": [p.returncode for p in processes],
        "files": {name: (folder / name).stat().st_size for name in inputs},
        "dumps_expected": list(scenario.dumps),
    }


def main() -> int:
    """Run the chosen scenarios and pack what they left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", metavar="SCENARIO")
    parser.add_argument("--parallel", type=int, default=3)
    options = parser.parse_args()
    chosen = [s for s in scenarios() if not options.only or s.name in options.only]
    root = Path("/tmp/job")
    with ThreadPoolExecutor(options.parallel) as pool:
        results = []
        for result in pool.map(partial(induce, root=root), chosen):
            results.append(result)
            print(json.dumps(result), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "induced_summary.json").write_text(json.dumps(results, indent=1))
    with tarfile.open(options.out / "induced_collectives.tar.gz", "w:gz") as archive:
        for scenario in chosen:
            archive.add(root / scenario.method, arcname=scenario.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
