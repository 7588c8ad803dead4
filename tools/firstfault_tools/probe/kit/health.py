"""Which GPUs are there, are they healthy, and is anyone using them?"""

from __future__ import annotations

import csv
import io
import os
import re
import xml.parsers.expat
from typing import Any

from .command import run_allowed
from .record import make_record

BUSY_UTILISATION_PERCENT = 10.0
BUSY_MEMORY_FRACTION = 0.05

KERNEL_LINES = 60

_KERNEL = re.compile(
    r"Xid \(|fallen off the bus|PCIe Bus Error|AER:|mlx5_core|\befa|EDAC|Machine Check|Out of memory|"
    r"oom-kill|nvme|I/O error|blocked for more than|soft lockup|NVRM: GPU"
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_KEYS = {
    "index": "gpu_index", "name": "name", "uuid": "uuid", "pci.bus_id": "pci_address",
    "driver_version": "driver_version", "temperature.gpu": "temperature_c",
    "power.draw": "power_draw_w", "power.limit": "power_limit_w",
    "clocks.current.sm": "sm_clock_mhz", "clocks.max.sm": "sm_clock_max_mhz",
    "clocks.current.memory": "memory_clock_mhz", "utilization.gpu": "utilisation_percent",
    "memory.used": "memory_used_mib", "memory.total": "memory_total_mib",
    "pcie.link.gen.current": "pcie_generation", "pcie.link.gen.max": "pcie_generation_max",
    "pcie.link.width.current": "pcie_width", "pcie.link.width.max": "pcie_width_max",
    "ecc.mode.current": "ecc_mode", "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected",
    "ecc.errors.corrected.volatile.total": "ecc_corrected", "persistence_mode": "persistence_mode",
    "compute_mode": "compute_mode",
}  # fmt: skip
_TEXTS = frozenset(
    {
        "name",
        "uuid",
        "pci_address",
        "driver_version",
        "ecc_mode",
        "persistence_mode",
        "compute_mode",
    }
)
# Paths inside `nvidia-smi -q -x` that the CSV query cannot give on every driver.
_DETAILS = {
    "remapped_rows/remapped_row_pending": "row_remap_pending",
    "remapped_rows/remapped_row_failure": "row_remap_failure",
    "remapped_rows/remapped_row_unc": "rows_remapped_uncorrectable",
    "retired_pages/pending_retirement": "page_retirement_pending",
    "temperature/gpu_temp_tlimit": "thermal_margin_c",
    "temperature/gpu_temp_slow_tlimit_threshold": "thermal_margin_slowdown_c",
    "temperature/gpu_temp_slow_threshold": "slowdown_temperature_c",
    "temperature/memory_temp": "memory_temperature_c",
    "temperature/gpu_temp_max_mem_threshold": "memory_temperature_max_c",
    "fabric/state": "fabric_state",
    "fabric/status": "fabric_status",
    "gpu_recovery_action": "recovery_action",
    "pci/replay_counter": "pcie_replays",
    "mig_mode/current_mig": "mig_mode",
}
_REASON_PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_")
_DETAIL_TEXTS = frozenset(
    {"row_remap_pending", "row_remap_failure", "page_retirement_pending", "fabric_state",
     "fabric_status", "recovery_action", "mig_mode"}
)  # fmt: skip


def read_number(text: str) -> float | None:
    """First number of `123.4 W`, None for `N/A` and `[Not Supported]`."""
    found = _NUMBER.search(text)
    return float(found.group()) if found and not text.startswith("[") else None


def parse_query(text: str) -> list[dict[str, Any]]:
    """Rows of `nvidia-smi --query-gpu=... --format=csv` with the kit's own key names."""
    rows = list(csv.reader(io.StringIO(text), skipinitialspace=True))
    if len(rows) < 2:
        return []
    names = [_KEYS.get(cell.split(" [")[0].strip(), "") for cell in rows[0]]
    gpus = []
    for row in rows[1:]:
        gpu: dict[str, Any] = {}
        for name, cell in zip(names, row):  # noqa: B905 - Python 3.9 has no strict
            if not name:
                continue
            value: Any = cell.strip() if name in _TEXTS else read_number(cell)
            if value is not None and value != "[N/A]":
                gpu[name] = value
        if "gpu_index" in gpu:
            gpu["gpu_index"] = int(gpu["gpu_index"])
            gpus.append(gpu)
    return gpus


class _DetailReader:
    """Takes the chosen values out of the XML of `nvidia-smi -q -x` as a parser walks through it."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self.path: list[str] = []
        self.current: dict[str, Any] = {}

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.path.append(name)
        if name == "gpu" and len(self.path) == 2:
            address = attributes.get("id", "?")
            self.current = self.found.setdefault(address, {"active_reasons": []})

    def take(self, data: str) -> None:
        value, path = data.strip(), self.path
        if not value or len(path) < 3 or path[1] != "gpu":
            return
        key = _DETAILS.get("/".join(path[2:]))
        if key in _DETAIL_TEXTS:
            self.current[key] = value
        elif key:
            number = read_number(value)
            if number is not None:
                self.current[key] = number
        elif path[-1].startswith(_REASON_PREFIXES) and value == "Active":
            self.current["active_reasons"].append(path[-1].split("_reason_", 1)[1])

    def end(self, _name: str) -> None:
        self.path.pop()

    def refuse(self, *_args: object) -> None:
        raise ValueError("entity declarations are refused")


def parse_detail(text: str) -> dict[str, dict[str, Any]]:
    """Chosen values of `nvidia-smi -q -x` by PCI address; unreadable XML gives nothing."""
    reader = _DetailReader()
    parser = xml.parsers.expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.take
    parser.EntityDeclHandler = reader.refuse
    parser.buffer_text = True
    try:
        parser.Parse(text, True)
    except (xml.parsers.expat.ExpatError, ValueError):
        return {}
    return reader.found


def check_kernel_log() -> dict[str, Any]:
    """The latest kernel lines about GPUs, links, memory and disks, as printed."""
    outcome = run_allowed("kernel-log")
    if outcome.reason:
        reason = outcome.reason
        if not reason.startswith("not available here"):
            reason = f"not available here: {reason}"
        return make_record("kernel_log", "unavailable", reason=reason)
    lines = [line[:400] for line in outcome.text.splitlines() if _KERNEL.search(line)]
    return make_record("kernel_log", values={"lines": lines[-KERNEL_LINES:], "seen": len(lines)})


def list_processes() -> dict[str, list[str]]:
    """Programs on each GPU by its UUID, as `pid name memory`; empty where nothing is told."""
    found: dict[str, list[str]] = {}
    for row in list(csv.reader(io.StringIO(run_allowed("gpu-processes").text)))[1:]:
        cells = [cell.strip() for cell in row]
        if len(cells) >= 4:
            found.setdefault(cells[0], []).append(" ".join(cells[1:4])[:200])
    return found


def list_visible(count: int) -> list[int]:
    """Indices that `CUDA_VISIBLE_DEVICES` leaves, where it names plain numbers."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(count))
    parts = [part.strip() for part in chosen.split(",") if part.strip()]
    if all(part.isdecimal() for part in parts):
        return [int(part) for part in parts if int(part) < count]
    return list(range(count))


def check_health() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records and the GPUs themselves (as parsed), empty where there is none."""
    outcome = run_allowed("gpu-health")
    gpus = parse_query(outcome.text)
    if not gpus and outcome.reason and "not a valid field" in outcome.reason:
        # An older driver refuses the whole query for one field it does not know.
        outcome = run_allowed("gpu-basic")
        gpus = parse_query(outcome.text)
    if not gpus:
        reason = outcome.reason or "not available here: nvidia-smi lists no GPU"
        return [make_record("health", "unavailable", reason=reason)], []
    detail = parse_detail(run_allowed("gpu-detail").text)
    records = []
    for gpu in gpus:
        gpu.update(detail.get(gpu.get("pci_address", ""), {}))
        values = {key: value for key, value in gpu.items() if key != "gpu_index"}
        records.append(make_record("health", values=values, gpu_index=gpu["gpu_index"]))
    fabric = run_allowed("fabric-manager")
    state = fabric.text.strip()
    if state:
        records.append(make_record("fabric_manager", values={"state": state}))
    topology = run_allowed("gpu-topology")
    if topology.text:
        records.append(make_record("topology", values={"text": topology.text[:8000]}))
    return records, gpus


def explain_busy(gpu: dict[str, Any]) -> str | None:
    """Why a GPU counts as busy, None if it is free."""
    load = gpu.get("utilisation_percent") or 0.0
    used, total = gpu.get("memory_used_mib") or 0.0, gpu.get("memory_total_mib") or 0.0
    if load > BUSY_UTILISATION_PERCENT:
        return f"GPU {gpu['gpu_index']} is busy: utilisation {load:.0f} %"
    if total and used / total > BUSY_MEMORY_FRACTION:
        return f"GPU {gpu['gpu_index']} is busy: {used:.0f} of {total:.0f} MiB in use"
    return None
