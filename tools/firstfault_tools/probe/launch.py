"""How is the kit started on many nodes: `srun`, `torchrun`, `kubectl exec`, `ssh`?

Only texts for a person: nothing here runs anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.probe.build import FILE_NAME


class Launcher(StrEnum):
    """What the site starts processes with."""

    SRUN = "srun"
    TORCHRUN = "torchrun"
    KUBECTL = "kubectl"
    SSH = "ssh"


@dataclass(frozen=True, slots=True)
class Step:
    """One command and what it is for."""

    why: str
    argv: tuple[str, ...]
    output: str | None = None

    @property
    def text(self) -> str:
        """As one would type it."""
        # A pattern stays bare, so that the person's own shell expands it.
        line = " ".join(part if "*" in part else shlex.quote(part) for part in self.argv)
        return f"{line} > {shlex.quote(self.output)}" if self.output else line


def plan_launch(
    launcher: Launcher,
    nodes: Sequence[str],
    *,
    node_count: int,
    gpus_per_node: int,
    kit: str = FILE_NAME,
    arguments: Sequence[str] = (),
) -> tuple[Step, ...]:
    """Commands that start the kit on all nodes and the one that merges the results.

    nodes: host or pod names, needed for ssh and kubectl. Raises InvalidParameter.
    """
    if launcher in (Launcher.KUBECTL, Launcher.SSH) and not nodes:
        raise InvalidParameter("nodes", f"{launcher} needs the names of the hosts or pods")
    if node_count < 1 or gpus_per_node < 1:
        raise InvalidParameter("node_count", "and gpus_per_node must be at least 1")
    merge = Step("Compare the nodes.", ("firstfault", "probe", "merge", "probe-*.jsonl"))
    more = tuple(arguments)
    if launcher is Launcher.SRUN:
        argv = (
            "srun", f"--nodes={node_count}", "--ntasks-per-node=1",
            f"--gpus-per-node={gpus_per_node}", "python3", kit, "--out", "probe-{host}.jsonl", *more,
        )  # fmt: skip
        why = "One process a node; the kit and the results lie in a shared folder."
        return Step(why, argv), merge
    if launcher is Launcher.TORCHRUN:
        argv = (
            "torchrun", f"--nnodes={node_count}", f"--nproc-per-node={gpus_per_node}",
            "--rdzv-backend=c10d", "--rdzv-endpoint=HEAD_NODE:29500", kit,
            "--out", "probe-{host}-{rank}.jsonl", *more,
        )  # fmt: skip
        why = "The same on every node: all-reduce runs over all of them. Put the first host's name in."
        return Step(why, argv), merge
    steps: list[Step] = []
    for node in nodes:
        if not node or node.startswith("-") or not all(c.isalnum() or c in "-._@/" for c in node):
            raise InvalidParameter("nodes", f"{node!r} is no host or pod name")
        remote = f"/tmp/{FILE_NAME}"
        if launcher is Launcher.KUBECTL:
            copy: tuple[str, ...] = ("kubectl", "cp", kit, f"{node}:{remote}")
            start: tuple[str, ...] = ("kubectl", "exec", node, "--", "python3", remote, *more)
        else:
            copy = ("scp", kit, f"{node}:{remote}")
            start = ("ssh", node, "python3", remote, *more)
        steps.append(Step(f"Copy the kit to {node}.", copy))
        name = node.replace("/", "-").replace("@", "-")
        steps.append(Step(f"Run it on {node}.", start, f"probe-{name}.jsonl"))
    return (*steps, merge)
