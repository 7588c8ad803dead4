"""Which rank holds more GPU memory than the others, and at which event did memory rise for good?

Facts, no faults: a card that is fuller than its peers, a level that rose when a checkpoint was loaded or
an average of the weights was started. They explain an out-of-memory error of that rank, and answer who
asks where the memory went.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import join_lines, keep_marked
from firstfault_tools.log.speaker import read_speaker
from firstfault_tools.metrics.series import MISSING, NO_RANK, StepSeries

HEAVIER, RISEN = "memory.rank_heavier", "memory.level_risen"
MORE, ALIKE, JUMP = 1.2, 1.1, 0.08
"""Times the others' memory; spread of the others; share by which a level must rise at an event."""

LEAST_GIB = 1.0
MOST_LINES, MOST_ROWS = 20_000, 2_000
COLUMNS = ("mem_allocated_gib", "mem_peak_gib", "mem_reserved_gib")
_CARD = expression(
    r"^\s*(?P<gpu>\d{1,2})\s*,\s*(?:[^,\n]{1,60},\s*)?(?P<mib>\d{3,6}) MiB(?:,|\s*$)"
)
_OWN = expression(
    r"(?i)\b(?:(?:reward|reference|ref|teacher|critic|eval\w*|ema|second|whole|full)\b.{0,40}\b(?:model|weights|cop(?:y|ies)|params?|state)|"
    r"only (?:on )?rank|gather\w*|(?:model|cache|index|dataset|embeddings?|checkpoint)\b.{0,60}\b(?:on|to|into) (?:cuda|gpu))"
)
_EVENT = expression(
    r"(?i)\bresum\w*|\brestor\w*|\bload(?:ed|ing)\b|\bEMA\b|\bevaluat\w*|\bvalidation\b|\bunfreez\w*|\bcurriculum\b|"
    r"\b(?:new|next) (?:stage|phase)\b|\bseq(?:uence)?[_ ]?len\w*|\bcompil\w+|\bresolution\b|\bbatch[_ ]size\b"
)
_NO_DIGITS = {ord(c): None for c in "0123456789. "}


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Facts about levels of GPU memory in one log."""
    found = list(_compare_cards(lines, file))
    text = join_lines(lines)
    if b"mem" not in text and b"Mem" not in text and b"MEM" not in text:
        return tuple(found)
    from firstfault_tools.metrics.log_lines import read_steps

    series = read_steps(lines)
    column = next((c for c in COLUMNS if c in series.columns), None)
    if column is None:
        return tuple(found)
    found += _compare_ranks(series, column, lines, file)
    found += _find_rise(series, column, lines, file)
    return tuple(found)


def _compare_cards(lines: Sequence[tuple[int, str]], file: str) -> Iterator[Finding]:
    """One GPU in a listing that holds more than all others."""
    used: dict[int, tuple[int, tuple[int, str]]] = {}
    for number, text in keep_marked(lines, (" MiB",))[:256]:
        if (row := _CARD.match(text)) is not None:
            used[int(row["gpu"])] = (int(row["mib"]), (number, text))
    yield from _odd_holder({g: (m / 1024, p) for g, (m, p) in used.items()}, "GPU", (), file)


def _compare_ranks(
    series: StepSeries, column: str, lines: Sequence[tuple[int, str]], file: str
) -> Iterator[Finding]:
    """One rank that prints a larger figure than all others in the last row of each."""
    values = series.columns[column]
    rows: dict[int, int] = {}
    for row in range(max(0, len(series) - MOST_ROWS), len(series)):
        if series.rank[row] != NO_RANK and values[row] != MISSING and values[row] > 0:
            rows[series.rank[row]] = row
    if len(rows) < 3:
        return
    held = {
        rank: (values[row], (series.line[row], series.texts.get(row) or ""))
        for rank, row in rows.items()
    }
    yield from _odd_holder(held, "rank", lines[:MOST_LINES], file)


def _odd_holder(
    held: dict[int, tuple[float, tuple[int, str]]],
    what: str,
    lines: Sequence[tuple[int, str]],
    file: str,
) -> Iterator[Finding]:
    if len(held) < 3:
        return
    most = max(held, key=lambda one: held[one][0])
    others = [v for one, (v, _) in held.items() if one != most]
    value, place = held[most]
    if value < MORE * median(others) or max(others) > ALIKE * median(others) or min(others) <= 0:
        return
    if value - median(others) < LEAST_GIB:
        return
    own = _find_own(most, lines) if what == "rank" else None
    why = f": only it says «{own[1].strip()[:160]}»" if own is not None else ""
    yield Finding(
        kind=HEAVIER,
        title=f"{what} {most} holds {value:.1f} GiB of GPU memory, the others {median(others):.1f} GiB{why or '; something only it keeps'}",
        level=Level.CONTEXT,
        category=Category.OOM,
        confidence=Confidence.LIKELY,
        evidence=tuple(
            Evidence(file, n, t.strip()[:400])
            for n, t in (place, *((own,) if own is not None else ()))
        ),
        rank=most if what == "rank" else None,
        gpu=f"GPU {most}" if what == "GPU" else None,
        page="memory-growth",
        facts={"explains": "memory", "holder": most, "extra_gib": round(value - median(others), 2)},
    )


def _find_own(rank: int, lines: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """A line about a model or a cache that only this rank prints."""
    shapes: dict[str, set[int]] = defaultdict(set)
    first: dict[str, tuple[int, str]] = {}
    for number, text in lines:
        if len(text) > 400 or not _OWN.search(text):
            continue
        speaker, body = read_speaker(text)
        if speaker.rank is not None:
            shape = text[body:].translate(_NO_DIGITS)
            shapes[shape].add(speaker.rank)
            first.setdefault(shape, (number, text))
    return next((first[s] for s, ranks in shapes.items() if ranks == {rank}), None)


def _find_rise(
    series: StepSeries, column: str, lines: Sequence[tuple[int, str]], file: str
) -> Iterator[Finding]:
    """A level that rose between two rows of one rank, with an event between them, and stayed."""
    values = series.columns[column]
    by_rank: dict[int, list[int]] = defaultdict(list)
    for row in range(0, len(series), 1 + len(series) // MOST_ROWS):
        if values[row] != MISSING and values[row] > 0:
            by_rank[series.rank[row]].append(row)
    for rows in by_rank.values():
        if len(rows) < 4:
            continue
        rises = [(values[b] - values[a], a, b) for a, b in itertools.pairwise(rows[1:])]
        size, before, after = max(rises)
        total = values[rows[-1]] - values[rows[1]]
        if size < max(JUMP * values[before], LEAST_GIB) or size < 0.7 * total:
            continue
        if values[rows[-1]] < 0.95 * values[after]:
            continue
        between = (
            row
            for row in lines[: 10 * MOST_LINES]
            if series.line[before] < row[0] < series.line[after] and _EVENT.search(row[1][:300])
        )
        event = next(between, None)
        if event is None:
            continue
        yield Finding(
            kind=RISEN,
            title=f"GPU memory rose from {values[before]:.4g} to {values[after]:.4g} GiB at «{event[1].strip()[:160]}» and stayed there: what "
            "was made or loaded then is still held on the GPU",
            level=Level.CONTEXT,
            category=Category.OOM,
            confidence=Confidence.LIKELY,
            evidence=tuple(
                Evidence(file, n, t.strip()[:400])
                for n, t in (
                    (series.line[before], series.texts.get(before) or ""),
                    event,
                    (series.line[after], series.texts.get(after) or ""),
                )
                if t
            ),
            page="memory-growth",
            facts={"explains": "memory", "from_gib": values[before], "to_gib": values[after]},
        )
        return


def join_levels(finding: Finding, levels: Sequence[Finding]) -> Finding:
    """An out-of-memory finding with the level that explains it in its title."""
    for level in levels:
        if level.kind == HEAVIER and level.facts.get("holder") != finding.rank:
            continue
        head, mark, tail = finding.title.partition(", raised in ")
        return replace(
            finding,
            title=f"{head}{mark}{tail}; {level.title}",
            evidence=(*finding.evidence[:3], *level.evidence[:3]),
        )
    return finding
