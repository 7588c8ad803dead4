"""What does placement ask of the logs of an incident, beside what every room may?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from firstfault_tools.log.logs import Logs

if TYPE_CHECKING:
    from firstfault_tools.placement.gpus import GpuTable
    from firstfault_tools.placement.table import PlacementTable


class PlacedLogs(Logs, Protocol):
    """Logs with what is known of who is where."""

    @property
    def placement(self) -> PlacementTable:
        """Which process is which rank."""

    @property
    def gpu_table(self) -> GpuTable:
        """Ranks by PCI address and pid."""
