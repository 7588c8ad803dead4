"""Which rank stands somewhere else than the others, what does it wait for, and where did it part from them?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.log.logs import Logs
from firstfault_tools.log.traceback import is_library
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.stacks.awaited_thread import Helper, find_helper, is_standard, is_worker
from firstfault_tools.stacks.dump import (
    StackFrame,
    ThreadStack,
    looks_like_stacks,
    parse_pasted,
    parse_stacks,
)
from firstfault_tools.stacks.hang_patterns import Standing, classify
from firstfault_tools.stacks.parting import Parting, find_parting

MAX_QUOTES = 12
PASTED_LINES = 4_000
BESIDE = ("(active", "(idle", "(most recent call first)")
_HELPER = expression(r"^(?:_?bootstrap\w*|_worker_loop|_pin_memory_loop|run|worker)$")
_CRASHES = ("segmentation", "abort", "bus error", "floating", "illegal", "stack overflow")


@dataclass(frozen=True, slots=True)
class Group:
    """Processes whose main threads stand in the same frames."""

    threads: tuple[ThreadStack, ...]
    standing: Standing
    helper: Helper | None = None
    """The thread that the first of them waits for, where it is found."""

    @property
    def reason(self) -> Standing:
        """What they wait for in the end: that of the thread they wait for, where it waits for something else."""
        own = self.helper.standing if self.helper is not None else self.standing
        return self.standing if own.pattern is None or own.pattern.of_whom else own

    @property
    def ranks(self) -> tuple[int, ...]:
        """Known ranks, sorted."""
        return tuple(sorted(t.rank for t in self.threads if t.rank is not None))

    @property
    def owners(self) -> str:
        """The processes in words, such as `ranks 0, 2, 3`."""
        ranks = self.ranks
        if len(ranks) == len(self.threads):
            shown = ", ".join(map(str, ranks[:8])) + (" ..." if len(ranks) > 8 else "")
            return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
        return ", ".join(t.owner for t in self.threads[:8])


def recognise(name: str, head: bytes) -> bool:
    """Whether an artefact begins as a stack dump."""
    return looks_like_stacks(head)


def read(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings over the stacks of all processes. Raises `ToolError` where none could be read."""
    threads: list[ThreadStack] = []
    refused: list[ToolError] = []
    for artefact in artefacts:
        try:
            threads.extend(parse_stacks(artefact.data(), artefact.name))
        except ToolError as error:
            refused.append(error)
    if not threads:
        raise refused[0] if refused else UnreadableArtefact("no stack dump was given")
    groups = group_processes(threads)
    rows: list[Json] = [
        {"who": g.owners, "doing": _doing(g.standing), "at": str(_user_frame(g.threads[0]) or "")}
        for g in groups[:64]
    ]
    skipped: list[Json] = [str(error) for error in refused]
    return Reading(tuple(compare(threads, groups)), {"groups": rows, "unreadable": skipped})


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> list[Finding]:
    """Findings over stacks that were pasted into logs, below other output."""
    if any(f.kind.startswith("stacks.") for f in findings):
        return []
    files = {
        d.file: d for d, _, text in islice(incident.lines_with(BESIDE), 64) if "Thread " in text
    }
    threads: list[ThreadStack] = []
    for digest in files.values():
        lines = list(islice(digest.kept, PASTED_LINES))
        numbers = [number for number, _ in lines]
        if numbers != list(range(1, len(numbers) + 1)):
            continue  # lines are left out between: frames could not be told apart
        threads += parse_pasted("\n".join(text for _, text in lines), digest.file)
    threads = [t for t in threads if t.frames]
    if not main_threads(threads):
        return []
    return list(compare(threads, group_processes(threads)))


