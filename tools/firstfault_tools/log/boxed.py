"""Which stack frame does a line of a boxed traceback show?

The `rich` library prints tracebacks inside a box: `│ path:88 in main │`, the code below it with an
arrow before the line that ran, and long paths broken over two lines.
"""

from __future__ import annotations

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

EDGE = "│"
_PLACE = expression(
    r"(?P<path>[^\s:]{0,300}\.pyx?|<\w+>):(?P<line>\d{1,7}) in (?P<name>\S{1,120})$"
)
_PATH = expression(r"[^\s:]{2,300}$")
_RAN = expression(r"❱\s*(?P<line>\d{1,7})\s*│\s*(?P<code>\S.*)$")


@dataclass(slots=True)
class BoxReader:
    """Reads the lines of one boxed traceback in order."""

    broken: str = ""
    """First half of a path that the box was too narrow for."""

    def read_place(self, body: str) -> tuple[str, int, str] | None:
        """Path, line and function where the line names a frame; None for every other line."""
        inner = inside(body)
        if inner is None:
            return None
        match = _PLACE.match(inner)
        if match is None:
            self.broken = inner if _PATH.match(inner) and "/" in inner else ""
            return None
        path, self.broken = self.broken + match["path"], ""
        return path, int(match["line"]), match["name"]

    def read_code(self, body: str) -> str | None:
        """The source line that ran, where the line shows it."""
        return read_code(body)


def inside(body: str) -> str | None:
    """Text between the edges of the box, None for a line outside of it."""
    stripped = body.strip()
    if not stripped.startswith(EDGE):
        return None
    return stripped.strip(EDGE).strip()


def read_code(body: str) -> str | None:
    """The source line that ran, where this line of the box shows it."""
    inner = inside(body)
    match = _RAN.match(inner) if inner is not None else None
    return match["code"].strip() if match is not None else None
