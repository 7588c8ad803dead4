"""Where is a diagnosis at? One note of the tool and the file in hand, for whoever has to end it."""

from __future__ import annotations

from collections.abc import Callable

Listener = Callable[[str, str], None]

_at = ("", "")
_listener: Listener | None = None


def note_place(tool: str, file: str) -> None:
    """`tool` begins to look at `file`."""
    global _at
    _at = (tool, file)
    if _listener is not None:
        _listener(tool, file)


def last_place() -> tuple[str, str]:
    """(tool, file) noted last; empty texts before the first note."""
    return _at


def listen(listener: Listener | None) -> None:
    """Pass every further note to `listener`; None ends that."""
    global _listener
    _listener = listener
    note_place("", "")
