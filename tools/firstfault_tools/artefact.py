"""What is one file of an incident, before anybody has read it?"""

from __future__ import annotations

from pathlib import Path

from firstfault_tools.dataclass import dataclass

HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Artefact:
    """One file of an incident as a reader sees it: a display name and its bytes on disk."""

    name: str
    path: Path

    def head(self) -> bytes:
        """First 64 KiB, enough to recognise a format."""
        with self.path.open("rb") as stream:
            return stream.read(HEAD_BYTES)

    def data(self, limit: int = 512 * 1024 * 1024) -> bytes:
        """Whole content up to `limit` bytes."""
        with self.path.open("rb") as stream:
            return stream.read(limit)

    def text(self) -> str:
        """Whole content as text; undecodable bytes become U+FFFD."""
        return self.data().decode("utf-8", errors="replace")