def main_threads(threads: Iterable[ThreadStack]) -> list[ThreadStack]:
    """The thread of each process that runs the training script; helpers do not decide anything."""
    processes: dict[tuple[str, int | None, int | None], list[ThreadStack]] = defaultdict(list)
    for thread in threads:
        if is_worker(thread):
            continue
        # gdb numbers threads by LWP: all of a file without a rank heading are one process.
        pid = None if thread.native else thread.pid
        processes[(thread.file, thread.rank, pid)].append(thread)
    chosen = []
    for own in processes.values():
        with_frames = [t for t in own if t.frames]
        if with_frames:
            chosen.append(max(with_frames, key=_main_score))
    return chosen


def _main_score(thread: ThreadStack) -> tuple[bool, bool, bool, int]:
    outermost = thread.frames[-1].function
    return (
        thread.thread == "MainThread",
        outermost in ("<module>", "main", "_start", "__libc_start_main"),
        not _HELPER.match(outermost),
        -thread.at if thread.native else thread.at,
    )


def group_processes(threads: Iterable[ThreadStack]) -> list[Group]:
    """Processes grouped by identical main-thread stacks, largest group first."""
    threads = list(threads)
    found: dict[tuple[tuple[str, str, int], ...], list[ThreadStack]] = defaultdict(list)
    for thread in main_threads(threads):
        key = tuple((f.function, f.file.rsplit("/", 1)[-1], f.line) for f in thread.frames)
        found[key].append(thread)
    groups = []
    for own in found.values():
        standing = classify(own[0])
        groups.append(Group(tuple(own), standing, find_helper(own[0], standing, threads)))
    return sorted(groups, key=lambda g: (-len(g.threads), g.threads[0].owner))


def compare(threads: list[ThreadStack], groups: list[Group]) -> list[Finding]:
    """The odd one out first; then crashes that the dump itself reports."""
    findings = [*_crashes(threads)]
    processes = sum(len(g.threads) for g in groups)
    if processes == 1 and not findings:
        findings.append(_single(groups[0]))
    elif processes > 1:
        findings.append(_odd_one_out(groups, processes))
    return findings


def _odd_one_out(groups: list[Group], processes: int) -> Finding:
    victims = [g for g in groups if g.standing.is_victim]
    others = [g for g in groups if not g.standing.is_victim]
    waiting = sum(len(g.threads) for g in victims)
    suspects = [g for g in others if g.standing.pattern is not None] or others
    if victims and others and waiting * 2 >= processes:
        return _odd(min(suspects, key=lambda g: len(g.threads)), victims[0], waiting, certain=True)
    if len(groups) == 1:
        return _together(groups[0], processes)
    if victims and not others:
        return _split(victims, processes)
    smallest = min(suspects, key=lambda g: len(g.threads))
    rest = next(g for g in groups if g is not smallest)
    unusual = smallest.standing.pattern is not None and len(smallest.threads) * 2 <= processes
    if unusual or len(smallest.threads) * 4 <= processes:
        return _odd(smallest, rest, processes - len(smallest.threads), certain=False)
    return _spread(groups, processes)


def _odd(odd: Group, rest: Group, waiting: int, certain: bool) -> Finding:
    reason = odd.reason
    pattern = reason.pattern
    named = pattern is not None and certain
    # whoever holds the interpreter lock while the others wait for it computes in the program's own code
    runs = pattern is None and certain and "gil" in odd.threads[0].state
    parting = find_parting(odd.threads[0], rest.threads[0])
    ranks = odd.ranks
    return Finding(
        kind=f"stacks.{pattern.id}" if pattern else "stacks.odd_one_out",
        title=_tell_odd(odd, rest, waiting, certain, parting),
        level=Level.CAUSE if named else Level.FAILURE,
        category=reason.category if pattern else Category.CODE_BUG if runs else None,
        confidence=Confidence.LIKELY if named or runs else Confidence.POSSIBLE,
        evidence=_quote_both(odd, rest, parting),
        rank=ranks[0] if ranks else None,
        host=odd.threads[0].host,
        page=reason.page if pattern else "hang-patterns",
        facts={
            "odd_ranks": list(ranks[:64]),
            "processes": waiting + len(odd.threads),
            "pid": odd.threads[0].pid,
            **_parted(parting, odd, rest),
        },
    )


