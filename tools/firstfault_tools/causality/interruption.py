"""Did a person stop the run, and did it stand still before? Ctrl-C is how a hang ends, never why it began.

Every rank that gets the signal prints where it stood, so the interrupted stacks are a comparison of
ranks for free: all in one place wait for something outside Python, one elsewhere holds the others up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise

from firstfault_tools.averages import median
from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.traceback import Frame, Traceback

PAGE = "collective-timeout"
PAGE_BY_HAND = "torchrun-signals"
STEPS_LOOKED_AT = 40
STILL_STEPS, STILL_S = 10.0, 60.0
"""A pause of so many usual steps, and of so many seconds, is a stand-still."""

GOING_STEPS, GOING_S = 1.5, 3.0
"""No longer than so many usual steps and so many seconds: the steps went on."""

FEWEST_STACKS = 3
_HELPER = expression(
    r"_worker_loop|elastic/|torch/distributed/(?:run|launch)|multiprocessing/(?:process|spawn|popen)|launcher"
)
_DEAF = expression(r"Unable to shutdown process (\d+) via")
_DATA = expression(r"dataloader|dataset|utils/data/|/queues?\.py|fetch|collat|tokeniz")
_CHECKPOINT = expression(r"checkpoint|serialization|safetensors|save_pretrained|state_dict")


@dataclass(frozen=True, slots=True)
class _Stack:
    rank: int
    frame: Frame
    line: Line

    @property
    def place(self) -> str:
        file = self.frame.path.rsplit("/", 1)[-1]
        return f"{file}:{self.frame.line}" + (f" in {self.frame.name}" if self.frame.name else "")


@dataclass(frozen=True, slots=True)
class _Pause:
    """Seconds between the last step and the signal, those of a usual step, and the counter of the last step."""

    seconds: float | None = None
    usual: float | None = None
    step: int | None = None

    @property
    def is_still(self) -> bool:
        """The run stood before it was stopped."""
        most = max(STILL_S, STILL_STEPS * (self.usual or 0.0))
        return self.seconds is not None and self.seconds > most

    @property
    def is_usual(self) -> bool:
        """Steps went on until the run was stopped."""
        if self.seconds is None or self.usual is None:
            return False
        return self.seconds <= GOING_STEPS * self.usual + GOING_S


def read_interruption(incident: LogIncident) -> Finding | None:
    """Finding about a run that a person stopped, or None where nobody did."""
    lines = _interrupts(incident)
    if not lines:
        return None
    first = lines[0]
    pause = _pause_before(incident, first)
    stacks = _stacks(incident)
    groups = Counter(s.place for s in stacks)
    odd = _odd_one(stacks, groups)
    going = pause.is_usual and odd is None
    deaf = _count_deaf(incident, first)
    title = f"{_tell_pause(pause, going)}{_describe_stacks(stacks, groups, odd)}"
    if deaf:
        title += f"; {deaf} process{'es' if deaf > 1 else ''} did not even answer the signal and stood outside Python"
    if odd is None and not going:
        title += "; the interrupt ended it and is not why it stood still: that is not in these logs"
    others = [s for s in stacks if s is not odd]
    told = [first, *(s.line for s in ([odd] if odd is not None else []) + others)]
    found = Finding(
        kind="run.interrupted",
        title=title,
        level=Level.SYMPTOM,
        category=None,
        confidence=Confidence.POSSIBLE,
        evidence=tuple(line.evidence() for line in told[:4]),
        time=first.time,
        page=PAGE,
        facts={"pause_s": pause.seconds, "step": pause.step, "survived": False},
    )
    if going:
        return replace(
            found,
            level=Level.CAUSE,
            category=Category.SCHEDULER,
            confidence=Confidence.LIKELY,
            page=PAGE_BY_HAND,
        )
    if odd is not None:
        return replace(
            found,
            level=Level.FAILURE,
            category=_category(odd),
            confidence=Confidence.LIKELY,
            rank=odd.rank,
        )
    return found


def _tell_pause(pause: _Pause, going: bool) -> str:
    """That somebody stopped the run, and how long after which step."""
    title = "the run was stopped by hand (SIGINT, Ctrl-C)"
    title += f" after step {pause.step}" if pause.step is not None else ""
    if pause.seconds is not None and pause.is_still:
        return title + f", {_duration(pause.seconds)} after its last step: it stood still before"
    return title + (" while its steps went on as before" if going else "")


def _interrupts(incident: LogIncident) -> list[Line]:
    interrupts = incident.signatures.with_role(FindingRole.INTERRUPT)
    lines = [h.line for d in incident.digests for h in d.hits if h.index in interrupts]
    lines += [t.line for t in incident.tracebacks if t.short_type == "KeyboardInterrupt"]
    live = [line for line in lines if not incident.survived(line)]
    return sorted(live, key=lambda line: (line.file, line.number))


def _pause_before(incident: LogIncident, line: Line) -> _Pause:
    reader = incident.progress[line.file]
    steps = [p for p in islice(reader.before(line.number), 4 * STEPS_LOOKED_AT) if p.training]
    if not steps:
        return _Pause()
    counter = next((p.counter for p in steps if p.counter is not None), None)
    stamps = [t for p in steps[:STEPS_LOOKED_AT] if (t := reader.line(p).time) is not None]
    when = line.time or next((t for t in _later_times(incident, line)), None)
    usual = None
    if len(stamps) >= 3:
        usual = median(a - b for a, b in pairwise(stamps))
    pause = when - stamps[0] if when is not None and stamps and when >= stamps[0] else None
    return _Pause(pause, usual, counter)


def _count_deaf(incident: LogIncident, line: Line) -> int:
    """Processes that torchrun had to kill because the signal did not end them."""
    rows = incident.digest_of(line.file).lines_after(line.number, 4_000)
    found = (_DEAF.search(text) for _, text in rows if "Unable to shutdown" in text)
    return len({match[1] for match in found if match is not None})


def _later_times(incident: LogIncident, line: Line) -> list[float]:
    from firstfault_tools.log.scan import make_line

    digest = incident.digest_of(line.file)
    rows = digest.lines_after(line.number, 20)
    return [
        t for number, text in rows if (t := make_line(digest.file, number, text, digest.year).time)
    ]


def _stacks(incident: LogIncident) -> list[_Stack]:
    found: dict[int, _Stack] = {}
    for traceback in incident.tracebacks:
        if traceback.short_type != "KeyboardInterrupt" or not traceback.frames:
            continue
        if any(_HELPER.search(f"{f.path} {f.name}") for f in traceback.frames):
            continue
        rank = rank_of(incident, traceback.line)
        if rank is not None and rank not in found:
            found[rank] = _Stack(rank, _telling_frame(traceback), traceback.line)
    return [found[rank] for rank in sorted(found)]


def _telling_frame(traceback: Traceback) -> Frame:
    return traceback.frames[-1]


def _odd_one(stacks: Sequence[_Stack], groups: Counter[str]) -> _Stack | None:
    if len(stacks) < FEWEST_STACKS or len(groups) != 2:
        return None
    (_, most), (rare, count) = groups.most_common()
    if count != 1 or most < FEWEST_STACKS - 1:
        return None
    return next(s for s in stacks if s.place == rare)


def _describe_stacks(stacks: Sequence[_Stack], groups: Counter[str], odd: _Stack | None) -> str:
    if len(stacks) < 2:
        return ""
    if odd is not None:
        usual = groups.most_common(1)[0][0]
        return f"; rank {odd.rank} stood at {odd.place} while the other {len(stacks) - 1} ranks stood at {usual}"
    if len(groups) == 1:
        return f"; all {len(stacks)} ranks stood at the same place, {stacks[0].place}, so no rank stands out"
    shown = ", ".join(f"{n} at {place}" for place, n in groups.most_common(3))
    return f"; ranks stood {shown}"


def _category(odd: _Stack) -> Category:
    place = odd.frame.path.lower()
    if _CHECKPOINT.search(place):
        return Category.CHECKPOINT
    return Category.DATA if _DATA.search(place) else Category.CODE_BUG


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
