"""Which processes of a host are ranks, where do they write, and what is their environment?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.secrets import redact_field

LISTS = (
    ("ps", "-ww", "-eo", "pid=,etimes=,args="),
    (
        "python3",
        "-c",
        "import glob,os,time; up=time.clock_gettime(7); hz=os.sysconf('SC_CLK_TCK'); "
        "[print(p[6:], int(up-int(open(p+'/stat').read().rsplit(')',1)[1].split()[19])/hz), "
        "open(p+'/cmdline').read().replace(chr(0), ' ')) for p in glob.glob('/proc/[0-9]*')]",
    ),
)
"""Every process with its age in seconds and its command line; the second where an image has no ps."""

_ROW = expression(r"\s{0,20}(\d{1,10})\s{1,20}(\d{1,10})\s{1,20}(\S.{0,4000})")
_LAUNCHERS = expression(
    r"(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|deepspeed\.launcher|srun|mpirun|firstfault|py-spy)\b"
)
_PYTHON = expression(r"(?:\S{0,400}/)?python[\d.]{0,6}\s")
_ENVIRON = expression(r"/proc/(\d{1,10})/environ:([A-Za-z_]\w{0,200})=(.{0,8000})")
_SHOWN = (
    "NCCL_", "RCCL_", "TORCH", "PYTORCH_", "CUDA_", "OMP_", "MASTER_", "SLURM_", "HF_", "GLOO_",
    "NVSHMEM_", "UCX_", "FI_", "NVTE_", "TRITON_", "XDG_CACHE_HOME",
)  # fmt: skip
_RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD_NAMES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_ALSO = frozenset(
    (*_RANK_NAMES, *_WORLD_NAMES, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "HOME")
)
_TIME = expression(r"(?m)^(\d{1,12}(?:\.\d{1,12})?) (/.{1,4000})$")
CLOCK_SLACK_S = 5.0
"""Seconds by which a file server's clock may differ from the host's."""
MOST_PROCESSES = 64
"""Ranks of one host; a node has at most 16 GPUs, and a CPU run seldom more ranks than this."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A training process. rank: None where its environment does not say or may not be read."""

    host: str
    pid: int
    rank: int | None
    world: int | None
    age_s: int
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    dump: str = ""
    log_age_s: float | None = None
    """Seconds since one of its logs was written, on its host's clock; None where nobody knows."""

    @property
    def label(self) -> str:
        """`rank3` or `pid4711`: how files of it are named."""
        return f"pid{self.pid}" if self.rank is None else f"rank{self.rank}"

    def dump_files(self) -> tuple[str, ...]:
        """Where torch writes this rank's flight-recorder dump, likeliest first.

        Source: c10d FlightRecorder `DebugInfoWriter::getWriter`; /tmp/nccl_trace_rank_ is the older default.
        """
        if self.rank is None:
            return ()
        env = self.environment
        for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
            if env.get(name):
                return (f"{env[name]}{self.rank}",)
        cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or "/tmp", ".cache")
        return f"{cache}/torch/comm_lib_trace_rank_{self.rank}", f"/tmp/nccl_trace_rank_{self.rank}"


def find_candidates(listing: str, match: str = "") -> dict[int, tuple[int, str]]:
    """pid -> (age in seconds, command line) of what may be a rank.

    match: a part of the command line, instead of a command that is Python.
    """
    found: dict[int, tuple[int, str]] = {}
    for line in listing.splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        pid, command = int(row[1]), row[3]
        wanted = match in command if match else _PYTHON.match(f"{command} ") is not None
        if wanted and not _LAUNCHERS.search(command) and pid != os.getpid():
            found[pid] = int(row[2]), command
    return found


def ask_environment(pids: Iterable[int | str]) -> tuple[str, ...]:
    """One command that prints the environment of these processes, a variable a line."""
    return ("grep", "-azsH", "", *(f"/proc/{pid}/environ" for pid in pids))


