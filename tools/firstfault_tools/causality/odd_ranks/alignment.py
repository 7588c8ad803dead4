"""Which rank did not do what the others did? Ranks laid beside each other at their last collective.

A rank whose last enqueued work equals its last completed work never entered the next collective; a
rank that issued another operation or size at the same sequence number took another path; a rank that
keeps writing while the others wait is busy. Only what the watchdog lines hold is used; the first rank
to report is nobody special.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.last_words import NOISE, last_words, read_doing
from firstfault_tools.causality.odd_ranks.standings import (
    STACK_HEADING,
    RankState,
    describe_divergence,
    describe_issued,
    describe_state,
    explain_gathers,
    make_readable,
    read_states,
    say_waited,
)
from firstfault_tools.causality.progress import Progress, ProgressReader
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.work import WorkReport

PAGE_MISMATCH = "collective-divergence"
PAGE_NEVER_ENTERED = "collective-divergence"
PAGE_UNEVEN = "uneven-data-across-ranks"
PAGE_BUSY = "rank-zero-work"
PAGE_ALL_WAIT = "collective-timeout"

_WORDS_DATA = expression(
    r"(?i)\bindex|dataset|tokeni|preprocess|shuffl|read|download|cache|map\b|sampl|load|data|collect|shard"
)
ANNOUNCED_LINES = 12
MOST_HEARD = 8
"""Ranks that spoke and did not report, at most, of an excerpt."""
_FRAME = expression(r'File "(?P<path>[^"]{1,200})", line (?P<line>\d+), in (?P<name>\w+)')
_WORDS_THROUGH = expression(
    r"(?i)\b(?:epoch|data ?loader|dataset|iterator|shard)s?\b.{0,24}\b(?:finished|done|complete[d]?|ended|over|exhausted)|"
    r"\bend of epoch|\bout of data|\bStopIteration\b|\bno more batches|"
    r"\b(?:starting|running|begin\w*) (?:the )?(?:validation|evaluation)|\bvalidate epoch\b"
)
_WORDS_SKIP = expression(
    r"(?i)\bskip(?:s|ped|ping)?\b|\bempty (?:batch|target|sample)|\bno (?:targets?|objects?|valid \w+|labels?|ground truth)\b|\bearly return\b"
)
_WORDS_STEP = expression(r"(?i)\b(?:step|iter|iteration|batch)\b.{0,3}\d")
_WORDS_EVALUATION = expression(
    r"(?i)\bpredict|\bplot|\binference\b|\bevaluat|\bgenerat(?:e|ing|ion)\b"
)
_WORDS_CHECKPOINT = expression(r"(?i)checkpoint|sav(?:e|ing)|state_dict|export|convert")


def align_ranks(incident: LogIncident) -> tuple[Finding, ...]:
    """Findings about who diverged, per process group, strongest first."""
    groups: dict[str, list[WorkReport]] = defaultdict(list)
    for report in incident.work:
        groups[report.group].append(report)
    if len(groups) > 1 and "" in groups:
        # timeout lines of some versions print no group; they belong to the group of their rank
        unnamed = groups.pop("")
        only = next(iter(groups)) if len(groups) == 1 else ""
        for report in unnamed:
            home = next(
                (g for g, rs in groups.items() if any(r.rank == report.rank for r in rs)), only
            )
            groups[home].append(report)
    findings: list[Finding] = []
    for name, reports in groups.items():
        findings += _judge_group(incident, name, read_states(reports))
    return tuple(findings)


def _judge_group(incident: LogIncident, group: str, states: dict[int, RankState]) -> list[Finding]:
    waiting = [s for s in states.values() if s.timed_out and not s.never_entered]
    if not waiting:
        return []
    judges = (_find_never_entered, _find_mismatch, _find_missing, _find_behind)
    for judge in (_find_mismatch,) if _all_joined(incident) else judges:
        found = judge(incident, group, states, waiting)
        if found is not None:
            return [_name_places(incident, found, waiting)]
    return [_name_places(incident, _all_wait(incident, waiting), waiting)]


def _name_places(incident: LogIncident, finding: Finding, waiting: Sequence[RankState]) -> Finding:
    """With the lines of the program, where watchdogs printed stacks: the ranks of the finding's quotes."""
    if next(incident.lines_with((STACK_HEADING,)), None) is None:
        return finding
    from firstfault_tools.causality.odd_ranks.failed_stacks import name_places

    quoted = {(e.file, e.line) for e in finding.evidence}
    shown = [s.rank for s in waiting if (s.report.line.file, s.report.line.number) in quoted]
    return name_places(incident, finding, tuple(shown[:2]))


