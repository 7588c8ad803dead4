"""What does the knowledge base say, as one text to look names and commands up in?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault.grounding.quotes import flatten

if TYPE_CHECKING:
    from firstfault.investigation.knowledge import Knowledge

_READ: dict[int, tuple[Knowledge, str]] = {}
LEAST_COMMAND = 5


def read_lore(knowledge: Knowledge) -> str:
    """Text of all pages in lower case, white space as one space; made once for a knowledge base."""
    known = _READ.get(id(knowledge))
    if known is None or known[0] is not knowledge:
        text = "\n".join(
            f"{page.id} {page.title} " + " ".join(s.text for s in page.sections)
            for page in knowledge.pages.values()
        )
        titles = "\n".join(s.title for s in knowledge.signatures.signatures)
        known = (knowledge, f"{flatten(text)}\n{flatten(titles)}".lower())
        _READ[id(knowledge)] = known
    return known[1]


def is_on_a_page(command: str, knowledge: Knowledge) -> bool:
    """The command stands on a page, white space aside."""
    wanted = flatten(command).lower()
    return len(wanted) >= LEAST_COMMAND and wanted in read_lore(knowledge)
