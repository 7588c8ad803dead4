"""Which process ended how? Exit codes and signals from lines of torchrun, Slurm, DeepSpeed, Paddle and Kubernetes."""

from __future__ import annotations

import re
import signal

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import FileDigest, Line, Mark
from firstfault_tools.log.scan import make_line

_ELASTIC = expression(
    r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)"
)
_TABLE_CODE = expression(r"exitcode\s*:\s*(?P<code>-?\d+) \(pid: (?P<pid>\d+)\)")
_TABLE_RANK = expression(r"\brank\s*:\s*(?P<rank>\d+) \(local_rank: (?P<local>\d+)\)")
_TABLE_HOST = expression(r"\bhost\s*:\s*(?P<host>[\w.-]+)")
_SRUN = expression(
    r"srun: error: (?P<host>[\w.-]+): tasks? (?P<task>\d+)(?P<more>[-,]\d[\d,-]*)?: (?P<how>Killed|Exited with exit code (?P<code>\d+)|"
    r"Segmentation fault|Bus error|Aborted|Terminated|Out Of Memory|Illegal instruction|[A-Z][\w ]+)"
)
_SIGNALLED = expression(r"Signal (?P<signal>\d+) \(SIG[A-Z0-9]+\) received by PID (?P<pid>\d+)")
_MPI = expression(
    r"process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<host>[\w.-]+) exited on signal (?P<signal>\d+)"
)
_PYTHON = expression(r"died with <Signals\.SIG[A-Z0-9]+: (?P<signal>\d+)>")
_SPAWNED = expression(
    r"-- Process (?P<local>\d+) terminated with the following error|"
    r"\bprocess (?P<quiet>\d+) terminated with (?:exit code (?P<code>\d+)|signal (?P<signal>SIG[A-Z0-9]+))"
)
"""torch.multiprocessing.spawn: the index of the process is its rank on the host."""

_PADDLE = expression(
    r"the trainer process with rank=\[(?P<rank>\d{1,6})\] was aborted|"
    r"Container rank (?P<container>\d{1,6}) status failed cmd .{0,2000}? code (?P<code>-?\d+) log "
)
"""Both launchers of Paddle; where several trainers ended, the list names them all and no first."""

_SYSTEMD = expression(r"Main process exited, code=(?:killed|dumped), status=(?P<signal>\d+)/")
_LAUNCH = expression(r"exits with return code = (?P<code>-?\d+)")
_KUBE = expression(r"Exit Code:\s+(?P<code>\d+)")
_SIGNALS = {
    "Killed": 9, "Segmentation fault": 11, "Bus error": 7, "Aborted": 6, "Terminated": 15,
    "Illegal instruction": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exit:
    """How one process ended. `signal` is the number that killed it, code is what was printed."""

    line: Line
    code: int
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    first: bool = False
    """Named by the launcher as its first observed failure: a claim, not proof."""

    task: int | None = None
    """Task that srun names: a rank where every task is one process."""

    @property
    def signal(self) -> int | None:
        if self.code < 0:
            return -self.code
        return self.code - 128 if 128 < self.code < 160 else None

    @property
    def signal_name(self) -> str | None:
        number = self.signal
        if number is None:
            return None
        try:
            return signal.Signals(number).name
        except ValueError:
            return None


def read_exits(digest: FileDigest) -> tuple[Exit, ...]:
    """Exits reported in one log, in order. Table rows carry the rank, one-line reports often do not."""
    out: list[Exit] = []
    for number, text in digest.marked_lines(Mark.EXIT):
        line = make_line(digest.file, number, text, digest.year)
        found = _read_line(digest, line, digest.position(number))
        if found is not None:
            out.append(found)
    return tuple(out)


def _read_line(digest: FileDigest, line: Line, position: int) -> Exit | None:
    text = line.text
    match = _ELASTIC.search(text)
    if match is not None:
        return Exit(line, int(match["code"]), None, int(match["local"]), None, int(match["pid"]))
    match = _TABLE_CODE.search(text)
    if match is not None:
        return _read_table(digest, line, position, int(match["code"]), int(match["pid"]))
    match = _SRUN.search(text)
    if match is not None:
        return _read_srun(line, match)
    match = _SIGNALLED.search(text)
    if match is not None:
        return Exit(line, -int(match["signal"]), line.place.rank, None, line.place.host, int(match["pid"]))  # fmt: skip
    match = _MPI.search(text)
    if match is not None and int(match["signal"]):
        return Exit(line, -int(match["signal"]), int(match["rank"]), None, match["host"], int(match["pid"]) or None)  # fmt: skip
    match = _SPAWNED.search(text)
    if match is not None:
        number = match["signal"] and getattr(signal, match["signal"], None)
        code = -int(number) if number else int(match["code"] or 1)
        return Exit(line, code, None, int(match["local"] or match["quiet"]), line.place.host)
    match = _PADDLE.search(text)
    if match is not None:
        rank = int(match["rank"] or match["container"])
        return Exit(line, int(match["code"] or 1), rank, None, line.place.host)
    match = _PYTHON.search(text) or _SYSTEMD.search(text)
    if match is not None:
        return Exit(line, -int(match["signal"]), line.place.rank, None, line.place.host)
    match = _LAUNCH.search(text) or _KUBE.search(text)
    if match is not None:
        return Exit(line, int(match["code"]), line.place.rank, None, line.place.host)
    return None


def _read_srun(line: Line, match: re.Match[str]) -> Exit | None:
    code = int(match["code"]) if match["code"] else -_SIGNALS.get(match["how"].strip(), 0)
    task = int(match["task"]) if not match["more"] else None
    if not code and task is None:
        return None
    return Exit(line, code or 1, host=match["host"], task=task)


def _read_table(digest: FileDigest, line: Line, position: int, code: int, pid: int) -> Exit:
    rank = local = host = None
    first = False
    for number, text in reversed(digest.kept[max(0, position - 6) : position]):
        if number < line.number - 6:
            break
        if (match := _TABLE_RANK.search(text)) is not None and rank is None:
            rank, local = int(match["rank"]), int(match["local"])
        if (match := _TABLE_HOST.search(text)) is not None and host is None:
            host = match["host"]
        first = first or "first observed failure" in text
    return Exit(line, code, rank, local, host, pid, first)
