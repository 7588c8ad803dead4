"""Which GPU or host runs slower than its peers by its settings, and what do all GPUs of a host share?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from firstfault_tools.averages import median
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import QUOTES_PER_FINDING, quote_line
from firstfault_tools.hardware.gpu.smi_values import GpuState, Value

# Bits of nvidia-smi's clocks_event_reasons.active, from NVML's nvmlClocksEventReasons constants.
_REASON_BITS = {
    0x01: "idle_reason",
    0x02: "clocks_setting",
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}
_WORDS = {
    "clocks_setting": "held by the clocks setting (nvidia-smi -lgc or -ac, never reset)",
    "sw_power_cap": "at its power limit",
    "hw_thermal": "HW thermal slowdown (slowed down by the hardware for heat)",
    "sw_thermal": "SW thermal slowdown (slowed down by the driver for heat)",
    "hw_power_brake": "HW power brake slowdown (slowed down by the power brake of the server)",
    "hw_slowdown": "HW slowdown (slowed down by the hardware)",
}
LOW = 0.9
"""Share of the peers' clock or power limit below which a GPU is called slow."""

FAR_BELOW = 0.8
"""Share of its own highest clock; some boards run their set clocks below it by default."""


class _Compared(NamedTuple):
    """A value that all GPUs of a job should have alike."""

    key: str
    kind: str
    name: str
    unit: str


_POWER_LIMIT = _Compared("power_limit", "hardware.power_limit_odd", "power limit", "W")
_CLOCK = _Compared("sm_clock", "hardware.clock_odd", "SM clock", "MHz")
_Row: TypeAlias = tuple[str | None, GpuState, Value, float]


def read_reasons(gpu: GpuState) -> dict[str, Value]:
    """Active reasons of a clock below the highest, from flags or from the mask."""
    active = {
        key: value
        for key in _REASON_BITS.values()
        if (value := gpu.first(key)) and value.text == "Active"
    }
    bits = gpu.first("reasons_active")
    if bits and bits.text.lower().startswith("0x"):
        try:
            mask = int(bits.text[:20], 16)
        except ValueError:
            mask = 0
        active.update({key: bits for bit, key in _REASON_BITS.items() if mask & bit})
    return active


def merge_alike(findings: Iterable[Finding], gpus: int) -> list[Finding]:
    """One finding where all GPUs of a host (two at least) say the same of themselves."""
    groups: dict[tuple[str, object], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.text(Fact.REASON)), []).append(finding)
    out: list[Finding] = []
    for group in groups.values():
        labels = {f.gpu for f in group}
        first = group[0]
        if gpus < 2 or len(labels) < gpus or first.gpu is None:
            out += group
            continue
        words = first.predicate
        evidence = tuple(e for f in group for e in f.evidence[:1])[:QUOTES_PER_FINDING]
        facts = {k: v for k, v in first.facts.items() if k not in ("gpu_index", "pci_address")}
        title = f"all {gpus} GPUs of the host alike: {words}"
        out.append(
            replace(first, title=title, gpu=None, evidence=evidence, facts={**facts, "gpus": gpus})
        )
    return out


def compare_gpus(
    listings: Sequence[tuple[str | None, Sequence[GpuState]]], file: str
) -> Iterator[Finding]:
    """Hosts, or single GPUs, with lower clocks under load or a lower power limit than the rest.

    listings: (host, its GPUs) in printed order.
    """
    gpus = [(host, gpu) for host, states in listings for gpu in states]
    busy = [(h, g) for h, g in gpus if "idle_reason" not in read_reasons(g)]
    capped = list(_find_low(gpus, _POWER_LIMIT, file))
    yield from capped
    # the lower clock of a capped GPU is no second fault
    known = {(f.host, f.gpu_index) for f in capped}
    for slow in _find_low(busy, _CLOCK, file):
        if (slow.host, slow.gpu_index) not in known:
            yield slow
    if len(busy) == len(gpus) and gpus:
        yield from _find_held(gpus, file)
    yield from _find_link(gpus, file)


def _find_low(
    gpus: Sequence[tuple[str | None, GpuState]], compared: _Compared, file: str
) -> Iterator[Finding]:
    values = [(h, g, v, n) for h, g in gpus if (v := g.first(compared.key)) and (n := v.number)]
    low, rest = _split_low(values)
    by_host: dict[str | None, list[_Row]] = {}
    for row in low:
        by_host.setdefault(row[0], []).append(row)
    for host, rows in by_host.items():
        whole = len(rows) == sum(row[0] == host for row in values)
        yield _describe_low(compared, rows, rest, whole, file)


