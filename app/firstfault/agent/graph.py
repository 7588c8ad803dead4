"""How does one turn with the model run? langchain's agent on langgraph, bounded and interruptible.

The graph stands still before a probe, in its checkpoint, until a person decides; another process may
go on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from firstfault.agent.budget import make_budget
from firstfault.agent.context import TurnContext
from firstfault.agent.endpoint import Structure
from firstfault.agent.failures import (
    AnswerUnusable,
    Deadline,
    TurnStopped,
    naming_failures,
)
from firstfault.agent.guard import make_tool_guard
from firstfault.agent.model import Model
from firstfault.agent.probe import NAME as PROBE
from firstfault.agent.reply import Reply
from firstfault.agent.store import make_serializer
from firstfault.agent.tokens import spent_tokens
from firstfault.agent.tools.history import make_history_tools
from firstfault.agent.tools.knowledge import make_knowledge_tools
from firstfault.agent.tools.lines import make_line_tools
from firstfault.agent.tools.probe import make_probe_tools
from firstfault.agent.tools.registry import make_registry_tools
from firstfault.agent.view import read_prompt, shows_whole
from firstfault.incidents.events import Progress
from firstfault_tools.dataclass import dataclass

if TYPE_CHECKING:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import StructuredTool
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from firstfault.agent.store import Decision

MAX_GRAPH_STEPS = 200


@dataclass
class Outcome:
    """What a turn gave: a reply, or a probe that waits for a person. Tokens as the server counts them."""

    reply: Reply | None = None
    waiting: dict[str, Any] | None = None
    sent_tokens: int = 0
    received_tokens: int = 0
    calls: int = 0
    tools: list[str] = field(default_factory=list)


def make_tools(context: TurnContext) -> list[StructuredTool]:
    """Every tool of this turn: those whose result could hold what the model has not seen."""
    return [
        *([] if shows_whole(context) else make_line_tools(context)),
        *make_knowledge_tools(context),
        *make_registry_tools(context),
        *make_history_tools(context),
        *make_probe_tools(context),
    ]


@dataclass
class Conversation:
    """One turn of the model over one context."""

    model: Model
    context: TurnContext
    checkpoints: BaseCheckpointSaver[Any] | None = None
    with_tools: bool = True
    sleep: Callable[[float], None] = time.sleep
    outcome: Outcome = field(default_factory=Outcome)

    def start(self, prompt: str) -> Iterator[Progress]:
        """Begin, ask once more in the same turn, or go on where a process that died stood.

        The outcome is set at the end.
        """
        yield from self._run(prompt, None)

    def resume(self, decision: Decision, reason: str = "") -> Iterator[Progress]:
        """Go on after a person decided about the probe that waits."""
        yield from self._run(
            "", {"type": decision.value, **({"message": reason} if reason else {})}
        )

    def _build(self, chat: BaseChatModel, deadline: Deadline) -> Any:
        from langchain.agents import create_agent
        from langchain.agents.middleware import HumanInTheLoopMiddleware
        from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
        from langgraph.checkpoint.memory import InMemorySaver

        if self.checkpoints is None:
            # kept, so that a second question of the turn knows the first
            self.checkpoints = InMemorySaver(serde=make_serializer())
        tools = make_tools(self.context) if self.with_tools else []
        middleware: list[Any] = [
            make_budget(self.context, deadline, self.sleep),
            make_tool_guard(self.context),
        ]
        if any(t.name == PROBE for t in tools):
            middleware.append(
                HumanInTheLoopMiddleware(
                    interrupt_on={PROBE: {"allowed_decisions": ["approve", "reject"]}}
                )
            )
        by_tool = self.model.endpoint.structure is Structure.TOOL
        return create_agent(
            chat,
            tools,
            system_prompt=read_prompt("system"),
            middleware=middleware,
            response_format=ToolStrategy(Reply) if by_tool else ProviderStrategy(Reply),
            checkpointer=self.checkpoints,
        )

    def _run(self, prompt: str, decision: dict[str, Any] | None) -> Iterator[Progress]:
        from langsmith import tracing_context

        # a tracing variable set for another program must not send logs anywhere
        with tracing_context(enabled=False):
            yield from self._stream(prompt, decision)

    def _stream(self, prompt: str, decision: dict[str, Any] | None) -> Iterator[Progress]:
        chat = self.model.open()
        deadline = Deadline(self.context.endpoint.limits.turn_s)
        config = {
            "configurable": {"thread_id": self.context.thread or "turn"},
            "recursion_limit": MAX_GRAPH_STEPS,
            "callbacks": [make_watch(self.context, deadline)],
        }
        with naming_failures(self.context.endpoint):
            graph = self._build(chat, deadline)
            deadline.begin()  # what was loaded until here is none of the endpoint's time
            given = self._given(graph, config, prompt, decision)
            writing = False
            for mode, chunk in graph.stream(given, config, stream_mode=["updates", "messages"]):
                if self.context.question.is_stopped():
                    raise TurnStopped("stopped")
                deadline.check()
                if mode == "messages":
                    if not writing:
                        writing = True
                        yield Progress("model", "the model is writing")
                    continue
                writing = False
                yield from self._report(chunk)
        self._close(graph, config)

    def _given(self, graph: Any, config: Any, prompt: str, decision: dict[str, Any] | None) -> Any:
        from langgraph.types import Command

        fresh = {"messages": [{"role": "user", "content": prompt}]}
        state = graph.get_state(config)
        self._adopt(state.values.get("messages", []))
        if state.interrupts and decision is not None:
            return Command(resume={"decisions": [decision]})
        # a worker died after the decision was taken up, or in the middle of the turn
        return None if state.next and not state.interrupts else (None if decision else fresh)

    def _adopt(self, messages: list[Any]) -> None:
        for message in messages:
            artifact = getattr(message, "artifact", None)
            if isinstance(artifact, dict):
                self.context.book.adopt(artifact.get("items", ()))
                self.context.veil.adopt(artifact.get("names", {}))

    def _report(self, chunk: dict[str, Any]) -> Iterator[Progress]:
        for node, update in chunk.items():
            if node == "__interrupt__":
                self.outcome.waiting = dict(update[0].value["action_requests"][0])
                continue
            for message in (update or {}).get("messages", []) if isinstance(update, dict) else []:
                for call in getattr(message, "tool_calls", None) or []:
                    if call["name"] == Reply.__name__:
                        continue
                    self.outcome.tools.append(call["name"])
                    shown = ", ".join(f"{k}={v}" for k, v in call["args"].items())[:160]
                    yield Progress("tool", f"{call['name']}({self.context.veil.restore(shown)})")

    def _close(self, graph: Any, config: Any) -> None:
        values = graph.get_state(config).values
        messages = values.get("messages", [])
        self.outcome.sent_tokens, self.outcome.received_tokens = spent_tokens(messages)
        self.outcome.calls = sum(m.type == "ai" for m in messages)
        if self.outcome.waiting is not None:
            return
        reply = values.get("structured_response") or read_reply(messages)
        if reply is None:
            raise AnswerUnusable(_why_unusable(messages, self.context.endpoint.name))
        self.outcome.reply = reply if isinstance(reply, Reply) else Reply.model_validate(reply)


def make_watch(context: TurnContext, deadline: Deadline) -> BaseCallbackHandler:
    """Ends the model's call from within its own thread, at the next piece it sends."""
    from langchain_core.callbacks import BaseCallbackHandler

    class Watch(BaseCallbackHandler):
        """Time and stop."""

        raise_error = True
        run_inline = True

        def on_llm_new_token(self, token: Any, **_: Any) -> None:
            if context.question.is_stopped():
                raise TurnStopped("stopped")
            deadline.check()

    return Watch()


def read_reply(messages: list[Any]) -> Reply | None:
    """A reply written as plain JSON, by models that ignore the schema's tool."""
    from pydantic import ValidationError

    for message in reversed(messages):
        if message.type != "ai" or not isinstance(message.content, str):
            continue
        begin, end = message.content.find("{"), message.content.rfind("}")
        if 0 <= begin < end:
            try:
                return Reply.model_validate_json(message.content[begin : end + 1])
            except ValidationError:
                return None
        return None
    return None


def _why_unusable(messages: list[Any], name: str) -> str:
    last = next((m for m in reversed(messages) if m.type == "ai"), None)
    reason = (getattr(last, "response_metadata", None) or {}).get("finish_reason")
    if reason == "length":
        return f"{name} was cut off before its answer was complete; the deterministic answer stands"
    return f"{name} did not answer in the schema; the deterministic answer stands"
