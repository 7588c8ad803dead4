"""May the model be called once more? Steps, tokens, context and time of one turn, and retries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from firstfault.agent.context import TurnContext
from firstfault.agent.failures import AnswerUnusable, Deadline, TurnStopped, call_with_retry
from firstfault.agent.guard import count_repeats
from firstfault.agent.reply import Reply
from firstfault.agent.tokens import count_messages, count_text, spent_tokens
from firstfault.agent.view import read_prompt
from firstfault.errors import ModelUnavailable

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware

MAX_REPEATS = 3
MAX_UNUSABLE = 3
MAX_FINAL = 2
"""Calls that may be made after the budget is spent, to get an answer in the schema."""


def make_budget(
    context: TurnContext, deadline: Deadline, sleep: Callable[[float], None] = time.sleep
) -> AgentMiddleware[Any, Any, Any]:
    """Middleware around every call of the model."""
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import HumanMessage

    limits = context.endpoint.limits

    class Budget(AgentMiddleware):
        """Bounds and retries."""

        def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            if context.question.is_stopped():
                raise TurnStopped("stopped")
            deadline.check()
            messages = list(request.messages)
            steps = sum(m.type == "ai" for m in messages)
            if steps >= limits.steps + MAX_FINAL:
                raise ModelUnavailable(
                    f"the model gave no answer in {steps} steps; the deterministic answer stands"
                )
            unusable = sum(
                any(c["name"] == Reply.__name__ for c in getattr(m, "tool_calls", None) or [])
                for m in messages
            )
            if unusable >= MAX_UNUSABLE:
                raise AnswerUnusable(
                    f"{context.endpoint.name} did not answer in the schema in {unusable} attempts, or was "
                    "cut off; the deterministic answer stands"
                )
            prompt = count_text(str(request.system_prompt or "")) + count_messages(messages)
            prompt += sum(count_text(schema_of(t)) for t in request.tools)
            sent, received = spent_tokens(messages)
            room = limits.context_tokens - limits.answer_tokens
            spent = sent + received + prompt >= limits.turn_tokens
            if (
                steps >= limits.steps - 1
                or spent
                or prompt > room
                or count_repeats(messages) >= MAX_REPEATS
            ):
                kept = _fit(messages, room - count_text(str(request.system_prompt or "")))
                request = request.override(
                    tools=[], messages=[*kept, HumanMessage(read_prompt("final"))]
                )
            return call_with_retry(lambda: handler(request), context.endpoint, deadline, sleep)

    return Budget()


def schema_of(tool: Any) -> str:
    """Name, description and parameters of a tool as one text, as they travel with a request."""
    if isinstance(tool, dict):
        return str(tool)
    schema = tool.args_schema
    body = schema if isinstance(schema, dict) else schema.model_json_schema()
    return f"{tool.name}{tool.description}{body}"


def _fit(messages: list[Any], room: int) -> list[Any]:
    """Messages with the oldest tool results emptied until they fit."""
    from langchain_core.messages import ToolMessage

    kept = list(messages)
    for place, message in enumerate(kept):
        if count_messages(kept) <= room:
            break
        if isinstance(message, ToolMessage):
            kept[place] = ToolMessage(
                "(left out to fit)", tool_call_id=message.tool_call_id, name=message.name
            )
    return kept
