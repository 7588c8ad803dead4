"""What is one row of a diagnosis on a command line, before it is written or drawn?"""

from __future__ import annotations

from enum import Enum, auto

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression


class RowKind(Enum):
    """What a row is: a line of the verdict's card, a heading, text, or shell lines to be copied as they are."""

    CARD = auto()
    HEADING = auto()
    TEXT = auto()
    COMMAND = auto()


WIDTH = 80
_PIECE = expression(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
"""One word of a shell line, its quotes included."""
_NOT_CUT = expression(r"(?:^|\s)#|<<|\\$")
"""A comment, a document in the line or a line that goes on: a backslash would mean something else."""


def wrap_command(text: str, width: int) -> str:
    """Shell lines of at most `width` columns, broken between words with a backslash; as it is where that is not the same."""
    return "\n".join(_wrap_line(line, width) for line in text.split("\n"))


def _wrap_line(line: str, width: int) -> str:
    words = _PIECE.findall(line)
    if len(line) <= width or _NOT_CUT.search(line) or " ".join(words) != line:
        return line
    rows = [words[0]]
    for word in words[1:]:
        if len(rows[-1]) + len(word) + 3 <= width:
            rows[-1] += f" {word}"
        else:
            rows.append(f"  {word}")
    return " \\\n".join(rows)


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
