"""Do the launch commands of the nodes fit together: node ranks, counts, master address and port?

Each node of a job is started by its own command. Where nothing trained and the nodes did not meet, the
commands themselves, pasted or echoed by the shell, often show why: two nodes with one rank, a rendezvous
on localhost, or values that differ between the nodes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch_configs import read_configs
from firstfault_tools.causality.meeting import NOT_MET, find_homes, find_place
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST_COMMANDS = 512
MOST_PORT = 65_535
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
_EXPORTS = {
    "NNODES": "nodes", "NODE_RANK": "node_rank", "MACHINE_RANK": "node_rank", "RANK": "node_rank",
    "PET_NODE_RANK": "node_rank", "GROUP_RANK": "node_rank", "MASTER_ADDR": "address", "MASTER_PORT": "port",
    "PET_NNODES": "nodes", "PET_MASTER_ADDR": "address", "PET_MASTER_PORT": "port", "NUM_NODES": "nodes",
}  # fmt: skip
"""Variables in front of a command, by what launchers take from them. RANK counts only beside a number of nodes."""

EXPORT_LITERALS = ("MASTER_ADDR=", "NODE_RANK=", "NNODES=")
_EXPORT = expression(r"(?:^|[\s;'\"])(?P<name>[A-Z][A-Z_]{3,20})=['\"]?(?P<value>[\w.:-]+)")
_TOLD_RANK = expression(
    r"\bnnodes[=:] ?(?P<nodes>\d+),.{0,80}\bnode_rank[=:] ?(?P<rank>\d+)|"
    r"(?<![a-z_])rank[=:] ?(?P<one>\d+),? +world_size[=:] ?(?P<world>\d+)|"
    r"(?<![a-z_])world_size[=:] ?(?P<all>\d+),? +rank[=:] ?(?P<other>\d+)|"
    r"^\W*(?:export )?(?:NODE_RANK|node_rank|machine_rank|MACHINE_RANK)\W{0,3}[=:] ?(?P<alone>\d+)\s*$"
)
"""A node's own rank as DeepSpeed's launcher prints it, or as a script echoes it."""


@dataclass(frozen=True, slots=True)
class Command:
    """One launch command. place: host or file it belongs to; options by the names of `_NAMES`."""

    line: Line
    place: str
    options: Mapping[str, str]
    spelt: Mapping[str, str]
    lines: Mapping[str, Line] = field(default_factory=dict)
    """Line of each option, where they stand on lines of their own."""

    @property
    def nodes(self) -> int:
        """Largest number of nodes asked for; 1 where it says nothing."""
        found = re.findall(r"\d+", self.options.get("nodes", "1"))
        return max((int(n[:6]) for n in found), default=1)

    def flag(self, name: str) -> str:
        """An option as it was written: with its dashes, as a variable, or as a key."""
        spelt = self.spelt[name]
        return spelt if spelt.isupper() or name in self.lines else f"--{spelt}"


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """What is wrong with the launch commands of a job whose nodes did not meet."""
    if any(r.trained() for r in incident.progress.values()):
        unused = _find_unused_nodes(incident)
        return [unused] if unused is not None else []
    crowded = _find_crowded(incident)
    if crowded is not None:
        return [crowded]
    homes = find_homes(incident)
    every = [*_read(incident, homes), *_read_configs(incident)]
    wrong = _impossible(every)
    if wrong is not None:
        return [wrong]
    if not _did_not_meet(findings):
        return []
    commands = [c for c in every if c.nodes > 1]
    told = _read_told(incident, homes)
    exports = [c for c in _read_exports(incident, homes) if c.nodes > 1]
    found = (
        _launched_twice(incident, homes, findings)
        or _unread_rank(exports, commands)
        or _same_rank(commands)
        or _same_rank(exports)
        or _same_told_rank(incident, homes)
        or _on_localhost(incident, [*commands, *exports])
        or _on_localhost(incident, told)
        or _differ([c for c in every if "nodes" in c.options] if commands else [])
        or _differ(commands)
        or _differ(exports)
        or _differ(told)
    )
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
    commands = list(_read(incident, {}))
    if len(commands) != 1 or commands[0].nodes > 1 or "nodes" not in commands[0].options:
        return None
    (command,) = commands
    if "srun" in command.line.text or command.options["nodes"] != "1":
        return None
    found = _describe(
        f"the job holds {asked[0]} nodes, and the program was started on one of them only: the launch command says "
        f"{command.flag('nodes')} 1 and runs without srun, so the GPUs of the other {asked[0] - 1} idle",
        [command],
        [asked[1]],
    )
    return replace(found, level=Level.FAILURE, facts={**found.facts, "severity": "warning"})


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


def _find_crowded(incident: LogIncident) -> Finding | None:
    """More processes on a node than it has GPUs, where devices that do not exist are asked for."""
    words = ("ordinal", "StreamExecutor", "INVALID_DEVICE", "Duplicate GPU")
    failed = [
        make_line(d.file, n, t, d.year)
        for d, n, t in islice(incident.lines_with(words), MOST_COMMANDS)
        if _ORDINAL.search(t[:1000])
    ]
    if not failed:
        return None
    tasks: tuple[int, Line] | None = None
    gpus: tuple[int, Line] | None = None
    marks = (
        "per-node",
        "per_node",
        "-ppn",
        "gres",
        "VISIBLE_DEVICES",
        "gpu",
        "GPU",
        "device_count",
    )
    for digest, number, text in islice(incident.lines_with(marks), 20 * MOST_COMMANDS):
        line = make_line(digest.file, number, text, digest.year)
        if (asked := _PER_NODE.search(text[:2000])) is not None and not text.lstrip().startswith(
            "# "
        ):
            count = int(next(g for g in asked.groups() if g)[:4])
            tasks = max(tasks or (0, line), (count, line), key=lambda pair: pair[0])
        for match in _GPUS.finditer(text[:2000]):
            value = next(g for g in match.groups() if g)
            count = (
                value.count(",") + 1 if match["visible"] else int(value[:4]) + bool(match["last"])
            )
            gpus = max(gpus or (0, line), (count, line), key=lambda pair: pair[0])
    if tasks is None or gpus is None or not 0 < gpus[0] < tasks[0]:
        return None
    over = f"{gpus[0]}-{tasks[0] - 1}" if tasks[0] - gpus[0] > 1 else f"{gpus[0]}"
    told = sorted({line.speaker.task for line in failed} - {None}, key=int)  # type: ignore[arg-type]
    who = f" (tasks {', '.join(map(str, told[:12]))})" if told else ""
    found = _describe(
        f"{tasks[0]} processes are started on each node and it has {gpus[0]} GPUs: each takes its local rank as its device "
        f"number, and devices {over} do not exist, so those processes{who} fail with 'invalid device ordinal'; start one "
        f"process for each GPU ({gpus[0]} tasks per node), or map local ranks to devices modulo {gpus[0]}",
        [],
        [failed[0], tasks[1], gpus[1]],
    )
    first = min(
        line.number for line in (failed[0], tasks[1], gpus[1]) if line.file == failed[0].file
    )
    return replace(found, facts={**found.facts, "starts_at": first})


def _did_not_meet(findings: Sequence[Finding]) -> bool:
    live = [f for f in findings if not f.facts.get("survived")]
    return any(f.kind.removeprefix("signature.") in NOT_MET for f in live)


def _read(incident: LogIncident, homes: Mapping[str, str]) -> Iterator[Command]:
    for digest, number, text in islice(incident.lines_with(LITERALS), MOST_COMMANDS):
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
        place = shell["host"] if shell is not None else find_place(digest, text, line, homes)
        yield Command(line, place, options, spelt)


def _read_configs(incident: LogIncident) -> Iterator[Command]:
    for config in read_configs(incident):
        names = {name: _NAMES[name.replace("_", "-")] for name in config.values}
        lines = {own: config.lines[name] for name, own in names.items()}
        yield Command(
            lines.get("processes", next(iter(lines.values()))),
            config.place,
            {own: config.values[name] for name, own in names.items()},
            {own: name for name, own in names.items()},
            lines,
        )


def _impossible(commands: Sequence[Command]) -> Finding | None:
    """A value that cannot work wherever the program runs."""
    for command in commands:
        options = command.options
        processes = options.get("processes", "")
        of_all = command.spelt.get("processes", "").startswith("num")
        if processes.isdecimal() and of_all and 0 < int(processes[:6]) < command.nodes:
            return _describe(
                f"accelerate is asked for {processes} process{'es' if processes != '1' else ''} on {command.nodes} machines: "
                "num_processes is the number on all machines together, so each machine gets none; set it to the number of "
                "machines times the GPUs of each",
                [command],
            )
        address, port = options.get("address", ""), options.get("port", "")
        title, option = "", "address"
        if "@" in address or "://" in address:
            part = "a user name" if "@" in address else "a URL"
            title = (
                f"the master address is {address} ({command.flag('address')}): it holds {part}, so it is no address or "
                "host name that a rank can resolve; give the bare address"
            )
        elif port.isdecimal() and int(port[:9]) > MOST_PORT:
            option = "port"
            title = (
                f"the master port is {port} ({command.flag('port')}): ports end at {MOST_PORT}, so nothing can listen "
                "there; choose a free one between 1024 and 65535"
            )
        if title:
            line = command.lines.get(option, command.line)
            return replace(
                _describe(title, [replace(command, line=line)]), category=Category.ENVIRONMENT
            )
    return None


def _read_exports(incident: LogIncident, homes: Mapping[str, str]) -> Iterator[Command]:
    """Commands that get their place in the job from variables written in front of them."""
    for digest, number, text in islice(incident.lines_with(EXPORT_LITERALS), MOST_COMMANDS):
        options: dict[str, str] = {}
        spelt: dict[str, str] = {}
        for match in _EXPORT.finditer(text[:4000]):
            name = _EXPORTS.get(match["name"])
            if name is not None and spelt.get(name, "RANK") == "RANK":
                options[name], spelt[name] = match["value"], match["name"]
        if "nodes" not in options or len(options) < 2:
            continue
        line = make_line(digest.file, number, text, digest.year)
        yield Command(line, find_place(digest, text, line, homes), options, spelt)


_TOLD_SETTING = expression(
    r"\b(?P<name>(?i:master_addr|master_port))['\"]?\s*[=:]\s*['\"]?(?P<value>[\w.:-]+)"
)


def _read_told(incident: LogIncident, homes: Mapping[str, str]) -> list[Command]:
    """Master addresses and ports that processes on several named nodes print themselves."""
    found: dict[str, Command] = {}
    words = ("master_addr", "MASTER_ADDR")
    for digest, number, text in islice(incident.lines_with(words), MOST_COMMANDS):
        if "--master" in text or "$" in text.split("aster_addr")[-1][:4]:
            continue
        options = {"nodes": "2"}
        spelt = {"nodes": "nodes"}
        for match in _TOLD_SETTING.finditer(text[:4000]):
            name = _EXPORTS[match["name"].upper()]
            options.setdefault(name, match["value"])
            spelt.setdefault(name, match["name"].upper())
        line = make_line(digest.file, number, text, digest.year)
        place = find_place(digest, text, line, homes)
        # a file alone may be one rank of the same host
        if place != digest.file and "address" in options:
            found.setdefault(place, Command(line, place, options, spelt))
    return list(found.values()) if len(found) > 1 else []


def _unread_rank(exports: Sequence[Command], commands: Sequence[Command]) -> Finding | None:
    """A node that was given one rank in a variable, and whose launcher runs with another."""
    for export in exports:
        meant = export.options.get("node_rank")
        runs = [c for c in commands if c.place == export.place and "node_rank" in c.options]
        if meant is None or not runs or any(c.options["node_rank"] == meant for c in runs):
            continue
        rank, name = runs[0].options["node_rank"], export.spelt["node_rank"]
        others = [
            e for e in exports if e.place != export.place and e.options.get("node_rank") == rank
        ]
        same = f"the same as {others[0].place}" if others else "the same as another node"
        return _describe(
            f"{export.place} was given its node rank as {name}={meant}, but its launcher runs with "
            f"{runs[0].flag('node_rank')} {rank}, {same}: {name} is not the variable that this launcher reads, so it "
            f"took the default (NODE_RANK or --node_rank has to be set); two nodes with node rank {rank} wait for a node "
            f"{meant} that never registers",
            [export, runs[0], *others],
        )
    return None


_BY_SSH = expression(
    r"(?:^|[\s;&+])(?:deepspeed(?= .*(?:--hostfile|-H )| --num_nodes)|horovodrun(?= .*-H )|mpirun(?= .*(?:--hostfile|-H ))|colossalai run(?= .*--hostfile))\s"
)


def _launched_twice(
    incident: LogIncident, homes: Mapping[str, str], findings: Sequence[Finding]
) -> Finding | None:
    """A launcher that itself starts all nodes was run on several of them: their ports collide."""
    if not any(f.kind == "signature.master-port-in-use" for f in findings):
        return None
    places: dict[str, Line] = {}
    words = ("deepspeed ", "horovodrun ", "mpirun ", "colossalai ")
    for digest, number, text in islice(incident.lines_with(words), MOST_COMMANDS):
        if _BY_SSH.search(text[:2000]) is None:
            continue
        line = make_line(digest.file, number, text, digest.year)
        tag = _TAGGED.match(text)
        places.setdefault(tag["place"] if tag else find_place(digest, text, line, homes), line)
    if len(places) < 2:
        return None
    return _describe(
        f"the launcher was started on every node ({', '.join(list(places)[:4])}), and it starts all nodes of the hostfile "
        "by ssh itself: each node gets the job several times, and the copies collide on the master port; start it on one node "
        "only, or use a launcher that runs once a node (torchrun with --node_rank)",
        [],
        list(places.values())[:3],
    )


_TAGGED = expression(r"^\[\d+,(?:mpirank:)?\d+,(?P<place>[A-Za-z][\w.-]*)\]")


def _same_told_rank(incident: LogIncident, homes: Mapping[str, str]) -> Finding | None:
    """Nodes that print the same node rank themselves."""
    told: dict[str, dict[str, Line]] = defaultdict(dict)
    words = ("node_rank", "NODE_RANK", "machine_rank", "MACHINE_RANK", "world_size")
    for digest, number, text in islice(incident.lines_with(words), MOST_COMMANDS):
        match = _TOLD_RANK.search(text[:1000])
        if match is None or int((match["nodes"] or match["world"] or match["all"] or "2")[:6]) < 2:
            continue
        line = make_line(digest.file, number, text, digest.year)
        told[match["rank"] or match["alone"] or match["one"] or match["other"]].setdefault(
            find_place(digest, text, line, homes), line
        )
    for rank, places in told.items():
        if len(places) > 1:
            return _describe(
                f"{', '.join(list(places)[:4])} all run as rank {rank}, the same rank: they take one place in the job and the "
                "others never come; each node needs a rank (node_rank) of its own, set on that node",
                [],
                list(places.values())[:3],
            )
    return None


def _same_rank(commands: Sequence[Command]) -> Finding | None:
    """Two nodes with one node rank; torchrun ignores the rank under a c10d or etcd rendezvous."""
    by_rank: dict[str, dict[str, Command]] = defaultdict(dict)
    for command in commands:
        rank = command.options.get("node_rank")
        if rank is None or command.options.get("backend", "static") != "static":
            continue
        if rank.isdecimal() and int(rank[:6]) >= command.nodes:
            return _describe(
                f"{command.place} was started with {command.flag('node_rank')} {rank}, but the ranks of "
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
            f"{', '.join(names[:4])} were all started with the same node rank ({commands[0].flag('node_rank')} "
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
                f"the launch command for {command.nodes} nodes meets at {value} ({command.flag(name)}): every node "
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
