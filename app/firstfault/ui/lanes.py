"""Who stopped where? One lane a process: when it wrote, when it was silent, and where it failed or followed.

A lane is a rank of the job. Local ranks of which that rank is not known keep lanes of their own, by host
or log, so that two nodes never share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from collections.abc import Set as AbstractSet
from dataclasses import field
from itertools import pairwise
from pathlib import Path

from firstfault.investigation.diagnosis import ChainRole, Diagnosis
from firstfault.postmortem.extent import least_silence
from firstfault.ui.curves import Curve
from firstfault_tools.dataclass import dataclass
from firstfault_tools.log.clock import NO_YEAR
from firstfault_tools.log.line import normalise
from firstfault_tools.log.place import NOWHERE, Place
from firstfault_tools.log.prefix import read_file_name
from firstfault_tools.log.scan import make_line
from firstfault_tools.placement.table import PlacementTable

MAX_BYTES = 256 * 1024 * 1024
MAX_LINES = 3_000
END_LINES = 400
MAX_LANES = 32
LAUNCHER, JOB = "launcher", "job"
HEAD_BYTES = 64 * 1024
NEAR_LINES = 20
"""Lines within which a line without a time was written about when its neighbour was."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch in which a process wrote; places on the axis."""

    lane: str
    start: float
    end: float
    lines: int


