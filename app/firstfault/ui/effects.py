"""How does the effect of a command look? Icon and tone beside the word."""

from __future__ import annotations

from firstfault.grounding.effects import Effect, judge_command, only_looks, split_look
from firstfault_tools.dataclass import dataclass

__all__ = ["LOOKS", "THEN", "Effect", "Look", "judge_command", "only_looks", "split_look"]


THEN = "Then, where that speaks for it:"
"""Stands between what is looked at and what is done."""


@dataclass(frozen=True, slots=True)
class Look:
    """Icon name of the Material set and tone for an effect."""

    icon: str
    tone: str


LOOKS = {
    Effect.READS: Look("visibility", "ok"),
    Effect.LOADS: Look("speed", "warn"),
    Effect.STARTS: Look("play_arrow", "warn"),
    Effect.CHANGES: Look("edit", "warn"),
    Effect.CODE: Look("code", "plain"),
    Effect.SETTING: Look("tune", "plain"),
    Effect.UNCLEAR: Look("help", "plain"),
}
