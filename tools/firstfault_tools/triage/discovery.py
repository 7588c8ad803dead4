"""Which hosts or pods does a job have, as its manager says?"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence

from firstfault_tools.errors import InvalidParameter, ToolError
from firstfault_tools.triage.execution import State, run_command
from firstfault_tools.triage.transports import check_name

LIMIT_S = 20.0
MOST_HOSTS = 4096


def ask_nodes(job: str) -> tuple[tuple[str, ...], ...]:
    """Commands that give a Slurm job's node list: while it runs, and after."""
    check_name(job)
    return (
        ("squeue", "--noheader", f"--jobs={job}", "--format=%N"),
        (
            "sacct",
            f"--jobs={job}",
            "--noheader",
            "--allocations",
            "--parsable2",
            "--format=NodeList",
        ),
    )


def ask_names(nodes: str) -> tuple[str, ...]:
    """Command that spells out `gpu[01-04]`."""
    return ("scontrol", "show", "hostnames", nodes)


def ask_pods(selector: str, options: Sequence[str]) -> tuple[str, ...]:
    """Command that gives the pods of a label selector."""
    if selector.startswith("-"):
        raise InvalidParameter("kubectl", f"{selector!r} is no label selector")
    return ("kubectl", "get", "pods", f"--selector={selector}", "--output=name", *options)


def find_nodes(job: str, show: Callable[[str], None]) -> tuple[str, ...]:
    """Nodes of a Slurm job. Raises ToolError where nobody says."""
    reasons = []
    for argv in ask_nodes(job):
        said, reason = _ask(argv, show)
        # a job of several parts (heterogeneous, array) has a list a line
        lists = sorted(
            {line.strip() for line in said.splitlines()} - {"", "None assigned", "(null)"}
        )
        if lists and not any(nodes.startswith("-") for nodes in lists):
            names, reason = _ask(ask_names(",".join(lists)), show)
            if names.split():
                return _checked(names.split())
        reasons.append(reason or f"{argv[0]} names no node")
    raise ToolError(f"job {job}: {'; '.join(reasons)}. Name its nodes with --hosts")


def find_pods(
    selector: str, options: Sequence[str], show: Callable[[str], None]
) -> tuple[str, ...]:
    """Pods of a selector. Raises ToolError where there is none."""
    said, reason = _ask(ask_pods(selector, options), show)
    names = [name.removeprefix("pod/") for name in said.split()]
    if not names:
        raise ToolError(f"{selector}: {reason or 'no pod has these labels'}. Check --namespace")
    return _checked(names)


def _checked(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_name(name) for name in names[:MOST_HOSTS]))


def _ask(argv: Sequence[str], show: Callable[[str], None]) -> tuple[str, str]:
    show(f"+ {shlex.join(argv)}")
    answer = run_command(argv, LIMIT_S, threading.Event())
    said = answer.output.decode("utf-8", errors="replace") if answer.state is State.OK else ""
    return said, answer.reason
