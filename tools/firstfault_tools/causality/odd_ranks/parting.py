"""Where did the ranks part: did one stop, skip or run out of data while the others went on?

A collective waits for ever if one rank leaves the loop. The timeout names who waited; what parted them
stands in ordinary lines before it: a stop that one rank alone announces, beside a later epoch or step of
another rank, or counters that ended apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.minority import begin_sentence
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Evidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.scan import make_line

ALONE_LINES = 12
_ALONE = expression(
    r"(?i)\b(?:evaluat\w+|comput\w+) .{0,40}\b(?:coco|metrics?|mAP|bleu|fid|predictions|results|official)\b|\bmain process\b|"
    r"\b(?:running|evaluate) (?:per image evaluation|annotation type)|\brunning tokenizer\b|\b(?:render|plott?|export|upload|zipp?|merg|convert|pack)ing\b"
)
"""Work that programs give to one process."""

_PHASE = expression(
    r"(?i)\b(?:activat\w+|switch(?:ing|ed)|enabl\w+|rebuild\w*|reload\w*|unfreez\w+)\b.{0,30}\b(?:data ?sets?|data ?loaders?|backends?|phase|stage|"
    r"curriculum|resolutions?|buckets?|layers?|backbone|encoder|optimizer)"
)
"""A change of what the ranks run, after which they may no longer run the same."""

MOST_LINES, LEAST_TAIL = 1_200, 60
"""Last lines looked at over all logs, and of each log at least."""
MOST_RANKS = 64
APART = 2
"""Steps by which printed counters must differ: one is the delay of printing."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A way to leave the loop that all ranks share."""

    name: str
    words: re.Pattern[str]
    category: Category
    page: str
    means: str

    @property
    def for_good(self) -> bool:
        """Who says so takes no further step."""
        return self.name in ("stop", "data", "end")


