"""Does the number of processes started fit the nodes and GPUs that the job holds?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.commands import MOST_COMMANDS, read_commands
from firstfault_tools.causality.launch.unmet import describe_launch
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

_ASKED = expression(r"^\s*(?:\S+ )?#SBATCH\s+(?:--nodes[= ]|-N ?)(?P<nodes>\d+)\s*$")

_ORDINAL = expression(
    r"invalid device ordinal|StreamExecutor for CUDA:\d|CUDA_ERROR_INVALID_DEVICE|Duplicate GPU detected"
)

_PER_NODE = expression(
    r"--n?tasks-per-node[= ](?P<tasks>\d+)|--nproc[-_]per[-_]node[= ](?P<each>\d+)|\s-ppn (?P<ppn>\d+)"
)

_GPUS = expression(
    r"--gpus-per-node[= ](?:[\w.]+:)?(?P<node>\d+)|--gres[= ]gpu:(?:[\w.]+:)?(?P<gres>\d+)|"
    r"CUDA_VISIBLE_DEVICES\W{1,3}(?P<visible>\d(?:,\d)*)\b|nvidia\.com/gpu['\"]?: ?['\"]?(?P<pod>\d+)|"
    r"^\W*GPU (?P<last>\d{1,2}): (?:NVIDIA|Tesla|Quadro|GeForce|AMD).*UUID|"
    r"(?i:\bdevice_count(?:\(\))?|visible GPUs|GPUs visible|number of GPUs)\W{1,4}(?P<count>\d{1,2})\b"
)


def find_unused_nodes(incident: LogIncident) -> Finding | None:
    """A batch script that asks for several nodes and starts the program on one of them."""
    asked: tuple[int, Line] | None = None
    for digest, number, text in incident.lines_with(("#SBATCH",)):
        match = _ASKED.match(text)
        if match is not None and int(match["nodes"][:6]) > 1:
            line = make_line(digest.file, number, text, digest.year)
            asked = (int(match["nodes"][:6]), line)
    if asked is None:
        return None
    commands = list(read_commands(incident, {}))
    if len(commands) != 1 or commands[0].nodes > 1 or "nodes" not in commands[0].options:
        return None
    (command,) = commands
    if "srun" in command.line.text or command.options["nodes"] != "1":
        return None
    found = describe_launch(
        "commands",
        f"the job holds {asked[0]} nodes, and the program was started on one of them only: the launch command says "
        f"{command.flag('nodes')} 1 and runs without srun, so the GPUs of the other {asked[0] - 1} idle",
        [command.line, asked[1]],
    )
    return replace(found, level=Level.FAILURE, facts={**found.facts, "severity": "warning"})


def find_crowded(incident: LogIncident) -> Finding | None:
    """More processes on a node than it has GPUs, where devices that do not exist are asked for."""
    words = ("ordinal", "StreamExecutor", "INVALID_DEVICE", "Duplicate GPU")
    failed = [
        make_line(d.file, n, t, d.year)
        for d, n, t in islice(incident.lines_with(words), MOST_COMMANDS)
        if _ORDINAL.search(t[:1000])
    ]
    tasks, gpus = _read_counts(incident) if failed else (None, None)
    if tasks is None or gpus is None or not 0 < gpus.number < tasks.number:
        return None
    over = (
        f"{gpus.number}-{tasks.number - 1}" if tasks.number - gpus.number > 1 else f"{gpus.number}"
    )
    told = sorted({line.place.task for line in failed if line.place.task is not None})
    who = f" (tasks {', '.join(map(str, told[:12]))})" if told else ""
    quoted = [failed[0], tasks.line, gpus.line]
    found = describe_launch(
        "commands",
        f"{tasks.number} processes are started on each node ({tasks.number} tasks per node) and it has {gpus.number} GPUs: each takes its local rank as its device "
        f"number, and devices {over} do not exist, so those processes{who} fail with 'invalid device ordinal'",
        quoted,
    )
    first = min(line.number for line in quoted if line.file == failed[0].file)
    return replace(found, facts={**found.facts, "starts_at": first})


@dataclass(frozen=True, slots=True)
class _Count:
    """A number that a line tells."""

    number: int
    line: Line


_MARKS = ("per-node", "per_node", "-ppn", "gres", "VISIBLE_DEVICES", "gpu", "GPU", "device_count")


def _read_counts(incident: LogIncident) -> tuple[_Count | None, _Count | None]:
    """Processes that are asked for on each node, and GPUs that a node has."""
    tasks: list[_Count] = []
    gpus: list[_Count] = []
    for digest, number, text in islice(incident.lines_with(_MARKS), 20 * MOST_COMMANDS):
        line = make_line(digest.file, number, text, digest.year)
        asked = _PER_NODE.search(text[:2000])
        if asked is not None and not text.lstrip().startswith("# "):
            tasks.append(_Count(int(_first_group(asked)[:4]), line))
        for told in _GPUS.finditer(text[:2000]):
            gpus.append(_Count(_count_gpus(told), line))
    return _highest(tasks), _highest(gpus)


def _highest(counts: Sequence[_Count]) -> _Count | None:
    return max(counts, key=lambda c: c.number, default=None)


def _count_gpus(told: re.Match[str]) -> int:
    """A list of devices has one more than commas, and counting to the last one begins at 0."""
    value = _first_group(told)
    return value.count(",") + 1 if told["visible"] else int(value[:4]) + bool(told["last"])


def _first_group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)
