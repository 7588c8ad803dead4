"""Which patterns can a short text match at all? A look at its literals, cheaper than compiling all.

Compiling every pattern of every signature takes a tenth of a second; a log of a few hundred lines can
match a handful. Whatever could match stays: a pattern is left out only where the text holds none of
the literals that its every match holds one of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from firstfault_tools.log.blocks import read_blocks
from firstfault_tools.log.line import normalise, strip_ansi
from firstfault_tools.log.literals import Literal, required_literals
from firstfault_tools.log.plan import Part

NARROW_BYTES = 24 * 1024 * 1024
"""Logs up to this size are read for it; those that say much that differs are given up early."""

MOST_TELLING_BYTES = 384 * 1024
"""Above this, looking for the literals costs as much as compiling the patterns."""

_GRAM = 4
"""Bytes of a literal's ends that are looked up before the literal itself."""

_FOLD = bytes(ord("0") if chr(byte).isdecimal() else byte for byte in range(128)) + bytes(
    range(128, 256)
)


def _fold(text: bytes) -> bytes:
    """Text in which lines that differ in numbers or case alone are the same."""
    return text.lower().translate(_FOLD)


def read_telling_lines(parts: Iterable[Part]) -> bytes | None:
    """Lines of the parts, folded, each once; None where they are too many. Raises OSError."""
    lines: set[bytes] = set()
    held = 0
    for part in parts:
        for _, raw in read_blocks(part.path, part.start, part.end):
            block = strip_ansi(raw)
            found = set(_fold(block).split(b"\n"))
            if part.wrapped:  # an escape may hide a literal
                found.update(_fold(normalise(line).encode()) for line in block.split(b"\n"))
            fresh = found - lines
            lines |= fresh
            held += sum(map(len, fresh))
            if held > MOST_TELLING_BYTES:
                return None
    return b"\n".join(lines)


def possible_patterns(telling: bytes, patterns: Sequence[str]) -> tuple[int, ...]:
    """Indices of the patterns that may match some of the `telling` lines, in order."""
    grams = {telling[at : at + _GRAM] for at in range(len(telling) - _GRAM + 1)}

    def holds(literal: Literal) -> bool:
        words, any_case = literal
        if any_case and not words.isascii():
            return True
        wanted = _fold(words.encode())
        if len(wanted) >= _GRAM and not (wanted[:_GRAM] in grams and wanted[-_GRAM:] in grams):
            return False
        return wanted in telling

    return tuple(
        index
        for index, pattern in enumerate(patterns)
        if (literals := required_literals(pattern)) is None or any(map(holds, literals))
    )