def _all_joined(incident: LogIncident) -> bool:
    """PyTorch's own report says that every listed rank joined the collective: nobody is missing."""
    joined = incident.signatures.with_role(FindingRole.ALL_JOINED)
    return any(h.index in joined for d in incident.digests for h in d.hits)


def _find_never_entered(
    incident: LogIncident, group: str, states: dict[int, RankState], waiting: list[RankState]
) -> Finding | None:
    ahead = max((s.enqueued or s.seq or 0 for s in waiting), default=0)
    absent = [s for s in states.values() if s.never_entered and (s.enqueued or 0) < ahead]
    if not absent or len(absent) > max(1, len(waiting)):
        return None
    first = min(absent, key=lambda s: s.enqueued or 0)
    words = last_words(incident, first.rank, first.report.line)
    return describe_divergence(
        "collective.never_entered",
        f"{name_ranks([s.rank for s in absent])} never entered {describe_state(waiting[0])}: last enqueued work "
        f"{first.enqueued} equals last completed work {first.completed}, while "
        f"{name_ranks([s.rank for s in waiting])} waited in it{say_waited(waiting)}",
        Level.FAILURE,
        first.rank,
        [first.report.line, *words, waiting[0].report.line],
        PAGE_NEVER_ENTERED,
        words,
    )


def _find_mismatch(
    incident: LogIncident, group: str, states: dict[int, RankState], waiting: list[RankState]
) -> Finding | None:
    by_seq: dict[int, list[RankState]] = defaultdict(list)
    for state in waiting:
        if state.seq is not None:
            by_seq[state.seq].append(state)
    for seq in sorted(by_seq):
        peers = by_seq[seq]
        kinds = Counter((s.op, s.numel) for s in peers)
        if len(kinds) < 2:
            continue
        usual, count = kinds.most_common(1)[0]
        odd = [s for s in peers if (s.op, s.numel) != usual]
        behind = [s for s in peers if s.enqueued is not None]
        culprit: RankState | None = None
        if count > len(odd) and len(odd) == 1:
            culprit = odd[0]
        elif behind:
            lowest = min(s.enqueued or 0 for s in behind)
            lagging = [s for s in behind if s.enqueued == lowest]
            if len(lagging) == 1 and len(behind) > 1:
                culprit = lagging[0]
        other = next(
            s for s in peers if culprit is None or (s.op, s.numel) != (culprit.op, culprit.numel)
        )
        one = culprit or next(
            s for s in peers if s is not other and (s.op, s.numel) != (other.op, other.numel)
        )
        words = last_words(incident, one.rank, one.report.line) if culprit is not None else []
        before, odd_one, uneven = (
            ("", None, False) if words else _said_before(incident, (one, other))
        )
        guarded = _guarded_for(incident, culprit)
        return describe_divergence(
            "collective.mismatch",
            _describe_mismatch(seq, one, other, peers, culprit)
            + (guarded or explain_gathers(one.op, other.op))
            + before,
            Level.CAUSE,
            culprit.rank
            if culprit is not None
            else odd_one
            if _each_speaks(incident, peers)
            else None,
            [one.report.line, other.report.line, *words],
            PAGE_UNEVEN if uneven else PAGE_MISMATCH,
            words,
            Category.DATA if uneven else Category.CODE_BUG,
        )
    return None


def _describe_mismatch(
    seq: int,
    one: RankState,
    other: RankState,
    peers: Sequence[RankState],
    culprit: RankState | None,
) -> str:
    """Who went another way, then what each of the two issued."""
    others = name_ranks([s.rank for s in peers if (s.op, s.numel) == (other.op, other.numel)])
    parted = (
        f"rank {one.rank} took another code path than {others}"
        if culprit is not None
        else f"rank {one.rank} and {others} took different code paths"
    )
    return (
        f"{parted}, so their collectives do not match at SeqNum {seq}; rank {one.rank} issued {describe_issued(one)} "
        f"but {others} {describe_issued(other)} (mismatch)"
    )


