"""What if the model always did this? Chat models that follow a script, chosen by the number of its turns.

A script maps (messages so far, names of the tools it may call) to one message. It looks at the
messages only, so it says the same after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from firstfault.agent.endpoint import Endpoint, Limits

Script = Callable[[Sequence[BaseMessage], tuple[str, ...]], AIMessage]


class ScriptedChat(BaseChatModel):
    """Replies by script; streams tool calls in pieces as real servers do."""

    script: Script
    tools: tuple[str, ...] = ()
    seen: Any  # the recorder's own list; a typed field would be copied

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> ScriptedChat:  # type: ignore[override]
        """The same model, which knows the names of its tools."""
        names = tuple(_name(t) for t in tools)
        return ScriptedChat(script=self.script, tools=names, seen=self.seen)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.seen.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=self.script(messages, self.tools))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        self.seen.append(list(messages))
        message = self.script(messages, self.tools)
        if message.content:
            yield ChatGenerationChunk(message=AIMessageChunk(content=str(message.content)))
        for place, call in enumerate(message.tool_calls):
            text = json.dumps(call["args"])
            half = len(text) // 2
            for index, piece in enumerate((text[:half], text[half:])):
                chunk = {
                    "name": call["name"] if index == 0 else None,
                    "args": piece,
                    "id": call["id"] if index == 0 else None,
                    "index": place,
                    "type": "tool_call_chunk",
                }
                yield ChatGenerationChunk(
                    message=AIMessageChunk(content="", tool_call_chunks=[chunk])  # type: ignore[list-item]
                )


@dataclass
class ScriptedModel:
    """A model behind the agent's protocol. `seen` holds every prompt it got."""

    script: Script
    endpoint: Endpoint = field(
        default_factory=lambda: Endpoint(
            "scripted", "http://127.0.0.1:1/v1", limits=Limits(silence_s=5, turn_s=30)
        )
    )
    seen: list[list[BaseMessage]] = field(default_factory=list)

    def open(self) -> ScriptedChat:
        return ScriptedChat(script=self.script, seen=self.seen)


def turns_of(messages: Sequence[BaseMessage]) -> int:
    """How often the model has spoken."""
    return sum(m.type == "ai" for m in messages)


def call(name: str, number: int = 0, /, **arguments: Any) -> AIMessage:
    """A message that calls one tool."""
    return AIMessage(
        "", tool_calls=[{"name": name, "args": arguments, "id": f"call-{number}-{name}"}]
    )


def reply(number: int = 99, /, **fields: Any) -> AIMessage:
    """A message that answers in the schema."""
    return call("Reply", number, **{"answer": [], "explanations": [], **fields})


def in_order(*messages: AIMessage) -> Script:
    """One message after the other, by the number of turns; the last one again and again."""
    return lambda seen, _tools: messages[min(turns_of(seen), len(messages) - 1)]


def text_of(messages: Sequence[BaseMessage]) -> str:
    """Everything that was said, as one string."""
    return "\n".join(str(m.content) for m in messages)


def _name(tool: Any) -> str:
    if isinstance(tool, dict):
        return str(tool.get("function", tool).get("name", "?"))
    return str(getattr(tool, "name", getattr(tool, "__name__", "?")))
