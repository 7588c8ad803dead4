"""Which single statements does a page make? Its list items and the sentences of its summary, each on its own.

A question is often answered by one of them; the page's passages say where to look, its statements what to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.page import Page, bullets

_FENCE = expression(r"^\s*```")
_STATE = "[changes state]"
LEAST_CHARS = 12


@dataclass(frozen=True, slots=True)
class Statement:
    """One list item or sentence. id: `page>heading>number`; heading: '' for the summary; command: '' for none."""

    id: str
    page: str
    heading: str
    words: str
    command: str

    def indexed(self, title: str) -> str:
        """What gets a vector: the title gives the words their subject."""
        return f"{title}. {self.words}"


def cut_statements(page: Page) -> tuple[Statement, ...]:
    """Statements of a page, in its order."""
    out = []
    for section in page.sections:
        items = (
            [split_item(item) for item in bullets(section.text)]
            if section.heading
            else [(s, "") for s in sentences(section.text)]
        )
        out += [
            Statement(f"{page.id}>{section.heading}>{n}", page.id, section.heading, words, command)
            for n, (words, command) in enumerate(items)
            if len(words) >= LEAST_CHARS
        ]
    return tuple(out)


def cut_all(pages: Iterable[Page]) -> tuple[tuple[Statement, str], ...]:
    """Every statement with the title of its page."""
    return tuple((s, page.title) for page in pages for s in cut_statements(page))


def split_item(lines: Sequence[str]) -> tuple[str, str]:
    """(words, command) of one list item."""
    words: list[str] = []
    code: list[str] = []
    fenced = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced:
            code.append(line[2:] if line.startswith("  ") else line)
        elif line.strip():
            words.append(line.strip())
    return " ".join(words).removesuffix(_STATE).strip(), "\n".join(code).strip()


def sentences(text: str) -> list[str]:
    """Sentences of prose and list items, without code."""
    out: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            plain = re.sub(r"^(?:[-*]|\d{1,2}\.) ", "", line.strip())
            out += re.split(r"(?<=[.!?]) (?=[A-Z`])", plain)
    return [s for s in out if len(s) >= LEAST_CHARS]
