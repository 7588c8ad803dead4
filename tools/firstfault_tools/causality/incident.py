"""What do all logs of an incident say together? One object for the analysers of this room."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from firstfault_tools.causality.progress import SURVIVED_STEPS, ProgressReader
from firstfault_tools.causality.seats.roster import Roster, read_roster
from firstfault_tools.causality.seats.seating import Seating, read_seating
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import FileDigest, Line, Mark
from firstfault_tools.log.exits import Exit, read_exits
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.signature import SignatureSet
from firstfault_tools.log.traceback import Traceback, read_tracebacks
from firstfault_tools.log.work import WorkReport, read_work

if TYPE_CHECKING:
    from firstfault_tools.causality.seats.gpu_seats import GpuSeats

_WORLD = expression(
    r"(?i)(?:world[_ ]?size|world)['\"]?\s*(?:\.{2,}|[:=]|is)?\s*(\d{1,6})\b|nranks (\d{1,6})\b|using world size: (\d+)"
)
_MORE = expression(
    r"(?i)--num[_-]gpus['\",]*[= ]+['\"]?(\d{1,4})\b|num[_-]processes['\"]?\s*[:= ]\s*['\"]?(\d{1,6})\b|\bprocess \d{1,6}/(\d{1,6})\b"
)
_LOCAL = expression(r"--local[-_]rank[= ](\d{1,3})\b")
_LAUNCH = expression(r"--nnodes[= ](\d+)")
_PER_NODE = expression(r"--nproc[_-]per[_-]node[= ](\d+)")
MOST_GPUS = 16
"""GPUs of the largest host with one process for each."""


LABELLED_LINES = 400
"""First lines of each log in which labels of workers are looked for."""
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
        """Condition patterns that matched some line of the incident."""
        names = self.signatures.conditions
        return frozenset(names[i] for d in self.digests for i in d.conditions)

    @cached_property
    def world_size(self) -> int | None:
        """Number of ranks of the job where the logs say it: the largest figure they give."""
        sizes = [0]
        for digest in self.digests:
            for number in digest.marked.get(Mark.WORLD, ()):
                text = self.text_of(digest, number) or ""
                sizes += [int(g) for m in _WORLD.finditer(text) for g in m.groups() if g]
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
                text = self.text_of(digest, number) or ""
                if any(int(g) > 1 for m in _MORE.finditer(text) for g in m.groups() if g):
                    return True
                if any(int(m[1]) > 0 for m in _LOCAL.finditer(text)):
                    return True
        # an actor of Ray is one of several, and the program that called it is no rank
        return any(_RAY_ACTOR.match(t) for _, _, t in self.lines_with(("Worker pid=", "Actor pid=", "Dict pid=", "Runner pid=", "_task pid=")))  # fmt: skip

    @cached_property
    def ranks_seen(self) -> frozenset[int]:
        """Ranks that wrote at least one line anywhere."""
        seen = {r for d in self.digests for r in d.ranks}
        seen |= {d.name_rank for d in self.digests if d.name_rank is not None}
        seen |= {w.rank for w in self.work}
        return frozenset(seen)

    @cached_property
    def tasks_are_ranks(self) -> bool:
        """srun labels are ranks: one process a task, and no launcher of its own inside a task."""
        speakers = [h.line.speaker for d in self.digests for h in d.hits]
        both = [s for s in speakers if s.task is not None and s.rank is not None]
        if any(s.task != s.rank for s in both) or any(e.local_rank is not None for e in self.exits):
            return False
        labels = {s.task for s in speakers if s.task is not None}
        return bool(both) or len(labels) > 1 or any(e.task in labels for e in self.exits if e.task)

    @cached_property
    def label_ranks(self) -> dict[str, int]:
        """Ranks by the numbered labels of workers (`[worker-1]`), where each is one process and no line tells a rank."""
        if self.ranks_seen:
            return {}
        from firstfault_tools.causality.seats.pods import label_of, rank_of_ordinal

        heads = (t for d in self.digests for _, t in d.kept[:LABELLED_LINES])
        names = {name for t in heads if (name := label_of(t)) is not None}
        if len(names) < 2:
            return {}
        told = {name: rank_of_ordinal(self, name) for name in names}
        return {name: rank for name, rank in told.items() if rank is not None}

    @cached_property
    def locals_are_ranks(self) -> bool:
        """`host:N` labels count over the whole job: N is beyond the GPUs of any host, or is the rank told."""
        speakers = [h.line.speaker for d in self.digests for h in d.hits]
        speakers += [t.line.speaker for t in self.tracebacks]
        labels = [s for s in speakers if s.host is not None and s.local_rank is not None]
        both = [s for s in labels if s.rank is not None]
        if any(s.rank != s.local_rank for s in both):
            return False
        return any((s.local_rank or 0) >= MOST_GPUS for s in labels)

    @cached_property
    def roster(self) -> Roster:
        """Which process is which rank, from all logs."""
        lines = (line for d in self.digests for line in d.marked_lines(Mark.SEAT))
        return read_roster(lines, self.exits)

    @cached_property
    def seating(self) -> Seating:
        """Ranks by host, GPU and pod, put together from all logs."""
        return read_seating(self.digests, self.roster, self.world_size)

    @cached_property
    def gpu_seats(self) -> GpuSeats:
        """Ranks by PCI address and pid, put together from listings; read only where a fault names one."""
        from firstfault_tools.causality.seats.gpu_seats import GpuSeats

        return GpuSeats(self)

    @cached_property
    def hosts_seen(self) -> frozenset[str]:
        """Hosts named by prefixes of interesting lines."""
        hosts = {h.line.speaker.host for d in self.digests for h in d.hits}
        return frozenset(h for h in hosts if h is not None)

    def digest_of(self, file: str) -> FileDigest:
        return next(d for d in self.digests if d.file == file)

    def text_of(self, digest: FileDigest, number: int) -> str | None:
        """Kept text of one line, or None where it was not kept."""
        position = digest.position(number)
        if position < 0 or digest.kept[position][0] != number:
            return None
        return digest.kept[position][1]

    @cached_property
    def own_words(self) -> frozenset[str]:
        """Logs of which the smaller part is marked as quoted (`> ...`)."""
        return frozenset(d.file for d in self.digests if _speaks_itself(d))

    @cached_property
    def finished(self) -> bool:
        """Some log says that the training ended as planned, and no step follows in it."""
        return any(reader.finished_at() is not None for reader in self.progress.values())

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
        if self.ended_well and (reader.finished_at() is not None or not reader.trained()):
            return True
        return not reader.trained() and self._passed_elsewhere(line.time)

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
            text = self.text_of(digest, number)
            if text is not None:
                return self.survived(make_line(file, number, text, digest.year))
            return reader.survives(number)
        return self.ended_well or self._passed_elsewhere(time)

    def _passed_elsewhere(self, time: float | None) -> bool:
        """Steps in other logs went on before and after `time`, and nothing there tells of an end."""
        if time is None or not self.alive:
            return False
        for reader in self.progress.values():
            times = reader.step_times()
            after = len(times) - bisect_right(times, time)
            if 0 < after < len(times) and after >= SURVIVED_STEPS:
                return True
        return False

    @cached_property
    def alive(self) -> bool:
        """Nothing tells that a process ended badly, waited in vain or raised at the end."""
        from firstfault_tools.causality.ending import find_bad_end

        if any(w.timed_out for w in self.work) or any(map(self._raised_last, self.tracebacks)):
            return False
        return find_bad_end(self) is None

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


def _speaks_itself(digest: FileDigest) -> bool:
    lines = [text for _, text in digest.kept if text.strip()]
    return 2 * sum(1 for text in lines if text.startswith(">")) < len(lines)
