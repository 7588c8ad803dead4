"""Which commands may the kit start on a node? A closed list of argument vectors that only read.

Nothing is passed through a shell, nothing comes from outside, and each command is shown before it runs.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import NamedTuple

from .record import show_progress

HEALTH_FIELDS = (
    "index,name,uuid,pci.bus_id,driver_version,temperature.gpu,power.draw,power.limit,"
    "clocks.current.sm,clocks.max.sm,clocks.current.memory,utilization.gpu,memory.used,memory.total,"
    "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,"
    "ecc.mode.current,ecc.errors.uncorrected.volatile.total,ecc.errors.corrected.volatile.total,"
    "persistence_mode,compute_mode"
)

ALLOWED: dict[str, tuple[str, ...]] = {
    "gpu-health": ("nvidia-smi", "--query-gpu=" + HEALTH_FIELDS, "--format=csv"),
    "gpu-basic": (
        "nvidia-smi",
        "--query-gpu=index,name,uuid,pci.bus_id,utilization.gpu,memory.used,memory.total",
        "--format=csv",
    ),
    "gpu-detail": ("nvidia-smi", "-q", "-x"),
    "gpu-processes": (
        "nvidia-smi",
        "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
        "--format=csv",
    ),
    "gpu-topology": ("nvidia-smi", "topo", "-m"),
    "fabric-manager": ("systemctl", "is-active", "nvidia-fabricmanager"),
    "clock-chrony": ("chronyc", "-n", "tracking"),
    "clock-systemd": ("timedatectl", "show", "--property=NTPSynchronized,NTP"),
    "kernel-log": ("dmesg", "--level=emerg,alert,crit,err,warn"),
}


class Outcome(NamedTuple):
    """What a command gave. reason is set when it could not run or failed."""

    text: str
    reason: str | None


def run_allowed(name: str, limit_s: float = 15.0) -> Outcome:
    """Run one command of the list; never raises for a missing, failing or slow command.

    Raises KeyError for a name that is not on the list.
    """
    argv = ALLOWED[name]
    if shutil.which(argv[0]) is None:
        return Outcome("", f"not available here: {argv[0]} is not installed")
    show_progress("+ " + " ".join(argv))
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome("", f"{argv[0]} did not answer within {limit_s:.0f} s")
    except OSError as error:
        return Outcome("", f"not available here: {argv[0]}: {error.strerror}")
    text = done.stdout[: 8 * 1024 * 1024].decode("utf-8", errors="replace")
    if done.returncode != 0:
        told = (done.stderr or done.stdout).decode("utf-8", errors="replace").strip()
        return Outcome(text, f"{argv[0]} ended with code {done.returncode}: {told[:200]}")
    return Outcome(text, None)
