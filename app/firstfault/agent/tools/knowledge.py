"""What is written about this? Search of the knowledge base, and its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault.agent.context import TurnContext
from firstfault.agent.tools.lines import Answer
from firstfault.agent.untrusted import make_plain_block
from firstfault_tools.errors import InvalidParameter

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

MAX_FOUND = 4
MAX_PASSAGE = 1_500


def make_knowledge_tools(context: TurnContext) -> list[StructuredTool]:
    """Tools over the pages."""
    from langchain_core.tools import StructuredTool
    from pydantic import BaseModel, Field

    class Query(BaseModel):
        """Arguments of search."""

        query: str = Field(max_length=400, description="words of the message or the topic")

    class PageArguments(BaseModel):
        """Arguments of read_page."""

        page: str = Field(max_length=80, description="page id")
        heading: str = Field("", max_length=80, description="empty: summary and list of headings")

    return [
        StructuredTool.from_function(
            lambda query: search(context, query), name="search", args_schema=Query,
            description="Passages of the knowledge base about failures, with page ids.",
            response_format="content_and_artifact",
        ),
        StructuredTool.from_function(
            lambda page, heading="": read_page(context, page, heading), name="read_page",
            args_schema=PageArguments, response_format="content_and_artifact",
            description="One section of a knowledge page: Symptoms, Why it happens, How to confirm, What it is not, ...",
        ),
    ]  # fmt: skip


def search(context: TurnContext, query: str) -> Answer:
    """Best passages, one a page."""
    lines, items = [], []
    for found in context.search(context.veil.restore(query), MAX_FOUND):
        item = context.book.add_passage(
            found.page, found.heading, found.passage[:MAX_PASSAGE], found.url
        )
        items.append(item)
        lines.append(
            f"{item.id} page {found.page}, {found.heading} ({found.title})\n{_plain(context, item.text)}"
        )
    return context.result("\n\n".join(lines) or "No passage matches.", items)


def read_page(context: TurnContext, page: str, heading: str = "") -> Answer:
    """A section; without a heading the summary and what else there is."""
    known = context.question.knowledge.pages.get(page)
    if known is None:
        raise InvalidParameter("page", f"no page {page[:60]!r}; search finds pages")
    section = known.section("" if heading in ("Summary", known.title) else heading)
    headings = ", ".join(s.heading or "Summary" for s in known.sections)
    if section is None:
        raise InvalidParameter("heading", f"page {page} has: {headings}")
    item = context.book.add_passage(
        page, section.heading or "Summary", section.text[:MAX_PASSAGE], known.url
    )
    text = f"{item.id} page {page}, {section.heading or 'Summary'} ({known.title})\n{_plain(context, item.text)}"
    return context.result(f"{text}\n(sections: {headings})", [item])


def _plain(context: TurnContext, text: str) -> str:
    return context.veil.hide(make_plain_block(text, MAX_PASSAGE))
