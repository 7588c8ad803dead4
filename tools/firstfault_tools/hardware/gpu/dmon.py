"""What did the GPUs do over time (`nvidia-smi dmon`): work, idle, spin in a wait, or slow down?

A GPU at full SM utilisation that moves no memory and draws little power runs kernels that only wait,
as in a collective whose partner never comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from statistics import mean, median

from firstfault_tools.dataclass import dataclass
from firstfault_tools.facts import known
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.hardware.excerpt import NumberedLine, quote_line

SPIN_SAMPLES = 10
IDLE, IDLE_SAMPLES, AT_WORK = 2.0, 3, 50.0
"""SM share below which a GPU does nothing, samples of that which count, and the share of one that trains."""
STEADY = 0.75
"""Share of samples in which a GPU does something, from which its peers can be said to wait for it alone."""

MAX_GPUS = 1024
_ODD_SHARE = 0.85


@dataclass(slots=True)
class DmonSeries:
    """Samples of one GPU in order: column -> value, with the line of each sample."""

    index: int
    samples: list[dict[str, float]] = field(default_factory=list)
    lines: list[NumberedLine] = field(default_factory=list)


def read_dmon(lines: Sequence[NumberedLine]) -> list[DmonSeries]:
    """Series by GPU; columns follow the latest header, `-` is a missing value."""
    series: dict[int, DmonSeries] = {}
    columns: list[str] = []
    for number, line in lines:
        parts = line.split()
        if len(parts) >= 3 and parts[0] in ("#", "#gpu") and "gpu" in parts[:2]:
            columns = [part.lstrip("#") for part in parts if part != "#"]
            continue
        # `-o T` and `-o D` put the time before the index.
        if not columns or len(parts) != len(columns) or line.lstrip().startswith("#"):
            continue
        place = columns.index("gpu")
        if not parts[place].isdecimal() or int(parts[place][:6]) >= MAX_GPUS:
            continue
        values = {}
        for name, text in zip(columns, parts, strict=True):
            try:
                values[name] = float(text.rstrip("%"))
            except ValueError:
                continue
        one = series.setdefault(int(parts[place]), DmonSeries(int(parts[place])))
        one.samples.append(values)
        one.lines.append((number, line))
    return [series[index] for index in sorted(series)]


def check_dmon(series: Sequence[DmonSeries], file: str) -> tuple[Finding, ...]:
    """Spinning waits, throttling, memory errors, a GPU that is slower than its peers, a summary."""
    findings: list[Finding] = []
    spinning = [(one, run) for one in series if (run := _find_spin(one))]
    if spinning:
        findings.append(_describe_spin(spinning, len(series), file))
    for one in series:
        findings.extend(_check_one(one, file))
    findings.extend(_find_idle(series, file))
    findings.extend(_find_odd_clock(series, file))
    if series:
        findings.append(_summarise(series, file))
    return tuple(findings)


def _find_spin(one: DmonSeries) -> tuple[int, int] | None:
    """First and last sample of the longest stretch of full utilisation without memory traffic."""
    best: tuple[int, int] | None = None
    start: int | None = None
    for place, sample in enumerate([*one.samples, {}]):
        if sample.get("sm", 0.0) >= 95 and sample.get("mem", 100.0) <= 2:
            start = place if start is None else start
        elif start is not None:
            if best is None or place - start > best[1] - best[0] + 1:
                best = (start, place - 1)
            start = None
    return best if best and best[1] - best[0] + 1 >= SPIN_SAMPLES else None


def _describe_spin(
    spinning: Sequence[tuple[DmonSeries, tuple[int, int]]], total: int, file: str
) -> Finding:
    longest = max(last - first + 1 for _, (first, last) in spinning)
    powers = [
        sample["pwr"]
        for one, (first, last) in spinning
        for sample in one.samples[first : last + 1]
        if "pwr" in sample
    ]
    names = ", ".join(str(one.index) for one, _ in spinning)
    power = f" at {median(powers):.0f} W" if powers else ""
    evidence = tuple(
        quote_line(file, *one.lines[place])
        for one, (first, last) in spinning[:4]
        for place in (first, last)
    )
    facts: dict[str, Json] = {
        "gpus": [one.index for one, _ in spinning],
        "of_gpus": total,
        "samples": longest,
    }
    facts |= known(power_w=round(median(powers), 1) if powers else None)
    return Finding(
        kind="hardware.gpu_spinning",
        title=(
            f"GPU {names}: full SM utilisation without memory traffic for {longest} samples{power}: "
            "kernels that only wait, as in a collective whose partner does not come"
        ),
        level=Level.SYMPTOM,
        category=Category.COMMUNICATION,
        evidence=evidence,
        facts=facts,
    )


def _check_one(one: DmonSeries, file: str) -> list[Finding]:
    found = []
    checks = (
        ("tviol", "throttled", "thermal throttling: it slowed down for heat", Category.PERFORMANCE),
        (
            "dbecc",
            "ecc_uncorrectable",
            "uncorrectable (double-bit) ECC memory errors",
            Category.HARDWARE,
        ),
    )
    for column, kind, words, category in checks:
        hits = [place for place, sample in enumerate(one.samples) if sample.get(column, 0.0) > 0]
        if hits:
            found.append(
                Finding(
                    kind=f"hardware.{kind}",
                    title=f"GPU {one.index}: {words} in {len(hits)} of {len(one.samples)} samples",
                    level=Level.CAUSE,
                    category=category,
                    confidence=Confidence.CONFIRMED,
                    evidence=(quote_line(file, *one.lines[hits[0]]),),
                    gpu=f"GPU {one.index}",
                    facts={"gpu_index": one.index, "samples": len(hits)},
                )
            )
    return found


def _find_idle(series: Sequence[DmonSeries], file: str) -> list[Finding]:
    """GPUs that do nothing in all samples beside others that work, all of them idle, or all far from full."""
    loads = {one.index: [s["sm"] for s in one.samples if "sm" in s] for one in series}
    known = [one for one in series if len(loads[one.index]) >= IDLE_SAMPLES]
    if not known:
        return []
    idle = [one for one in known if max(loads[one.index]) <= IDLE]
    quoted = tuple(quote_line(file, *one.lines[-1]) for one in (idle or known)[:4])
    names = ", ".join(str(one.index) for one in idle)
    if len(idle) == len(known):
        samples = min(len(loads[one.index]) for one in idle)
        title = (
            f"GPU {names}: idle in all {samples} samples (SM 0 %), so no kernel runs: every process waits on its host "
            "(loader, file, lock, store) or has ended"
        )
        return [_idle_finding("hardware.gpus_idle", title, Level.SYMPTOM, quoted, {"stalled": 0.4})]
    at_work = _list_at_work([loads[one.index] for one in known])
    if idle and at_work:
        title = (
            f"GPU {names}: idle (SM 0 %) while the others work at {median(at_work):.0f} %: its process waits on its host or "
            "has ended, and the others compute or wait in a collective for it"
        )
        return [_idle_finding("hardware.gpu_idle", title, Level.FAILURE, quoted, {}, idle)]
    if not at_work:
        title = (
            f"The GPUs work in {mean(x for v in loads.values() for x in v):.0f} % of the time only (SM; 70 to 95 % is usual in training): in this "
            "order look at the data loader, at communication, at the pipeline bubble and at memory that forces small batches"
        )
        return [_idle_finding("hardware.gpu_use_low", title, Level.CONTEXT, quoted, {"slow": 0.5})]
    return []


def _list_at_work(loads: Sequence[Sequence[float]]) -> list[float]:
    """Usual loads of the GPUs that work, and that do so in nearly every sample.

    Peers that stand still in every other sample, too, wait like the idle ones: nobody is singled out.
    """
    steady = [v for v in loads if sum(s > IDLE for s in v) >= STEADY * len(v)]
    return [usual for v in steady if (usual := median(v)) >= AT_WORK]


def _idle_finding(
    kind: str,
    title: str,
    level: Level,
    quoted: tuple[Evidence, ...],
    explains: Mapping[str, Json],
    idle: Sequence[DmonSeries] = (),
) -> Finding:
    gpus: list[Json] = [one.index for one in idle]
    return Finding(
        kind=kind,
        title=title,
        level=level,
        category=Category.PERFORMANCE,
        confidence=Confidence.LIKELY if idle else Confidence.POSSIBLE,
        evidence=quoted,
        gpu=f"GPU {idle[0].index}" if len(idle) == 1 else None,
        page="gpu-utilisation-monitoring",
        facts={"gpus": gpus, "explains": dict(explains)},
    )


def _find_odd_clock(series: Sequence[DmonSeries], file: str) -> list[Finding]:
    """A GPU whose clock under load lies well under that of all others."""
    told = any("sm" in sample for one in series for sample in one.samples)
    loaded = _read_clocks(series, told)
    if len(loaded) < (2 if told else 4):
        return []
    if not told and sum(c < _ODD_SHARE * max(loaded.values()) for c in loaded.values()) != 1:
        return []
    found = []
    for one in series:
        mine = loaded.get(one.index)
        others = [clock for index, clock in loaded.items() if index != one.index]
        if mine is None or mine >= _ODD_SHARE * min(others):
            continue
        found.append(
            Finding(
                kind="hardware.clock_odd",
                title=(
                    f"GPU {one.index}: {mine:.0f} MHz{' under load' if told else ''}, its peers run at "
                    f"{median(others):.0f} MHz"
                ),
                # without a load the low clock may be that of a GPU that has nothing to do
                level=Level.CAUSE if told else Level.CONTEXT,
                category=Category.PERFORMANCE,
                evidence=(quote_line(file, *one.lines[-1]),),
                gpu=f"GPU {one.index}",
                facts={
                    "gpu_index": one.index,
                    "sm_clock_mhz": mine,
                    **({} if told else {"explains": {"slow": 0.8}}),
                },
            )
        )
    return found


def _read_clocks(series: Sequence[DmonSeries], told: bool) -> dict[int, float]:
    """Usual clock by GPU, of the samples under load where the load is told."""
    usual: dict[int, float] = {}
    for one in series:
        samples = [s for s in one.samples if not told or s.get("sm", 0.0) >= 50]
        clocks = [s["pclk"] for s in samples if "pclk" in s]
        if len(clocks) >= 3:
            usual[one.index] = median(clocks)
    return usual


def _summarise(series: Sequence[DmonSeries], file: str) -> Finding:
    parts = []
    for one in series[:16]:
        loads = [sample["sm"] for sample in one.samples if "sm" in sample]
        heats = [sample["gtemp"] for sample in one.samples if "gtemp" in sample]
        text = f"GPU {one.index}: {len(one.samples)} samples"
        if loads:
            text += f", busy in {sum(load >= 50 for load in loads)}, last SM {loads[-1]:.0f} %"
        if heats:
            text += f", up to {max(heats):.0f} C"
        parts.append(text)
    return Finding(
        kind="hardware.gpu_activity",
        title="; ".join(parts),
        level=Level.CONTEXT,
        confidence=Confidence.CONFIRMED,
        evidence=(quote_line(file, *series[0].lines[-1]),),
        facts={"gpus": len(series)},
    )
