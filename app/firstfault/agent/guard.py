"""Which tool calls of the model are carried out? Known ones, once each, within time and size.

The tool runner is one of the places that may catch anything: a tool that breaks costs its own result.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from firstfault.agent.context import TurnContext
from firstfault.agent.failures import TurnStopped
from firstfault.agent.probe import LIMIT_S as PROBE_LIMIT_S
from firstfault.agent.probe import NAME as PROBE
from firstfault.errors import FirstfaultError
from firstfault_tools.errors import ToolError

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import BaseMessage, ToolMessage

log = logging.getLogger(__name__)
MAX_AT_ONCE = 4
ALREADY = "You have this result already; look above and do not repeat the call."


def _find_reason_against(request: Any, messages: Sequence[BaseMessage]) -> str | None:
    """Why a call is not carried out, if it is not."""
    call = request.tool_call
    if request.tool is None:
        return f"There is no tool {str(call['name'])[:60]!r}."
    if is_repeated(call, messages):
        return ALREADY
    if _place_in_step(call, messages) >= MAX_AT_ONCE:
        return f"More than {MAX_AT_ONCE} calls at once; this one was not carried out."
    return None


def make_tool_guard(context: TurnContext) -> AgentMiddleware[Any, Any, Any]:
    """Middleware around every tool call of a turn."""
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage
    from langgraph.errors import GraphBubbleUp

    class ToolGuard(AgentMiddleware):
        """Duplicates, time, errors."""

        def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            call = request.tool_call
            messages: Sequence[BaseMessage] = request.state["messages"]

            def refuse(why: str) -> ToolMessage:
                return ToolMessage(why, tool_call_id=call["id"], name=call["name"], status="error")

            if context.question.is_stopped():
                raise TurnStopped("stopped")
            if why := _find_reason_against(request, messages):
                return refuse(why)
            limit = PROBE_LIMIT_S + 60 if call["name"] == PROBE else context.endpoint.limits.tool_s
            try:
                return run_within(lambda: handler(request), limit)
            except GraphBubbleUp:
                raise
            except TimeoutError:
                return refuse(f"The tool took more than {limit:g} s; ask for less.")
            except (ToolError, FirstfaultError) as error:
                return refuse(context.veil.hide(str(error))[:600])
            except Exception as error:  # tool runner border
                log.exception("tool %s failed", call["name"])
                return refuse(f"The tool failed: {type(error).__name__}.")

    return ToolGuard()


def is_repeated(call: Any, messages: Sequence[BaseMessage]) -> bool:
    """The same tool was called with the same arguments before, and answered."""
    key = _key(call)
    done = {getattr(m, "tool_call_id", "") for m in messages if m.type == "tool"}
    for message in messages:
        for earlier in getattr(message, "tool_calls", None) or []:
            if earlier["id"] == call["id"]:
                return False
            if _key(earlier) == key and (earlier["id"] in done or message is messages[-1]):
                return True
    return False


def count_repeats(messages: Sequence[BaseMessage]) -> int:
    """Calls of a turn that were refused as repeated."""
    return sum(1 for m in messages if m.type == "tool" and m.content == ALREADY)


def run_within(call: Callable[[], Any], seconds: float) -> Any:
    """Result of `call`, or TimeoutError; a call that is late goes on unheard in its daemon thread."""
    box: list[Any] = []
    failure: list[BaseException] = []
    # the graph keeps its configuration in context variables
    frame = copy_context()

    def work() -> None:
        try:
            box.append(frame.run(call))
        except BaseException as error:  # noqa: BLE001  # handed to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=work, name="tool", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if failure:
        raise failure[0]
    return box[0]


def _key(call: Any) -> str:
    return json.dumps([call["name"], call["args"]], sort_keys=True, default=str)


def _place_in_step(call: Any, messages: Sequence[BaseMessage]) -> int:
    last = next((m for m in reversed(messages) if m.type == "ai"), None)
    ids = [c["id"] for c in (getattr(last, "tool_calls", None) or [])]
    return ids.index(call["id"]) if call["id"] in ids else 0
