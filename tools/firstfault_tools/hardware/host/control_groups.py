"""Whose is a control group that the kernel names: one that jobs run in, or that of another program of the host?

A limit that a unit of the system reaches (`/system.slice/NAME.service`) is that unit's own: it starts no process for a
job and holds none. What a job is started by stays (schedulers, container runtimes, user sessions), and so does a unit
that somebody named after work.
"""

from __future__ import annotations

from firstfault_tools.expressions import expression

_UNIT = expression(r"/(?:system|machine)\.slice/(?:[^/]*\.slice/)*(?P<unit>[^/]+)\.service(?:/|$)")
_STARTS_JOBS = expression(
    r"(?i)slurm|kube|k3s|rke2|containerd|docker|crio|podman|nomad|lxc|enroot|apptainer|singularity|pbs|torque|sge|lsf|sbatchd|condor"
    r"|user@|ssh|jupyter|screen|tmux|\bray|raylet|mpi|train|job|worker|torch|python|gpu|run[-_]|session"
)
"""Words in the name of a unit below which jobs run: schedulers, container runtimes, shells of users, `systemd-run`, and
units written for a run (systemd.unit(5) leaves the name to whoever writes it)."""
_OF_WORK = expression(r"(?i)^(?:python|pt_|ray|torch|accelerate|deepspeed|mpi)")
"""Names that processes of a run have (`pt_main_thread`, `pt_data_worker`, `ray::Worker`)."""


def is_of_another(group: str, process: str = "") -> bool:
    """A unit of the system in which no job runs, and the process does not look like one of a run."""
    unit = _UNIT.search(group)
    return unit is not None and not _STARTS_JOBS.search(unit["unit"]) and not _OF_WORK.search(process)  # fmt: skip
