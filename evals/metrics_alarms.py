"""How often do the metric verdicts cry wolf, and how many faults do they find?

`python -m evals.metrics_alarms [--healthy 1000] [--faults 40] [--seed 7]`

Simulated runs are written as log text in several trainers' formats and read back the usual way, so the
parsers are part of what is measured. A healthy run counts as alarmed when any finding is a cause, a
failure or a symptom. A faulty run counts as found when the expected kind is reported and, where the
fault has a place, the reported place lies within the stated delay.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from firstfault_tools.findings import Finding, Level
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.steps import parse_steps

ALARMING = (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)
FORMATS = ("megatron", "hf", "torchtitan", "nanogpt", "pairs", "json", "open_clip", "mmengine")


@dataclass
class Run:
    """A simulated run: one list of rows, each a mapping of metric to value."""

    style: str
    rows: list[dict[str, float]] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    beside: dict[int, list[str]] = field(default_factory=dict)
    total: int = 0
    every: int = 1
    start: float = 1_750_000_000.0


def _stamp(seconds: float) -> str:
    import datetime

    when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S")


def _value(number: float, text: str) -> str:
    return "nan" if math.isnan(number) else text % number


def write_row(run: Run, row: dict[str, float], at: float) -> str:
    """One step line in the run's format; metrics that are absent are left out."""
    step = int(row["step"])
    get = row.get

    def part(key: str, text: str) -> str:
        value = get(key)
        return "" if value is None else _value(value, text)

    rank = "" if "rank" not in row else f"[rank{int(row['rank'])}] "
    if run.style == "megatron":
        line = (
            f" [{_stamp(at)}] {rank}iteration {step:8d}/{run.total:8d} | consumed samples: "
            f"{step * 256:12d} | "
            + part("ms", "elapsed time per iteration (ms): %.1f | ")
            + part("lr", "learning rate: %.6E | ")
            + f"global batch size: {int(get('batch', 256)):5d} | "
        )
        if get("loss") is not None:
            line += "lm loss: " + _value(row["loss"], "%.6E") + " | "
        return line + (
            part("scale", "loss scale: %.1f | ")
            + (f"grad norm: {_value(row['grad'], '%.3f')} | " if "grad" in row else "")
            + part("gpu", "mem-allocated-gb: %.2f | ")
            + part("ram", "RAM used: %.2f GB / 512.0 GB | ")
            + f"number of skipped iterations: {int(get('skipped', 0)):3d} | "
            "number of nan iterations:   0 |"
        )
    if run.style == "hf":
        body = []
        if get("loss") is not None:
            body.append(f"'loss': {_value(row['loss'], '%.4f')}")
        if get("eval_loss") is not None:
            body = [f"'eval_loss': {row['eval_loss']:.4f}"]
        elif "grad" in row:
            body.append(f"'grad_norm': {_value(row['grad'], '%.6g')}")
        if "lr" in row and "eval_loss" not in row:
            body.append(f"'learning_rate': {row['lr']:.8g}")
        body.append(f"'epoch': {row.get('epoch', step / 1000):.2f}")
        return "{" + ", ".join(body) + "}"
    if run.style == "torchtitan":
        return (
            f"[rank{int(get('rank', 0))}]:{_stamp(at)},123 - root - INFO - step: {step:2d}  "
            + (f"loss: {_value(row['loss'], '%7.4f')}  " if get("loss") is not None else "")
            + (f"grad_norm: {_value(row['grad'], '%7.4f')}  " if "grad" in row else "")
            + part("gpu", "memory: %.2fGiB(50.00%%)  ")
            + (f"tps: {8192e3 / row['ms']:,.0f}  mfu: 41.20%" if "ms" in row else "")
        )
    if run.style == "nanogpt":
        return (
            f"iter {step}: loss {_value(row['loss'], '%.4f')}, time {row['ms']:.2f}ms, mfu 35.12%"
        )
    if run.style == "open_clip":
        data, whole = get("data", 20.0) / 1000, row["ms"] / 1000
        return (
            f"{_stamp(at).replace(' ', ',')} | INFO | Train Epoch: 0 [{step * 4096:9d}/99000000 (1%)] "
            f"Data (t): {data:.3f} Batch (t): {whole:.3f}, {4096 / whole:.1f}/s LR: {row['lr']:.6f} "
            f"Loss: {row['loss']:.4f} ({row['loss']:.4f})"
        )
    if run.style == "mmengine":
        return (
            f"{_stamp(at)} - mmengine - INFO - Epoch(train) [1][{step:5d}/99999]  lr: {row['lr']:.4e}  "
            f"eta: 1:02:03  time: {row['ms'] / 1000:.4f}  data_time: {get('data', 12.0) / 1000:.4f}  "
            f"memory: {int(get('gpu', 12.0) * 1024)}  "
            + (f"grad_norm: {_value(row['grad'], '%.4f')}  " if "grad" in row else "")
            + f"loss: {_value(row['loss'], '%.4f')}"
        )
    if run.style == "json":
        names = {"loss": "train/loss", "grad": "train/grad_norm", "lr": "lr", "ms": "step_time_ms"}
        body = [f'"step": {step}']
        for key, name in names.items():
            if get(key) is not None:
                body.append(f'"{name}": {_value(row[key], "%.8g").replace("nan", "NaN")}')
        return "{" + ", ".join(body) + "}"
    return (
        f"[{_stamp(at)}] {rank}step {step:5d} | "
        + (f"loss {_value(row['loss'], '%.4f')} | " if get("loss") is not None else "")
        + part("lr", "lr %.3e | ")
        + (f"grad_norm {_value(row['grad'], '%.3f')} | " if "grad" in row else "")
        + part("ms", "step_time %.1fms | ")
        + part("gpu", "gpu mem %.2f GB | ")
        + part("ram", "RAM used: %.2f GB / 512.0 GB | ")
    ).rstrip(" |")


