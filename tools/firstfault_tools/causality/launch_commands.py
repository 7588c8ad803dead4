"""Do the launch commands of the nodes fit together: node ranks, counts, master address and port?

Each node of a job is started by its own command. Where nothing trained and the nodes did not meet, the
commands themselves, pasted or echoed by the shell, often show why: two nodes with one rank, a rendezvous
on localhost, or values that differ between the nodes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST_COMMANDS = 512
LITERALS = ("torchrun", "torch.distributed", "accelerate launch", "composer ")
_COMMAND = expression(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|composer)\s(?P<options>.*)$"
)
_OPTION = expression(r"(?:^|\s)--?(?P<name>[A-Za-z][\w-]*)(?:=|\s+)(?P<value>[^\s-]\S*)")
_ASKED = expression(r"^\s*(?:\S+ )?#SBATCH\s+(?:--nodes[= ]|-N ?)(?P<nodes>\d+)\s*$")
_REMOTE_SHELL = expression(r"\bssh\s+(?:-\S+\s+)*(?:\w+@)?(?P<host>[\w.-]+)\s")
_NAMES = {
    "nnodes": "nodes", "num-machines": "nodes", "nproc-per-node": "each",
    "num-processes": "processes", "world-size": "processes",
    "node-rank": "node_rank", "machine-rank": "node_rank",
    "master-addr": "address", "main-process-ip": "address",
    "master-port": "port", "main-process-port": "port",
    "rdzv-endpoint": "endpoint", "rdzv-id": "id", "rdzv-backend": "backend",
}  # fmt: skip
_MUST_AGREE = {
    "nodes": "number of nodes", "address": "master address", "port": "master port",
    "endpoint": "rendezvous endpoint", "id": "rendezvous id",
}  # fmt: skip
_LOCAL = expression(r"^(?:localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0)(?::\d+)?$")
_NO_LIST = expression(r"\bscontrol: (?:command )?not found|\bscontrol: No such file")
_ALONE = frozenset(
    {
        *("store-clients-missing", "store-connect-timeout", "rendezvous-timeout"),
        *("rendezvous-connection", "rendezvous-closed", "master-port-in-use"),
        *("store-wait-timeout", "store-get-timeout", "gloo-timeout", "nccl-bootstrap-connect"),
    }
)
"""Signatures of nodes that did not meet."""


@dataclass(frozen=True, slots=True)
class Command:
    """One launch command. place: host or file it belongs to; options by the names of `_NAMES`."""

    line: Line
    place: str
    options: Mapping[str, str]
    spelt: Mapping[str, str]

    @property
    def nodes(self) -> int:
        """Largest number of nodes asked for; 1 where it says nothing."""
        found = re.findall(r"\d+", self.options.get("nodes", "1"))
        return max((int(n[:6]) for n in found), default=1)


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """What is wrong with the launch commands of a job whose nodes did not meet."""
    if any(r.trained() for r in incident.progress.values()):
        unused = _find_unused_nodes(incident)
        return [unused] if unused is not None else []
    if not _did_not_meet(findings):
        return []
    commands = [c for c in _read(incident) if c.nodes > 1]
    found = _same_rank(commands) or _on_localhost(incident, commands) or _differ(commands)
    return [found] if found is not None else []


def _find_unused_nodes(incident: LogIncident) -> Finding | None:
    """A batch script that asks for several nodes and starts the program on one of them."""
    asked: tuple[int, Line] | None = None
    for digest, number, text in incident.lines_with(("#SBATCH",)):
        match = _ASKED.match(text)
        if match is not None and int(match["nodes"][:6]) > 1:
            line = make_line(digest.file, number, text, digest.year)
            asked = (int(match["nodes"][:6]), line)
    if asked is None:
        return None
    commands = list(_read(incident))
    if len(commands) != 1 or commands[0].nodes > 1 or "nodes" not in commands[0].options:
        return None
    (command,) = commands
    if "srun" in command.line.text or command.options["nodes"] != "1":
        return None
    found = _describe(
        f"the job holds {asked[0]} nodes, and the program was started on one of them only: the launch command says "
        f"--{command.spelt['nodes']} 1 and runs without srun, so the GPUs of the other {asked[0] - 1} idle",
        [command],
        [asked[1]],
    )
    return replace(found, level=Level.FAILURE, facts={**found.facts, "severity": "warning"})


def _did_not_meet(findings: Sequence[Finding]) -> bool:
    live = [f for f in findings if not f.facts.get("survived")]
    return any(f.kind.removeprefix("signature.") in _ALONE for f in live)


def _read(incident: LogIncident) -> Iterator[Command]:
    for count, (digest, number, text) in enumerate(incident.lines_with(LITERALS)):
        if count >= MOST_COMMANDS:
            return
        match = None if text.lstrip().startswith("#") else _COMMAND.search(text[:4000])
        if match is None:
            continue
        line = make_line(digest.file, number, text, digest.year)
        options: dict[str, str] = {}
        spelt: dict[str, str] = {}
        for option in _OPTION.finditer(match["options"]):
            name = _NAMES.get(option["name"].replace("_", "-"))
            if name is not None and "$" not in option["value"]:
                options.setdefault(name, option["value"].strip("'\""))
                spelt.setdefault(name, option["name"])
        shell = _REMOTE_SHELL.search(text)
        place = shell["host"] if shell is not None else line.speaker.host or digest.file
        yield Command(line, place, options, spelt)


def _same_rank(commands: Sequence[Command]) -> Finding | None:
    """Two nodes with one node rank; torchrun ignores the rank under a c10d or etcd rendezvous."""
    by_rank: dict[str, dict[str, Command]] = defaultdict(dict)
    for command in commands:
        rank = command.options.get("node_rank")
        if rank is None or command.options.get("backend", "static") != "static":
            continue
        if rank.isdigit() and int(rank[:6]) >= command.nodes:
            return _describe(
                f"{command.place} was started with --{command.spelt['node_rank']} {rank}, but the ranks of "
                f"{command.nodes} nodes run from 0 to {command.nodes - 1}: this node can never join",
                [command],
            )
        by_rank[rank].setdefault(command.place, command)
    for rank, places in by_rank.items():
        if len(places) < 2:
            continue
        names = list(places)
        commands = list(places.values())
        master = (
            "all act as master and wait for the others"
            if rank == "0"
            else "one of them never joins"
        )
        return _describe(
            f"{', '.join(names[:4])} were all started with the same node rank (--{commands[0].spelt['node_rank']} "
            f"{rank}), so {master}: each node needs a rank of its own, counted on that node "
            "(SLURM_NODEID evaluated inside srun, not in the batch script)",
            commands,
        )
    return None


def _on_localhost(incident: LogIncident, commands: Sequence[Command]) -> Finding | None:
    for command in commands:
        static = command.options.get("backend", "static") == "static"
        for name in ("endpoint", "address"):
            value = command.options.get(name)
            if value is None or _LOCAL.match(value) is None:
                continue
            if name == "address" and (not static or "endpoint" in command.options):
                continue
            why, extra = _fallback(incident)
            title = (
                f"the launch command for {command.nodes} nodes meets at {value} (--{command.spelt[name]}): every node "
                f"opens its own rendezvous on localhost and waits there for nodes that never come{why}"
            )
            return _describe(title, [command], extra)
    return None


def _fallback(incident: LogIncident) -> tuple[str, list[Line]]:
    """The command that should have given the first host's name, and was not there."""
    for digest, number, text in incident.lines_with(("scontrol",)):
        if _NO_LIST.search(text):
            line = make_line(digest.file, number, text, digest.year)
            return "; scontrol was not found, so the script fell back to localhost", [line]
    return "", []


def _differ(commands: Sequence[Command]) -> Finding | None:
    """An option that must be the same on all nodes and is not."""
    latest = {c.place: c for c in commands}
    if len(latest) < 2:
        return None
    for name, words in _MUST_AGREE.items():
        values = {place: c.options[name] for place, c in latest.items() if name in c.options}
        counts = Counter(values.values())
        if len(counts) < 2:
            continue
        usual = counts.most_common(1)[0][0]
        odd = [p for p, v in values.items() if v != usual]
        other = next(p for p, v in values.items() if v == usual)
        return _describe(
            f"the nodes were started with different values of the {words}: {values[odd[0]]} on "
            f"{', '.join(odd[:4])}, {usual} on {other}: they wait for each other at different places",
            [latest[odd[0]], latest[other]],
        )
    return None


def _describe(title: str, commands: Sequence[Command], extra: Sequence[Line] = ()) -> Finding:
    lines = [*(c.line for c in commands[:3]), *extra]
    return Finding(
        kind="launch.commands",
        title=title,
        level=Level.CAUSE,
        category=Category.SCHEDULER,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(line.evidence() for line in lines),
        rank=None,
        page="rendezvous-failures",
        facts={"survived": False, "specificity": 2000},
    )
