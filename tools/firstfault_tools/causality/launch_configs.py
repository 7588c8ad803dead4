"""Which launch values stand in a pasted configuration of accelerate, and whose machine is it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

WORDS = ("num_machines: ", "num_processes: ", "machine_rank: ", "main_process_", "rdzv_backend: ")
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
class Config:
    """Entries of one configuration by their spelling, with the line of each."""

    place: str
    values: Mapping[str, str]
    lines: Mapping[str, Line]


def read_configs(incident: LogIncident) -> Iterator[Config]:
    """Configurations that say on how many machines the job runs, in printed order."""
    blocks: list[dict[str, tuple[str, Line]]] = []
    last: Line | None = None
    for count, (digest, number, text) in enumerate(incident.lines_with(WORDS)):
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
