"""Can this block hold a known line at all? One automaton of literals that lets ordinary lines pass.

A gate is built from the patterns' required literals; patterns without a telling literal stand in it
whole. It may open in vain, never stay shut: whoever matches a pattern passes its gate. Two things
adapt to the log in hand: literals that keep opening in vain (`hot`) are replaced by the patterns they
stand for, and patterns of which enough is known (`settled`) are left out.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.literals import Literal, required_literals

VAIN_OPENINGS = 12
"""Openings for nothing after which a literal or pattern is treated as ordinary in this log."""

VAIN_TOLD = 2
"""The same for a pattern of which one match tells everything."""

VAIN_LOOKS = 200
"""Blocks in which the quick look saw something for nothing after which it looks for the whole patterns."""

CACHED_GATES = 48
QUICK_AFTER = 48 * 1024 * 1024
"""Bytes after which hyperscan, where installed, is worth the tenth of a second it takes to compile."""


@dataclass(slots=True)
class GateBook:
    """Gates of one list of patterns, compiled once per state and kept."""

    patterns: Sequence[str]
    told: range = range(0)
    """Patterns of which one match in a log tells everything there is to know."""

    left_out: frozenset[int] = frozenset()
    """Patterns that no gate of this book looks for."""

    gates: dict[tuple[frozenset[int], frozenset[Literal]], Gate] = field(default_factory=dict)
    hot: frozenset[Literal] = frozenset()
    """Literals that opened in vain in any log so far: what is ordinary in one rank's log is in all."""

    def gate(self, settled: frozenset[int] = frozenset()) -> Gate:
        """Gate without the `settled` patterns and with the patterns of hot literals whole."""
        hot = self.hot
        key = (settled, hot)
        found = self.gates.get(key)
        if found is None:
            if len(self.gates) >= CACHED_GATES:
                self.gates.pop(next(iter(self.gates)))
            found = self.gates[key] = Gate(self.patterns, settled | self.left_out, hot)
        return found


class Gate:
    """Finds places that may hold a match. Latin-1 bytes, like the pattern set behind it."""

    def __init__(
        self, patterns: Sequence[str], settled: frozenset[int], hot: frozenset[Literal]
    ) -> None:
        self.literals: set[Literal] = set()
        self.whole: set[str] = set()
        for index, pattern in enumerate(patterns):
            if index in settled:
                continue
            literals = required_literals(pattern)
            if literals is None or literals & hot:
                self.whole.add(pattern)
            else:
                self.literals |= literals
        self._expression = _compile(self.literals, self.whole)
        self._passed = self._vain = 0
        self._quick: QuickLook | None = None

    def search(self, block: bytes, position: int = 0) -> tuple[int, int] | None:
        """Place of the first literal or whole pattern at or after `position`, or None."""
        if self._passed >= 0:
            self._passed += len(block) - position
            if self._passed > QUICK_AFTER:
                self._passed = -1
                self._quick = load_quick_gate(self.literals, set(map(cut_tail, self.whole)))
        if self._quick is not None:
            seen = self._quick(block, position)
            if seen is None:
                return None
            found = self._expression.search(block, seen)
            if found is None:
                self._note_vain_look()
        else:
            found = self._expression.search(block, position)
        return None if found is None else (found.start(), found.end())

    def _note_vain_look(self) -> None:
        """A log that prints nan or inf where no pattern wants it is looked at with the whole patterns."""
        self._vain += 1
        if self._vain == VAIN_LOOKS:
            self._quick = load_quick_gate(self.literals, self.whole)

    def literal_at(self, text: bytes) -> Literal | None:
        """The literal that opened the gate, None where a whole pattern did."""
        said = text.decode("utf-8", errors="replace")
        if (said, False) in self.literals:
            return (said, False)
        folded = said.lower()
        return next((x for x in self.literals if x[1] and x[0].lower() == folded), None)


def _compile(literals: set[Literal], whole: set[str]) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = 512 << 20
    options.log_errors = False
    options.never_capture = True
    options.encoding = re2.Options.Encoding.LATIN1
    parts = [
        f"(?i:{re.escape(text)})" if any_case else re.escape(text)
        for text, any_case in sorted(literals)
    ]
    parts += [f"(?m:{pattern})" for pattern in sorted(whole)]
    return re2.compile("|".join(parts or [r"[^\x00-\xff]"]).encode(), options)