def write_run(run: Run) -> list[str]:
    """The run as log lines."""
    lines = list(run.before)
    at = run.start
    for index, row in enumerate(run.rows):
        at += row.get("ms", 1000.0) / 1000 * run.every
        lines += run.beside.get(index, [])
        lines.append(write_row(run, row, at))
    return lines


def judge_lines(lines: Iterable[str]) -> tuple[Finding, ...]:
    """Findings of a log given as text lines."""
    return judge_steps(parse_steps(enumerate(lines, 1)), "run.log")


def healthy_rows(rng: random.Random, count: int, every: int, total: int) -> list[dict[str, float]]:
    """Rows of a run in which all is well: noisy loss, warm-up and decay, jitter, rare slow steps."""
    start, floor = rng.choice([(10.8, 2.2), (2.5, 0.6), (1.4, 0.9), (8.0, 3.0), (0.7, 0.2)])
    half = rng.uniform(0.02, 0.5) * total
    noise = rng.choice([0.005, 0.02, 0.06, 0.15, 0.3])  # 0.3: batches of one sample
    peak, warm = 10 ** rng.uniform(-5, -3), rng.choice([0, 0.01, 0.05]) * total
    constant = rng.random() < 0.2
    ms, jitter = 10 ** rng.uniform(2, 4), rng.choice([0.003, 0.01, 0.03, 0.08])
    gpu = rng.uniform(10, 70)
    ram, cache = rng.uniform(40, 120), rng.uniform(0, 60)
    grad = rng.uniform(0.3, 3)
    save = rng.choice([0, 0, 50, 100])
    first = rng.choice([0, 0, 0, int(0.4 * total)])
    has_ram, has_gpu = rng.random() < 0.3, rng.random() < 0.6
    rows, ratchet = [], gpu
    wander = 0.0
    for i in range(count):
        step = first + (i + 1) * every if first or every > 1 else i
        wander = 0.95 * wander + rng.gauss(0, 0.3 * noise)
        level = floor + (start - floor) * math.exp(-step / half)
        loss = max(0.01, level * (1 + wander * 0.3 + rng.gauss(0, noise)))
        if constant:
            rate = peak
        elif step < warm:
            rate = peak * (step + 1) / warm
        else:
            rate = peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1, step / total))))
        slow = ms * (1 + abs(rng.gauss(0, jitter)) + (rng.random() < 0.01) * rng.uniform(0.2, 3))
        if i == 0:
            slow *= rng.uniform(1, 40)
        if save and step and step % save == 0:
            slow += ms * rng.uniform(0.5, 4) / (save / 50) / every  # a row averages its steps
        if rng.random() < 0.05 / (1 + i / 10):
            ratchet *= 1 + rng.uniform(0, 0.02)
        row = {
            "step": float(step),
            "loss": loss,
            "lr": rate,
            "grad": grad * math.exp(rng.gauss(0, 0.25)) * (1 + 5 * math.exp(-step / (half + 1))),
            "ms": slow,
            "scale": 1.0,
        }
        if has_gpu:
            row["gpu"] = gpu * 0.85 if i == 0 else ratchet
        if has_ram:
            row["ram"] = ram + cache * (1 - math.exp(-8 * i / count)) + rng.gauss(0, 0.3)
        rows.append(row)
    return rows


