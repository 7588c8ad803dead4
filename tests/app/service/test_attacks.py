"""Do the lines and files that once hung or crashed a diagnosis end within five CPU seconds each?

Made here: the same shapes as those that were found, so that nothing has to lie beside the checkout.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from firstfault.crew import environment_of
from firstfault.settings import Settings

CPU_SECONDS = 5
_END = "\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
ATTACKS = {
    "workers": "num_workers" + " " * 4_000 + "x",
    "warmup": "warmup_steps" + " " * 60_000 + "x",
    "accumulation": "gradient_accumulation_steps" + " " * 60_000 + "x",
    "pipeline": "pipeline_parallel_size" + "." * 30_000 + " " * 30_000 + "x",
    "checkpoint": "checkpoint iteration " + "0" * 60_000,
    "world-size": "world_size" + " " * 60_000 + "x\n" + "nranks " + "7" * 60_000,
    "micro-batches": "num_microbatches" + " " * 60_000 + "x",
    "offload": "offload_optimizer" + " device" * 8_000,
    "spot": "node " + "7" * 60_000,
    "rl-batch": "ppo_batch_size" * 4_000,
    "loss": "loss " * 12_000 + "nan",
    "weights": "Some weights of x were not initialized: [" + "h.7." * 15_000,
    "ranks": "\n".join(f"[rank{r}]: step 10 loss 2.5 time 1.0s and more" for r in range(10_000)),
    "tracebacks": "Traceback (most recent call last):\n" * 2_000
    + '  File "a.py", line 1, in f\n' * 400,
    "brackets": "[" * 60_000 + "]" * 60_000,
    "quotes": "'\"" * 30_000,
    "bars": " 1%|" * 20_000,
}


def diagnose(*paths: Path, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """The command in a process that the system ends after CPU_SECONDS."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))

    settings = Settings(data=folder)  # type: ignore[call-arg]
    program = "from firstfault.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, "diagnose", "--no-llm", "--json", *map(str, paths)],
        env=environment_of(settings),
        capture_output=True,
        preexec_fn=bound,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_a_line_made_to_hang_ends(tmp_path: Path, name: str) -> None:
    log = tmp_path / f"{name}.log"
    log.write_text("step 1 loss 2.5\n" + ATTACKS[name] + _END)
    done = diagnose(log, folder=tmp_path / "data")
    assert done.returncode in (0, 1, 4), done.stderr[-500:]
    assert json.loads(done.stdout)["schema"] == "firstfault.diagnosis/1"
    assert b"Traceback" not in done.stderr
