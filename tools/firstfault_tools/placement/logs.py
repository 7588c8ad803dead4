"""What does placement ask of the logs of an incident, beside what every room may?"""

from __future__ import annotations

from typing import Protocol

from firstfault_tools.log.logs import Logs
from firstfault_tools.placement.table import GpuListing, PlacementTable


class PlacedLogs(Logs, Protocol):
    """Logs with what is known of who is where."""

    @property
    def placement(self) -> PlacementTable:
        """Which process is which rank."""

    @property
    def gpu_table(self) -> GpuListing:
        """Ranks by PCI address and pid."""
