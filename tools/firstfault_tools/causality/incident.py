"""What do all logs of an incident say together? One object for the analysers of this room."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from firstfault_tools.causality.advance import Advance, read_advance
from firstfault_tools.causality.ending import BadEnd, find_bad_end
from firstfault_tools.causality.progress import SURVIVED_STEPS, ProgressReader
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import FileDigest, Line, Mark
from firstfault_tools.log.exits import Exit, read_exits
from firstfault_tools.log.place import Place
from firstfault_tools.log.role import read_role
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.signature import SignatureSet
from firstfault_tools.log.traceback import Traceback, read_tracebacks
from firstfault_tools.log.work import WorkReport, read_work
from firstfault_tools.placement.rows import read_table
from firstfault_tools.placement.table import PlacementTable
from firstfault_tools.roles import Role

if TYPE_CHECKING:
    from firstfault_tools.placement.gpus import GpuTable
    from firstfault_tools.placement.layout import Layout

_WORLD = expression(
    r"(?i)(?:world[_ ]?size|world)['\"]?\s{0,9}(?:\.{2,80}|[:=]|is)?\s{0,9}(\d{1,6})\b|nranks (\d{1,6})\b|using world size: (\d+)"
)
_MORE = expression(
    r"(?i)--num[_-]gpus['\",]{0,9}[= ]{1,9}['\"]?(\d{1,4})\b|num[_-]processes['\"]?\s{0,9}[:= ]\s{0,9}['\"]?(\d{1,6})\b|\bprocess \d{1,6}/(\d{1,6})\b"
)
_LOCAL = expression(r"--local[-_]rank[= ](\d{1,3})\b")
_MESH = expression(r"device mesh with \[[^\]\n]{0,200}\], \[(\d{1,6}(?:, \d{1,6}){0,6})\]")
"""torchtitan prints the mesh of the job: names of its dimensions, then their sizes."""
_LAUNCH = expression(r"--nnodes[= ](\d+)")
_PER_NODE = expression(r"--nproc[_-]per[_-]node[= ](\d+)")
BEGUN_STEPS = 20
"""Steps after something that came before all of them, which show that the run does not need what it tells of."""

MOST_SORTED = 64
"""Logs up to which they are sorted by what they are; more are the ranks of one run."""
_RAY_ACTOR = expression(r"\s*\((?:\w+\.)*\w+ (?:rank=\d+ )?pid=\d+")


@dataclass(frozen=True)
class LogIncident:
    """All scanned logs of one incident, with the structures read out of them."""

    digests: tuple[FileDigest, ...]
    signatures: SignatureSet

    @cached_property
    def tracebacks(self) -> tuple[Traceback, ...]:
        return tuple(t for d in self.digests for t in read_tracebacks(d))

    @cached_property
    def told_ranks(self) -> dict[tuple[str, int], int]:
        """Ranks of exceptions whose traceback names the rank that raised them, whoever printed it."""
        return {
            (t.line.file, t.line.number): t.told_rank
            for t in self.tracebacks
            if t.told_rank is not None
        }

    @cached_property
    def work(self) -> tuple[WorkReport, ...]:
        return tuple(w for d in self.digests for w in read_work(d))

    @cached_property
    def exits(self) -> tuple[Exit, ...]:
        return tuple(e for d in self.digests for e in read_exits(d))

    @cached_property
    def progress(self) -> dict[str, ProgressReader]:
        return {d.file: ProgressReader(d) for d in self.digests}

    @cached_property
    def conditions(self) -> frozenset[str]:
        """Condition patterns that matched some line of the run or beside it; a test of the machines is another program."""
        names = self.signatures.conditions
        return frozenset(names[i] for d in self.of_the_run.digests for i in d.conditions)

    @cached_property
    def world_size(self) -> int | None:
        """Number of ranks of the job where the logs say it: the largest figure they give."""
        return self.suspects._told_world or self.of_the_run._told_world

    @cached_property
    def _told_world(self) -> int | None:
        sizes = [0]
        for digest in self.digests:
            for number in digest.marked.get(Mark.WORLD, ()):
                text = digest.text_of(number) or ""
                sizes += [int(g) for m in _WORLD.finditer(text) for g in m.groups() if g]
                sizes += [prod(map(int, m[1].split(", "))) for m in _MESH.finditer(text)]
                nodes, each = _LAUNCH.search(text), _PER_NODE.search(text)
                if each is not None:
                    sizes.append(int(each[1]) * (int(nodes[1]) if nodes is not None else 1))
        return max(sizes) or None

    @cached_property
    def has_peers(self) -> bool:
        """The logs tell of more than one process, even where they do not say how many."""
        told = (
            {e.host for e in self.exits if e.host},
            {e.task for e in self.exits if e.task is not None},
        )
        if (self.world_size or 1) > 1 or any(len(several) > 1 for several in told):
            return True
        for digest in self.digests:
            for number in digest.marked.get(Mark.WORLD, ()):
                text = digest.text_of(number) or ""
                if any(int(g) > 1 for m in _MORE.finditer(text) for g in m.groups() if g):
                    return True
                if any(int(m[1]) > 0 for m in _LOCAL.finditer(text)):
                    return True
        # an actor of Ray is one of several, and the program that called it is no rank
        return any(_RAY_ACTOR.match(t) for _, _, t in self.lines_with(("Worker pid=", "Actor pid=", "Dict pid=", "Runner pid=", "_task pid=")))  # fmt: skip

    @cached_property
    def printed_ranks(self) -> frozenset[int]:
        """Ranks that a line, a report or the name of a log gives outright."""
        seen = {r for d in self.digests for r in d.ranks}
        seen |= {d.name_rank for d in self.digests if d.name_rank is not None}
        seen |= {w.rank for w in self.work}
        return frozenset(seen)

    @cached_property
    def ranks_seen(self) -> frozenset[int]:
        """Ranks that wrote at least one line anywhere; of local ranks those whose rank is known."""
        seen = set(self.printed_ranks)
        tasks = any(h.line.place.task is not None for d in self.digests for h in d.hits)
        if tasks and self.placement.tasks_are_ranks:
            seen |= self.placement.tasks_seen
        for digest in self.digests:
            places = [Place(local_rank=n) for n in digest.locals]
            if digest.name_place.local_rank is not None:
                places.append(digest.name_place)
            for place in places:
                rank = self.placement.ranks_of(place.within(digest.name_place), digest.file).only
                if rank is not None:
                    seen.add(rank)
        return frozenset(seen)

    @cached_property
    def placement(self) -> PlacementTable:
        """Which process is which rank, from all logs."""
        return read_table(self)

    def with_layout(self, layout: Layout) -> LogIncident:
        """This incident, its placement with what a person says of the layout of the ranks."""
        told = copy(self)
        told.__dict__["placement"] = self.placement.with_layout(layout)
        return told

    @cached_property
    def gpu_table(self) -> GpuTable:
        """Ranks by PCI address and pid, put together from listings; read only where a fault names one."""
        from firstfault_tools.placement.gpus import GpuTable

        return GpuTable(self)

    @cached_property
    def hosts_seen(self) -> frozenset[str]:
        """Hosts named by prefixes of interesting lines."""
        hosts = {h.line.place.host for d in self.digests for h in d.hits}
        return frozenset(h for h in hosts if h is not None)

    def digest_of(self, file: str) -> FileDigest:
        return self._by_file[file]

    @cached_property
    def _by_file(self) -> Mapping[str, FileDigest]:
        # the first of a name, where two have it
        return {d.file: d for d in reversed(self.digests)}

    @cached_property
    def own_words(self) -> frozenset[str]:
        """Logs of which the smaller part is marked as quoted (`> ...`)."""
        return frozenset(d.file for d in self.digests if _speaks_itself(d))

    def role_of(self, file: str) -> Role:
        """Which part the log plays."""
        if file not in self._roles:
            reader = self.progress[file]
            trains = reader.trained()
            works = trains or reader.finished_at() is not None or self.advances[file] is not None
            self._roles[file] = read_role(reader.digest, trains, works)
        return self._roles[file]

    @cached_property
    def advances(self) -> Mapping[str, Advance | None]:
        """How the work goes on at the end of each log."""
        return _Advances(self.progress)

    @cached_property
    def _roles(self) -> dict[str, Role]:
        return {}

    @cached_property
    def trained(self) -> bool:
        """The run took steps. A log that ended as planned does not speak for one that never came so far:
        it is that of another attempt or job."""
        readers = [r for file, r in self.progress.items() if self.role_of(file) is Role.RUN]
        trained = [r for r in readers if r.trained()]
        idle = any(not r.trained() and r.finished_at() is None for r in readers)
        return any(r.finished_at() is None for r in trained) if idle else bool(trained)

    @cached_property
    def of_the_run(self) -> LogIncident:
        """All logs but those of experiments, where there are others."""
        return self._narrow(d for d in self.digests if self.role_of(d.file) is not Role.EXPERIMENT)

    @cached_property
    def suspects(self) -> LogIncident:
        """The logs in which what failed may stand: of the run, and not ended as planned where others did not."""
        logs = self.of_the_run
        return logs._narrow(d for d in logs.digests if self.progress[d.file].finished_at() is None)

    def without(self, files: Collection[str]) -> LogIncident:
        """The incident as it is without some of its logs."""
        return LogIncident(tuple(d for d in self.digests if d.file not in files), self.signatures)

    def _narrow(self, digests: Iterable[FileDigest]) -> LogIncident:
        """Some of the logs; all where that leaves none, or where there are so many that they are one run's."""
        if not 1 < len(self.digests) <= MOST_SORTED:
            return self
        kept = tuple(digests)
        return LogIncident(kept, self.signatures) if 0 < len(kept) < len(self.digests) else self

    @cached_property
    def finished(self) -> bool:
        """Some log of the run says that the training ended as planned, and no step follows in it."""
        return any(
            reader.finished_at() is not None and self.role_of(file) is Role.RUN
            for file, reader in self.progress.items()
        )

    @cached_property
    def ended_well(self) -> bool:
        """Finished, and no process is known to have ended badly or to have waited in vain."""
        return self.finished and self.alive

    def _raised_last(self, traceback: Traceback) -> bool:
        """Neither a step nor a planned end follows this exception in its own log."""
        if traceback.ignored or traceback.chained:
            return False
        reader = self.progress[traceback.line.file]
        finish = reader.finished_at()
        if finish is not None:
            return traceback.line.number > finish
        return not reader.survives(traceback.line.number)

    def survived(self, line: Line) -> bool:
        """The run went on after this line or ended as planned, so the line did not stop it."""
        reader = self.progress[line.file]
        if reader.survives(line.number) or self.ignored(line):
            return True
        if self.ended_well and (reader.finished_at() is not None or self._stands_beside(line.file)):
            return True
        return not reader.trained() and self._passed_elsewhere(line.time)

    def _stands_beside(self, file: str) -> bool:
        """The log is not the run's own, so the run's good end speaks for what it tells; another job's would not.

        A test of the machines that failed is not made good by a run that went well.
        """
        beside = self.role_of(file) not in (Role.RUN, Role.EXPERIMENT)
        return beside and not self.progress[file].trained()

    def lost_at_end(self, line: Line) -> bool:
        """After the last step and before the planned end: nothing shows that it was made good."""
        reader = self.progress[line.file]
        finish, step = reader.finished_at(), reader.last_training()
        if finish is None or step is None or self.ignored(line):
            return False
        return step.number < line.number < finish

    def passed(self, file: str, number: int, time: float | None) -> bool:
        """The run got over what line `number` of any file tells; also of files that are no logs."""
        reader = self.progress.get(file)
        if reader is not None:
            digest = self.digest_of(file)
            text = digest.text_of(number)
            if text is not None:
                return self.survived(make_line(file, number, text, digest.year))
            return reader.survives(number)
        return self.ended_well or self._passed_elsewhere(time)

    def _passed_elsewhere(self, time: float | None) -> bool:
        """Steps in other logs went on after `time`, and nothing there tells of an end.

        Where none of them came before it, many must follow.
        """
        if time is None or not self.alive:
            return False
        for reader in self.progress.values():
            after = reader.steps_after(time)
            if after >= (SURVIVED_STEPS if after < len(reader.step_times()) else BEGUN_STEPS):
                return True
        return False

    @cached_property
    def alive(self) -> bool:
        """Nothing tells that a process ended badly, waited in vain or raised at the end."""
        if any(w.timed_out for w in self.work) or any(map(self._raised_last, self.tracebacks)):
            return False
        return self.bad_end is None

    @cached_property
    def bad_end(self) -> BadEnd | None:
        """The first line after the last step that tells of an end that nobody planned."""
        return find_bad_end(self.digests, self.progress)

    def ignored(self, line: Line) -> bool:
        """The line belongs to an exception that Python only reported while it cleaned up."""
        return line.number in self._ignored.get(line.file, frozenset())

    @cached_property
    def _ignored(self) -> dict[str, frozenset[int]]:
        found: dict[str, set[int]] = defaultdict(set)
        for traceback in self.tracebacks:
            if traceback.ignored:
                found[traceback.line.file].update(range(traceback.start, traceback.line.number + 1))
        return {file: frozenset(numbers) for file, numbers in found.items()}

    def lines_with(self, words: Sequence[str]) -> Iterator[tuple[FileDigest, int, str]]:
        """(log, number, text) of every kept line that holds one of the words; runs without them are not split."""
        for digest in self.digests:
            for run in digest.kept.runs:
                if not run.holds(words):
                    continue
                for number, text in enumerate(run.texts(), run.first):
                    if any(word in text for word in words):
                        yield digest, number, text

    def lines_before(self, line: Line, limit: int) -> Iterator[Line]:
        """Kept lines before `line`, nearest first."""
        digest = self.digest_of(line.file)
        position = digest.position(line.number - 1)
        for number, text in reversed(digest.kept[max(0, position - limit + 1) : position + 1]):
            yield make_line(digest.file, number, text, digest.year)


class _Advances(dict[str, Advance | None]):
    """Read for a log when it is asked for."""

    def __init__(self, progress: Mapping[str, ProgressReader]) -> None:
        super().__init__()
        self._progress = progress

    def __missing__(self, file: str) -> Advance | None:
        self[file] = read_advance(self._progress[file])
        return self[file]


def _speaks_itself(digest: FileDigest) -> bool:
    lines = [text for _, text in digest.kept if text.strip()]
    return 2 * sum(1 for text in lines if text.startswith(">")) < len(lines)
