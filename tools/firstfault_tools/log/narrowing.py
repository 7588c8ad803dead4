"""Which patterns can a short text match at all? A look at its literals, cheaper than trying all.

Compiling every pattern of every signature takes a tenth of a second; a log of a few hundred lines can
match a handful. Nor does a process that has them compiled try all of them on a short text: the automaton
of thousands of patterns grows by states with every text that is new to it, a tenth of a second a log and
half a gigabyte in the end. Whatever could match stays: a pattern is left out only where the text holds none of
the literals that its every match holds one of.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from firstfault_tools.log.blocks import read_blocks
from firstfault_tools.log.line import normalise, strip_ansi
from firstfault_tools.log.literals import VERSION, common_literals, required_literals
from firstfault_tools.log.plan import Part

NARROW_BYTES = 24 * 1024 * 1024
"""Logs up to this size are read for it; those that say much that differs are given up early."""

WARM_NARROW_BYTES = 2 * 1024 * 1024
"""The same, where all patterns are compiled already."""

MOST_TELLING_BYTES = 384 * 1024
"""Above this, looking for the literals costs as much as compiling the patterns."""

FEW_BYTES = 8 * 1024
"""Up to here words that any log may hold still tell something: most of them are missing in a few lines."""

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


class PatternIndex:
    """Patterns by the literals that a match needs, looked up by both ends of a literal."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._always: list[int] = content["always"]
        self._common: list[tuple[int, list[bytes]]] = content["common"]
        self._plain: list[tuple[bytes, int]] = content["plain"]
        self._by_head: dict[bytes, list[tuple[bytes, bytes, int]]] = content["by_head"]

    def find_possible(self, telling: bytes) -> tuple[int, ...]:
        """Indices of the patterns that may match some of the `telling` lines, in order."""
        grams = {telling[at : at + _GRAM] for at in range(len(telling) - _GRAM + 1)}
        found = set(self._always)
        few = len(telling) <= FEW_BYTES
        found.update(
            index
            for index, literals in self._common
            if not few or any(literal in telling for literal in literals)
        )
        found.update(index for literal, index in self._plain if literal in telling)
        for head in self._by_head.keys() & grams:
            for tail, literal, index in self._by_head[head]:
                if index not in found and tail in grams and literal in telling:
                    found.add(index)
        return tuple(sorted(found))


def write_index(patterns: Sequence[str]) -> dict[str, Any]:
    """What a `PatternIndex` looks up, as plain data."""
    always: list[int] = []
    common: list[tuple[int, list[bytes]]] = []
    plain: list[tuple[bytes, int]] = []
    by_head: dict[bytes, list[tuple[bytes, bytes, int]]] = defaultdict(list)
    for index, pattern in enumerate(patterns):
        literals = _fold_all(required_literals(pattern))
        if literals is None:
            words = _fold_all(common_literals(pattern))
            if words is None:
                always.append(index)
            else:
                common.append((index, words))
        for literal in literals or ():
            if len(literal) < _GRAM:
                plain.append((literal, index))
            else:
                by_head[literal[:_GRAM]].append((literal[-_GRAM:], literal, index))
    return {"always": always, "common": common, "plain": plain, "by_head": dict(by_head)}


def _fold_all(literals: Iterable[tuple[str, bool]] | None) -> list[bytes] | None:
    # folding the case of other scripts is not that of ASCII
    if literals is None or any(any_case and not text.isascii() for text, any_case in literals):
        return None
    return sorted(_fold(text.encode()) for text, _ in literals)


def name_index(patterns: Sequence[str]) -> list[int]:
    """What changes where the index of these patterns does."""
    text = "\0".join(patterns).encode()
    return [VERSION, len(patterns), len(text), zlib.crc32(text), zlib.adler32(text)]


_read: dict[tuple[str, ...], dict[str, Any]] = {}


def read_index(patterns: tuple[str, ...], content: dict[str, Any]) -> None:
    """Take over what `write_index` wrote for these patterns: making it takes a tenth of a short command."""
    _read[patterns] = content


@lru_cache(maxsize=4)
def index_patterns(patterns: tuple[str, ...]) -> PatternIndex:
    """The index of a set of patterns, made once a process."""
    return PatternIndex(_read.get(patterns) or write_index(patterns))
