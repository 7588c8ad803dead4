"""What do real faults of training programs on two GPUs leave in the log?

Starts `training_job.py` once per row of training_faults.json, two ranks, and keeps the interleaved
output with an eval case that says what was planted. Each has a process group and a time limit of its
own.

    python3 evals/device/induce_training.py --out "$OUT"        # everything, about six minutes
    python3 evals/device/induce_training.py --out /tmp/o --only silent-exit
    python3 evals/device/induce_training.py --out "$OUT" --faults framework_faults.json
    python3 evals/device/induce_training.py --out "$OUT" --faults pair_faults.json

Writes `<out>/<faults>.tar.gz`, one folder a fault. Needs two GPUs and a stock PyTorch; the framework
faults need one GPU, transformers, peft, accelerate, lightning and JAX.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

LIMIT_S = 75
QUESTION = "The job died (or hangs). What is the root cause and the fix?"
_FILL = """
import time, torch
gpu = torch.cuda.device_count() - 1
blocks = int(torch.cuda.mem_get_info(gpu)[0] / 2**28) - 3
held = [torch.empty(1 << 28, dtype=torch.uint8, device=f"cuda:{gpu}") for _ in range(blocks)]
print("filled", flush=True)
time.sleep(300)
"""


def commands(row: dict[str, Any], script: Path) -> list[tuple[list[str], dict[str, str]]]:
    """Processes to start: torchrun, or the two ranks by hand."""
    tail = [str(script), row["method"], str(script.parent)]
    if row.get("ranks", 2) == 1:
        return [([sys.executable, *tail], {})]
    if row.get("launcher") != "direct":
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return [([sys.executable, *launch, *tail], {})]
    base = {"WORLD_SIZE": "2", **row.get("env", {})}
    return [
        ([sys.executable, *tail], {**base, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in (0, 1)
    ]


def induce(row: dict[str, Any], out: Path, job: str) -> dict[str, Any]:
    """Run one fault of a job; its log and case lie in `out/induced-NAME` afterwards."""
    folder = out / f"induced-{row['name']}"
    work = Path("/job") / row["name"]
    work.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True)
    script = work / "train.py"
    shutil.copy(Path(__file__).with_name(job), script)
    for beside in ("training_loop.py", "plain_job.py"):
        shutil.copy(Path(__file__).with_name(beside), work)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "30",
    }
    environment |= row.get("env", {})
    neighbour, listener = None, None
    if row.get("neighbour"):
        neighbour = subprocess.Popen([sys.executable, "-c", _FILL], stdout=subprocess.PIPE)
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
    if row.get("listen"):
        listener = socket.create_server(("127.0.0.1", row["listen"]))
    begun = time.monotonic()
    with (folder / "log.txt").open("wb") as log:
        started = [
            subprocess.Popen(
                command,
                env={**environment, **extra},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=work,
            )
            for command, extra in commands(row, script)
        ]
        told = False
        while any(p.poll() is None for p in started):
            elapsed = time.monotonic() - begun
            if row.get("signal") and not told and elapsed > row.get("signal_after", 22):
                told = True
                for process in started:
                    os.kill(process.pid, getattr(signal, f"SIG{row['signal']}"))
            if elapsed > LIMIT_S:
                for process in started:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.2)
    for process in started:
        process.wait()
    if neighbour is not None:
        neighbour.kill()
    if listener is not None:
        listener.close()
    log_path = folder / "log.txt"
    installed = sysconfig.get_path("purelib")
    log_path.write_text(
        log_path.read_text(errors="replace")
        .replace(str(work), "/job")
        .replace(installed, "/usr/local/lib/python3/dist-packages")
    )
    (folder / "case.yaml").write_text(describe(row))
    shutil.rmtree(work, ignore_errors=True)
    return {
        "name": row["name"],
        "seconds": round(time.monotonic() - begun, 1),
        "codes": [p.returncode for p in started],
        "bytes": log_path.stat().st_size,
    }


def describe(row: dict[str, Any]) -> str:
    """case.yaml of a fault. JSON scalars are YAML, so no YAML library is needed."""
    where = "one GPU" if row.get("ranks", 2) == 1 else row.get("where", "two GPUs")
    used = "".join(f", {name} {version(name)}" for name in row.get("uses", ()))
    source = f"induced on {where}, PyTorch {version('torch')}{used}"
    rows = [
        f"id: induced-{row['name']}",
        f"source: {json.dumps(source)}",
        f"title: {json.dumps(row['title'])}",
        f"question: {json.dumps(row.get('question', QUESTION))}",
        'inputs: ["log.txt"]',
        f"tags: {json.dumps([where.replace(' ', '-').lower()])}",
        "expect:",
        f"  category: {json.dumps(row['category'])}",
        f"  accept_categories: {json.dumps(row['accept'])}",
        f"  root_cause: {json.dumps(row['title'])}",
        f"  first_failing_rank: {json.dumps(row['rank'])}",
        f"  must_mention: {json.dumps(row['mention'])}",
        f"  must_not_claim: {json.dumps(row['claim'])}",
        f"  fix: {json.dumps(row['fix'])}",
        f"  severity: {row['severity']}",
    ]
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--faults", default="training_faults.json")
    options = parser.parse_args()
    rows = json.loads(Path(__file__).with_name(options.faults).read_text())
    job = options.faults.replace("_faults.json", "_job.py")
    rows = [r for r in rows if not options.only or r["name"] in options.only.split(",")]
    folder = options.out / "training"
    folder.mkdir(parents=True, exist_ok=True)
    # What fills or measures a whole GPU runs alone.
    alone = [r for r in rows if r["category"] in ("oom", "performance") or "memory" in r["name"]]
    together = [r for r in rows if r not in alone]
    with ThreadPoolExecutor(options.parallel) as pool:
        for told in pool.map(lambda r: induce(r, folder, job), together):
            print(json.dumps(told), flush=True)
    for row in alone:
        print(json.dumps(induce(row, folder, job)), flush=True)
    archived = options.out / f"{Path(options.faults).stem}.tar.gz"
    with tarfile.open(archived, "w:gz") as archive:
        archive.add(folder, "training")


if __name__ == "__main__":
    main()
