"""How does an argument list reach a host: here, by ssh, srun or kubectl exec? Never by a shell of ours."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Protocol

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.expressions import expression
from firstfault_tools.triage.steps import Manager

CONNECT_S = 10
_NAME = expression(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,252}")


class Transport(Protocol):
    """Wraps a command so that it runs on a host, and ends there within its limit."""

    @property
    def manager(self) -> Manager: ...

    def wrap(self, host: str, argv: Sequence[str], limit_s: float) -> tuple[str, ...]: ...


def check_name(name: str) -> str:
    """A host, pod or job name that no command can take for an option. Raises InvalidParameter."""
    if not _NAME.fullmatch(name):
        raise InvalidParameter("hosts", f"{name!r} is no name of a host, pod or job")
    return name


def _bounded(argv: Sequence[str], limit_s: float) -> tuple[str, ...]:
    """Killing ssh here leaves the command there running: `timeout` ends it where it runs."""
    return ("timeout", "-k", "2", f"{max(1, int(limit_s))}", *argv)


@dataclass(frozen=True, slots=True)
class Local:
    """This node."""

    manager: Manager = Manager.LOCAL

    def wrap(self, host: str, argv: Sequence[str], limit_s: float) -> tuple[str, ...]:
        """The command itself."""
        return tuple(argv)


@dataclass(frozen=True, slots=True)
class Ssh:
    """Hosts by ssh; never asks for a password. ssh hands one line to the remote shell, so each argument is quoted."""

    manager: Manager = Manager.SSH

    def wrap(self, host: str, argv: Sequence[str], limit_s: float) -> tuple[str, ...]:
        """`ssh host 'quoted line'`."""
        line = shlex.join(_bounded(argv, limit_s))
        options = ("-n", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}")
        return ("ssh", *options, "--", check_name(host), line)


@dataclass(frozen=True, slots=True)
class Srun:
    """Nodes of a Slurm job, beside its own steps (--overlap)."""

    job: str
    manager: Manager = Manager.SLURM

    def wrap(self, host: str, argv: Sequence[str], limit_s: float) -> tuple[str, ...]:
        """`srun --overlap` of one task on that node."""
        return (
            "srun", f"--jobid={check_name(self.job)}", "--overlap", "--nodes=1", "--ntasks=1",
            f"--nodelist={check_name(host)}", "--mpi=none", f"--immediate={CONNECT_S}", "--quiet",
            *_bounded(argv, limit_s),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class KubectlExec:
    """Pods of a namespace. container: where a pod has several."""

    namespace: str = ""
    container: str = ""
    manager: Manager = Manager.KUBERNETES

    def wrap(self, host: str, argv: Sequence[str], limit_s: float) -> tuple[str, ...]:
        """`kubectl exec pod -- command`."""
        where = (f"--namespace={check_name(self.namespace)}",) if self.namespace else ()
        which = (f"--container={check_name(self.container)}",) if self.container else ()
        return ("kubectl", "exec", *where, check_name(host), *which, "--", *_bounded(argv, limit_s))