QuickLook = Callable[[bytes, int], int | None]
"""Start of the first line, at or after a position of a block, that may hold something; None for no line."""


def load_quick_gate(literals: set[Literal], whole: set[str]) -> QuickLook | None:
    """Where hyperscan sees the first thing in a block from a position on; None where it is not there.

    It only ever says that lines may be passed over: what is found is found by google-re2. Its word
    borders are those of ASCII, as google-re2's, and patterns it cannot take leave it unused.
    """
    if os.environ.get("FIRSTFAULT_ENGINE") == "re2":
        return None
    try:
        import hyperscan
    except ImportError:
        return None
    once = hyperscan.HS_FLAG_SINGLEMATCH
    rows = [
        (re.escape(text).encode(), once | (hyperscan.HS_FLAG_CASELESS if any_case else 0))
        for text, any_case in sorted(literals)
    ]
    rows += [(p.encode(), once | hyperscan.HS_FLAG_MULTILINE) for p in sorted(whole)]
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=[e for e, _ in rows],
            flags=[f for _, f in rows],
            ids=list(range(len(rows))),
            elements=len(rows),
        )
    except hyperscan.error:
        return None

    def look(block: bytes, position: int) -> int | None:
        end = 0

        def note(_index: int, _start: int, to: int, *_: object) -> bool:
            nonlocal end
            end = to
            return True  # one is enough

        with suppress(hyperscan.ScanTerminated):
            database.scan(block[position:] if position else block, match_event_handler=note)
        # whatever else matches ends at this place or later, so not in an earlier line
        return max(position, block.rfind(b"\n", 0, position + end - 1) + 1) if end else None

    return look


_FLAGS = expression(r"(?:\(\?[a-z]+\))?")
_PIECE = expression(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_NUMBERS = expression(r"[\d.]|\\d")


def cut_tail(pattern: str) -> str:
    """The end of a pattern that wants a value to be no number, else the pattern.

    Every match holds a match of its end. Step lines hold the words before it all the time, and hyperscan
    keeps count of each place; nan or inf as a word stands in few logs.
    """
    flags = _FLAGS.match(pattern)
    head = flags[0] if flags is not None else ""
    depth = opened = cut = 0
    for piece in _PIECE.finditer(pattern, len(head)):
        if depth == 0 and piece[0] == "|":
            return pattern
        if depth == 0 and piece[0] == "(":
            opened = piece.start()
        depth += (piece[0] == "(") - (piece[0] == ")")
        if depth == 0 and piece[0] == ")" and "nan" in pattern[opened : piece.end()].lower():
            cut = opened
    tail = pattern[cut:]
    telling = cut and tail.endswith("\\b") and _NUMBERS.search(tail) is None
    return head + tail if telling else pattern


@dataclass(slots=True)
class OpenGate:
    """The gate of one pass over one log, with what it has learnt about it."""

    book: GateBook
    settled: set[int] = field(default_factory=set)
    vain_literals: Counter[Literal] = field(default_factory=Counter)
    vain_patterns: Counter[int] = field(default_factory=Counter)
    current: Gate = field(init=False)

    def __post_init__(self) -> None:
        self.current = self.book.gate()

    def note_vain(self, opened: bytes, known: Sequence[int]) -> None:
        """The gate opened at text `opened` for nothing, or only for the `known` patterns."""
        fresh = [index for index in known if index not in self.settled]
        if fresh:
            self.vain_patterns.update(fresh)
            ripe = {i for i in fresh if self.vain_patterns[i] >= self._patience(i)}
            if ripe:
                self.settled |= ripe
                self._rebuild()
            return
        literal = self.current.literal_at(opened)
        if literal is None:
            return
        self.vain_literals[literal] += 1
        if self.vain_literals[literal] >= VAIN_OPENINGS:
            self.book.hot |= {literal}
            self._rebuild()

    def _patience(self, pattern: int) -> int:
        return VAIN_TOLD if pattern in self.book.told else VAIN_OPENINGS

    def _rebuild(self) -> None:
        self.current = self.book.gate(frozenset(self.settled))
