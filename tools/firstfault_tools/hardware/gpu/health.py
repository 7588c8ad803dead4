"""Is a GPU healthy by what nvidia-smi reports, measured against the board's own limits?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.hardware.gpu.fleet import merge_alike, read_reasons
from firstfault_tools.hardware.gpu.smi_values import GpuState, Value

_THROTTLES = {
    "hw_thermal": (
        "HW thermal slowdown (thermal throttling): the hardware lowers its clock for heat",
        Level.CAUSE,
    ),
    "sw_thermal": (
        "SW thermal slowdown (thermal throttling): the driver lowers its clock for heat",
        Level.CAUSE,
    ),
    "hw_power_brake": (
        "HW power brake slowdown: the power supply makes it lower its clock",
        Level.CAUSE,
    ),
    "hw_slowdown": ("HW slowdown: the hardware lowers its clock, for heat or power", Level.CAUSE),
    "sw_power_cap": ("SW power cap: it runs at its power limit", Level.CONTEXT),
}
_FLAGS = {
    "remap_pending": (
        "row_remap_pending",
        "row remapping is pending until a GPU reset: an uncorrectable ECC memory error has happened",
        Level.CAUSE,
    ),
    "remap_failure": (
        "row_remap_failed",
        "row remapping failed: no spare row is left for its ECC errors",
        Level.CAUSE,
    ),
    "unrepairable": ("memory_unrepairable", "its memory is unrepairable (ECC)", Level.CAUSE),
    "sram_threshold": ("sram_threshold", "its SRAM ECC error threshold is exceeded", Level.CAUSE),
    "pages_pending": (
        "page_retirement_pending",
        "page retirement is pending until a reset (ECC errors)",
        Level.CAUSE,
    ),
    "channel_repair": ("repair_pending", "a memory channel repair is pending", Level.FAILURE),
    "tpc_repair": ("repair_pending", "a compute unit repair is pending", Level.FAILURE),
}
HALF_IDLE = 40
"""Percent of utilisation up to which a GPU among spinning ones counts as the late one."""

FULL_FRACTION = 0.98


def check_gpus(gpus: Sequence[GpuState], file: str) -> tuple[Finding, ...]:
    """Findings of all GPUs of one output, the inventory last."""
    findings: list[Finding] = []
    for gpu in gpus:
        for check in _CHECKS:
            findings.extend(check(gpu, file))
    findings = merge_alike(findings, len(gpus))
    findings = [
        replace(f, facts={**f.facts, "gpus_on_host": len(gpus)}) if f.gpu is not None else f
        for f in findings
    ]
    findings.extend(_find_idle_odd(gpus, file))
    if gpus:
        findings.append(_describe_inventory(gpus, file, findings))
    return tuple(findings)


def _make(
    gpu: GpuState,
    file: str,
    value: Value,
    kind: str,
    title: str,
    level: Level,
    category: Category = Category.HARDWARE,
    **facts: Json,
) -> Finding:
    return Finding(
        kind=f"hardware.{kind}",
        title=f"{gpu.label}: {title}",
        subject=gpu.label,
        level=level,
        category=category,
        confidence=Confidence.CONFIRMED if level is Level.CAUSE else Confidence.LIKELY,
        evidence=(quote_line(file, value.line, value.quote),),
        gpu=gpu.label,
        facts={"pci_address": gpu.address, "gpu_index": gpu.index, **facts},
    )


def _check_unreadable(gpu: GpuState, file: str) -> Iterator[Finding]:
    value = gpu.first("unreadable")
    if value:
        title = f"nvidia-smi cannot read it ({value.text}); look for an Xid in the kernel log"
        yield _make(gpu, file, value, "gpu_unreadable", title, Level.CAUSE)


def _check_ecc(gpu: GpuState, file: str) -> Iterator[Finding]:
    count, value = gpu.total("ecc_volatile_uncorrectable")
    if value:
        title = f"{count:.0f} uncorrectable ECC memory errors since the driver was loaded"
        yield _make(gpu, file, value, "ecc_uncorrectable", title, Level.CAUSE, errors=int(count))
    before, value = gpu.total("ecc_aggregate_uncorrectable")
    if value and not count:
        title = f"{before:.0f} uncorrectable ECC memory errors in its lifetime, none since the driver was loaded"
        yield _make(gpu, file, value, "ecc_history", title, Level.CONTEXT, errors=int(before))
    rows, value = gpu.total("remap_uncorrectable")
    if value:
        title = f"{rows:.0f} rows remapped after uncorrectable ECC errors in its lifetime"
        yield _make(gpu, file, value, "rows_remapped", title, Level.CONTEXT, rows=int(rows))
    corrected, value = gpu.total("ecc_volatile_correctable")
    if value and corrected > 1000:
        title = f"{corrected:.0f} corrected ECC memory errors since the driver was loaded"
        yield _make(gpu, file, value, "ecc_corrected", title, Level.CONTEXT, errors=int(corrected))


def _check_flags(gpu: GpuState, file: str) -> Iterator[Finding]:
    for key, (kind, title, level) in _FLAGS.items():
        value = gpu.first(key)
        if value and value.text.lower() in ("yes", "1", "true"):
            yield _make(gpu, file, value, kind, title, level)


def _check_recovery(gpu: GpuState, file: str) -> Iterator[Finding]:
    value = gpu.first("recovery_action")
    if value and value.text.lower() != "none":
        title = f"the driver asks for a recovery action: {value.text}"
        yield _make(gpu, file, value, "recovery_action", title, Level.CAUSE, action=value.text)


def _check_fabric(gpu: GpuState, file: str) -> Iterator[Finding]:
    state, status = gpu.first("fabric_state"), gpu.first("fabric_status")
    if state and state.text not in ("Completed", "Not Supported"):
        title = f"its fabric registration is {state.text!r}: NVLink peers need Fabric Manager to complete it"
        yield _make(gpu, file, state, "fabric_state", title, Level.CAUSE, Category.ENVIRONMENT)
    elif status and status.text not in ("Success", "Not Supported"):
        title = f"its fabric registration failed: {status.text}"
        yield _make(gpu, file, status, "fabric_status", title, Level.CAUSE, Category.ENVIRONMENT)


def _check_throttle(gpu: GpuState, file: str) -> Iterator[Finding]:
    reasons = read_reasons(gpu)
    active = {key: value for key, value in reasons.items() if key in _THROTTLES}
    if len(active) > 1:
        # The general flag comes with each special one.
        active.pop("hw_slowdown", None)
    for key, value in active.items():
        title, level = _THROTTLES[key]
        title += _say_clocks(gpu)
        facts = {"reason": key, "sm_clock_mhz": gpu.number("sm_clock")}
        yield _make(gpu, file, value, "throttled", title, level, Category.PERFORMANCE, **facts)


def _say_clocks(gpu: GpuState) -> str:
    """` (SM clock 1005 of 1980 MHz, 93 C)`, of what is known."""
    now, most = gpu.number("sm_clock"), gpu.number("sm_clock_max")
    heat = gpu.number("temperature")
    parts = []
    if now is not None:
        parts.append(f"SM clock {now:.0f}{f' of {most:.0f}' if most is not None else ''} MHz")
    if heat is not None:
        parts.append(f"{heat:.0f} C")
    return f" ({', '.join(parts)})" if parts else ""


def _check_temperature(gpu: GpuState, file: str) -> Iterator[Finding]:
    margin, floor = gpu.first("margin"), gpu.number("margin_slowdown")
    now, limit = gpu.first("temperature"), gpu.number("temperature_slowdown")
    if margin and margin.number is not None:
        if floor is not None and margin.number <= floor:
            title = (
                f"no thermal margin left ({margin.number:.0f} C, it slows down at {floor:.0f} C)"
            )
            yield _make(gpu, file, margin, "too_hot", title, Level.CAUSE, margin_c=margin.number)
    elif now and now.number is not None and limit is not None and now.number >= limit:
        title = f"{now.number:.0f} C, its slowdown temperature is {limit:.0f} C"
        yield _make(gpu, file, now, "too_hot", title, Level.CAUSE, temperature_c=now.number)
    memory, most = gpu.first("memory_temperature"), gpu.number("memory_temperature_max")
    if memory and memory.number is not None and most is not None and memory.number >= most:
        title = f"memory at {memory.number:.0f} C, its limit is {most:.0f} C"
        yield _make(gpu, file, memory, "memory_too_hot", title, Level.CAUSE)


def _check_link(gpu: GpuState, file: str) -> Iterator[Finding]:
    width, most = gpu.first("pcie_width_now"), gpu.number("pcie_width_max")
    if width and width.number is not None and most is not None and 0 < width.number < most:
        title = f"PCIe link width x{width.number:.0f}: its link runs {width.number:.0f} lanes wide of {most:.0f}"
        yield _make(
            gpu,
            file,
            width,
            "pcie_width",
            title,
            Level.FAILURE,
            lanes=int(width.number),
            explains={"slow": 0.75},
        )
    speed, best = gpu.first("pcie_gen_now"), gpu.number("pcie_gen_max")
    busy = (gpu.number("utilisation") or 0.0) > 50.0
    if speed and speed.number is not None and best is not None and speed.number < best:
        # An idle card lowers its link to save power.
        level = Level.FAILURE if busy else Level.CONTEXT
        title = f"PCIe link speed: its link runs at generation {speed.number:.0f} of {best:.0f}"
        title += "" if busy else " (normal while idle)"
        yield _make(gpu, file, speed, "pcie_generation", title, level)


def _check_settings(gpu: GpuState, file: str) -> Iterator[Finding]:
    mode = gpu.first("compute_mode")
    if mode and mode.text.lower().startswith(("exclusive", "prohibited")):
        title = f"compute mode {mode.text}: a second process cannot open it"
        yield _make(gpu, file, mode, "compute_mode", title, Level.CONTEXT, Category.ENVIRONMENT)
    ecc = gpu.first("ecc_mode")
    if ecc and ecc.text == "Disabled":
        title = "ECC is off: memory errors go unseen"
        yield _make(gpu, file, ecc, "ecc_off", title, Level.CONTEXT)
    limit, default = gpu.first("power_limit"), gpu.number("power_limit_default")
    if limit and limit.number is not None and default and limit.number < 0.95 * default:
        title = f"power limit {limit.number:.0f} W, the default is {default:.0f} W"
        yield _make(gpu, file, limit, "power_limit", title, Level.CONTEXT, Category.PERFORMANCE)
    used, total = gpu.first("memory_used"), gpu.number("memory_total")
    if used and used.number is not None and total and used.number / total >= FULL_FRACTION:
        title = f"memory {used.number:.0f} of {total:.0f} MiB in use"
        yield _make(gpu, file, used, "memory_full", title, Level.CONTEXT, Category.OOM)


_CHECKS: tuple[Callable[[GpuState, str], Iterator[Finding]], ...] = (
    _check_unreadable,
    _check_ecc,
    _check_flags,
    _check_recovery,
    _check_fabric,
    _check_throttle,
    _check_temperature,
    _check_link,
    _check_settings,
)


def _find_idle_odd(gpus: Sequence[GpuState], file: str) -> Iterator[Finding]:
    """Ranks that wait in a collective spin at full utilisation; the one they wait for often does not."""
    loads = [(gpu, value) for gpu in gpus if (value := gpu.first("utilisation"))]
    idle = [(gpu, value) for gpu, value in loads if value.number is not None and value.number <= 5]
    spinning = [gpu for gpu, value in loads if value.number is not None and value.number >= 95]
    if len(loads) < 2 or len(idle) > len(loads) // 3 + (len(loads) == 2):
        return
    if len(spinning) + len(idle) != len(loads) or not idle:
        yield from _find_half_idle(loads, len(spinning), file)
        return
    for gpu, value in idle:
        title = f"idle while the other {len(spinning)} run at full utilisation: they may be waiting for it"
        yield _make(gpu, file, value, "idle_odd", title, Level.SYMPTOM, Category.COMMUNICATION)


def _find_half_idle(
    loads: Sequence[tuple[GpuState, Value]], spinning: int, file: str
) -> Iterator[Finding]:
    """One GPU with little to do among busy ones: its process is late, and the others spin for it."""
    low = [(gpu, v) for gpu, v in loads if v.number is not None and v.number <= HALF_IDLE]
    if len(low) != 1 or len(loads) < 3 or spinning != len(loads) - 1:
        return
    gpu, value = low[0]
    busy = f"only {value.number:.0f} % busy while the other {spinning} spin at full utilisation"
    title = f"{busy}: they wait in collectives for its process, which is held up on the CPU (data loading, cores, a slow host path)"
    found = _make(gpu, file, value, "half_idle", title, Level.CONTEXT, Category.PERFORMANCE)
    facts = {**found.facts, "explains": {"slow": 0.6}}
    yield replace(found, opening=f"{gpu.label}: {busy}", facts=facts)


def _describe_inventory(gpus: Sequence[GpuState], file: str, found: Sequence[Finding]) -> Finding:
    names = [value.text for gpu in gpus if (value := gpu.first("name"))]
    kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    bad = [f for f in found if f.level in (Level.CAUSE, Level.FAILURE)]
    words = "see the findings" if bad else "no error, throttling or link fault shown"
    place = next((v for gpu in gpus for values in gpu.values.values() for v in values), None)
    evidence = (quote_line(file, place.line, place.quote),) if place else ()
    return Finding(
        kind="hardware.gpu_inventory",
        title=f"{kinds or f'{len(gpus)} GPUs'}: {words}",
        level=Level.CONTEXT,
        confidence=Confidence.CONFIRMED,
        evidence=evidence,
        facts={"gpus": len(gpus)},
    )
