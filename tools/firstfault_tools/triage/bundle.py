"""Where does a capture lie? A folder for its owner alone.

captured/ holds what a diagnosis reads, inventory/ lists and sizes beside it, triage.json the record.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from firstfault_tools.expressions import expression
from firstfault_tools.log.secrets import redact_lines

_UNSAFE = expression(r"[^A-Za-z0-9._@-]")


def file_name(text: str) -> str:
    """A host, pod or step as one name of a file or folder."""
    return _UNSAFE.sub("_", text)[:120].lstrip(".") or "_"


class Bundle:
    """Writes answers as they come, so that what was captured stays whatever happens later."""

    def __init__(self, folder: Path) -> None:
        """Raises FileExistsError, OSError."""
        self.folder = folder
        self.captured = folder / "captured"
        self.inventory = folder / "inventory"
        self.redacted: Counter[str] = Counter()
        self._lock = Lock()
        folder.mkdir(mode=0o700, parents=True)
        self.captured.mkdir(mode=0o700)
        self.inventory.mkdir(mode=0o700)

    def write(
        self, place: str, name: str, data: bytes, binary: bool = False, diagnosed: bool = True
    ) -> str:
        """Keep one answer, text without its secrets; its path within the folder."""
        counts: Counter[str] = Counter()
        if not binary:
            text = data.decode("utf-8", errors="replace").replace("\0", "\n")
            data = "\n".join(redact_lines(text.split("\n"), counts)).encode()
        file = (self.captured if diagnosed else self.inventory) / file_name(place) / file_name(name)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        self._put(file, data)
        with self._lock:
            self.redacted.update(counts)
        return str(file.relative_to(self.folder))

    def write_record(self, record: Mapping[str, Any]) -> None:
        """The record of the whole capture."""
        text = json.dumps(record, indent=1, ensure_ascii=False)
        self._put(self.folder / "triage.json", text.encode("utf-8", errors="replace"))

    def _put(self, file: Path, data: bytes) -> None:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
