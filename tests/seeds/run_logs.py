"""Logs of runs that a row describes by a few points a column: what trainers print, line by line."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

Points = float | str | list[list[Any]]

MEGATRON = (
    " iteration {n:8d}/{last:8d} | consumed samples: {samples:12d} | elapsed time per iteration (ms): {ms:.1f} | "
    "learning rate: {lr:.6E} | global batch size:   512 | lm loss: {loss} | loss scale: {scale:.1f} | "
    "grad norm: {norm} | num zeros: {zeros:.1f} | params norm: 543.210 |"
)
PLAIN = "step {n} | loss {loss} | lr {lr:.3e} | grad_norm {norm} | step_time {s:.3f} s"
HUGGING_FACE = (
    "{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': {lr:.4e}, 'epoch': {epoch:.2f}}}"
)
MEMORY = "[step {n}] loss={loss} | gpu/allocated_gb={allocated:.1f} | gpu/peak_gb={peak:.1f} | gpu/reserved_gb={reserved:.1f}"
FORMS = {"megatron": MEGATRON, "plain": PLAIN, "hugging face": HUGGING_FACE, "memory": MEMORY}
HEALTHY: dict[str, Points] = {
    "lr": [[0, 1e-6], [100, 1e-5], [10000, 1e-6]],
    "ms": 2345.0,
    "norm": 1.2,
    "scale": 1.0,
    "zeros": 0.0,
    "s": 0.51,
    "allocated": 60.0,
    "peak": 70.0,
    "reserved": 72.0,
}
RIPPLED = {"loss": 0.01, "norm": 0.05, "ms": 0.01, "s": 0.01}
"""How much of its value a column trembles by; no real one is smooth."""


def write_log(described: Mapping[str, Any]) -> str:
    """described: form, steps [first, last, every], columns by points [[step, value], ...], head, tail."""
    first, last, every = described["steps"]
    chance = random.Random(7)
    columns = HEALTHY | {"loss": [[first, 3.5], [last, 2.0]]} | described.get("columns", {})
    lines = [described["head"]] if "head" in described else []
    for n in range(first, last + 1, every):
        values: dict[str, Any] = {"n": n, "last": described.get("of", last), "samples": n * 512}
        for name, points in columns.items():
            value = _at(points, n)
            if not isinstance(value, str):
                value *= 1 + RIPPLED.get(name, 0) * chance.uniform(-1, 1)
            values[name] = value
        values["loss"] = _number(values["loss"], described["form"])
        values["norm"] = (
            values["norm"] if isinstance(values["norm"], str) else f"{values['norm']:.3f}"
        )
        values["epoch"] = 3 * n / last
        lines.append(FORMS[described["form"]].format(**values))
    lines += [described["tail"]] if "tail" in described else []
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


def _number(value: float | str, form: str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.6E}" if form == "megatron" else f"{value:.4f}"


def _at(points: Points, n: int) -> float | str:
    """Value at a step: between two numbers by a line, from a word on that word."""
    if not isinstance(points, list):
        return points
    before = [p for p in points if p[0] <= n]
    after = [p for p in points if p[0] > n]
    if not before:
        return float(points[0][1])
    if isinstance(before[-1][1], str):
        return str(before[-1][1])
    if not after or isinstance(after[0][1], str):
        return float(before[-1][1])
    (x0, y0), (x1, y1) = before[-1], after[0]
    return float(y0 + (y1 - y0) * (n - x0) / (x1 - x0))
