"""In which software and limits does a job on this node run, and is its clock right?"""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Any

from .command import run_allowed
from .record import make_record

SHOWN = re.compile(
    r"(?:NCCL|FI|OFI|UCX|CUDA|TORCH|PYTORCH|OMP|GLOO|NVTE|NVSHMEM|RDMAV|EFA)_\w+|"
    r"(?:MASTER_(?:ADDR|PORT)|WORLD_SIZE|RANK|LOCAL_RANK|LD_LIBRARY_PATH|"
    r"SLURM_(?:JOB_ID|JOB_NODELIST|NTASKS|PROCID|NODEID))"
)
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY|CREDENTIAL", re.IGNORECASE)


def _read_first(*paths: str) -> str | None:
    for path in paths:
        try:
            with open(path, encoding="ascii", errors="replace") as stream:
                return stream.read(4096).strip()
        except OSError:
            continue
    return None


def _read_memory() -> dict[str, float]:
    values = {}
    for line in (_read_first("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable", "SwapTotal") and rest.split():
            values[name] = round(int(rest.split()[0]) / 1024**2, 2)
    return values


def _describe_torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {}
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    try:
        found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError):
        found["nccl"] = None
    return found


def check_environment() -> dict[str, Any]:
    """Versions, limits and the variables that steer NCCL, CUDA and torch."""
    limits: dict[str, Any] = {}
    try:
        import resource

        for name, number in (
            ("memlock", resource.RLIMIT_MEMLOCK),
            ("nofile", resource.RLIMIT_NOFILE),
        ):
            soft = resource.getrlimit(number)[0]
            limits[name] = "unlimited" if soft == resource.RLIM_INFINITY else soft
    except ImportError:
        pass
    shared = None
    if os.path.isdir("/dev/shm"):
        stats = os.statvfs("/dev/shm")
        shared = round(stats.f_blocks * stats.f_frsize / 1024**3, 2)
    cgroup = _read_first("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    memory = _read_memory()
    values: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_total_gib": memory.get("MemTotal"),
        "memory_available_gib": memory.get("MemAvailable"),
        "swap_gib": memory.get("SwapTotal"),
        "cgroup_memory_gib": (
            round(int(cgroup) / 1024**3, 2)
            if cgroup and cgroup.isdecimal() and len(cgroup) < 16
            else None
        ),
        "shared_memory_gib": shared,
        "limits": limits,
        "variables": {
            name: value[:300]
            for name, value in sorted(os.environ.items())
            if SHOWN.fullmatch(name) and not SECRET.search(name)
        },
    }
    values.update(_describe_torch())
    return make_record("environment", values=values)


def check_clock() -> dict[str, Any]:
    """Offset of the node's clock to its time servers, where a time daemon tells it."""
    chrony = run_allowed("clock-chrony")
    offset = re.search(r"System time\s*:\s*([\d.]+) seconds (slow|fast)", chrony.text)
    if offset:
        sign = -1.0 if offset.group(2) == "slow" else 1.0
        stratum = re.search(r"Stratum\s*:\s*(\d+)", chrony.text)
        values: dict[str, Any] = {
            "offset_ms": round(sign * float(offset.group(1)) * 1e3, 4),
            "stratum": int(stratum.group(1)) if stratum else None,
            "source": "chronyc tracking",
        }
        return make_record("clock", values=values)
    systemd = run_allowed("clock-systemd")
    if "NTPSynchronized=" in systemd.text:
        synchronised = "NTPSynchronized=yes" in systemd.text
        return make_record("clock", values={"synchronised": synchronised, "source": "timedatectl"})
    reason = "not available here: neither chronyc nor timedatectl answers"
    return make_record("clock", "unavailable", reason=reason)
