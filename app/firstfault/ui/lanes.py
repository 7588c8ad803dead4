"""Who stopped where? One lane a rank: how long it wrote, and where it failed, followed or was shut down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from firstfault.investigation.diagnosis import ChainRole, Diagnosis
from firstfault_tools.log.line import normalise
from firstfault_tools.log.scan import make_line

MAX_BYTES = 256 * 1024 * 1024
MAX_LINES = 3_000
END_LINES = 400
MAX_LANES = 32
LAUNCHER = "launcher"


@dataclass(frozen=True, slots=True)
class Span:
    """From a rank's first to its last line; places on the axis."""

    lane: str
    start: float
    end: float
    lines: int


@dataclass(frozen=True, slots=True)
class Stop:
    """One event of the chain on its lane."""

    lane: str
    at: float
    role: ChainRole
    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """timed: the axis is seconds since the epoch (UTC); else it is the line number."""

    timed: bool
    order: tuple[str, ...]
    spans: tuple[Span, ...]
    stops: tuple[Stop, ...]
    ranks_left_out: int = 0


@dataclass(slots=True)
class _Lane:
    start: float
    end: float
    lines: int = 0


def read_lanes(diagnosis: Diagnosis, artefacts: Mapping[str, Path]) -> Lanes | None:
    """Lanes of an incident; None where fewer than two ranks are seen or nothing stopped."""
    if not diagnosis.cascade or len(diagnosis.input.ranks_seen) < 2:
        return None
    marked = {(link.file or "", link.line) for link in diagnosis.cascade}
    timed = diagnosis.input.time_range is not None
    if not timed and len(diagnosis.input.files) > 1:
        return None
    year = int(diagnosis.input.time_range[0][:4]) if diagnosis.input.time_range else 1970
    ranks: dict[int, _Lane] = {}
    places: dict[tuple[str, int], float] = {}
    for file, number, text in _lines(artefacts.items(), marked):
        line = make_line(file, number, text, year)
        at = line.time if timed else float(number)
        if at is None:
            continue
        if (file, number) in marked:
            places[file, number] = at
        rank = line.speaker.rank
        if rank is not None:
            lane = ranks.setdefault(rank, _Lane(at, at))
            lane.start, lane.end = min(lane.start, at), max(lane.end, at)
            lane.lines += 1
    return _draw(diagnosis, timed, ranks, places)


def _draw(
    diagnosis: Diagnosis,
    timed: bool,
    ranks: Mapping[int, _Lane],
    places: Mapping[tuple[str, int], float],
) -> Lanes | None:
    stops = []
    for link in diagnosis.cascade:
        at = places.get((link.file or "", link.line))
        if at is None and link.rank is not None and link.rank in ranks and link.line == 0:
            at = _before_others(link.rank, ranks, diagnosis, places)
        if at is None:
            continue
        lane = LAUNCHER if link.rank is None else str(link.rank)
        where = f"{link.file}:{link.line}" if link.line else str(link.file)
        stops.append(Stop(lane, at, link.role, where, link.text[:160]))
    if not stops:
        return None
    shown, left_out = _choose(diagnosis, ranks, stops)
    order = [str(r) for r in shown]
    if any(s.lane == LAUNCHER for s in stops):
        order.append(LAUNCHER)
    spans = tuple(
        Span(str(r), ranks[r].start, ranks[r].end, ranks[r].lines) for r in shown if r in ranks
    )
    kept = tuple(s for s in stops if s.lane in order)
    return Lanes(timed, tuple(order), spans, kept, left_out)


def _before_others(
    rank: int,
    ranks: Mapping[int, _Lane],
    diagnosis: Diagnosis,
    places: Mapping[tuple[str, int], float],
) -> float:
    """Place for a fault read from a dump, which has no line: where its rank last wrote before others failed."""
    others = [
        places[link.file or "", link.line]
        for link in diagnosis.cascade
        if link.rank != rank and (link.file or "", link.line) in places
    ]
    mine = [
        places[link.file or "", link.line]
        for link in diagnosis.cascade
        if link.rank == rank and (link.file or "", link.line) in places
    ]
    first = min(others, default=ranks[rank].end)
    return min([*mine, ranks[rank].end, first])


def _choose(
    diagnosis: Diagnosis, ranks: Mapping[int, _Lane], stops: list[Stop]
) -> tuple[list[int], int]:
    known = set(ranks) | set(diagnosis.input.ranks_seen)
    known |= {int(s.lane) for s in stops if s.lane != LAUNCHER}
    world = diagnosis.input.world_size
    if world and world <= MAX_LANES:
        known |= set(range(world))
    if len(known) <= MAX_LANES:
        return sorted(known), 0
    first = diagnosis.first_failing_rank
    involved = [int(s.lane) for s in stops if s.lane != LAUNCHER]
    wanted = list(
        dict.fromkeys([*([first] if first is not None else []), *involved, *sorted(known)])
    )
    return sorted(wanted[:MAX_LANES]), len(known) - MAX_LANES


def _lines(
    artefacts: Iterable[tuple[str, Path]], marked: AbstractSet[tuple[str, int]]
) -> Iterator[tuple[str, int, str]]:
    """Lines of the texts: all of short ones, of long ones the ends, an even share and the marked.

    Only their time and rank are used, so nothing is redacted.
    """
    left = MAX_BYTES
    for name, path in artefacts:
        try:
            left -= path.stat().st_size
            if left < 0:
                return
            with path.open("rb") as stream:
                if b"\0" in stream.read(4096):
                    continue
                stream.seek(0)
                total = sum(1 for _ in stream)
                stride = max(1, total // MAX_LINES)
                stream.seek(0)
                for number, raw in enumerate(stream, 1):
                    end = number <= END_LINES or number > total - END_LINES
                    if end or number % stride == 0 or (name, number) in marked:
                        yield name, number, normalise(raw[:4096])
        except OSError:
            continue