def healthy_run(seed: int) -> Run:
    """A healthy run of 10 to 2,000 logged rows in one of the formats."""
    rng = random.Random(seed)
    count = rng.choice([10, 14, 20, 30, 50, 80, 120, 200, 400, 800, 2000])
    every = rng.choice([1, 1, 10, 50])
    total = int(count * every * rng.uniform(1.0, 3.0)) + 1
    run = Run(rng.choice(FORMATS), total=total, every=every)
    run.rows = healthy_rows(rng, count, every, total)
    if run.style in ("open_clip", "mmengine"):
        for i, row in enumerate(run.rows):
            row["step"] = float(i + 1)
    if run.style == "hf":
        _as_epochs(run, rng)
    if run.style == "megatron" and rng.random() < 0.3:
        _with_loss_scale(run, rng)
    if run.style == "megatron" and rng.random() < 0.2:
        _with_batch_ramp(run)
    if rng.random() < 0.2:
        _with_lengths(run, rng)
    if run.style in ("megatron", "torchtitan", "pairs") and rng.random() < 0.2 and count <= 200:
        _with_ranks(run, rng)
    if rng.random() < 0.15 and count >= 50:
        _with_spike(run, rng)
    return run


def _with_batch_ramp(run: Run) -> None:
    """Batch-size ramp-up: a larger batch takes longer, and that is meant."""
    for i, row in enumerate(run.rows):
        row["batch"] = 128.0 if i < len(run.rows) // 2 else 256.0
        row["ms"] *= row["batch"] / 128


def _with_lengths(run: Run, rng: random.Random) -> None:
    """Batches of very different length, as in fine-tuning without packing."""
    for row in run.rows:
        if "ms" in row:
            row["ms"] *= math.exp(rng.gauss(0, 0.35))


def _with_ranks(run: Run, rng: random.Random) -> None:
    """Every rank prints its own line, with its own share of the loss and its own jitter."""
    rows = []
    for row in run.rows:
        for rank in range(rng.choice([2, 4, 8])):
            mine = dict(row, rank=float(rank))
            mine["loss"] *= 1 + rng.gauss(0, 0.01)
            mine["ms"] *= 1 + abs(rng.gauss(0, 0.05))
            rows.append(mine)
    run.rows = rows


def _with_spike(run: Run, rng: random.Random) -> None:
    """One loss spike that comes back within some rows."""
    at = rng.randint(10, len(run.rows) - 12)
    for i in range(rng.randint(1, 6)):
        if "loss" in run.rows[at + i]:
            run.rows[at + i]["loss"] *= rng.uniform(1.5, 4)


def _as_epochs(run: Run, rng: random.Random) -> None:
    """Epochs, an evaluation at each border, and sometimes the stairs of memorisation."""
    epochs = rng.choice([1, 2, 3])
    count = len(run.rows)
    stairs = rng.random() < 0.4
    rows = []
    for i, row in enumerate(run.rows):
        row["epoch"] = epochs * (i + 1) / count
        if stairs:
            row["loss"] *= 0.75 ** int(epochs * i / count)
        rows.append(row)
        if int(epochs * (i + 1) / count) > int(epochs * i / count):
            rows.append(
                {"step": row["step"], "epoch": row["epoch"], "eval_loss": row["loss"] * 1.1}
            )
    run.rows = rows


