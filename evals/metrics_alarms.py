"""How often do the metric verdicts cry wolf, and how many faults do they find?

`python -m evals.metrics_alarms [--healthy 1000] [--faults 40] [--seed 7]`

Simulated runs are written as log text in several trainers' formats and read back the usual way, so the
parsers are part of what is measured. A healthy run counts as alarmed when any finding is a cause, a
failure or a symptom. A faulty run counts as found when the expected kind is reported and, where the
fault has a place, the reported place lies within the stated delay.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from evals.simulated_runs import Run, healthy_rows, healthy_run, judge_lines, write_run

from evals import simulated_runs
from firstfault_tools import metrics
from firstfault_tools.findings import Level

CACHE = Path(__file__).parent / "results" / "metrics_alarms.json"
ALARMING = (Level.CAUSE, Level.FAILURE, Level.SYMPTOM)


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


def save_alarms(result: Alarms, path: Path = CACHE) -> None:
    """Keep a measurement with the fingerprint of the code that it measured."""
    path.parent.mkdir(exist_ok=True)
    row = {**asdict(result), "kinds": dict(result.kinds), "code": fingerprint()}
    path.write_text(json.dumps(row, indent=1), encoding="utf-8")


def load_alarms(path: Path = CACHE) -> tuple[Alarms, bool] | None:
    """The kept measurement and whether the code is still the one that was measured."""
    if not path.is_file():
        return None
    row = json.loads(path.read_text(encoding="utf-8"))
    found = {name: (int(hit), int(tries)) for name, (hit, tries) in row["found"].items()}
    alarms = Alarms(row["healthy"], row["alarmed"], Counter(row["kinds"]), found)
    return alarms, row["code"] == fingerprint()


def fingerprint() -> str:
    """Hash of the metrics room and of the simulated runs."""
    files = [*sorted(Path(metrics.__path__[0]).glob("*.*")), Path(simulated_runs.__file__)]
    digest = hashlib.sha256()
    for file in files:
        if file.suffix in (".py", ".json"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def write_table(again: bool = False) -> str:
    """Markdown section of both figures; `again` measures the full number of runs, in minutes."""
    if again:
        save_alarms(measure_alarms())
    kept = load_alarms()
    if kept is None:
        return "Metric verdicts: not measured; `python -m evals.run --alarms` does it.\n"
    result, current = kept
    worst = min(result.found.items(), key=lambda item: item[1][0] / max(1, item[1][1]))
    lines = [
        "# Metric verdicts on simulated runs"
        + ("" if current else " (measured on an earlier version; `--alarms` measures again)"),
        "",
        "| what | figure | budget |",
        "| --- | ---: | ---: |",
        f"| healthy runs alarmed | {result.alarmed} of {result.healthy} ({result.false_alarm_rate:.2%}) | 1 % |",
        f"| injected faults found within their delay | {result.found_rate:.1%} of "
        f"{sum(tries for _, tries in result.found.values())} | 95 % |",
        f"| worst fault: {worst[0]} | {worst[1][0]} of {worst[1][1]} | |",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table; exit 1 where a budget is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    result = measure_alarms(chosen.healthy, chosen.faults, chosen.seed)
    if (chosen.healthy, chosen.faults, chosen.seed) == (1000, 40, 7):
        save_alarms(result)
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