def ask_outputs(pids: Iterable[int | str]) -> tuple[str, ...]:
    """One command that says what standard output and error of these processes are."""
    files = [f"/proc/{pid}/fd/{number}" for pid in pids for number in (1, 2)]
    return ("find", *files, "-maxdepth", "0", "-printf", "%p %l\\n")


def ask_times(files: Iterable[str]) -> tuple[str, ...]:
    """One command that prints the host's time (that of /proc/self/stat) and the times of these files."""
    return ("find", "/proc/self/stat", *files, "-maxdepth", "0", "-printf", "%T@ %p\\n")


def read_times(ranks: Iterable[Rank], output: str) -> tuple[tuple[Rank, ...], tuple[str, ...]]:
    """Ranks with the age of their logs and the dump each of them wrote; and dumps older than their process."""
    times = {path: float(t) for t, path in _TIME.findall(output)}
    now = times.pop("/proc/self/stat", None)
    chosen, stale = [], []
    for rank in ranks:
        there = [file for file in rank.dump_files() if file in times]
        own = [f for f in there if now is not None and times[f] >= now - rank.age_s - CLOCK_SLACK_S]
        ages = [now - times[file] for file in rank.logs if file in times] if now is not None else []
        age = max(0.0, min(ages)) if ages else None
        chosen.append(replace(rank, dump=own[0] if own else "", log_age_s=age))
        stale += [file for file in there if file not in own]
    return tuple(chosen), tuple(stale)


def read_environment(output: str) -> dict[int, dict[str, str]]:
    """pid -> variables, from what `ask_environment` printed."""
    found: dict[int, dict[str, str]] = {}
    for entry in output.split("\0"):
        row = _ENVIRON.match(entry.lstrip("\n"))
        if row is not None:
            found.setdefault(int(row[1]), {})[row[2]] = row[3]
    return found


def read_outputs(output: str) -> dict[int, tuple[str, ...]]:
    """pid -> regular files it writes to; pipes, sockets, terminals and deleted files are left out."""
    found: dict[int, list[str]] = {}
    for line in output.splitlines():
        place, _, target = line.partition(" ")
        parts = place.split("/")
        if len(parts) != 5 or not parts[2].isdigit() or not target.startswith("/"):
            continue
        files = found.setdefault(int(parts[2]), [])
        passing = target.startswith(("/dev/", "/proc/")) or target.endswith(" (deleted)")
        if not passing and target not in files:
            files.append(target)
    return {pid: tuple(files) for pid, files in found.items()}


def name_ranks(
    host: str, candidates: Mapping[int, tuple[int, str]], environments: Mapping[int, Mapping[str, str]],
    outputs: Mapping[int, Sequence[str]], match: str = "",
) -> tuple[Rank, ...]:  # fmt: skip
    """Ranks of a host in order. A loader worker has its parent's rank: of several the lowest pid counts.

    A process without a rank counts only where the person named it (match) or nothing has a rank.
    """
    ranks: dict[int, Rank] = {}
    others: list[Rank] = []
    for pid in sorted(candidates):
        env = environments.get(pid, {})
        rank, world = _first(env, _RANK_NAMES), _first(env, _WORLD_NAMES)
        one = Rank(host, pid, rank, world, *candidates[pid], dict(env), tuple(outputs.get(pid, ())))
        if rank is None:
            others.append(one)
        else:
            ranks.setdefault(rank, one)
    named = [ranks[rank] for rank in sorted(ranks)]
    return tuple([*named, *(others if match or not named else ())][:MOST_PROCESSES])


def _first(env: Mapping[str, str], names: Sequence[str]) -> int | None:
    return next(
        (int(env[n]) for n in names if env.get(n, "").isdecimal() and len(env[n]) < 8), None
    )


def write_environment(env: Mapping[str, str]) -> str:
    """Variables that steer training, secrets redacted; of all others the name alone."""
    lines, hidden = [], []
    for name in sorted(env):
        if name in _ALSO or name.startswith(_SHOWN):
            lines.append(f"{name}={redact_field(name, env[name])}")
        else:
            hidden.append(name)
    return "\n".join([*lines, f"# also set: {' '.join(hidden)}", ""])