def _with_loss_scale(run: Run, rng: random.Random) -> None:
    """fp16: the scale starts too high, falls for some steps, then grows and falls now and then."""
    scale = 2.0**32 if rng.random() < 0.5 else 2.0**16
    level = 2.0 ** rng.randint(10, 15)
    for i, row in enumerate(run.rows):
        if scale > level:
            scale /= 2
            row["skipped"] = 1.0
        elif i % 97 == 96:
            scale *= 2
        row["scale"] = scale


@dataclass(frozen=True)
class Fault:
    """A fault of stated size. inject changes a healthy run and returns the row of its onset.

    kinds: findings that count as found. delay: rows the reported place may lie off, None where the
    fault has no place.
    """

    name: str
    size: str
    style: str
    kinds: tuple[str, ...]
    inject: Callable[[Run, random.Random], int]
    key: str | None = None
    delay: int | None = None


def _base(style: str, rng: random.Random, count: int = 200) -> Run:
    run = Run(style, total=count * 2, every=1)
    run.rows = healthy_rows(rng, count, 1, count * 2)
    for i, row in enumerate(run.rows):
        row["step"] = float(i + 1)
        row["ms"] = min(row["ms"], 4 * run.rows[len(run.rows) // 2]["ms"])
    return run


def _nan(run: Run, rng: random.Random) -> int:
    at = rng.randint(20, len(run.rows) - 5)
    run.rows[at - 1]["grad"] *= 40
    for row in run.rows[at:]:
        row["loss"] = row["grad"] = math.nan
    return at


def _lost(run: Run, rng: random.Random) -> int:
    at = rng.randint(20, len(run.rows) - 5)
    for row in run.rows[at:]:
        del row["loss"]
        row["grad"] = math.nan
    return at


def _zero_rate(run: Run, rng: random.Random) -> int:
    at = rng.randint(0, len(run.rows) // 2)
    for row in run.rows[at:]:
        row["lr"] = 0.0
    return at


def _diverge(run: Run, rng: random.Random) -> int:
    at = rng.randint(40, len(run.rows) - 20)
    base = run.rows[at]["loss"]
    top = base * rng.uniform(2.5, 6) + 2
    for i, row in enumerate(run.rows[at:]):
        row["loss"] = base + (top - base) * (1 - math.exp(-(i + 1) / 3)) + rng.gauss(0, 0.05)
    return at


def _slower(run: Run, rng: random.Random) -> int:
    at = rng.randint(60, len(run.rows) - 40)
    factor = rng.uniform(1.3, 2.0)
    for row in run.rows[at:]:
        row["ms"] *= factor
    return at


def _drift(run: Run, rng: random.Random) -> int:
    total = rng.uniform(0.35, 0.8)
    for i, row in enumerate(run.rows):
        row["ms"] *= 1 + total * i / len(run.rows)
    return 0


def _stall(run: Run, rng: random.Random) -> int:
    period, usual = rng.choice([4, 8, 12, 16]), run.rows[50]["ms"]
    for i, row in enumerate(run.rows):
        row["data"] = 0.02 * usual
        if i % period == period - 1:
            row["data"] = usual * period * rng.uniform(0.8, 1.5)
            row["ms"] = usual + row["data"]
    return period


def _ram(run: Run, rng: random.Random) -> int:
    base, slope = rng.uniform(40, 150), rng.uniform(0.3, 1.5)
    for i, row in enumerate(run.rows):
        row["ram"] = min(510.0, base + slope * i + rng.gauss(0, 0.5))
    return 0


def _gpu(run: Run, rng: random.Random) -> int:
    base, slope = rng.uniform(20, 40), rng.uniform(0.03, 0.15)
    stairs = rng.choice([1, 20])
    for i, row in enumerate(run.rows):
        row["gpu"] = base + slope * (i // stairs * stairs)
    return 0


def _scale(run: Run, rng: random.Random) -> int:
    at = rng.randint(60, 120)
    scale = 65536.0
    for i, row in enumerate(run.rows):
        if i >= at:
            scale = max(1.0, scale / 2)
            row["skipped"] = 1.0
        row["scale"] = scale
    return at


def _dead(run: Run, rng: random.Random) -> int:
    at = rng.randint(10, len(run.rows) - 10)
    for row in run.rows[at:]:
        row["grad"] = 0.0
    return at


def _overfit(run: Run, rng: random.Random) -> int:
    low = rng.randint(1, 3)
    rows = []
    for i, row in enumerate(run.rows):
        row["epoch"] = 8 * (i + 1) / len(run.rows)
        row["loss"] = 1.6 * math.exp(-row["epoch"] / 3) + abs(rng.gauss(0, 0.02))
        rows.append(row)
        if int(8 * (i + 1) / len(run.rows)) > int(8 * i / len(run.rows)):
            n = int(8 * (i + 1) / len(run.rows))
            rows.append(
                {"step": row["step"], "epoch": float(n), "eval_loss": 1.3 + 0.12 * abs(n - low)}
            )
    run.rows = rows
    return low


def _straggle(run: Run, rng: random.Random) -> int:
    slow, factor = rng.randint(0, 7), rng.uniform(1.3, 2.0)
    rows = []
    for row in run.rows[:60]:
        for rank in range(8):
            mine = dict(row)
            mine["rank"] = float(rank)
            mine["ms"] = 500 * (1 + rng.gauss(0, 0.02)) * (factor if rank == slow else 1)
            rows.append(mine)
    run.rows = rows
    return slow


def _pause(run: Run, rng: random.Random) -> int:
    period, usual = rng.choice([10, 20, 25]), 400.0
    for i, row in enumerate(run.rows):
        row["ms"] = usual * (1 + abs(rng.gauss(0, 0.01)))
        if i % period == period - 1:
            row["ms"] += usual * period * rng.uniform(0.4, 0.9)
    return period


def _scratch(run: Run, rng: random.Random) -> int:
    rows = healthy_rows(random.Random(5), 60, 1, 1000)
    for i, row in enumerate(rows):
        row["step"], row["loss"] = float(i + 1), 10.5 - 0.05 * i + rng.gauss(0, 0.02)
    run.before = [
        "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
        "    will not load any checkpoints and will start from random",
    ]
    run.before.insert(0, "[INFO] Restarting worker group: 1 process failed, restart_count=1")
    run.rows = rows
    return 0


def _seam(run: Run, rng: random.Random) -> int:
    count = 120
    rows = healthy_rows(random.Random(6), count, 1, 1000)
    for i, row in enumerate(rows):
        row["loss"] = 3.0 - 0.005 * i + rng.gauss(0, 0.02)
        row["step"] = float(i + 1001)
        if i >= 80:
            row["step"] = float(i + 1001 - 20)
            row["loss"] += rng.uniform(0.8, 2.0)
    run.rows = rows
    return 80


FAULTS = (
    Fault("NaN loss", "for good", "megatron", ("nan_loss",), _nan, "first_bad_step", 0),
    Fault("NaN loss", "for good", "json", ("nan_loss",), _nan, "first_bad_step", 0),
    Fault("loss column lost", "for good", "megatron", ("nan_loss", "loss_missing"), _lost,
          "first_bad_step", 0),
    Fault("learning rate 0", "from 0-50 % of the run", "pairs", ("lr_zero",), _zero_rate),
    Fault("divergence", "x2.5 to x6, lasting", "megatron", ("divergence",), _diverge),
    Fault("divergence", "x2.5 to x6, lasting", "hf", ("divergence",), _diverge),
    Fault("step time up", "x1.3 to x2", "megatron", ("throughput_drop",), _slower, "since", 8),
    Fault("step time up", "x1.3 to x2", "torchtitan", ("throughput_drop",), _slower, "since", 8),
    Fault("slow drift", "35-80 % over the run", "megatron", ("throughput_drift", "throughput_drop"),
          _drift),
    Fault("loader stall", "every 4-16 batches", "open_clip", ("dataloader_stall",), _stall,
          "period_batches", 0),
    Fault("host memory leak", "0.3-1.5 GiB a row", "pairs", ("host_memory_growth",), _ram),
    Fault("GPU memory leak", "30-150 MiB a row", "torchtitan", ("gpu_memory_growth",), _gpu),
    Fault("loss scale collapse", "to 1", "megatron", ("loss_scale_collapse",), _scale),
    Fault("dead gradients", "exactly 0", "pairs", ("grad_norm_zero",), _dead),
    Fault("over-fitting", "0.12 an epoch", "hf", ("overfitting",), _overfit),
    Fault("straggler", "x1.3 to x2", "pairs", ("straggler",), _straggle, "rank", 0),
    Fault("periodic pauses", ">= 25 % of all time", "pairs", ("periodic_pauses",), _pause,
          "period_steps", 0),
    Fault("restart from scratch", "no tracker file", "megatron", ("restarted_from_scratch",),
          _scratch),
    Fault("loss jump at a resume", "+0.8 to +2", "megatron", ("resume_loss_jump",), _seam),
)  # fmt: skip


def _place(value: object) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        digits = value.rsplit(" ", 1)[-1]
        return float(digits) if digits.replace(".", "").isdigit() else None
    return None


def find_fault(fault: Fault, seed: int) -> bool:
    """Whether the fault is reported, and where it is, in one simulated run."""
    rng = random.Random(seed * 1009 + sum(map(ord, fault.name + fault.style)))
    run = _base(fault.style, rng)
    at = fault.inject(run, rng)
    for finding in judge_lines(write_run(run)):
        if finding.kind.removeprefix("metrics.") not in fault.kinds:
            continue
        if finding.level not in ALARMING and "nan" not in finding.kind:
            continue
        if fault.key is None or fault.delay is None:
            return True
        place = _place(finding.facts.get(fault.key))
        truth = run.rows[at]["step"] if fault.key in ("since", "first_bad_step") else at
        if place is not None and abs(place - truth) <= fault.delay:
            return True
    return False


@dataclass(frozen=True)
class Alarms:
    """Result of a measurement."""

    healthy: int
    alarmed: int
    kinds: Counter[str]
    found: dict[str, tuple[int, int]]

    @property
    def false_alarm_rate(self) -> float:
        """Share of healthy runs with an alarm."""
        return self.alarmed / max(1, self.healthy)

    @property
    def found_rate(self) -> float:
        """Share of injected faults that were found, all kinds together."""
        hits = sum(hit for hit, _ in self.found.values())
        return hits / max(1, sum(tries for _, tries in self.found.values()))


def measure_alarms(healthy: int = 1000, faults: int = 40, seed: int = 7) -> Alarms:
    """Judge `healthy` healthy runs and `faults` runs of each fault."""
    kinds: Counter[str] = Counter()
    alarmed = 0
    for i in range(healthy):
        loud = [
            f
            for f in judge_lines(write_run(healthy_run(seed * 100_003 + i)))
            if f.level in ALARMING
        ]
        alarmed += bool(loud)
        kinds.update(f.kind for f in loud)
    found = {}
    for fault in FAULTS:
        hits = sum(find_fault(fault, seed * 7919 + i) for i in range(faults))
        found[f"{fault.name} ({fault.size}, {fault.style})"] = (hits, faults)
    return Alarms(healthy, alarmed, kinds, found)


def main() -> int:
    """Print the table; exit 1 where a budget is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    result = measure_alarms(chosen.healthy, chosen.faults, chosen.seed)
    print(
        f"healthy runs alarmed: {result.alarmed} of {result.healthy} "
        f"({result.false_alarm_rate:.2%}, budget 1 %)"
    )
    for kind, count in result.kinds.most_common():
        print(f"    {kind}: {count}")
    print("| fault | found |\n|---|---|")
    for name, (hits, tries) in result.found.items():
        print(f"| {name} | {hits}/{tries} |")
    print(f"faults found: {result.found_rate:.1%} (goal 95 %)")
    return 0 if result.false_alarm_rate <= 0.01 and result.found_rate >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
