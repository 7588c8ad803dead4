"""Which run is it that ran out of memory, by the settings in its log, and what does an estimate say of it?"""

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
from firstfault_tools.memory.models import find_model
from firstfault_tools.memory.oom_books import Books
from firstfault_tools.memory.oom_message import OomMessage
from firstfault_tools.memory.report import report_memory, split_fields
from firstfault_tools.memory.sizes import GIB
from firstfault_tools.memory.tensor_match import match_tensor

MAX_BLOCK = 64 * 1024
_MODEL_CONFIG = expression(r"\bModel config (\w{1,60}) \{|\b(\w{1,60}Config) \{")
Settings = tuple[str | None, str, Mapping[str, Any], str | None, Mapping[str, str]]
"""Configuration and its name, fields, model and settings files, as `explain_oom` is given them."""


def weigh_run(text: str, settings: Settings, message: OomMessage, books: Books) -> dict[str, Json]:
    """Tensor and estimate of the run; nothing where it is not known, the problem where it cannot be used."""
    try:
        run = _find_run(text, *settings, message.tried)
    except ToolError as error:
        return {"configuration_problem": str(error)}
    if run is None:
        return {}
    matches = match_tensor(message.tried, run.shape, run.setup, message.tried_step)
    total = books.capacity
    card = Card("the card in the message", total / GIB) if total else None
    tensor: list[Json] = [
        {
            "name": match.name,
            "formula": match.formula,
            "gib": round(match.bytes / GIB, 4),
            "exact": match.exact,
        }
        for match in matches[:5]
    ]
    return {"tensor": tensor, "estimate": report_memory(run, card)}


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
