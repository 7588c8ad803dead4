"""How is an out-of-memory message explained, with the run's own configuration where it is known?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from firstfault_tools.errors import InvalidParameter, ToolError
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Json
from firstfault_tools.memory.cards import Card
from firstfault_tools.memory.configuration import Draft, Run, build_run
from firstfault_tools.memory.configuration_files import read_configuration
from firstfault_tools.memory.configuration_megatron import find_dump
from firstfault_tools.memory.estimate import GIB
from firstfault_tools.memory.models import find_model
from firstfault_tools.memory.oom_books import Books, close_books
from firstfault_tools.memory.oom_message import OomMessage, read_message
from firstfault_tools.memory.report import report_memory, split_fields
from firstfault_tools.memory.tensor_match import match_tensor

MAX_BLOCK = 64 * 1024
_MODEL_CONFIG = expression(r"\bModel config (\w{1,60}) \{|\b(\w{1,60}Config) \{")
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
    try:
        run = _find_run(
            text, configuration, configuration_name, fields or {}, model, files or {}, message.tried
        )
    except ToolError as error:
        result["configuration_problem"] = str(error)
        return result
    if run is None:
        return result
    matches = match_tensor(message.tried, run.shape, run.setup, message.tried_step)
    result["tensor"] = [
        {
            "name": match.name,
            "formula": match.formula,
            "gib": round(match.bytes / GIB, 4),
            "exact": match.exact,
        }
        for match in matches[:5]
    ]
    total = books.capacity
    card = Card("the card in the message", total / GIB) if total else None
    result["estimate"] = report_memory(run, card)
    return result


def _find_run(
    text: str,
    configuration: str | None,
    name: str,
    fields: Mapping[str, Any],
    model: str | None,
    files: Mapping[str, str],
    tried: int | None,
) -> Run | None:
    draft = find_model(model) if model else None
    for source, settings in (*find_settings(text), *sorted(files.items())):
        try:
            read = read_configuration(settings, source)
        except ToolError:
            continue
        draft = draft.merge(read) if draft else read
    found: Draft | None = None
    if configuration:
        found = read_configuration(configuration, name)
    elif find_dump(text) >= 0:
        found = read_configuration(text, "argument dump in the log")
    if found is not None:
        draft = draft.merge(found) if draft else found
    given = split_fields(fields)
    if draft is None and not given.shape:
        return None
    whole = draft.merge(given) if draft else given
    length = _sequence_of_logits(whole, tried)
    if length is not None:
        told = f"sequence length {length}: the requested block is the logits of that length"
        whole = whole.merge(Draft({}, {"sequence": length}, (told,), "size of the request"))
    try:
        return build_run(whole)
    except InvalidParameter:
        if draft is not None and not draft.shape and not given.shape:
            return None
        raise


def _sequence_of_logits(draft: Draft, tried: int | None) -> int | None:
    """Sequence length of a run that names none, where the requested block can only be its logits."""
    vocab, batch = draft.shape.get("vocab"), draft.setup.get("micro_batch")
    if draft.setup.get("sequence") or not tried or not vocab or not batch:
        return None
    if draft.setup.get("tensor", 1) != 1:
        return None
    most = int(draft.extra.get("max_positions") or 1 << 20)
    # The message rounds to 0.01 of its unit, hence the tolerance; logits come in fp32, then in 16 bit.
    for width in (4, 2):
        length = round(tried / (int(vocab) * int(batch) * width) / 128) * 128
        if 128 <= length <= most:
            exact = length * int(vocab) * int(batch) * width
            if abs(exact / tried - 1) < 0.002:
                return length
    return None


def find_settings(text: str) -> list[tuple[str, str]]:
    """Settings that Hugging Face programs print: (name, text) of the model config and the arguments."""
    found = []
    places = [place for place in (text.find("Config {"), text.find("Model config ")) if place >= 0]
    config = _MODEL_CONFIG.search(text, max(0, min(places) - 60)) if places else None
    if config:
        with contextlib.suppress(ValueError, RecursionError):
            block = text[config.end() - 1 : config.end() + MAX_BLOCK]
            _, end = json.JSONDecoder().raw_decode(block)
            found.append((f"{config[1] or config[2]} in the log", block[:end]))
    place = text.find("TrainingArguments(")
    if place >= 0:
        found.append(("TrainingArguments in the log", text[place : place + MAX_BLOCK]))
    return found


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