def _tell_odd(odd: Group, rest: Group, waiting: int, certain: bool, parting: Parting | None) -> str:
    """Who, what it waits for in the end, where it parted from the others, and what these do."""
    runs = odd.standing.pattern is None and certain and "gil" in odd.threads[0].state
    doing = "runs Python code and holds the interpreter lock" if runs else _doing(odd.standing)
    helper, rest_of = odd.helper, "other" if waiting == 1 else "others"
    if helper is None:
        # where nothing else is known of it, its line is what there is to look at
        known = parting if odd.standing.pattern is not None else None
        told = f"{odd.owners} {doing}{_at(odd.threads[0], known)}"
    else:
        inside = helper.standing.phase is not odd.standing.phase
        told = f"{odd.owners} {doing}, and {helper.name} {_doing(helper.standing, inside=inside)}{_at(helper.thread)}"
    if parting is not None:
        told += f"{'; it' if helper is not None else ' and'} parted from the {rest_of} in {parting.place}"
    if certain:
        told += " and" if parting is not None and helper is not None else "; it"
        wait = "waits" if waiting == 1 else "wait"
        told += (
            f" has not entered the collective in which {waiting} {rest_of} ({rest.owners}) {wait}"
        )
    else:
        told += f"; {waiting} {rest_of} ({rest.owners}) {_doing(rest.standing, many=waiting != 1)}"
    pattern = odd.reason.pattern
    return f"{told}; {pattern.note}" if pattern is not None and pattern.note else told


def _parted(parting: Parting | None, odd: Group, rest: Group) -> dict[str, Json]:
    return {"parted": parting.to_json(odd.ranks, rest.ranks)} if parting is not None else {}


def _quote_both(odd: Group, rest: Group, parting: Parting | None) -> tuple[Evidence, ...]:
    """What the odd one waits for in the end first, then the others, with the frames in which they parted."""
    quotes = [*_quotes(odd.helper.thread, limit=6)] if odd.helper is not None else []
    quotes += _quotes(odd.threads[0], limit=6 if odd.helper is not None else 8)
    quotes += _quotes(rest.threads[0], limit=4)
    if parting is not None:
        sides = ((odd.threads[0], parting.here), (rest.threads[0], parting.there))
        quotes += [_quote(thread, frame) for thread, frame in sides]
    last = 2 if parting is not None else 0
    chosen = dict.fromkeys([*quotes[: MAX_QUOTES - last], *quotes[len(quotes) - last :]])
    return tuple(chosen)


def _together(group: Group, processes: int) -> Finding:
    pattern = group.standing.pattern
    if pattern is not None and pattern.nobody_among_us:
        return Finding(
            kind=f"stacks.{pattern.id}",
            title=f"every one of {processes} processes {pattern.says}: none of them holds it, so the lock is stale or held "
            "elsewhere, and no rank stands out",
            level=Level.CAUSE,
            category=pattern.category,
            page=pattern.page,
            evidence=_quotes(group.threads[0]),
        )
    return Finding(
        kind="stacks.same_place",
        title=(
            f"all {processes} processes stand in the same frames ({_doing(group.standing)}): the "
            "stacks single out no rank"
        ),
        level=Level.CONTEXT,
        confidence=Confidence.CONFIRMED,
        page=group.standing.page,
        evidence=_quotes(group.threads[0]),
    )