def _guarded_for(incident: LogIncident, culprit: RankState | None) -> str:
    """What code that was handed in lets the first rank alone do, where it is the odd one."""
    if culprit is None or culprit.rank != 0:
        return ""
    from firstfault_tools.causality.odd_ranks.guards import find_guarded

    guarded = find_guarded(incident)
    return f"; {guarded.title}" if guarded is not None and guarded.facts["alone"] == 0 else ""


def _each_speaks(incident: LogIncident, states: Sequence[RankState]) -> bool:
    """More than one rank in two is seen: none of them stands for a whole node."""
    return 2 * len(states) > (incident.world_size or max(s.rank for s in states) + 1)


def _said_before(
    incident: LogIncident, states: Sequence[RankState]
) -> tuple[str, int | None, bool]:
    """What two ranks that went apart said last, which one is the odd one, and whether it had run out of batches."""
    said = [last_words(incident, s.rank, s.report.line) for s in states]
    texts = [make_readable(words[0]) for words in said if words]
    if len(texts) < len(states) or len(set(texts)) < len(texts):
        return "", None, False
    told = "".join(
        f"; rank {state.rank} said before: {text!r}"
        for state, text in zip(states, texts, strict=True)
    )
    through = [_WORDS_THROUGH.search(text) is not None for text in texts]
    uneven = any(through) and any(
        _WORDS_STEP.search(text) and not over for text, over in zip(texts, through, strict=True)
    )
    if uneven:
        told += "; one had no batch left while the other still trained: uneven data across ranks"
    skipped = [_WORDS_SKIP.search(text) is not None for text in texts]
    if not uneven and sum(skipped) == 1:
        rank = states[skipped.index(True)].rank
        return f"{told}; rank {rank} left out a part of the step that the others did", rank, False
    return told, states[through.index(True)].rank if uneven else None, uneven