def _describe_low(
    compared: _Compared, rows: Sequence[_Row], rest: Sequence[_Row], whole: bool, file: str
) -> Finding:
    """GPUs of one host that lie below the rest. whole: they are all of that host."""
    host = rows[0][0]
    number, usual = (median(row[3] for row in side) for side in (rows, rest))
    reasons = list(dict.fromkeys(k for row in rows for k in read_reasons(row[1]) if k in _WORDS))
    why = _say_clocks(rows, rest) if compared is _POWER_LIMIT else _say_reasons(reasons)
    labels = ", ".join(row[1].label for row in rows[:8])
    who = f"all {len(rows)} GPUs" if whole and len(rows) > 1 else labels
    place = f" of {host}" if host else ""
    single = rows[0][1] if len(rows) == 1 else None
    return Finding(
        kind=compared.kind,
        title=f"{compared.name} of {who}{place} is {number:.0f} {compared.unit}, the others run with {usual:.0f} {compared.unit}{why}",
        level=Level.CAUSE,
        category=Category.PERFORMANCE,
        confidence=Confidence.CONFIRMED,
        evidence=_quote([row[2] for row in rows], file),
        host=host,
        gpu=single.label if single else None,
        facts={
            "pci_address": single.address if single else None,
            "gpu_index": single.index if single else None,
            "reason": next(iter(reasons), None),
        },
    )


def _split_low(values: Sequence[_Row]) -> tuple[list[_Row], list[_Row]]:
    """GPUs far below the usual value, and the rest; nobody is low where three are not listed or most are."""
    if len(values) < 3:
        return [], []
    bound = LOW * median(n for *_, n in values)
    low = [row for row in values if row[3] < bound]
    if len(low) * 2 > len(values):
        return [], []
    return low, [row for row in values if row[3] >= bound]


def _say_reasons(reasons: Sequence[str]) -> str:
    return f": {', '.join(_WORDS[k] for k in reasons)}" if reasons else ""


def _say_clocks(capped: Sequence[_Row], rest: Sequence[_Row]) -> str:
    """SM clocks of the capped GPUs and of the rest, where both are printed."""
    sides = [[n for _, g, *_ in rows if (n := g.number("sm_clock"))] for rows in (capped, rest)]
    if not all(sides) or median(sides[0]) >= LOW * median(sides[1]):
        return ""
    return f": it holds the SM clock at {median(sides[0]):.0f} MHz, against {median(sides[1]):.0f}"


def _find_held(gpus: Sequence[tuple[str | None, GpuState]], file: str) -> Iterator[Finding]:
    """All GPUs far below their highest clock for a clocks setting: no peer to tell them from."""
    held = []
    for _, gpu in gpus:
        now, most = gpu.number("sm_clock"), gpu.number("sm_clock_max")
        value = read_reasons(gpu).get("clocks_setting")
        if now and most and value and now < FAR_BELOW * most:
            held.append((now, most, value))
    if len(held) < len(gpus):
        return
    now, most, _ = held[0]
    hosts = {host for host, _ in gpus}
    host = hosts.pop() if len(hosts) == 1 else None
    yield Finding(
        kind="hardware.clock_held",
        title=f"SM clock {now:.0f} of {most:.0f} MHz on all {len(held)} GPUs, {_WORDS['clocks_setting']}",
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        evidence=_quote([value for *_, value in held], file),
        host=host,
        facts={"reason": "clocks_setting"},
    )


def _find_link(gpus: Sequence[tuple[str | None, GpuState]], file: str) -> Iterator[Finding]:
    """A GPU whose PCIe link carries less than half of what its peers' links carry."""
    rows = []
    for host, gpu in gpus:
        width, speed = gpu.first("pcie_width_now"), gpu.first("pcie_gen_now")
        lanes = width.number if width is not None else None
        if width is not None and lanes:
            generation = (speed.number if speed is not None else None) or 0.0
            rows.append((host, gpu, width, lanes, generation))
    if len(rows) < 2:
        return
    best = max(rows, key=lambda r: r[3] * 2 ** r[4])
    worst = min(rows, key=lambda r: r[3] * 2 ** r[4])
    host, gpu, value, lanes, generation = worst
    if lanes * 2**generation * 2 >= best[3] * 2 ** best[4]:
        return
    idle = "idle_reason" in read_reasons(gpu) or (gpu.number("utilisation") or 100.0) < 5.0
    if lanes >= best[3] and idle:
        return  # an idle card lowers the speed of its link, never its width

    def say(row: tuple[str | None, GpuState, Value, float, float]) -> str:
        return (f"gen {row[4]:.0f} " if row[4] else "") + f"x{row[3]:.0f}"

    place = f" of {host}" if host else ""
    yield Finding.of_slowness(
        kind="hardware.pcie_link_odd",
        title=f"the PCIe link of {gpu.label}{place} runs at {say(worst)}, that of its best peer at {say(best)}: every exchange "
        "with that GPU waits for the narrow or slow link (degraded, badly seated, or a slot with few lanes)",
        evidence=_quote([value, best[2]], file),
        host=host,
        gpu=gpu.label,
        weight=0.85,
        facts={"gpu_index": gpu.index, "lanes": lanes},
    )


def _quote(values: Sequence[Value], file: str) -> tuple[Evidence, ...]:
    return tuple(quote_line(file, v.line, v.quote) for v in values[:QUOTES_PER_FINDING])
