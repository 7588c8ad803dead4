"""How does what a layer keeps and allocates grow with its tokens? One law a layer serves every length and batch.

Every height of a replayed tape is p x tokens + q x sequences + r: what grows with tokens, what every sequence
adds (text states, an encoder's frames), weights. The law is read off a few lengths and checked at one more;
layers that grow otherwise (written-out scores, a sequence that chunks do not divide) have none and are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.memory.tape import Span

Groups = tuple[tuple[Span, int], ...]
Line = tuple[int, int, int]

PROBES = {
    True: ((1024, 1), (2048, 1), (3072, 1)),
    False: ((1024, 2), (2048, 2), (1024, 4), (3072, 3)),
}
"""Lengths and batches that are tried, for a batch of one, which may keep a view where others keep a copy, and
for more. The last one checks. Chunks of state-space layers divide 1,024."""


@dataclass(frozen=True, slots=True)
class SpanLaw:
    """Lines of one span. Of a height only those that are highest somewhere."""

    kept: Line
    cast: Line
    weight_gradients: Line
    output: Line
    forward: tuple[Line, ...]
    transient: tuple[Line, ...]
    backward: tuple[Line, ...]
    saved: tuple[tuple[str, Line], ...]

    def at(self, tokens: int, batch: int) -> Span:
        """The span for this many tokens in so many sequences."""

        def height(line: Line) -> int:
            return line[0] * tokens + line[1] * batch + line[2]

        cast = height(self.cast)
        name, line = max(self.saved, key=lambda row: height(row[1]), default=("input", (0, 0, 0)))
        return Span(
            kept=height(self.kept),
            cast=cast,
            forward_peak=max(map(height, self.forward)),
            transient_peak=max(map(height, self.transient)) - cast,
            backward_peak=max(map(height, self.backward)),
            weight_gradients=height(self.weight_gradients),
            output=height(self.output),
            largest=(name, height(line)),
        )


def find_laws(
    replay: Callable[[int, int], Groups], *, single: bool
) -> tuple[tuple[SpanLaw, int], ...] | None:
    """Laws of a model's runs of like layers; None where one of them does not grow by such a law.

    replay: the groups for a sequence length and a batch.
    """
    probes = PROBES[single]
    found = [replay(*probe) for probe in probes]
    if len({tuple((count) for _, count in groups) for groups in found}) != 1:
        return None
    laws: list[tuple[SpanLaw, int]] = []
    same: dict[SpanLaw, SpanLaw] = {}
    for spans in zip(*found, strict=True):
        law = _find_law([span for span, _ in spans], probes)
        if law is None:
            return None
        laws.append((same.setdefault(law, law), spans[0][1]))
    return tuple(laws)


def _find_law(spans: Sequence[Span], probes: Sequence[tuple[int, int]]) -> SpanLaw | None:
    levels = [span.levels for span in spans if span.levels is not None]
    if len(levels) != len(spans):
        return None
    try:
        lines = _draw((tuple(size for _, size in level.saved) for level in levels), probes)
        largest = _keep_highest(lines)
        names = [name for name, _ in levels[0].saved]
        kept, cast, weights, output = _draw(
            ((s.kept, s.cast, s.weight_gradients, s.output) for s in spans), probes
        )
        return SpanLaw(
            kept, cast, weights, output,
            forward=_keep_highest(_draw((level.forward for level in levels), probes)),
            transient=_keep_highest(_draw((level.transient for level in levels), probes)),
            backward=_keep_highest(_draw((level.backward for level in levels), probes)),
            saved=tuple((name, line) for name, line in zip(names, lines, strict=True) if line in largest),
        )  # fmt: skip
    except ValueError:
        return None


def _draw(rows: Iterable[Sequence[int]], probes: Sequence[tuple[int, int]]) -> list[Line]:
    """The line of every column. Raises ValueError where a column does not follow one."""
    return [_draw_line(column, probes) for column in zip(*rows, strict=True)]


def _draw_line(heights: Sequence[int], probes: Sequence[tuple[int, int]]) -> Line:
    (first, batch), (second, _) = probes[:2]
    slope, rest = divmod(heights[1] - heights[0], (second - first) * batch)
    flat = heights[0] - slope * first * batch
    each = 0
    if len(probes) > 3:
        length, more = probes[2]
        each, left = divmod(heights[2] - slope * length * more - flat, more - batch)
        rest = rest or left
        flat -= each * batch
    last = probes[-1]
    if rest or heights[-1] != slope * last[0] * last[1] + each * last[1] + flat:
        raise ValueError("no line")
    return slope, each, flat


def _keep_highest(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines that no other one lies above everywhere."""
    kept: list[Line] = []
    for line in sorted(set(lines), reverse=True):
        if not any(all(a >= b for a, b in zip(other, line, strict=True)) for other in kept):
            kept.append(line)
    return tuple(kept)
