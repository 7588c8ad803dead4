"""Which operation of which process group do the ranks disagree on?

Lines the dumps of all ranks up by process group and sequence number into `Step`s, and judges each
with the states that PyTorch's own analyzer documents (torch/distributed/flight_recorder,
components/types.py: MatchState). Pairs sends with receives. Says nothing about blame; `blame.py` does.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum

from firstfault_tools.collectives.recorder_dump import Dump, Entry, Group, State
from firstfault_tools.dataclass import dataclass

# The root alone gives (scatter, broadcast) or takes (gather, reduce) whole sizes in these.
_FREE_INPUT = frozenset({"all_to_all", "all_to_all_single", "all_to_all_v_single", "scatter"})
_FREE_OUTPUT = frozenset({"all_to_all", "all_to_all_single", "all_to_all_v_single", "gather"})
_ONE_SIDED_DTYPE = frozenset({"scatter", "gather", "broadcast"})
_VARIABLE = ("all_gather_v", "reduce_scatter_v", "_broadcast_oop", "_reduce_oop", "coalesced")


class MatchState(StrEnum):
    """Verdict on one step, in the words of PyTorch's flight-recorder analyzer."""

    FULLY_MATCHED = "fully_matched"
    COLLECTIVE_TYPE_MISMATCH = "collective_type_mismatch"
    SIZE_OR_SYNTAX_MISMATCH = "size_or_syntax_mismatch"
    COLLECTIVE_DTYPE_MISMATCH = "collective_dtype_mismatch"
    COLLECTIVE_STATE_MISMATCH = "collective_state_mismatch"
    UNDECIDED = "undecided"


MISMATCHES = frozenset(
    {
        MatchState.COLLECTIVE_TYPE_MISMATCH,
        MatchState.SIZE_OR_SYNTAX_MISMATCH,
        MatchState.COLLECTIVE_DTYPE_MISMATCH,
    }
)


@dataclass(frozen=True, slots=True)
class Step:
    """One collective of one process group over all ranks.

    entries: the entry of each rank that entered it. missing: ranks with a dump that never entered.
    undumped: members of the group without a dump. odd: ranks whose call differs from the majority,
    empty where there is none.
    """

    group: Group
    seq: int
    entries: Mapping[int, Entry]
    states: Mapping[int, State]
    missing: tuple[int, ...]
    undumped: tuple[int, ...]
    match: MatchState
    odd: tuple[int, ...]

    @property
    def done(self) -> bool:
        """Whether every rank that entered has completed it."""
        return all(state is State.COMPLETED for state in self.states.values())

    @property
    def created_ns(self) -> int:
        """When the first rank entered it."""
        return min((e.created_ns for e in self.entries.values()), default=0)

    @property
    def name(self) -> str:
        """`ALLREDUCE (SeqNum 20) of default_pg (0)`, with the commonest operation."""
        ops = Counter(e.op for e in self.entries.values())
        op = ops.most_common(1)[0][0] if ops else "collective"
        return f"{operation_name(op)} (SeqNum {self.seq}) of {self.group.label}"


@dataclass(frozen=True, slots=True)
class Transfer:
    """A send or receive that has not completed, and whether the other side has posted its half."""

    group: Group
    entry: Entry
    peer: int
    partner: Entry | None
    peer_has_dump: bool


def operation_name(op: str) -> str:
    """Name of a recorded operation as watchdog messages print it: `all_reduce` is `ALLREDUCE`."""
    return op.upper().replace("ALL_TO_ALL", "ALLTOALL").replace("ALL_", "ALL")


def align_collectives(dumps: Mapping[int, Dump]) -> tuple[Step, ...]:
    """Steps of all process groups, each group's in order of sequence, earliest group first.

    Steps before the oldest sequence that all ring buffers still hold are left out.
    """
    steps: list[Step] = []
    for key, members in _members(dumps).items():
        steps.extend(_align_group(key[0], members, dumps))
    return tuple(sorted(steps, key=lambda s: (s.created_ns, s.group.name, s.seq)))


