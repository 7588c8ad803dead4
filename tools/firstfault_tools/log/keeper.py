"""Which lines of a log are kept while it passes by? Head, tail and windows round what matters."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import field

from firstfault_tools.dataclass import dataclass
from firstfault_tools.log import secrets
from firstfault_tools.log.kept import KeptLines, Run
from firstfault_tools.log.line import is_plain, normalise
from firstfault_tools.log.plan import Budget

BEFORE, AFTER = 12, 80
EDGE_BYTES = 16 * 1024
"""Kept at both edges of a part, so that a window does not end where a part does."""


@dataclass(slots=True)
class Keeper:
    """Kept lines of one part; everything that grows is bounded by the budget."""

    budget: Budget
    wrapped: bool
    first_part: bool
    last_part: bool
    redactions: Counter[str]
    runs: list[Run] = field(default_factory=list)
    kept_until: int = 0
    wanted: list[tuple[int, int]] = field(default_factory=list)
    window_until: int = 0
    head_left: int = field(init=False)
    windows_left: int = field(init=False)
    previous: tuple[int, bytes, bool] = (0, b"", False)
    tail: deque[tuple[int, bytes, bool]] = field(default_factory=deque)
    tail_bytes: int = 0

    def __post_init__(self) -> None:
        self.head_left = self.budget.head if self.first_part else min(EDGE_BYTES, self.budget.head)
        self.windows_left = self.budget.windows

    def want(self, number: int, window: bool = True) -> None:
        """Keep line `number` of the block that is being read, with the window round it."""
        if self.budget.complete or self.windows_left <= 0:
            return
        low, high = (max(1, number - BEFORE), number + AFTER) if window else (number, number)
        if self.wanted and low <= self.wanted[-1][1] + 1:
            self.wanted[-1] = (self.wanted[-1][0], max(high, self.wanted[-1][1]))
        else:
            self.wanted.append((low, high))

    def keep(self, block: bytes, number: int, count: int, secret: bool) -> None:
        """Take from a block of `count` lines, the first being `number` + 1, what is to be kept."""
        if self.budget.complete:
            self._add(number + 1, block, secret)
            return
        spans = sorted(self.wanted)
        self.wanted = []
        if self.window_until > number:
            spans.insert(0, (number + 1, self.window_until))
        if self.head_left > 0:
            cut = len(block)
            if cut > self.head_left:
                cut = block.rfind(b"\n", 0, self.head_left) + 1
            self._add(number + 1, block[:cut], secret)
            self.head_left -= max(cut, 1)
        if spans:
            self._keep_spans(spans, block, number, count, secret)
        self.previous = (number, block, secret)
        self._remember_tail(block, number, secret)

    def _keep_spans(
        self, spans: list[tuple[int, int]], block: bytes, number: int, count: int, secret: bool
    ) -> None:
        lines = block.split(b"\n")
        self.window_until = max(self.window_until, max(high for _, high in spans))
        for low, high in spans:
            if low <= number and self.kept_until < number and self.previous[1]:
                before, earlier, earlier_secret = self.previous
                texts = earlier[-EDGE_BYTES:].split(b"\n")[1:-1][-(number - low + 1) :]
                if texts and before < number:
                    data = b"\n".join(texts) + b"\n"
                    self.windows_left -= len(data)
                    self._add(number - len(texts) + 1, data, earlier_secret)
            low, high = max(low, number + 1, self.kept_until + 1), min(high, number + count)
            if low <= high and self.windows_left > 0:
                data = b"\n".join(lines[low - number - 1 : high - number]) + b"\n"
                if len(data) > self.windows_left:
                    data = data[: data.rfind(b"\n", 0, self.windows_left) + 1]
                self.windows_left -= max(len(data), 1)
                self._add(low, data, secret)

    def _remember_tail(self, block: bytes, number: int, secret: bool) -> None:
        room = self.budget.tail if self.last_part else min(EDGE_BYTES, self.budget.tail)
        self.tail.append((number, block, secret))
        self.tail_bytes += len(block)
        while len(self.tail) > 1 and self.tail_bytes - len(self.tail[0][1]) >= room:
            self.tail_bytes -= len(self.tail.popleft()[1])

    def close(self) -> KeptLines:
        """Everything kept, in order."""
        room = self.budget.tail if self.last_part else min(EDGE_BYTES, self.budget.tail)
        spare = self.tail_bytes - room
        for number, block, secret in self.tail:
            start = block.find(b"\n", spare) + 1 if spare > 0 else 0
            spare = 0
            first = number + 1 + block.count(b"\n", 0, start)
            if first <= self.kept_until:  # part of it was kept as head or window
                skip = self.kept_until - first + 1
                lines = block[start:].split(b"\n")
                if skip >= len(lines):
                    continue
                start = len(block) - len(b"\n".join(lines[skip:]))
                first = self.kept_until + 1
            self._add(first, block[start:], secret)
        return KeptLines.of(self.runs)

    def _add(self, first: int, data: bytes, secret: bool) -> None:
        if not data:
            return
        if first <= self.kept_until:
            lines = data.split(b"\n")[self.kept_until - first + 1 :]
            data = b"\n".join(lines)
            first = self.kept_until + 1
            if not data:
                return
        if secret or self.wrapped or not is_plain(data):
            plain = (normalise(line) for line in data.removesuffix(b"\n").split(b"\n"))
            texts = tuple(secrets.redact_lines(plain, self.redactions))
            run = Run(first, texts)
        else:
            run = Run(first, data)
        self.runs.append(run)
        self.kept_until = max(self.kept_until, first + run.count - 1)
