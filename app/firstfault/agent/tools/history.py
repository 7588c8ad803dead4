"""Was this seen before? Earlier incidents with the same fault, host or GPU."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from firstfault.agent.context import ToolAnswer, TurnContext
from firstfault.agent.untrusted import make_plain

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool


def make_history_tools(context: TurnContext) -> list[StructuredTool]:
    """One tool, where there is a history."""
    from langchain_core.tools import StructuredTool
    from pydantic import BaseModel

    class Nothing(BaseModel):
        """No arguments."""

    if not context.related:
        return []
    return [
        StructuredTool.from_function(
            lambda: show_history(context), name="incident_history", args_schema=Nothing,
            description="Earlier incidents with the same fault, host or GPU, and how often.",
            response_format="content_and_artifact",
        )
    ]  # fmt: skip


def show_history(context: TurnContext) -> ToolAnswer:
    """Counts first, then one row an incident."""
    related = context.related
    rows = [
        f"{sum(r.same_host for r in related)} on the same host, {sum(r.same_gpu for r in related)} on the "
        f"same GPU, {sum(r.same_signature for r in related)} with the same fault"
    ]
    for one in related[:12]:
        when = datetime.fromtimestamp(one.created, UTC).date().isoformat()
        rows.append(f"{when} {one.title[:120]}: {one.root_cause[:200]}")
    item = context.book.add_result("incident_history", "\n".join(rows))
    text = "\n".join(context.veil.hide(make_plain(r)) for r in rows)
    return context.result(f"{item.id} {text}", [item])