def _members(dumps: Mapping[int, Dump]) -> dict[tuple[str, tuple[int, ...]], dict[int, Group]]:
    """Groups by name and ranks (split groups share names), each with the dumped ranks that know it."""
    world = tuple(sorted(dumps))
    found: dict[tuple[str, tuple[int, ...]], dict[int, Group]] = defaultdict(dict)
    for rank, dump in dumps.items():
        names = dict.fromkeys([*dump.groups, *(e.group for e in dump.entries)])
        for name in names:
            group = dump.groups.get(name) or Group(name, "", ())
            ranks = group.ranks or world
            found[(name, ranks)][rank] = Group(name, group.description, ranks)
    return found


def _align_group(
    name: str, members: Mapping[int, Group], dumps: Mapping[int, Dump]
) -> Iterable[Step]:
    group = next(iter(members.values()))
    calls = {rank: _calls_of(dumps[rank], name) for rank in members}
    expected = [r for r in group.ranks if r in dumps]
    for rank in expected:
        calls.setdefault(rank, {})
    floor = _oldest_whole(calls, dumps)
    undumped = tuple(r for r in group.ranks if r not in dumps)
    for seq in sorted({s for c in calls.values() for s in c if s >= floor}):
        lists = {r: calls[r][seq] for r in calls if seq in calls[r]}
        entries = {r: found[0] for r, found in lists.items()}
        states = {r: found[-1].state for r, found in lists.items()}
        missing = tuple(
            r for r in expected if r not in entries and not _passed(dumps[r], name, seq)
        )
        match, odd = _judge(lists, states, undumped, len(group.ranks))
        yield Step(group, seq, entries, states, missing, undumped, match, odd)


def _calls_of(dump: Dump, group: str) -> dict[int, list[Entry]]:
    """Collectives of one rank in a group, by sequence number."""
    by_seq: dict[int, list[Entry]] = defaultdict(list)
    for entry in dump.entries:
        if entry.group == group and not entry.p2p:
            by_seq[entry.seq].append(entry)
    return by_seq


def _oldest_whole(calls: Mapping[int, Mapping[int, object]], dumps: Mapping[int, Dump]) -> int:
    """The oldest sequence number that every ring buffer still holds."""
    return max((min(c) for r, c in calls.items() if c and dumps[r].wrapped), default=0)


def _passed(dump: Dump, group: str, seq: int) -> bool:
    """Whether the rank's counters say it entered `seq` although no entry is left of it.

    A dump of active entries only (TORCH_INCLUDE_ONLY_ACTIVE) drops completed ones.
    """
    if any(e.group == group and e.p2p for e in dump.entries):
        return False  # sends and receives move the same counters
    progress = dump.progress.get(group)
    return progress is not None and max(progress.completed, progress.enqueued) >= seq


def _judge(
    lists: Mapping[int, list[Entry]],
    states: Mapping[int, State],
    undumped: tuple[int, ...],
    size: int,
) -> tuple[MatchState, tuple[int, ...]]:
    done = all(s is State.COMPLETED for s in states.values())
    ops = {r: tuple(e.op for e in found) for r, found in lists.items()}
    if len(set(ops.values())) > 1:
        return MatchState.COLLECTIVE_TYPE_MISMATCH, _odd(ops)
    first = {r: found[0] for r, found in lists.items()}
    op = next(iter(first.values())).op
    variable = op.endswith(_VARIABLE) or any(len(found) > 1 for found in lists.values())
    # Uneven gathers are legal: sizes that differ are a fault only where the step did not complete.
    uneven_is_legal = op not in ("all_reduce", "allreduce_coalesced")
    if not variable and not (done and uneven_is_legal):
        apart = _compare_calls(op, first)
        if apart is not None:
            return apart
    if op in _FREE_INPUT and op in _FREE_OUTPUT:
        if len(first) == size and not _takes_all_given(first):
            return MatchState.SIZE_OR_SYNTAX_MISMATCH, ()
        if not done:
            return MatchState.UNDECIDED, ()
    if len(set(states.values())) > 1:
        return MatchState.COLLECTIVE_STATE_MISMATCH, ()
    if undumped and not done:
        return MatchState.UNDECIDED, ()
    return MatchState.FULLY_MATCHED, ()