def _split(victims: list[Group], processes: int) -> Finding:
    if any(g.standing.pattern is not None and g.standing.pattern.apart for g in victims):
        return _spread(victims, processes)
    most, odd = victims[0], victims[-1]
    if len(odd.threads) == len(most.threads) and not _operation(odd):
        most, odd = odd, most
    single = len(odd.threads) == 1 and len(most.threads) > 1
    parting = find_parting(odd.threads[0], most.threads[0])
    if parting is not None and _operation(odd) == _operation(most):
        if parting.calls_here == parting.calls_there:
            return _spread(victims, processes)  # one of them is ahead in the same calls
    elif parting is not None and len(victims) == 2:
        return _mismatch(odd, most, parting, single)
    places = "; ".join(f"{g.owners} at {_place(g.threads[0])}" for g in victims[:6])
    if parting is not None:
        places += f"; they parted in {parting.place}"
    quotes = tuple(q for g in victims[:6] for q in _quotes(g.threads[0], limit=3))
    return Finding(
        kind="stacks.different_collectives",
        title=f"the {processes} processes wait in different collectives: {places}",
        level=Level.FAILURE,
        category=Category.CODE_BUG,
        confidence=Confidence.LIKELY if single else Confidence.POSSIBLE,
        evidence=quotes[:MAX_QUOTES],
        rank=odd.ranks[0] if single and odd.ranks else None,
        facts=_parted(parting, odd, most),
    )


def _operation(group: Group) -> str:
    """The collective by name, '' where they only wait for their GPU or go back through the model."""
    pattern, frame = group.standing.pattern, group.standing.frame
    return frame.function if pattern is not None and pattern.id == "collective" and frame else ""


def _mismatch(odd: Group, most: Group, parting: Parting, single: bool) -> Finding:
    """Two collectives, reached from two lines of one function: only some ranks take one of its branches."""
    certain = single and bool(_operation(odd)) and bool(_operation(most))
    phase = odd.standing.phase
    others = f"{len(most.threads)} other{'s' * (len(most.threads) != 1)}" if single else most.owners
    into = f" below {parting.calls_here}" if parting.calls_here not in ("", _operation(odd)) else ""
    title = (
        f"{odd.owners} {_doing_at(odd)}{into}, {others} {_doing_at(most, len(most.threads) > 1)}, "
        f"parted in {parting.place}; collectives of a branch that only some ranks enter do not match"
    )
    return Finding(
        kind="stacks.collective_in_branch" if single else "stacks.different_collectives",
        title=title,
        level=Level.CAUSE if certain else Level.FAILURE,
        category=Category.CODE_BUG,
        confidence=Confidence.LIKELY if single else Confidence.POSSIBLE,
        evidence=_quote_both(odd, most, parting),
        rank=odd.ranks[0] if single and odd.ranks else None,
        host=odd.threads[0].host if single else None,
        page=phase.branch_page if single and phase is not None else None,
        facts={
            **_parted(parting, odd, most),
            **({"odd_ranks": list(odd.ranks), "pid": odd.threads[0].pid} if single else {}),
        },
    )


def _doing_at(group: Group, many: bool = False) -> str:
    """What a group waits in, by the name of the collective where it has one."""
    name = _operation(group)
    if name:
        return f"wait{'s' * (not many)} in {name}"
    return _doing(group.standing, many)


def _spread(groups: list[Group], processes: int) -> Finding:
    places = "; ".join(f"{g.owners} {_doing(g.standing)}" for g in groups[:6])
    return Finding(
        kind="stacks.undecided",
        title=f"the {processes} processes stand in {len(groups)} different places: {places}",
        level=Level.CONTEXT,
        confidence=Confidence.UNKNOWN,
        evidence=tuple(q for g in groups[:4] for q in _quotes(g.threads[0], limit=3))[:MAX_QUOTES],
    )


def _single(group: Group) -> Finding:
    thread = group.threads[0]
    return Finding(
        kind="stacks.one_process",
        title=f"{thread.owner} {_doing(group.standing)} at {_place(thread) or 'no Python frame'}",
        level=Level.CONTEXT,
        category=group.standing.category,
        confidence=Confidence.POSSIBLE,
        evidence=_quotes(group.threads[0]),
        rank=thread.rank,
        facts={
            "next": "dump the other ranks too: only beside them does one stack mean something",
            "explains": {"stalled": 0.9},
        },
    )


