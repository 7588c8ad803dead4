"""How is one measurement written down? JSON lines of schema `firstfault.probe/1`."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any, TextIO

SCHEMA = "firstfault.probe/1"


def name_host() -> str:
    """Name of the node as the scheduler knows it, else the host's own."""
    for variable in ("SLURMD_NODENAME", "NODE_NAME"):
        if os.environ.get(variable):
            return os.environ[variable]
    return socket.gethostname()


def make_record(
    test: str,
    status: str = "ok",
    values: dict[str, Any] | None = None,
    *,
    gpu_index: int | None = None,
    rank: int | None = None,
    reason: str | None = None,
    elapsed_s: float | None = None,
    kind: str = "result",
) -> dict[str, Any]:
    """One record. Keys of `values` carry their unit."""
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": kind,
        "host": name_host(),
        "test": test,
        "status": status,
        "at_unix_s": round(time.time(), 6),
    }
    if gpu_index is not None:
        record["gpu_index"] = gpu_index
    if rank is not None:
        record["rank"] = rank
    if reason:
        record["reason"] = reason
    if elapsed_s is not None:
        record["elapsed_s"] = round(elapsed_s, 3)
    record["values"] = values or {}
    return record


class Sink:
    """Where records go: standard output and, if asked for, a file; every line is flushed at once."""

    def __init__(self, path: str | None = None) -> None:
        # Opened once for the whole run and closed by `close`, so that a killed probe leaves its lines.
        self._file: TextIO | None = open(path, "w", encoding="utf-8") if path else None  # noqa: SIM115
        self.records: list[dict[str, Any]] = []

    def write(self, record: dict[str, Any]) -> None:
        """Write one record as one line."""
        self.records.append(record)
        line = json.dumps(record, sort_keys=False)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        if self._file is not None:
            self._file.write(line + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def show_progress(text: str) -> None:
    """One line for the person who watches."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