_LEAVINGS = (
    Leaving(
        "stop",
        expression(
            r"(?i)\bearly[- _]?stop|\bstopp(?:ing|ed) (?:early|training|at|after|because|here)|\bshould_(?:training_)?stop\b.{0,9}True|"
            r"\b(?:has(?:n't| not)|did(?:n't| not)) improved?\b|\bno improvement\b|limit_to_stop|\bpatience\b.{0,40}\b(?:reached|exceeded|exhausted|over)|"
            r"\btime (?:limit|budget) (?:reached|exceeded)|\b(?:breaking|break) out of|\bleaving the (?:training )?loop|\btarget \w+ reached|\bmax(?:imum)?[_ ]\w+ reached"
        ),
        Category.CODE_BUG, "collective-divergence",
        "the decision to stop was not shared with the other ranks, which went on and waited in the next collective",
    ),
    Leaving(
        "data",
        expression(
            r"(?i)\bexhausted\b|\bStopIteration\b|\bout of (?:data|batches|samples)\b|\bno more (?:data|batches|samples)\b|"
            r"\b(?:epoch|data ?loader|dataset|iterator|shard)s?\b.{0,24}\b(?:finished|done|complete[d]?|ended|over)\b|\bend of (?:epoch|data|dataset|shard)"
        ),
        Category.DATA, "uneven-data-across-ranks",
        "it had fewer batches than the other ranks, which waited for it in the next collective: uneven data across ranks",
    ),
    Leaving(
        "skip",
        expression(
            r"(?i)\bskip(?:ping|ped|s)?\b.{0,40}\b(?:batch|step|update|backward|iteration|sample|reduc\w+|sync\w*)|"
            r"\b(?:batch|step|update|sample)\b.{0,40}\bskipp(?:ed|ing)|\b(?:caught|ignoring|swallow\w+)\b.{0,40}\b(?:exception|error|oom)|\bcontinu(?:e|ing) with (?:the )?next\b"
        ),
        Category.CODE_BUG, "collective-divergence",
        "it left out a step whose collectives the other ranks entered, so the ranks were no longer in the same collective",
    ),
    Leaving(
        "branch",
        expression(
            r"(?i)\bnew best\b|\bsav(?:e|ing|ed)\b.{0,40}\b(?:model|checkpoint|ckpt|weights|state)|\bbest \w+ (?:so far|improved)|"
            r"\b(?:start\w*|begin\w*|running|enter\w*) (?:the )?(?:validation|evaluation|eval|test)\b|\b(?:validat\w+|evaluat\w+|testing) (?:epoch|at|after|step)"
        ),
        Category.CODE_BUG, "collective-divergence",
        "the ranks took different branches, so the collectives of that branch were entered by a part of them only",
    ),
    Leaving(
        "end",
        expression(
            r"(?i)\b(?:training|train|run|fit|finetuning)\b.{0,20}\b(?:finished|completed?|done|ended)\b|"
            r"\b(?:exiting|returning from|left) (?:the )?(?:main|train\w*|loop|worker|process)\b|"
            r"\b(?:saving|saved) final\b"
        ),
        Category.CODE_BUG, "collective-divergence",
        "it ended while the other ranks went on and waited in the next collective",
    ),
)  # fmt: skip
_WORDS = (
    "top", "patience", "improve", "reached", "xhausted", "ut of ", "o more ", "inished", "one", "omplete", "nded",
    "nd of ", "kip", "aught", "gnoring", "ontinu", "xiting", "break", "final", "best", "sav", "Sav", "alidat", "valuat",
    "esting", "eval",
)  # fmt: skip
_COUNTER = expression(
    r"(?i)\b(?P<unit>global_step|step|iter(?:ation)?|batch)s?(?:_idx)?\b['\"]?[ :=#\[(]{0,4}(?P<at>\d{1,9})\b|"
    r"(?<![\d./:])(?P<told>\d{1,9}) ?(?P<of>batch|step|iteration)(?:e?s)?\b(?!/)"
)
_EPOCH = expression(r"(?i)\bepoch['\"]?[ :=#\[(]{0,4}(?P<at>\d{1,6})\b")
_COUNTED = ("epoch", "Epoch", "EPOCH", "step", "Step", "iter", "Iter", "batch", "Batch")
_LABELS = expression(r"\[[Rr]ank[ :=_]{0,2}(\d{1,6})\]")
_ABOUT = expression(r"\b(?:[Rr]ank|RANK|[Pp]rocess|[Pp]roc)[ :=#_]{0,2}(\d{1,5})\b")
_IN_STEP = expression(
    r"nn/parallel/|/autograd/|/optim/|distributed/fsdp|deepspeed/runtime|megatron/core"
)
_OPERATION = expression(r"\bOpType=(\w{1,40})")
_NOT_SAID = expression(
    r"ProcessGroup|NCCL (?:INFO|WARN)|[Ww]atchdog|\bwhat\(\)|ChildFailed|Traceback"
)


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The rank that left the common loop, the one rank that stayed in it, or the one that fell silent."""
    found = _find_parted(incident, findings)
    if found or not any(f.level is Level.SYMPTOM or "slurm" in f.kind for f in findings):
        return found
    # read only where somebody waited or was stopped: a short log that crashed needs none of it
    from firstfault_tools.causality.odd_ranks.silence import find_silent

    return find_silent(incident, findings)


def _find_parted(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    if not _waited(findings):
        return []
    from firstfault_tools.causality.odd_ranks.guards import find_guarded

    guarded = find_guarded(incident)
    if guarded is not None:
        return [guarded]
    alone = _find_alone(incident, findings)
    if alone is not None:
        return [alone]
    counts = list(_counters(incident))
    if not 2 <= len({rank for rank, *_ in counts}) <= MOST_RANKS:
        return []
    found = _find_leaving(incident, counts) or _find_apart(counts)
    return [found] if found is not None else []


def _find_alone(incident: LogIncident, findings: Sequence[Finding]) -> Finding | None:
    """The work of one process that was announced last before the others gave up waiting."""
    first = _first_wait(incident, findings)
    if first is None:
        return None
    digest = incident.digest_of(first.file)
    at = digest.position(first.line)
    for number, text in reversed(digest.kept[max(0, at - ALONE_LINES) : at]):
        if not text.strip() or _NOT_SAID.search(text):
            continue
        if (_COUNTER.search(text) or _EPOCH.search(text)) and "loss" in text:
            return None
        if _PHASE.search(text) is not None:
            return _tell_phase(Place(digest, number, text))
        if _ALONE.search(text) is not None:
            return _tell_alone(incident, Place(digest, number, text))
    return None


def _first_wait(incident: LogIncident, findings: Sequence[Finding]) -> Evidence | None:
    """Where somebody first gave up waiting, if all waits stand in one log."""
    logs = {digest.file for digest in incident.digests}
    waits = [
        f.evidence[0]
        for f in findings
        if f.level is Level.SYMPTOM
        and f.evidence
        and f.evidence[0].file in logs  # a dump may tell of the wait, and has no lines before it
        and not f.survived
    ]
    return min(waits, key=lambda e: e.line) if len({e.file for e in waits}) == 1 else None


def _tell_phase(line: Place) -> Finding:
    about = Category.DATA if "data" in line.text.lower() else Category.CODE_BUG
    title = (
        f"the run changed right before it stood still ({_say(line)!r}), and from then on not all ranks came to the "
        "collectives of the next step: what is switched on there is not entered by all ranks alike"
    )
    return _describe("ranks.phase", title, about, "collective-divergence", None, (line,))


def _tell_alone(incident: LogIncident, line: Place) -> Finding:
    rank = _rank_told(incident, line)
    who = f"rank {rank}" if rank is not None else "one process (the main one, by what it says)"
    title = (
        f"{who} was busy alone when the others gave up waiting in a collective: the last work announced was "
        f"{_say(line)!r}; work that only one rank does must be shorter than the timeout, or be shared"
    )
    return _describe("ranks.alone", title, Category.CODE_BUG, "rank-zero-work", None, (line,))


def _waited(findings: Sequence[Finding]) -> bool:
    """Somebody waited in vain, and nothing but consequences of that is known to have failed."""
    live = [f for f in findings if not f.survived]
    deep = [f for f in live if f.level in (Level.CAUSE, Level.FAILURE)]
    if not all(_follows(f) for f in deep):
        return False
    return any(f.level is Level.SYMPTOM and f.category is not Category.PERFORMANCE for f in live)


def _follows(finding: Finding) -> bool:
    """A consequence of ranks that parted: also collectives that differ, where none is the odd one."""
    apart = finding.kind == "collective.mismatch" and finding.rank is None
    return apart or finding.has(FindingRole.CONSEQUENCE)


@dataclass(frozen=True, slots=True)
class Place:
    """One line of a log; its speaker and time are read only where they are asked for."""

    digest: FileDigest
    number: int
    text: str

    def line(self) -> Line:
        """The log line with speaker and time."""
        return make_line(self.digest.file, self.number, self.text, self.digest.year)


Count = tuple[int, Place, str, int]
"""(rank, place, unit, value)."""


def _tail(incident: LogIncident, words: Sequence[str]) -> Iterator[Place]:
    """The last lines of each log that hold one of the words: what parted the ranks stands there."""
    share = max(LEAST_TAIL, MOST_LINES // max(1, len(incident.digests)))
    for digest in incident.digests[:MOST_RANKS]:
        for number, text in digest.kept[max(0, len(digest.kept) - share) :]:
            if any(word in text for word in words):
                yield Place(digest, number, text)


def _counters(incident: LogIncident) -> Iterator[Count]:
    for place in _tail(incident, _COUNTED):
        text = place.text
        match, epoch = _COUNTER.search(text, 0, 400), _EPOCH.search(text, 0, 400)
        if (match is None and epoch is None) or _NOT_SAID.search(text):
            continue
        rank = _rank_told(incident, place)
        if rank is not None and match is not None:
            unit, at = match["unit"] or match["of"], match["at"] or match["told"]
            yield rank, place, unit.lower()[:4], int(at)
        if rank is not None and epoch is not None:
            yield rank, place, "epoch", int(epoch["at"])


def _rank_told(incident: LogIncident, place: Place) -> int | None:
    """Rank that wrote a line, else the one that it is about."""
    label = _LABELS.search(place.text, 0, 80)
    if label is not None:
        return int(label[1])
    rank = rank_of(incident, place.line())
    if rank is not None:
        return rank
    told = set(_ABOUT.findall(place.text[:400]))
    return int(told.pop()) if len(told) == 1 else None


def _find_leaving(incident: LogIncident, counts: Sequence[Count]) -> Finding | None:
    said: dict[str, dict[int, Place]] = {}
    for place in _tail(incident, _WORDS):
        text = place.text
        if _NOT_SAID.search(text):
            continue
        kind, at = next(
            ((k, m.start()) for k in _LEAVINGS if (m := k.words.search(text[:400]))), (None, 0)
        )
        if kind is None:
            continue
        # two processes may write into one line: the label nearest before the words counts
        labels = _LABELS.findall(text[:at])
        rank = int(labels[-1]) if len(labels) > 1 else _rank_told(incident, place)
        if rank is not None:
            said.setdefault(kind.name, {})[rank] = place
    for kind in _LEAVINGS:
        left = said.get(kind.name, {})
        found = _weigh_leaving(incident, kind, left, counts) if left else None
        if found is not None:
            return found
    return None


def _weigh_leaving(
    incident: LogIncident, kind: Leaving, left: dict[int, Place], counts: Sequence[Count]
) -> Finding | None:
    """Some rank that never said it counts further than those who did had come."""
    others = {r for r, *_ in counts} - set(left)
    several = not others or len(left) > 1 < len(others)
    if several and not kind.for_good:
        return None
    first = min(left.values(), key=lambda place: (place.line().time or 0.0, place.number))
    onward = None if several else _find_onward(left, first, others, counts)
    if onward is None and kind.for_good:
        onward = _find_waiting(incident, left, first)
    if onward is None:
        return None
    who, line = onward
    single = next(iter(left if len(left) == 1 else others), None)
    if several or _speaks_for_more(incident, counts) or (kind.name == "branch" and len(left) > 1):
        single = None
    names = name_ranks(list(left))
    operation = _OPERATION.search(line.text)
    went = f"and waited in {operation[1]}" if operation is not None else f"({_say(line)!r})"
    title = f"{names} said {_say(first)!r}, while rank {who} went on {went}: {kind.means}"
    return _describe("ranks.parted", title, kind.category, kind.page, single, (first, line))


def _find_onward(
    left: dict[int, Place], first: Place, others: set[int], counts: Sequence[Count]
) -> tuple[int, Place] | None:
    """One of the others that counts, after the first left, beyond what those who left had reached."""
    reached: dict[str, int] = {}
    for who, line, unit, at in counts:
        if who in left and _before(line, left[who]):
            reached[unit] = max(at, reached.get(unit, 0))
    for who, line, unit, at in counts:
        if who in others and unit in reached and at > reached[unit] and _before(first, line):
            return who, line
    return None


def _find_waiting(
    incident: LogIncident, left: dict[int, Place], first: Place
) -> tuple[int, Place] | None:
    """A rank that had not left and was in the collective of a training step, while none of those who left was.

    Who left may wait as well, in a collective of its own: the barrier behind the loop.
    """
    timed_out = [w for w in incident.work if w.timed_out]
    behind = {(w.op, w.numel_in) for w in timed_out if w.rank in left}
    for work in timed_out:
        place = Place(incident.digest_of(work.line.file), work.line.number, work.line.text)
        if (
            work.rank not in left
            and (work.op, work.numel_in) not in behind
            and _before(first, place)
        ):
            return work.rank, place
    if behind:
        return None
    for traceback in incident.tracebacks:
        rank = rank_of(incident, traceback.line)
        place = Place(
            incident.digest_of(traceback.line.file), traceback.line.number, traceback.line.text
        )
        if rank is None or rank in left or not _before(first, place):
            continue
        if any(_IN_STEP.search(f.path) for f in traceback.frames):
            return rank, place
    return None


def _speaks_for_more(incident: LogIncident, counts: Sequence[Count]) -> bool:
    """One rank of each node prints: what it says is said of the node."""
    known = {rank for rank, *_ in counts}
    return 2 * len(known) <= (incident.world_size or max(known) + 1)


def _find_apart(counts: Sequence[Count]) -> Finding | None:
    """All ranks print a counter, and some ended far from where all others did."""
    last: dict[str, dict[int, tuple[int, Place]]] = {}
    for who, line, unit, at in counts:
        last.setdefault(unit, {})[who] = (at, line)
    for unit, ends in last.items():
        values = sorted(at for at, _ in ends.values())
        if unit == "epoch" or len(values) < 3 or values[-1] - values[0] < APART:
            continue
        near = [r for r, (at, _) in ends.items() if at == values[0]]
        far = [r for r, (at, _) in ends.items() if at == values[-1]]
        if len(near) + len(far) != len(values):
            continue
        odd, rest = (near, far) if len(near) < len(far) else (far, near)
        (at, line), (there, other) = ends[odd[0]], ends[rest[0]]
        what = {"batc": "batch", "iter": "iteration"}.get(unit, "step")
        title = (
            f"{name_ranks(odd)} ended at {what} {at} and {name_ranks(rest)} at {what} {there}: they did not run the same number of "
            f"{what}{'es' if what == 'batch' else 's'}, and who had more waited in a collective for the others"
        )
        data = what == "batch"
        return _describe(
            "ranks.apart",
            title + (" (uneven data across ranks)" if data else ""),
            Category.DATA if data else Category.CODE_BUG,
            "uneven-data-across-ranks" if data else "collective-divergence",
            odd[0] if len(odd) == 1 else None,
            (line, other),
        )
    return None


def _before(one: Place, other: Place) -> bool:
    """One line does not come after the other: by place in one log, by the clock in two."""
    if one.digest is other.digest:
        return one.number <= other.number
    mine, others = one.line().time, other.line().time
    return mine is None or others is None or mine <= others


def _say(place: Place) -> str:
    return " ".join(place.line().message.split())[:140]


def _describe(
    kind: str, title: str, category: Category, page: str, rank: int | None, places: Sequence[Place]
) -> Finding:
    lines = [place.line() for place in places]
    return Finding(
        kind=kind,
        title=begin_sentence(title),
        level=Level.CAUSE,
        category=category,
        evidence=tuple(line.evidence() for line in lines),
        rank=rank,
        time=lines[0].time,
        page=page,
        facts={"survived": False},
        strength=Strength(Together.RANKS),
    )
