"""What do training runs look like in a log? Simulated healthy runs in the formats of several trainers.

Loss, learning rate, gradient norm, step time and memory behave as in real healthy runs, with their
noise: batches of one sample, ragged sequence lengths, slow first steps, checkpoint pauses, batch ramps,
loss-scale searches, spikes that come back, epoch stairs, several ranks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from firstfault_tools.findings import Finding
from firstfault_tools.metrics.judgement import judge_steps
from firstfault_tools.metrics.sources.steps import parse_steps

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


def megatron_line(
    step: int, loss: float | None, grad: float = 0.5, lr: float = 1e-4, ms: float = 1000.0
) -> str:
    """One Megatron step line; without its loss column where loss is None."""
    part = "" if loss is None else f"lm loss: {loss:.6E} | "
    return (
        f" iteration {step:8d}/   10000 | elapsed time per iteration (ms): {ms:.1f} | learning rate: "
        f"{lr:.3E} | global batch size:   64 | {part}loss scale: 1.0 | grad norm: {grad:.3f} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
