"""Where did something happen? The facts that prefixes, tables and file names tell of a process, each typed.

A rank of the job, a rank on its host, a launcher's task, a member of a replicated job, a host, a GPU:
these are different numbers and never taken for one another. Which rank of the job another fact stands
for, the placement table says (placement/table.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from firstfault_tools.dataclass import dataclass

_UNKNOWN = (None, "")


@dataclass(frozen=True, slots=True)
class Place:
    """Facts about one process; None where unknown.

    rank: global rank. local_rank: rank on its host. node_rank: number of its host in the job.
    task: number a launcher gave (srun --label, mpirun, a JAX process); a rank where a task is one rank.
    replica: number of a pod or worker in its job (`worker-36`); pod: its name.
    gpu: index of a GPU on its host; pci: the address of one. stream: name of an actor or container.
    """

    rank: int | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    task: int | None = None
    replica: int | None = None
    pod: str | None = None
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    pci: str | None = None
    stream: str = ""

    @property
    def key(self) -> str:
        """Name of the stream a line belongs to, where several are interleaved."""
        return (
            f"{self.host}|{self.rank}|{self.local_rank}|{self.node_rank}|{self.task}|{self.replica}|"
            f"{self.pid}|{self.stream}"
        )

    def within(self, other: Place) -> Place:
        """This place, with what `other` (a file, a heading above it) knows besides."""
        news = {
            f.name: value
            for f in fields(self)
            if getattr(self, f.name) in _UNKNOWN
            and (value := getattr(other, f.name)) not in _UNKNOWN
        }
        return replace(self, **news) if news else self

    def describe(self) -> str:
        """`rank 11 (local 3, gpu-a17)`; `local rank 3 (gpu-a17)` where the rank of the job is not known."""
        beside = [self.host or self.pod or ""]
        if self.rank is not None:
            head = f"rank {self.rank}"
            if self.local_rank is not None:
                beside.insert(0, f"local {self.local_rank}")
        elif self.local_rank is not None:
            head = f"local rank {self.local_rank}"
            if self.node_rank is not None:
                beside.insert(0, f"node {self.node_rank}")
        elif self.task is not None:
            head = f"task {self.task}"
        elif self.replica is not None:
            head = f"replica {self.replica}"
        else:
            return self.host or self.pod or ""
        told = ", ".join(word for word in beside if word)
        return f"{head} ({told})" if told else head


NOWHERE = Place()
"""Nothing is known."""


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 5`, `ranks 16-23`, `ranks 0, 3, 8-11`."""
    ordered = sorted(set(ranks))
    if not ordered:
        return ""
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [
        str(run[0]) if len(run) == 1 else f"{run[0]}{'-' if len(run) > 2 else ', '}{run[-1]}"
        for run in runs
    ]
    return f"rank{'s' if len(ordered) > 1 else ''} {', '.join(words[:12])}{' ...' if len(words) > 12 else ''}"
