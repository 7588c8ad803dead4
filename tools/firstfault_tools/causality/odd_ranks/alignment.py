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
from firstfault_tools.causality.odd_ranks.last_words import last_words, read_doing
from firstfault_tools.causality.odd_ranks.missing import (
    PAGE_ALL_WAIT,
    PAGE_NEVER_ENTERED,
    find_missing,
)
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
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.log.digest import Line
from firstfault_tools.log.place import name_ranks
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.work import WorkReport

PAGE_MISMATCH = "collective-divergence"
PAGE_UNEVEN = "uneven-data-across-ranks"

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
    judges = (_find_never_entered, _find_mismatch, find_missing, _find_behind)
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
        if len({s.issued for s in by_seq[seq]}) > 1:
            return _tell_mismatch(incident, seq, by_seq[seq])
    return None


def _tell_mismatch(incident: LogIncident, seq: int, peers: Sequence[RankState]) -> Finding:
    """What the odd one and another issued at one number, and what they said before."""
    culprit = _odd_one(peers)
    other = next(s for s in peers if culprit is None or s.issued != culprit.issued)
    one = culprit or next(s for s in peers if s.issued != other.issued)
    words = last_words(incident, one.rank, one.report.line) if culprit is not None else []
    before, odd_rank, uneven = ("", None, False) if words else _said_before(incident, (one, other))
    guarded = _guarded_for(incident, culprit)
    # what the rank says of itself tells more than what two sizes let one guess
    guess = "" if read_doing(words) is not None else explain_gathers(one.op, other.op)
    rank = odd_rank if _each_speaks(incident, peers) else None
    return describe_divergence(
        "collective.mismatch",
        _describe_mismatch(seq, one, other, peers, culprit) + (guarded or guess) + before,
        Level.CAUSE,
        culprit.rank if culprit is not None else rank,
        [one.report.line, other.report.line, *words],
        PAGE_UNEVEN if uneven else PAGE_MISMATCH,
        words,
        Category.DATA if uneven else Category.CODE_BUG,
    )


def _odd_one(peers: Sequence[RankState]) -> RankState | None:
    """The one that issued something else than all others, else the one that enqueued least."""
    usual, count = Counter(s.issued for s in peers).most_common(1)[0]
    odd = [s for s in peers if s.issued != usual]
    if count > len(odd) == 1:
        return odd[0]
    enqueued = [s for s in peers if s.enqueued is not None]
    lowest = min((s.enqueued or 0 for s in enqueued), default=0)
    lagging = [s for s in enqueued if s.enqueued == lowest]
    return lagging[0] if len(lagging) == 1 < len(enqueued) else None


def _describe_mismatch(
    seq: int,
    one: RankState,
    other: RankState,
    peers: Sequence[RankState],
    culprit: RankState | None,
) -> str:
    """Who went another way, then what each of the two issued."""
    others = name_ranks([s.rank for s in peers if s.issued == other.issued])
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
        "first, a deadlock by order",
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
