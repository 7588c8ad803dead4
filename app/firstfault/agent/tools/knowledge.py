"""What is written about this? Search of the knowledge base, and its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault.agent.context import ToolAnswer, TurnContext
from firstfault.agent.untrusted import make_plain_block
from firstfault_tools.errors import InvalidParameter
from firstfault_tools.knowledge.page import Page, Section

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

MAX_FOUND = 3
MAX_PASSAGE = 1_200


def make_knowledge_tools(context: TurnContext) -> list[StructuredTool]:
    """Tools over the pages."""
    from langchain_core.tools import StructuredTool
    from pydantic import BaseModel, Field

    class Query(BaseModel):
        """Arguments of search."""

        query: str = Field(max_length=400)

    class PageArguments(BaseModel):
        """Arguments of read_page."""

        page: str = Field(max_length=80)
        heading: str = Field("", max_length=80)

    return [
        StructuredTool.from_function(
            lambda query: search(context, query), name="search", args_schema=Query,
            description="Passages of the knowledge base, with page ids.",
            response_format="content_and_artifact",
        ),
        StructuredTool.from_function(
            lambda page, heading="": read_page(context, page, heading), name="read_page",
            args_schema=PageArguments, response_format="content_and_artifact",
            description="A section of a page, such as Fix now; without a heading the summary and the list of sections.",
        ),
    ]  # fmt: skip


def search(context: TurnContext, query: str) -> ToolAnswer:
    """Best passages, one a page."""
    lines, items = [], []
    for found in context.search(context.veil.restore(query), MAX_FOUND):
        item = context.book.add_passage(
            found.page, found.heading, found.passage[:MAX_PASSAGE], found.url
        )
        items.append(item)
        category = _category_of(context, found.page)
        lines.append(f"{item.id} ({found.title}; {category})\n{_plain(item.text)}")
    return context.result("\n\n".join(lines) or "No passage matches.", items)


def read_page(context: TurnContext, page: str, heading: str = "") -> ToolAnswer:
    """A section; without a heading the summary and what else there is."""
    known = context.question.knowledge.pages.get(page)
    if known is None:
        raise InvalidParameter("page", f"no page {page[:60]!r}; search finds pages")
    section = _find_section(known, heading)
    headings = ", ".join(s.heading or "Summary" for s in known.sections)
    if section is None:
        raise InvalidParameter("heading", f"page {page} has: {headings}")
    item = context.book.add_passage(
        page, section.heading or "Summary", section.text[:MAX_PASSAGE], known.url
    )
    text = f"{item.id} ({known.title}; {known.category.value})\n{_plain(item.text)}"
    return context.result(f"{text}\n(sections: {headings})", [item])


def _find_section(page: Page, heading: str) -> Section | None:
    """The section of a heading, in any spelling; pages of harmless things have one of their own."""
    wanted = heading.strip().lower()
    if wanted in ("", "summary", page.title.lower()):
        return page.section("")
    same = [s for s in page.sections if s.heading.lower() == wanted]
    if not same and wanted.startswith("why"):
        same = [s for s in page.sections if s.heading.lower().startswith("why")]
    return same[0] if same else None


def _category_of(context: TurnContext, page: str) -> str:
    known = context.question.knowledge.pages.get(page)
    return known.category.value if known is not None else "method"


def _plain(text: str) -> str:
    """A passage as it stands: pages are public, and their examples are no names of this incident."""
    return make_plain_block(text, MAX_PASSAGE)
