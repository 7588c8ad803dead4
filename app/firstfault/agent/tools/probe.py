"""What does this node measure? The probe, once a person approved it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from firstfault.agent.context import ToolAnswer, TurnContext
from firstfault.agent.probe import NAME
from firstfault.agent.reply import ProbeComponent
from firstfault.agent.untrusted import make_plain

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool


def make_probe_tools(context: TurnContext) -> list[StructuredTool]:
    """The probe, where this installation has one."""
    from langchain_core.tools import InjectedToolCallId, StructuredTool
    from pydantic import BaseModel, Field

    if context.probe is None:
        return []
    probe = context.probe

    class ProbeArguments(BaseModel):
        """Arguments of run_probe."""

        component: ProbeComponent = Field(description="what to measure alone")
        light: bool = Field(True, description="read state only, put no load on the GPUs")
        tool_call_id: Annotated[str, InjectedToolCallId]

    def run(component: ProbeComponent, light: bool = True, tool_call_id: str = "") -> ToolAnswer:
        lines = probe.call(f"{context.thread}/{tool_call_id}", component, light)
        item = context.book.add_result(NAME, "\n".join(lines)[:4_000])
        shown = context.veil.hide("\n".join(make_plain(x) for x in lines[:40]))
        return context.result(f"{item.id} {shown}", [item])

    return [
        StructuredTool.from_function(
            run, name=NAME, args_schema=ProbeArguments, response_format="content_and_artifact",
            description="Measure the node this program runs on. A person must approve each run.",
        )
    ]  # fmt: skip
