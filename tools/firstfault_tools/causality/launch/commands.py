"""With which options was each node of a job started: node rank, counts, master address and port?

Read from commands pasted or echoed by the shell, from variables set in front of them, from values that
the processes print, and from pasted configurations of accelerate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.unmet import find_place
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

MOST_COMMANDS = 512

LITERALS = ("torchrun", "torch.distributed", "accelerate launch", "composer ")

_COMMAND = expression(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|composer)\s(?P<options>.*)$"
)

_OPTION = expression(r"(?:^|\s)--?(?P<name>[A-Za-z][\w-]*)(?:=|\s+)(?P<value>[^\s-]\S*)")

_REMOTE_SHELL = expression(r"\bssh\s+(?:-\S+\s+)*(?:\w+@)?(?P<host>[\w.-]+)\s")

_NAMES = {
    "nnodes": "nodes", "num-machines": "nodes", "nproc-per-node": "each",
    "num-processes": "processes", "world-size": "processes",
    "node-rank": "node_rank", "machine-rank": "node_rank",
    "master-addr": "address", "main-process-ip": "address",
    "master-port": "port", "main-process-port": "port",
    "rdzv-endpoint": "endpoint", "rdzv-id": "id", "rdzv-backend": "backend",
}  # fmt: skip

_EXPORTS = {
    "NNODES": "nodes", "NODE_RANK": "node_rank", "MACHINE_RANK": "node_rank", "RANK": "node_rank",
    "PET_NODE_RANK": "node_rank", "GROUP_RANK": "node_rank", "MASTER_ADDR": "address", "MASTER_PORT": "port",
    "PET_NNODES": "nodes", "PET_MASTER_ADDR": "address", "PET_MASTER_PORT": "port", "NUM_NODES": "nodes",
}  # fmt: skip
"""Variables in front of a command, by what launchers take from them. RANK counts only beside a number of nodes."""

EXPORT_LITERALS = ("MASTER_ADDR=", "NODE_RANK=", "NNODES=")

_EXPORT = expression(r"(?:^|[\s;'\"])(?P<name>[A-Z][A-Z_]{3,20})=['\"]?(?P<value>[\w.:-]+)")

_TOLD_SETTING = expression(
    r"\b(?P<name>(?i:master_addr|master_port))['\"]?\s*[=:]\s*['\"]?(?P<value>[\w.:-]+)"
)

CONFIG_LITERALS = (
    "num_machines: ",
    "num_processes: ",
    "machine_rank: ",
    "main_process_",
    "rdzv_backend: ",
)

NEAR_LINES = 40
"""Longest distance between two entries of one configuration."""

MOST_ENTRIES = 2_048

_ENTRY = expression(
    r"^[\s-]*(?P<name>num_machines|num_processes|machine_rank|main_process_ip|main_process_port|rdzv_backend): +"
    r"['\"]?(?P<value>[^\s'\",]+)"
)

_OWNER = expression(
    r"^[#=*\s-]*(?:on |node )?(?P<host>[A-Za-z][\w.@-]{1,62}?)(?:[:$#,(]|:~\S*[$#]|\s*$)"
)


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


def read_commands(incident: LogIncident, homes: Mapping[str, str]) -> Iterator[Command]:
    """Commands of launchers in printed order. homes: host of each file, from its prompts."""
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


def read_exports(incident: LogIncident, homes: Mapping[str, str]) -> Iterator[Command]:
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


def read_told(incident: LogIncident, homes: Mapping[str, str]) -> list[Command]:
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


def read_configs(incident: LogIncident) -> Iterator[Command]:
    """Configurations of accelerate as the command that each machine was started with."""
    for config in _read_blocks(incident):
        names = {name: _NAMES[name.replace("_", "-")] for name in config.values}
        lines = {own: config.lines[name] for name, own in names.items()}
        yield Command(
            lines.get("processes", next(iter(lines.values()))),
            config.place,
            {own: config.values[name] for name, own in names.items()},
            {own: name for name, own in names.items()},
            lines,
        )


@dataclass(frozen=True, slots=True)
class Config:
    """Entries of one configuration by their spelling, with the line of each."""

    place: str
    values: Mapping[str, str]
    lines: Mapping[str, Line]


def _read_blocks(incident: LogIncident) -> Iterator[Config]:
    """Configurations that say on how many machines the job runs, in printed order."""
    blocks: list[dict[str, tuple[str, Line]]] = []
    last: Line | None = None
    for count, (digest, number, text) in enumerate(incident.lines_with(CONFIG_LITERALS)):
        entry = _ENTRY.match(text[:200])
        if count >= MOST_ENTRIES or entry is None:
            continue
        line = make_line(digest.file, number, text, digest.year)
        near = last is not None and last.file == line.file and number - last.number < NEAR_LINES
        if not near or entry["name"] in blocks[-1]:
            blocks.append({})
        blocks[-1][entry["name"]] = (entry["value"], line)
        last = line
    for place, block in enumerate(blocks, 1):
        if "num_machines" not in block:
            continue
        first = min((line for _, line in block.values()), key=lambda line: line.number)
        yield Config(
            _find_owner(incident, first) or f"machine {place}",
            {name: value for name, (value, _) in block.items()},
            {name: line for name, (_, line) in block.items()},
        )


def _find_owner(incident: LogIncident, first: Line) -> str | None:
    """The machine that a line above the configuration names."""
    for line in incident.lines_before(first, 14):
        if ": " in line.text and " cat " not in line.text:
            continue
        found = _OWNER.match(line.text)
        return found["host"].rpartition("@")[2] if found is not None else None
    return None
