"""Which values may a finding carry for rules that read it, and of which type is each read?

Captures of a signature are words of a line. `FactReader` says once how they become numbers, so that no rule does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

MOST_DIGITS = 18
"""More digits than that count nothing that a machine has."""


class Fact(StrEnum):
    """Values that rules read; what is only shown needs no name here."""

    ABSENT_RANKS = "absent_ranks"
    ANON_RSS_KIB = "anon_rss_kib"
    BEHIND_RANKS = "behind_ranks"
    BELOW_PERCENT = "below_percent"
    BUS = "bus"
    BUSY_RANK = "busy_rank"
    BY_EXPERIMENT = "by_experiment"
    CAPTURED = "captured"
    CGROUP = "cgroup"
    COMMUNICATOR = "communicator"
    CONSTRAINT = "constraint"
    CONTAINER = "container"
    CULPRITS = "culprits"
    DEVICE = "device"
    ERROR = "error"
    EXPERIMENT = "experiment"
    EXPLAINS = "explains"
    FILE = "file"
    FINDING = "finding"
    FIX = "fix"
    FREE_KIB = "free_kib"
    GPU_INDEX = "gpu_index"
    GPUS = "gpus"
    GPUS_ON_HOST = "gpus_on_host"
    HOLDER = "holder"
    HOSTS = "hosts"
    HYPOTHESIS = "hypothesis"
    JOINED = "joined"
    LIMITED = "limited"
    LIMIT_KIB = "limit_kib"
    LINK = "link"
    MEMS = "mems"
    MOUNTS = "mounts"
    NODE = "node"
    NODES = "nodes"
    PATH = "path"
    PCI = "pci"
    PCI_ADDRESS = "pci_address"
    PEER = "peer"
    PID = "pid"
    POD = "pod"
    PROCESS = "process"
    RAISED = "raised"
    RANK = "rank"
    RANKS = "ranks"
    RANKS_EXPECTED = "ranks_expected"
    RATIO = "ratio"
    REASON = "reason"
    ROOT_CAUSE = "root_cause"
    SCOPE = "scope"
    SETTING = "setting"
    SETTINGS = "settings"
    SEVERITY = "severity"
    SINCE_BOOT_S = "since_boot_s"
    STARTS_AT = "starts_at"
    SURVIVED = "survived"
    SWITCH = "switch"
    TASK = "task"
    TOLD_BY = "told_by"
    WORLD = "world"
    XID = "xid"


def known(**facts: Json) -> dict[str, Json]:
    """The facts that are known: None says nothing."""
    return {name: value for name, value in facts.items() if value is not None}


class FactReader:
    """What a finding carries, each value as the type that a rule asks for."""

    __slots__ = ()
    facts: Mapping[str, Json]

    def fact(self, name: str) -> Json:
        """A value as it is; None where there is none."""
        return self.facts.get(name)

    def text(self, fact: Fact) -> str:
        """As words; '' where there is none."""
        told = self.fact(fact)
        return "" if told is None or told is False else str(told)

    def whole(self, fact: Fact) -> int | None:
        """As a whole number, printed or counted."""
        told = self.fact(fact)
        if isinstance(told, str):
            return int(told) if told.isdecimal() and len(told) <= MOST_DIGITS else None
        return int(told) if isinstance(told, int | float) and told == told // 1 else None

    def number(self, fact: Fact) -> float | None:
        """As a measured number; printed words are none."""
        told = self.fact(fact)
        return float(told) if isinstance(told, int | float) else None

    def wholes(self, fact: Fact) -> tuple[int, ...]:
        """As whole numbers, for instance ranks; none where it is no list."""
        told = self.fact(fact)
        return tuple(int(str(n)) for n in told) if isinstance(told, list) else ()

    def names(self, fact: Fact) -> tuple[str, ...]:
        """As names; none where it is no list."""
        told = self.fact(fact)
        return tuple(map(str, told)) if isinstance(told, list | tuple) else ()

    def flag(self, fact: Fact) -> bool:
        """Whether it is there and says something."""
        return bool(self.fact(fact))
