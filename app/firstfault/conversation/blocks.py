"""How does a command, or what a line says, stand in an answer? As a fenced block that stays in its list item."""

from __future__ import annotations


def write_block(command: str, indent: int = 0, language: str = "bash") -> str:
    """A fenced block, every line indented alike."""
    left = " " * indent
    return "\n".join(f"{left}{line}" for line in (f"```{language}", *command.split("\n"), "```"))


def write_quote(text: str, indent: int = 0) -> str:
    """What was read, as it stands; a fence within it would end the block, so it is spaced out."""
    return write_block(text.replace("```", "` ` `"), indent, "text")