def _crashes(threads: list[ThreadStack]) -> list[Finding]:
    findings = []
    told: set[tuple[str, int | None]] = set()
    for thread in threads:
        if not thread.fatal or (thread.file, thread.rank) in told:
            continue
        if not any(word in thread.fatal.lower() for word in _CRASHES):
            continue
        own = [t for t in threads if (t.file, t.rank) == (thread.file, thread.rank)]
        current = next((t for t in own if t.state == "current"), thread)
        told.add((thread.file, thread.rank))
        at = _place(current)
        findings.append(
            Finding(
                kind="stacks.fatal_error",
                title=f"{thread.owner} died of {thread.fatal}" + (f" at {at}" if at else ""),
                level=Level.FAILURE,
                category=Category.CODE_BUG,
                evidence=_quotes(current),
                rank=thread.rank,
                host=thread.host,
                facts={"error": thread.fatal},
            )
        )
    return findings


def _doing(standing: Standing, many: bool = False, inside: bool = True) -> str:
    if standing.pattern is None:
        return "stand elsewhere" if many else "stands elsewhere"
    says = standing.says if inside else standing.pattern.says
    if not many:
        return says
    first, _, rest = says.partition(" ")
    plural = {"is": "are", "waits": "wait", "reads": "read", "sleeps": "sleep"}
    return f"{plural.get(first, first)} {rest}".strip()


def _user_frame(thread: ThreadStack) -> StackFrame | None:
    for frame in thread.frames:
        if frame.file and not is_library(frame.file):
            return frame
    return thread.frames[0] if thread.frames else None


def _caller(thread: ThreadStack) -> StackFrame | None:
    """The innermost frame of the program's own code; where that only starts the program, the innermost of a package.

    py-spy prints what lies in no package without a folder.
    """
    frames = [f for f in thread.frames if f.file and not is_standard(f.file)]
    own = [f for f in frames if not is_library(f.file)]
    found = next((f for f in own if "/" not in f.file), own[0] if own else None)
    if found is None or found.function == "<module>":
        return frames[0] if frames else None
    return found


def _place(thread: ThreadStack) -> str:
    """The frame that the program itself stands in: below it lie only Python's own modules."""
    frame = _user_frame(thread)
    if frame is not None and is_standard(frame.file):
        frame = _caller(thread) or frame
    return str(frame or "")


def _at(thread: ThreadStack, parting: Parting | None = None) -> str:
    """Its place; the function alone where the line that calls it is told beside it."""
    place = _place(thread)
    function = place.partition(" (")[0]
    short = parting is not None and parting.calls_here == function
    return f" at {function if short else place}" if place else ""


def _quote(thread: ThreadStack, frame: StackFrame) -> Evidence:
    return Evidence(
        thread.file, frame.at, frame.text or str(frame), rank=thread.rank, host=thread.host
    )


def _quotes(thread: ThreadStack, limit: int = 8) -> tuple[Evidence, ...]:
    # the frame says where it stands; the heading above it only which thread it is
    lines = [(frame.at, frame.text or str(frame)) for frame in thread.frames[: limit - 1]]
    lines.insert(1, (thread.at, thread.heading))
    return tuple(
        Evidence(thread.file, number, text, rank=thread.rank, host=thread.host)
        for number, text in lines
    )


SIGNS = (
    '"owns_gil"',
    "most recent call first",
    "Fatal Python error",
    "Timeout (",
    "Python v",
    "LWP",
    "(idle",
    "(active",
)

READER = Reader(
    name="stacks",
    summary="py-spy, faulthandler and gdb stacks: the rank that stands elsewhere, and why",
    recognise=recognise,
    read=read,
)
