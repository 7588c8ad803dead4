"""What is one row of a diagnosis on a command line, before it is written or drawn?"""

from __future__ import annotations

from enum import Enum, auto

from firstfault_tools.dataclass import dataclass


class RowKind(Enum):
    """What a row is: a line of the verdict's card, a heading, text, or shell lines to be copied as they are."""

    CARD = auto()
    HEADING = auto()
    TEXT = auto()
    COMMAND = auto()


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `parts` are its texts with the style of each."""

    kind: RowKind
    parts: tuple[tuple[str, str], ...]
    indent: int = 0

    @property
    def text(self) -> str:
        """The row without its styles."""
        return "".join(text for text, _ in self.parts)
