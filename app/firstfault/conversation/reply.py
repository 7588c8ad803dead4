"""What is one answer, before it is stored? Text, its kind, its quotes, the tool behind it, what to ask next."""

from __future__ import annotations

from firstfault.conversation.sources import Sources
from firstfault.incidents.events import AnswerPart, ToolUse
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

_STATE_MARK = expression(r" ?\[changes state\]")
"""How a page marks a fix that changes state."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. Its first sentence answers; suggestions are questions that can be asked next."""

    text: str
    kind: str
    suggestions: tuple[str, ...] = ()
    tool: ToolUse | None = None

    def part(self, sources: Sources) -> AnswerPart:
        """The answer as an event, with the quotes its marks stand for."""
        text = _STATE_MARK.sub(" (changes state)", self.text)
        # what was quoted for an answer that was tried and not given has no mark
        return AnswerPart(
            text,
            tuple(c for c in sources.citations if f"[{c.n}]" in text),
            kind=self.kind,
            suggestions=self.suggestions,
            tool=self.tool,
        )
