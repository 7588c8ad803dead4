"""What is searched? Pages cut at their headings into passages with stable ids."""

from __future__ import annotations

from collections.abc import Iterable

from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.page import Page

MAX_CHARS = 1_600


@dataclass(frozen=True, slots=True)
class Passage:
    """One headed part of a page. `id` is `page#heading`, with `~n` for long sections cut in parts."""

    id: str
    page: str
    title: str
    heading: str
    text: str
    category: str
    frameworks: tuple[str, ...]
    tags: tuple[str, ...]
    url: str | None

    @property
    def indexed(self) -> str:
        """What the indexes see: title and heading give the passage its context."""
        return f"{self.title}. {self.heading}. {' '.join(self.tags)}\n{self.text}"


def cut_passages(pages: Iterable[Page]) -> tuple[Passage, ...]:
    """Passages of all pages, in page order."""
    return tuple(
        Passage(
            id=f"{page.id}#{section.heading or 'Summary'}" + (f"~{n}" if n else ""),
            page=page.id,
            title=page.title,
            heading=section.heading or "Summary",
            text=part,
            category=page.category.value,
            frameworks=page.frameworks,
            tags=page.tags,
            url=page.url,
        )
        for page in pages
        for section in page.sections
        for n, part in enumerate(_cut(section.text))
    )


def _cut(text: str) -> list[str]:
    """Parts of at most MAX_CHARS, cut between paragraphs."""
    parts = [""]
    for paragraph in text.split("\n\n"):
        if parts[-1] and len(parts[-1]) + len(paragraph) > MAX_CHARS:
            parts.append("")
        parts[-1] += ("\n\n" if parts[-1] else "") + paragraph
    return [p for p in parts if p.strip()]
