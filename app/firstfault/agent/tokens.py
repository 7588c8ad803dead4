"""How many tokens is this? An estimate that needs no vocabulary and errs on the high side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.messages import BaseMessage

BYTES_PER_TOKEN = 3.0
"""Log text has many digits and identifiers: common vocabularies make 2.8 to 3.6 bytes a token of it."""
PER_MESSAGE = 6


def count_text(text: str) -> int:
    """Estimated tokens of a text."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def count_messages(messages: Iterable[BaseMessage]) -> int:
    """Estimated tokens of a prompt."""
    return sum(PER_MESSAGE + count_text(_spoken(m)) for m in messages)


def spent_tokens(messages: Iterable[BaseMessage]) -> tuple[int, int]:
    """(sent, received) tokens of the calls already made; the server's count where it gives one."""
    sent = received = 0
    before: list[BaseMessage] = []
    for message in messages:
        if message.type == "ai":
            usage: Any = getattr(message, "usage_metadata", None) or {}
            sent += usage.get("input_tokens") or count_messages(before)
            received += usage.get("output_tokens") or count_text(_spoken(message))
        before.append(message)
    return sent, received


def _spoken(message: BaseMessage) -> str:
    calls = getattr(message, "tool_calls", None) or []
    return str(message.content) + "".join(str(c["name"]) + str(c["args"]) for c in calls)
