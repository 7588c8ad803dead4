"""What exactly would leave this machine? The first request, byte for byte, before it is sent."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from firstfault.agent.budget import schema_of as _schema_of
from firstfault.agent.context import TurnContext
from firstfault.agent.graph import make_tools
from firstfault.agent.reply import reply_version
from firstfault.agent.tokens import count_text
from firstfault.agent.view import read_prompt
from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Preview:
    """The first request of a turn. `hidden` counts placeholders by kind; later requests add what tools show."""

    endpoint: str
    model: str
    system: str
    message: str
    tools: tuple[str, ...]
    tokens: int
    hidden: dict[str, int]
    digest: str

    def to_json(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "schema": "firstfault.preview/1",
            "endpoint": self.endpoint,
            "model": self.model,
            "messages": [
                {"role": "system", "content": self.system},
                {"role": "user", "content": self.message},
            ],
            "tools": list(self.tools),
            "tokens_estimated": self.tokens,
            "hidden": self.hidden,
            "sha256": self.digest,
        }


def make_preview(context: TurnContext, message: str, with_tools: bool = True) -> Preview:
    """Preview of the request that `message` would begin."""
    system = read_prompt("system")
    made = make_tools(context) if with_tools else []
    tools = tuple(t.name for t in made)
    schemas = "".join(_schema_of(t) for t in made) + reply_version()
    hidden = Counter(
        mark.strip("<>").split("-")[0] for mark in context.veil.names.values() if mark in message
    )
    whole = json.dumps([system, message], ensure_ascii=False)
    return Preview(
        endpoint=context.endpoint.url,
        model=context.endpoint.name,
        system=system,
        message=message,
        tools=tools,
        tokens=count_text(system) + count_text(message) + count_text(schemas),
        hidden=dict(hidden),
        digest=hashlib.sha256(whole.encode()).hexdigest(),
    )


def say_preview(preview: Preview) -> str:
    """One line for progress and terminals."""
    hidden = ", ".join(f"{v} {k}(s)" for k, v in sorted(preview.hidden.items())) or "no names"
    return f"about {preview.tokens} tokens would go to {preview.model} at {preview.endpoint}; replaced in them: {hidden} and all secrets"