@dataclass(frozen=True, slots=True)
class Silence:
    """A stretch in which a process wrote nothing although others did, or it wrote before and after."""

    lane: str
    start: float
    end: float


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
    silences: tuple[Silence, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class _Written:
    """A line of a process: its place on the axis, its file, and how many lines of that file were left out before."""

    at: float
    file: str
    left_out: int


_Lane = list[_Written]


@dataclass(slots=True)
class _Sheet:
    """What the lines of all logs, read one after the other, put on lanes.

    marked: lines of the chain. waiting: of those, the ones without a time until a line with one follows.
    """

    table: PlacementTable
    marked: Set[tuple[str, int]]
    lanes: dict[tuple[Place, str], _Lane] = field(default_factory=dict)
    places: dict[tuple[str, int], tuple[Place, float]] = field(default_factory=dict)
    known: set[tuple[Place, str]] = field(default_factory=set)
    waiting: list[tuple[int, Place]] = field(default_factory=list)
    file: str = ""
    before: int = 0
    left_out: int = 0
    latest: float | None = None

    def turn_to(self, file: str, number: int) -> None:
        """The next line is `number` of `file`."""
        if file != self.file:
            self.settle()
            self.file, self.before, self.left_out, self.latest = file, 0, 0, None
        self.left_out += number - self.before - 1
        self.before = number

    def put(self, number: int, place: Place, at: float | None) -> None:
        """A process wrote a line; marked lines without a time wait for one."""
        if (place, self.file) not in self.known:
            self.known.add((place, self.file))
            self.table.add(place, self.file)
        marked = (self.file, number) in self.marked
        if at is None:
            if marked:
                self.waiting.append((number, place))
            return
        near = [w for w in self.waiting if number - w[0] <= NEAR_LINES]
        far = [w for w in self.waiting if w not in near]
        self._place(near, at)
        self._place(far, self.latest)
        self.waiting.clear()
        self.latest = at
        if marked:
            self.places[self.file, number] = place, at
        self._write(place, at)

    def settle(self) -> None:
        """What still waits stands where the last line with a time is."""
        self._place(self.waiting, self.latest)
        self.waiting.clear()

    def _place(self, waiting: Sequence[tuple[int, Place]], at: float | None) -> None:
        """Marked lines that print no time are put where their neighbour with a time is."""
        if at is None:
            return
        for number, place in waiting:
            self.places[self.file, number] = place, at
            self._write(place, at)

    def _write(self, place: Place, at: float) -> None:
        if place.rank is not None or place.local_rank is not None:
            lane = self.lanes.setdefault((place, self.file), [])
            lane.append(_Written(at, self.file, self.left_out))


def read_lanes(diagnosis: Diagnosis, artefacts: Mapping[str, Path]) -> Lanes | None:
    """Lanes of an incident; None where fewer than two processes are seen or nothing stopped."""
    if not diagnosis.cascade or not _several(diagnosis, artefacts.values()):
        return None
    marked = {(link.file or "", link.line) for link in diagnosis.cascade}
    timed = diagnosis.input.time_range is not None
    if not timed and len(diagnosis.input.files) > 1:
        return None
    year = int(diagnosis.input.time_range[0][:4]) if diagnosis.input.time_range else NO_YEAR
    sheet = _Sheet(PlacementTable(world=diagnosis.input.world_size), marked)
    for file, number, text in _lines(artefacts.items(), marked):
        sheet.turn_to(file, number)
        line = make_line(file, number, text, year)
        place = line.place.within(read_file_name(file))
        told = Place(place.rank, place.local_rank, place.node_rank, host=place.host)
        sheet.put(number, told, line.time if timed else float(number))
    sheet.settle()
    return _draw(diagnosis, timed, _merge(sheet.lanes, sheet.table), sheet.places, sheet.table)


def draw_job(diagnosis: Diagnosis, curves: Sequence[Curve]) -> Lanes | None:
    """One lane for the whole job, where no ranks are told apart: from its first to its last step line, with the events
    of the chain; None where no curve gives it a beginning and an end."""
    if not diagnosis.cascade or not curves:
        return None
    timed, file = curves[0].timed, curves[0].file
    places = [p.at if timed else float(p.line) for c in curves for p in c.points]
    known = [at for at in places if at is not None]
    stops = []
    for link in {(k.file, k.line): k for k in reversed(diagnosis.cascade)}.values():
        at = link.at if timed else float(link.line) if link.file == file else None
        if at is not None:
            stops.append(Stop(JOB, at, link.role, f"{link.file}:{link.line}", link.text[:160]))
    if not known or not stops:
        return None
    span = Span(JOB, min(known), max(known), len({p.line for c in curves for p in c.points}))
    silences = diagnosis.measured.silences if timed and diagnosis.measured is not None else ()
    quiet = tuple(Silence(JOB, a, b) for a, b in silences if span.start <= a and b <= span.end)
    return Lanes(timed, (JOB,), (span,), tuple(stops), silences=quiet)


def _several(diagnosis: Diagnosis, files: Iterable[Path]) -> bool:
    """Several processes speak: several ranks are known, or a launcher labelled the lines by local rank."""
    if len(diagnosis.input.ranks_seen) > 1:
        return True
    for path in files:
        try:
            with path.open("rb") as stream:
                if b"[default" in stream.read(HEAD_BYTES):
                    return True
        except OSError:
            continue
    return False


def _merge(lanes: Mapping[tuple[Place, str], _Lane], table: PlacementTable) -> dict[str, _Lane]:
    """Lanes by name: one a rank; local ranks of which the rank is not known stay apart by host or log."""
    out: dict[str, _Lane] = {}
    for (place, file), lane in lanes.items():
        out.setdefault(_name_lane(place, file, table), []).extend(lane)
    for lane in out.values():
        lane.sort()
    return out


def _name_lane(place: Place, file: str, table: PlacementTable) -> str:
    rank = table.ranks_of(place, file).only
    if rank is not None:
        return str(rank)
    if place.local_rank is None:
        return LAUNCHER
    node = place.host or (f"node {place.node_rank}" if place.node_rank is not None else file)
    return f"{node} local {place.local_rank}"


def _draw(
    diagnosis: Diagnosis,
    timed: bool,
    lanes: Mapping[str, _Lane],
    places: Mapping[tuple[str, int], tuple[Place, float]],
    table: PlacementTable,
) -> Lanes | None:
    stops = _read_stops(diagnosis, lanes, places, table)
    if not stops or len(lanes) < 2:
        return None
    order, left_out = _choose(diagnosis, lanes, stops)
    shown = {n: lanes[n] for n in order if n in lanes}
    silences = _find_silences(shown, max(lane[-1].at for lane in shown.values())) if timed else ()
    spans = tuple(s for name, lane in shown.items() for s in _split(name, lane, silences))
    if any(s.lane == LAUNCHER for s in stops):
        order.append(LAUNCHER)
    kept = tuple(s for s in stops if s.lane in order)
    return Lanes(timed, tuple(order), spans, kept, left_out, silences)


def _read_stops(
    diagnosis: Diagnosis,
    lanes: Mapping[str, _Lane],
    places: Mapping[tuple[str, int], tuple[Place, float]],
    table: PlacementTable,
) -> list[Stop]:
    """The events of the chain that have a place on the axis; a rank without a line of its own stopped before the others."""
    stops = []
    times = {key: at for key, (_, at) in places.items()}
    for link in {(k.file, k.line, k.rank): k for k in reversed(diagnosis.cascade)}.values():
        place, at = places.get((link.file or "", link.line), (NOWHERE, None))
        own = str(link.rank)
        if at is None and own in lanes and link.line == 0:
            at = _before_others(own, lanes, diagnosis, times)
        if at is None:
            continue
        lane = own if link.rank is not None else _name_lane(place, link.file or "", table)
        where = f"{link.file}:{link.line}" if link.line else str(link.file)
        stops.append(Stop(lane, at, link.role, where, link.text[:160]))
    return stops


def _find_silences(lanes: Mapping[str, _Lane], until: float) -> tuple[Silence, ...]:
    """Where a process wrote nothing for long, by how often processes write here; to the end of the others too.

    Nothing is told where lines were left out in between.
    """
    gaps = [b.at - a.at for lane in lanes.values() for a, b in pairwise(lane) if b.at > a.at]
    least = least_silence(gaps, 2 * len(lanes))
    out = []
    for name, lane in lanes.items():
        for a, b in pairwise(lane):
            whole = a.left_out == b.left_out if a.file == b.file else not (a.left_out or b.left_out)
            if b.at - a.at >= least and whole:
                out.append(Silence(name, a.at, b.at))
        if until - lane[-1].at >= least:
            out.append(Silence(name, lane[-1].at, until))
    return tuple(out)


def _split(name: str, lane: _Lane, silences: Sequence[Silence]) -> list[Span]:
    """The stretches of a lane between its silences."""
    cuts = {(s.start, s.end) for s in silences if s.lane == name}
    out: list[Span] = []
    start, count = lane[0].at, 1
    for before, written in pairwise(lane):
        if (before.at, written.at) in cuts:
            out.append(Span(name, start, before.at, count))
            start, count = written.at, 0
        count += 1
    return [*out, Span(name, start, lane[-1].at, count)]


def _before_others(
    own: str,
    lanes: Mapping[str, _Lane],
    diagnosis: Diagnosis,
    times: Mapping[tuple[str, int], float],
) -> float:
    """Place for a fault read from a dump, which has no line: where its rank last wrote before others failed."""
    told = [(str(link.rank) == own, times.get((link.file or "", link.line))) for link in diagnosis.cascade]  # fmt: skip
    others = [at for mine, at in told if at is not None and not mine]
    end = lanes[own][-1].at
    first = min(others, default=end)
    return min([*(at for mine, at in told if at is not None and mine), end, first])


def _choose(
    diagnosis: Diagnosis, lanes: Mapping[str, _Lane], stops: Sequence[Stop]
) -> tuple[list[str], int]:
    """Names of the lanes to show, ranks first and in order, and how many are left out."""
    involved = [s.lane for s in stops if s.lane != LAUNCHER]
    known = {*lanes, *involved, *map(str, diagnosis.input.ranks_seen)} - {LAUNCHER}
    world = diagnosis.input.world_size
    if world and world <= MAX_LANES and all(name.isdecimal() for name in known):
        known |= set(map(str, range(world)))
    order = sorted(known, key=_order)
    first = diagnosis.first_failing_rank
    wanted = dict.fromkeys([*([str(first)] if first is not None else []), *involved, *order])
    shown = list(wanted)[:MAX_LANES] if len(known) > MAX_LANES else order
    return sorted(shown, key=_order), max(0, len(known) - MAX_LANES)


def _order(name: str) -> tuple[bool, str, int]:
    node, _, local = name.rpartition(" ")
    return (bool(node), node, int(local) if local.isdecimal() else 0)


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