def _find_missing(
    incident: LogIncident, group: str, states: dict[int, RankState], waiting: list[RankState]
) -> Finding | None:
    reported = set(states)
    known = set(incident.ranks_seen)
    default_group = group in ("", "0") or "default" in group
    if default_group:
        known |= set(range(max(reported) + 1)) if len(reported) >= 3 else set()
        if incident.world_size is not None and incident.world_size <= 4096:
            known |= set(range(incident.world_size))
    missing = sorted(known - reported) if default_group else []
    busy = _busy_progress(incident, missing, waiting)
    if busy is not None and (
        len(missing) == 1 or _rank_of_busy(incident, busy, waiting) in missing or not missing
    ):
        rank = _rank_of_busy(incident, busy, waiting)
        if rank is None and len(missing) == 1:
            rank = missing[0]
        return _busy_finding(incident, rank, busy, waiting)
    said: list[Line] = []
    if len(missing) > max(1, len(reported) // 2):
        # an excerpt: of the ranks that speak at all, one (or a few, alike) told of trouble and did not report
        heard = sorted(incident.ranks_seen - reported) if default_group else []
        digest = incident.digest_of(waiting[0].report.line.file)
        number, text = digest.kept[-1]
        last = make_line(digest.file, number + 1, text, digest.year)
        told = [last_words(incident, rank, last) for rank in heard[:MOST_HEARD]]
        doings = {d.name if w and (d := read_doing(w)) is not None else None for w in told}
        alike = len(doings) == 1 and None not in doings and len(heard) <= MOST_HEARD
        missing, said = (heard, told[0]) if alike else ([], [])
    if not missing:
        return None
    rank = missing[0] if len(missing) == 1 else None
    words = last_words(incident, missing[0], waiting[0].report.line) if rank is not None else []
    words = words or said
    what = (
        f"{name_ranks(missing)} did not report and never entered {describe_state(waiting[0])}, in which "
        f"{name_ranks(sorted(s.rank for s in waiting))} waited{say_waited(waiting)}"
    )
    category, page = Category.CODE_BUG, PAGE_NEVER_ENTERED
    if rank == 0 and not words:
        announced = _said_by_main(incident, waiting[0].report.line)
        if announced is not None:
            what += f"; the last thing announced before: {make_readable(announced)!r}"
            work: Category | None = _class_of_work(announced.text)
            page = PAGE_BUSY
            if work is Category.CHECKPOINT and _belongs_to_step(waiting[0]):
                work, rank, page = None, None, PAGE_ALL_WAIT
                what += (
                    ". They were already in the next step: whether rank 0 hung while it wrote (storage), failed there or ended "
                    "elsewhere is not in these logs"
                )
            return describe_divergence("collective.missing", what, Level.FAILURE, rank, [waiting[0].report.line, announced], page, [], work)  # fmt: skip
    return describe_divergence(
        "collective.missing",
        what,
        Level.FAILURE,
        rank,
        [waiting[0].report.line, *words],
        page,
        words,
        category,
    )


def _belongs_to_step(state: RankState) -> bool:
    """A reduction of many values: gradients or a metric. A save gathers, broadcasts or waits at a barrier of one value."""
    return "REDUCE" in (state.op or "") and (state.numel or 0) > 1


def _said_by_main(incident: LogIncident, before: Line) -> Line | None:
    """The last thing that a line without a rank announces shortly before the others gave up: the main process logs so."""
    for line in incident.lines_before(before, ANNOUNCED_LINES):
        if NOISE.search(line.text) or line.place.rank is not None or "%|" in line.text:
            continue
        if _WORDS_CHECKPOINT.search(line.text) or _WORDS_EVALUATION.search(line.text):
            return line
    return None


def _class_of_work(text: str) -> Category:
    if _WORDS_CHECKPOINT.search(text):
        return Category.CHECKPOINT
    if _WORDS_DATA.search(text) and not _WORDS_EVALUATION.search(text):
        return Category.DATA
    return Category.CODE_BUG


def _find_behind(
    incident: LogIncident, group: str, states: dict[int, RankState], waiting: list[RankState]
) -> Finding | None:
    numbered = [s for s in waiting if s.seq is not None]
    if len({s.seq for s in numbered}) < 2:
        return None
    lowest = min(s.seq or 0 for s in numbered)
    behind = [s for s in numbered if s.seq == lowest]
    ahead = next(s for s in numbered if s.seq != lowest)
    if len(behind) * 2 > len(numbered):
        return None
    return describe_divergence(
        "collective.behind",
        f"{name_ranks([s.rank for s in behind])} stopped at {describe_state(behind[0])} while others had "
        f"reached {describe_state(ahead)}",
        Level.SYMPTOM if len(behind) > 1 else Level.FAILURE,
        behind[0].rank if len(behind) == 1 else None,
        [behind[0].report.line, ahead.report.line],
        PAGE_NEVER_ENTERED,
        [],
    )


def _where_they_waited(incident: LogIncident, waiting: list[RankState]) -> tuple[str, list[Line]]:
    """The innermost frame outside of torch.distributed that every waiting rank shows, as far as any does."""
    ranks = {s.rank for s in waiting}
    last: dict[int, tuple[str, Line]] = {}
    for digest, number, text in islice(incident.lines_with(('File "',)), 2_000):
        frame = _FRAME.search(text[:400])
        if frame is None or "torch/distributed" in frame["path"]:
            continue
        line = make_line(digest.file, number, text, digest.year)
        if line.place.rank in ranks:
            file = frame["path"].rsplit("/", 1)[-1]
            last[line.place.rank or 0] = (f"{frame['name']} ({file}:{frame['line']})", line)
    places = {place for place, _ in last.values()}
    if len(places) != 1 or len(last) < 2:
        return "", []
    return f", called from {places.pop()}", [next(iter(last.values()))[1]]


def _one_sided(incident: LogIncident, waiting: list[RankState]) -> Finding | None:
    """Every rank of the job waits in SEND, or every one in RECV: nobody is on the other side."""
    ops = {s.op for s in waiting}
    world = max(incident.world_size or 0, max(incident.ranks_seen) + 1)
    if len(ops) != 1 or not ops <= {"SEND", "RECV"} or len(waiting) < max(2, world):
        return None
    op = next(iter(ops))
    other = "receives" if op == "SEND" else "sends"
    return describe_divergence(
        "collective.one_sided",
        f"all {len(waiting)} ranks wait in {op}{say_waited(waiting)} and none {other}: each waits for its peer to do the other half "
        "first, a deadlock by order; pair them (batch_isend_irecv), or let even and odd ranks begin with different halves",
        Level.FAILURE,
        None,
        [s.report.line for s in waiting[:3]],
        PAGE_MISMATCH,
        [],
    )


def _all_wait(incident: LogIncident, waiting: list[RankState]) -> Finding:
    first = waiting[0]
    if (one_sided := _one_sided(incident, waiting)) is not None:
        return one_sided
    where, frames = _where_they_waited(incident, waiting)
    return Finding(
        kind="collective.timeout",
        title=f"{name_ranks([s.rank for s in waiting])} timed out in {describe_state(first)}{say_waited(waiting)}{where}; "
        "the log does not show who held it up",
        level=Level.SYMPTOM,
        category=Category.COMMUNICATION,
        confidence=Confidence.POSSIBLE,
        evidence=tuple(
            line.evidence() for line in (*(s.report.line for s in waiting[:3]), *frames)
        ),
        time=first.report.line.time,
        page=PAGE_ALL_WAIT,
        facts={"op": first.op, "seq": first.seq, "timeout_ms": first.report.timeout_ms},
    )


def _busy_progress(
    incident: LogIncident, missing: Sequence[int], waiting: list[RankState]
) -> Progress | None:
    """Last sign that somebody who is no waiting rank was still counting when the others timed out."""
    waiting_ranks = {s.rank for s in waiting}
    first = min((s.report.line for s in waiting), key=lambda line: (line.number, line.file))
    reader = incident.progress[first.file]
    found: Progress | None = None
    for progress in reader.after(first.number):
        rank = reader.line(progress).place.rank
        if rank is not None and (rank in waiting_ranks or rank not in missing):
            continue
        if progress.counter != progress.total and (
            rank is not None
            or progress.left_s is not None
            or _counted_before(reader, first, progress)
        ):
            found = progress
    if found is not None and found.training and found.left_s is None:
        trained = any(p.training for p in reader.before(first.number))
        return None if trained else found
    return found


def _counted_before(reader: ProgressReader, first: Line, progress: Progress) -> bool:
    """The same count, lower, stood in the log before the others timed out."""
    return any(
        p.total == progress.total and (p.counter or 0) < (progress.counter or 0)
        for p in islice(reader.before(first.number), 200)
    )


def _rank_of_busy(incident: LogIncident, busy: Progress, waiting: list[RankState]) -> int | None:
    return incident.progress[waiting[0].report.line.file].line(busy).place.rank


def _busy_finding(
    incident: LogIncident, rank: int | None, busy: Progress, waiting: list[RankState]
) -> Finding:
    line = incident.progress[waiting[0].report.line.file].line(busy)
    said = make_readable(line)
    context = _task_before(incident, busy, line.file)
    about = f"{said} {context[0].text if context else ''}"
    category = _class_of_work(about)
    timeout_ms = max((s.report.timeout_ms or 0 for s in waiting), default=0)
    needs = ""
    if busy.elapsed_s is not None and busy.left_s is not None:
        needs = f" (about {(busy.elapsed_s + busy.left_s) / 60:.0f} min in all)"
    limit = f" of {timeout_ms / 60000:.0f} min ({timeout_ms} ms)" if timeout_ms else ""
    who = f"rank {rank}" if rank is not None else "one rank"
    announced = f" (begun with: {make_readable(context[0])})" if context else ""
    return describe_divergence(
        "collective.rank_busy",
        f"{who} was still working alone{needs} when the collective timeout{limit} of the other ranks "
        f"ran out: {said}{announced}. {who.capitalize()} is alive and making progress; the others waited in "
        f"{describe_state(waiting[0])}",
        Level.CAUSE,
        None,
        [line, *(c for c in context), waiting[0].report.line],
        PAGE_BUSY,
        [],
        category,
        facts={"busy_rank": rank, "timeout_ms": timeout_ms},
    )


def _task_before(incident: LogIncident, busy: Progress, file: str) -> list[Line]:
    """The line that announced what the busy rank is doing."""
    own = incident.progress[file].line(busy)
    for line in incident.lines_before(own, 400):
        if NOISE.search(line.text) or "%|" in line.text or "%  |" in line.text:
            continue
        if line.place.rank not in (None, own.place.rank):
            continue
        if "WorkNCCL" in line.text or "what():" in line.text or "terminate called" in line.text:
            continue
        return [line]
    return []
