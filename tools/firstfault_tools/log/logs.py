"""What may a finder of any room ask of all logs of an incident? `causality.incident.LogIncident` answers it.

The incident is put together above the rooms that read single things; what they ask of it stands here, below them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.exits import Exit
from firstfault_tools.log.traceback import Traceback
from firstfault_tools.roles import Role


class Logs(Protocol):
    """All logs of an incident together."""

    @property
    def digests(self) -> tuple[FileDigest, ...]:
        """Each log as it was scanned."""

    @property
    def suspects(self) -> Logs:
        """The logs of those that may have failed."""

    @property
    def exits(self) -> tuple[Exit, ...]:
        """How processes ended, as launchers tell."""

    @property
    def tracebacks(self) -> tuple[Traceback, ...]:
        """Tracebacks of all logs."""

    @property
    def world_size(self) -> int | None:
        """Ranks that the job has."""

    @property
    def printed_ranks(self) -> frozenset[int]:
        """Ranks that lines name as their own."""

    @property
    def ranks_seen(self) -> frozenset[int]:
        """Ranks that left any trace."""

    @property
    def hosts_seen(self) -> frozenset[str]:
        """Hosts that left any trace."""

    def role_of(self, file: str) -> Role:
        """What a log is."""

    def lines_with(self, words: Sequence[str]) -> Iterator[tuple[FileDigest, int, str]]:
        """(log, number, text) of every kept line that holds one of the words."""
