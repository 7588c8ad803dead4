"""How fast are the parts that a test may not time? Rows of `evals.bench`."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from firstfault.incidents.events import EventKind
from firstfault.service import NewIncident, PastedText, Service, open_service
from firstfault.settings import Settings
from firstfault_tools.memory.memory_calculator import run_memory
from firstfault_tools.metrics.log_lines import find_in_lines

HEAD = "| part | seconds |\n| --- | ---: |"
PEOPLE = 20


def part_rows(scratch: Path) -> list[str]:
    """One row a part: wall seconds, the best of three."""
    parts: list[tuple[str, Callable[[], object], int]] = [
        ("a million Megatron step lines, read and judged", step_lines(1_000_000), 1),
    ]
    rows = [f"| {name} | {_best(work) / count:.4f} |" for name, work, count in parts]
    rows += [f"| {name} | {seconds:.4f} |" for name, seconds in memory_calls()]
    alone, p95 = first_verdicts(scratch / "service")
    rows.append(f"| first verdict of one incident alone | {alone:.2f} |")
    rows.append(f"| first verdict of {PEOPLE} incidents at once, p95 | {p95:.2f} |")
    return rows


def _best(work: Callable[[], object]) -> float:
    found = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


def step_lines(count: int) -> Callable[[], object]:
    """Judges `count` rows of a healthy run."""
    rng = random.Random(1)
    losses = [1.9 + rng.random() / 10 for _ in range(1000)]
    lines = [
        (
            n + 1,
            f" iteration {n:8d}/ 1000000 | consumed samples: {n * 8:12d} | elapsed time per iteration "
            f"(ms): {970 + n % 7}.1 | learning rate: 2.214063E-05 | global batch size:  1024 | lm loss: "
            f"{losses[n % 1000]:.6E} | loss scale: 1.0 | grad norm: {losses[n % 977]:.3f} |",
        )
        for n in range(count)
    ]
    return lambda: find_in_lines(lines, "run.log")


MEMORY_RUNS: tuple[dict[str, Any], ...] = (
    {"model": "llama-3-8b", "precision": "bf16", "card": "H100-80GB"},
    {"model": "llama-3-70b", "framework": "megatron", "tensor": 8, "pipeline": 4, "world": 64, "card": "H100-80GB"},
    {"model": "deepseek-v3", "precision": "amp", "sharding": "fsdp", "world": 64, "card": "H200"},
    {"model": "qwen3-next-80b-a3b", "sharding": "fsdp", "world": 8, "card": "H200"},
)  # fmt: skip


def memory_calls(count: int = 40) -> list[tuple[str, float]]:
    """Median CPU seconds of a call of the memory calculator: no call repeats a setup seen before."""
    rows = []
    asked = {
        "estimate": (False, False),
        "estimate and every change": (True, False),
        "estimate, every change and the plan": (True, True),
    }
    for number, (name, (changes, plan)) in enumerate(asked.items()):
        took = []
        for given in MEMORY_RUNS:
            for call in range(count):
                begin = time.process_time()
                length = 2048 + 256 * call + 64 * number
                run_memory(**given, changes=changes, plan=plan, sequence=length)
                took.append(time.process_time() - begin)
        rows.append((f"memory, {name}, median of {len(took)} calls (CPU)", statistics.median(took)))
    return rows


def first_verdicts(folder: Path) -> tuple[float, float]:
    """Seconds to the first verdict: of one incident alone, and p95 of twenty that come at once."""
    with open_service(Settings(data=folder)) as service:  # type: ignore[call-arg]
        _wait_for_verdict(service, -1)
        alone = _wait_for_verdict(service, PEOPLE)
        with ThreadPoolExecutor(PEOPLE) as pool:
            waits = sorted(pool.map(lambda n: _wait_for_verdict(service, n), range(PEOPLE)))
    return alone, waits[int(0.95 * PEOPLE) - 1]


def _wait_for_verdict(service: Service, person: int) -> float:
    lines = [f"[rank{n % 8}] step {n} loss {9 - n / 1000:.4f}" for n in range(500)]
    lines.append(f"[rank{person % 8}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {person + 2}.00 GiB.")  # fmt: skip
    begin = time.perf_counter()
    incident = service.start(NewIncident((PastedText("\n".join(lines)),)))
    for event in service.follow(incident, timeout=60):
        if event.kind is EventKind.VERDICT:
            break
    return time.perf_counter() - begin