def _compare_calls(
    op: str, first: Mapping[int, Entry]
) -> tuple[MatchState, tuple[int, ...]] | None:
    """Sizes, then types, that must be alike on all ranks and are not."""
    sizes = {
        r: (
            () if op in _FREE_INPUT else e.input_sizes,
            () if op in _FREE_OUTPUT else e.output_sizes,
        )
        for r, e in first.items()
    }
    if len(set(sizes.values())) > 1:
        return MatchState.SIZE_OR_SYNTAX_MISMATCH, _odd(sizes)
    dtypes = {r: _dtypes(op, e) for r, e in first.items()}
    if len(set(dtypes.values())) > 1:
        return MatchState.COLLECTIVE_DTYPE_MISMATCH, _odd(dtypes)
    return None


def _takes_all_given(first: Mapping[int, Entry]) -> bool:
    """All ranks together take as much as they give, as far as both are printed."""
    given = sum(_numel(e.input_sizes) for e in first.values())
    taken = sum(_numel(e.output_sizes) for e in first.values())
    return not given or not taken or given == taken


def _dtypes(op: str, entry: Entry) -> tuple[str, ...]:
    if op in _ONE_SIDED_DTYPE:
        return tuple(dict.fromkeys(entry.input_dtypes or entry.output_dtypes))
    return tuple(dict.fromkeys((*entry.input_dtypes, *entry.output_dtypes)))


def _numel(sizes: tuple[tuple[int, ...], ...]) -> int:
    return sum(math.prod(s) for s in sizes)


def _odd(signatures: Mapping[int, object]) -> tuple[int, ...]:
    """Ranks outside the majority; empty on a tie, where the dumps cannot say who is wrong."""
    counts = Counter(signatures.values())
    (first, most), (_, second) = counts.most_common(2)
    if most <= second or most * 2 <= len(signatures):
        return ()
    return tuple(sorted(r for r, s in signatures.items() if s != first))


def pair_transfers(dumps: Mapping[int, Dump]) -> tuple[Transfer, ...]:
    """Sends and receives that did not complete, each with the other side's half if it was posted."""
    posted, groups = _read_posted(dumps)
    closing = {
        (rank, entry.group, entry.seq): entry.state
        for rank, dump in dumps.items()
        for entry in dump.entries
        if entry.p2p
    }
    transfers = []
    for (name, source, target, op), own in posted.items():
        rank, peer = (source, target) if op == "send" else (target, source)
        others = posted.get((name, source, target, "recv" if op == "send" else "send"), [])
        whole = not dumps[rank].wrapped and peer in dumps and not dumps[peer].wrapped
        if not whole:  # the buffers begin at different halves: those that are open end alike
            own, others = ([e for e in es if not _complete(e, closing)] for es in (own, others))
        for index, entry in enumerate(own):
            if not _complete(entry, closing):
                partner = others[index] if index < len(others) else None
                group = groups[(name, rank)]
                transfers.append(Transfer(group, entry, peer, partner, peer in dumps))
    return tuple(sorted(transfers, key=lambda t: t.entry.created_ns))


def _read_posted(
    dumps: Mapping[int, Dump],
) -> tuple[dict[tuple[str, int, int, str], list[Entry]], dict[tuple[str, int], Group]]:
    """Halves by (group, source, target, operation) in order, and the group of each name and rank."""
    posted: dict[tuple[str, int, int, str], list[Entry]] = defaultdict(list)
    groups: dict[tuple[str, int], Group] = {}
    world = tuple(sorted(dumps))
    for rank, dump in dumps.items():
        for entry in dump.entries:
            if entry.source is None or entry.target is None:
                continue
            group = dump.groups.get(entry.group) or Group(entry.group, "", world)
            ranks = group.ranks or world
            if max(entry.source, entry.target) >= len(ranks):
                continue
            groups[(entry.group, rank)] = Group(group.name, group.description, ranks)
            source, target = ranks[entry.source], ranks[entry.target]
            posted[(entry.group, source, target, entry.op)].append(entry)
    return posted, groups


def _complete(entry: Entry, closing: Mapping[tuple[int, str, int], State]) -> bool:
    # The parts of a batch carry no GPU events of their own: the closing `coalesced` entry does.
    return (
        entry.state is State.COMPLETED
        or closing.get((entry.rank, entry.group, entry.seq)) is State.COMPLETED
    )
