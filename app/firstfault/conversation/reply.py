"""What is one answer, before it is stored? Text, its kind, its quotes, the tool behind it, what to ask next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from firstfault.conversation.sources import Sources
from firstfault.incidents.events import AnswerPart, ToolUse
from firstfault_tools.dataclass import dataclass

WHAT_IF = "what-if"
"""Name of the page of calculators in an address."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. Its first sentence answers; suggestions are questions that can be asked next."""

    text: str
    kind: str
    suggestions: tuple[str, ...] = ()
    tool: ToolUse | None = None

    def part(self, sources: Sources) -> AnswerPart:
        """The answer as an event, with the quotes its marks stand for."""
        return AnswerPart(
            self.text,
            tuple(sources.citations),
            kind=self.kind,
            suggestions=self.suggestions,
            tool=self.tool,
        )


def link_what_if(tool: str, inputs: Mapping[str, Any]) -> str:
    """Address, relative to the page, that opens the calculator with these settings."""
    given = {
        k: v for k, v in inputs.items() if v not in (None, False, "") and not isinstance(v, dict)
    }
    return "?" + urlencode({"view": WHAT_IF, "tool": tool, **given})
