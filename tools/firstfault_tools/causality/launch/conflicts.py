"""Do the launch commands of the nodes fit together: node ranks, counts, master address and port?

Each node of a job is started by its own command. Where nothing trained and the nodes did not meet, the
commands themselves often show why: two nodes with one rank, a rendezvous on localhost, or values that
differ between the nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.commands import (
    MOST_COMMANDS,
    Command,
    read_commands,
    read_configs,
    read_exports,
    read_told,
)
from firstfault_tools.causality.launch.counts import find_crowded, find_unused_nodes
from firstfault_tools.causality.launch.unmet import (
    describe_launch,
    find_homes,
    find_place,
    find_unmet,
)
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST_PORT = 65_535
_PORT = expression(r"(?i)\bmaster_port\W{1,6}(?P<port>\d{2,5})\b")

_MUST_AGREE = {
    "nodes": "number of nodes", "address": "master address", "port": "master port",
    "endpoint": "rendezvous endpoint", "id": "rendezvous id",
}  # fmt: skip

_LOCAL = expression(r"^(?:localhost|127\.\d+\.\d+\.\d+|::1|0\.0\.0\.0)(?::\d+)?$")

_NO_LIST = expression(r"\bscontrol: (?:command )?not found|\bscontrol: No such file")

_TOLD_RANK = expression(
    r"\bnnodes[=:] ?(?P<nodes>\d+),.{0,80}\bnode_rank[=:] ?(?P<rank>\d+)|"
    r"(?<![a-z_])rank[=:] ?(?P<one>\d+),? +world_size[=:] ?(?P<world>\d+)|"
    r"(?<![a-z_])world_size[=:] ?(?P<all>\d+),? +rank[=:] ?(?P<other>\d+)|"
    r"^\W*(?:export )?(?:NODE_RANK|node_rank|machine_rank|MACHINE_RANK)\W{0,3}[=:] ?(?P<alone>\d+)\s*$"
)
"""A node's own rank as DeepSpeed's launcher prints it, or as a script echoes it."""

_BY_SSH = expression(
    r"(?:^|[\s;&+])(?:deepspeed(?= .*(?:--hostfile|-H )| --num_nodes)|horovodrun(?= .*-H )|mpirun(?= .*(?:--hostfile|-H ))|colossalai run(?= .*--hostfile))\s"
)

_TAGGED = expression(r"^\[\d+,(?:mpirank:)?\d+,(?P<place>[A-Za-z][\w.-]*)\]")


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """What is wrong with the launch commands of a job whose nodes did not meet."""
    found = (
        find_unused_nodes(incident)
        if incident.trained
        else find_crowded(incident) or _find_conflict(incident, findings)
    )
    return [found] if found is not None else []


def _of_several_nodes(commands: Iterable[Command]) -> list[Command]:
    return [command for command in commands if command.nodes > 1]


def _find_conflict(incident: LogIncident, findings: Sequence[Finding]) -> Finding | None:
    """A command that can never work; where nodes did not meet, commands of theirs that do not fit each other."""
    homes = find_homes(incident)
    every = [*read_commands(incident, homes), *read_configs(incident)]
    wrong = _impossible(every)
    if wrong is not None or not find_unmet(findings):
        return wrong
    commands = _of_several_nodes(every)
    told = read_told(incident, homes)
    exports = _of_several_nodes(read_exports(incident, homes))
    return (
        _own_ports(incident)
        or _launched_twice(incident, homes, findings)
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


def _own_ports(incident: LogIncident) -> Finding | None:
    """Every process printed another master port: each chose a free one for itself."""
    ports: dict[int, tuple[str, Line]] = {}
    for digest, number, text in islice(incident.lines_with(("MASTER_PORT", "master_port")), 512):
        match = _PORT.search(text[:400])
        line = make_line(digest.file, number, text, digest.year)
        if match is not None and line.place.rank is not None:
            ports.setdefault(line.place.rank, (match["port"], line))
    told = {port for port, _ in ports.values()}
    if len(ports) < 2 or len(told) < len(ports):
        return None
    shown = ", ".join(f"rank {r}: {port}" for r, (port, _) in sorted(ports.items())[:4])
    return describe_launch(
        "commands",
        f"every process looks for the store at a port of its own ({shown}): the free port is chosen in each process, so nobody "
        "meets",
        [line for _, line in list(ports.values())[:3]],
        Category.CODE_BUG,
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
                "num_processes is the number on all machines together, so each machine gets none",
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


def _launched_twice(
    incident: LogIncident, homes: Mapping[str, str], findings: Sequence[Finding]
) -> Finding | None:
    """A launcher that itself starts all nodes was run on several of them: their ports collide."""
    if not any(f.has(FindingRole.PORT_TAKEN) for f in findings):
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
        "by ssh itself: each node gets the job several times, and the copies collide on the master port",
        [],
        list(places.values())[:3],
    )


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
    return describe_launch("commands", title, [*(c.line for c in commands[:3]), *extra])
