"""How is an out-of-memory message explained, with the run's own configuration where it is known?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault_tools.findings import Json
from firstfault_tools.memory.oom_books import Books, close_books
from firstfault_tools.memory.oom_message import OomMessage, read_message
from firstfault_tools.memory.sizes import GIB

RUN_MARKS = ("Config {", "Model config ", "TrainingArguments(", "- arguments -")
"""What stands in a text that tells settings of the run; without one nothing of them is looked for."""

SCHEMA = "firstfault.memory-oom/1"


def explain_oom(
    text: str,
    *,
    configuration: str | None = None,
    configuration_name: str = "configuration",
    fields: Mapping[str, Any] | None = None,
    capacity_gib: float | None = None,
    model: str | None = None,
    files: Mapping[str, str] | None = None,
) -> dict[str, Json]:
    """Books of the first message in `text`, and estimate, tensor and changes where a run is known.

    files: settings files that came with the log, by name; those that are none are passed over.
    Raises UnreadableArtefact where the text holds no message. A configuration that cannot be used is
    reported under `configuration_problem`, since the books stand without it.
    """
    message = read_message(text)
    books = close_books(message, capacity_gib)
    result: dict[str, Json] = {
        "schema": SCHEMA,
        "message": describe_message(message),
        "books": describe_books(books),
        "tensor": [],
        "estimate": None,
        "configuration_problem": None,
    }
    asked = configuration or model or files or (fields and fields.keys() != {"world"})
    if asked or any(mark in text for mark in RUN_MARKS):
        from firstfault_tools.memory.oom_run import weigh_run

        settings = (configuration, configuration_name, fields or {}, model, files or {})
        result |= weigh_run(text, settings, message, books)
    return result


def _size(value: int | None) -> float | None:
    return None if value is None else round(value / GIB, 4)


def describe_message(message: OomMessage) -> dict[str, Json]:
    """The message's numbers in GiB."""
    return {
        "tried_gib": _size(message.tried),
        "gpu": message.gpu,
        "total_gib": _size(message.total),
        "free_gib": _size(message.free),
        "allocated_gib": _size(message.allocated),
        "reserved_gib": _size(message.reserved),
        "reserved_unallocated_gib": _size(message.reserved_unallocated),
        "private_pools_gib": _size(message.private_pools),
        "process_gib": _size(message.process),
        "limit_gib": _size(message.limit),
        "other_processes": [
            {"pid": other.pid, "gib": _size(other.bytes)} for other in message.others
        ],
        "form": message.form,
        "text": message.text,
    }


def describe_books(books: Books) -> dict[str, Json]:
    """The closed books in GiB."""
    return {
        "bucket": str(books.bucket),
        "reason": books.reason,
        "fix": books.fix,
        "capacity_gib": _size(books.capacity),
        "free_gib": _size(books.free),
        "allocated_gib": _size(books.allocated),
        "fragmentation_gib": _size(books.fragmentation),
        "context_nccl_gib": _size(books.non_pytorch),
        "other_processes_gib": _size(books.others),
        "unexplained_gib": _size(books.unexplained),
        "missing_gib": _size(books.missing),
    }
