"""Whom do the ranks wait for in the end?

A rank that waits in a collective is a victim of the ranks that are not there; those may in turn wait
elsewhere, in another process group or a receive. Following the waits leads to the first fault: a rank
that waits in no collective at all (it never entered), a rank that left no dump, a circle (the groups
are used in different orders), or a call that differs between the ranks. Where the dumps do not say,
the verdict is `UNDECIDED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from firstfault_tools.collectives.alignment import (
    MISMATCHES,
    MatchState,
    Step,
    Transfer,
    align_collectives,
    pair_transfers,
)
from firstfault_tools.collectives.recorder_dump import Dump, Entry, State
from firstfault_tools.dataclass import dataclass


class Fault(StrEnum):
    """What the dumps of all ranks amount to."""

    MISMATCH = "mismatch"
    NEVER_ENTERED = "never_entered"
    ORDER = "order"
    NO_DUMP = "no_dump"
    NOT_STARTED = "not_started"
    STALLED = "stalled"
    UNDECIDED = "undecided"
    AGREED = "agreed"


@dataclass(frozen=True, slots=True)
class Wait:
    """One unfinished operation of a rank and the ranks that have not joined it."""

    entry: Entry
    label: str
    absent: tuple[int, ...]
    undumped: tuple[int, ...]
    step: Step | None
    transfer: Transfer | None


@dataclass(frozen=True, slots=True)
class Blame:
    """The one verdict of an incident's dumps.

    ranks: those to look at first, best suspect first; empty where the dumps cannot say. wait: the
    unfinished operation that shows it. waiting: every rank's own wait. last_agreed: the last step
    of that process group that all ranks completed alike.
    """

    fault: Fault
    ranks: tuple[int, ...]
    match: MatchState
    wait: Wait | None
    step: Step | None
    waiting: Mapping[int, Wait]
    last_agreed: Step | None
    steps: tuple[Step, ...]


def explain(dumps: Mapping[int, Dump]) -> Blame:
    """Verdict over the dumps of one incident, by rank. Never raises on dumps that were read."""
    steps = align_collectives(dumps)
    transfers = pair_transfers(dumps)
    waiting = _waits(steps, transfers)

    mismatch = _first_mismatch(steps)
    if mismatch is not None:
        return _blame(Fault.MISMATCH, mismatch.odd, mismatch.match, None, mismatch, waiting, steps)
    unequal = next((t for t in transfers if t.partner and _sizes_differ(t)), None)
    if unequal is not None:
        wait = _transfer_wait(unequal)
        state = MatchState.SIZE_OR_SYNTAX_MISMATCH
        return _blame(Fault.MISMATCH, (), state, wait, None, waiting, steps)

    blocked = {r: w for r, w in waiting.items() if w.absent or w.undumped}
    if blocked:
        return _follow(dumps, blocked, waiting, steps)
    open_step = next((s for s in steps if not s.done), None)
    if open_step is not None:
        late = _not_started(open_step)
        fault = Fault.NOT_STARTED if late else Fault.STALLED
        any_wait = next(iter(waiting.values()), None)
        return _blame(fault, late, open_step.match, any_wait, open_step, waiting, steps)
    if waiting:
        wait = min(waiting.values(), key=lambda w: w.entry.created_ns)
        return _blame(Fault.STALLED, (), MatchState.UNDECIDED, wait, None, waiting, steps)
    return _blame(Fault.AGREED, (), MatchState.FULLY_MATCHED, None, None, waiting, steps)


def _blame(
    fault: Fault,
    ranks: tuple[int, ...],
    match: MatchState,
    wait: Wait | None,
    step: Step | None,
    waiting: Mapping[int, Wait],
    steps: tuple[Step, ...],
) -> Blame:
    step = step or (wait.step if wait else None)
    return Blame(fault, ranks, match, wait, step, waiting, _last_agreed(steps, step), steps)


def _first_mismatch(steps: tuple[Step, ...]) -> Step | None:
    # The earliest, completed or not: NCCL may let a wrong call through and hang on the next one.
    return next((s for s in steps if s.match in MISMATCHES), None)


def _waits(steps: tuple[Step, ...], transfers: tuple[Transfer, ...]) -> dict[int, Wait]:
    """Per rank its first unfinished operation that lacks somebody, else its first unfinished one."""
    found: dict[int, list[Wait]] = {}
    for step in steps:
        for rank, state in step.states.items():
            if state is not State.COMPLETED:
                wait = Wait(step.entries[rank], step.name, step.missing, step.undumped, step, None)
                found.setdefault(rank, []).append(wait)
    for transfer in transfers:
        found.setdefault(transfer.entry.rank, []).append(_transfer_wait(transfer))
    waits = {}
    for rank, own in found.items():
        own.sort(key=lambda w: w.entry.record)
        waits[rank] = next((w for w in own if w.absent), None) or next(
            (w for w in own if w.undumped), own[0]
        )
    return waits


def _transfer_wait(transfer: Transfer) -> Wait:
    entry, peer = transfer.entry, transfer.peer
    arrow = "to" if entry.op == "send" else "from"
    label = f"{entry.op.upper()} {arrow} rank {peer} (p2p {entry.seq}) of {transfer.group.label}"
    alone = transfer.partner is None
    absent = (peer,) if alone and transfer.peer_has_dump else ()
    undumped = (peer,) if alone and not transfer.peer_has_dump else ()
    return Wait(entry, label, absent, undumped, None, transfer)


def _sizes_differ(transfer: Transfer) -> bool:
    partner, entry = transfer.partner, transfer.entry
    if partner is None:
        return False
    send, receive = (entry, partner) if entry.op == "send" else (partner, entry)
    sent = send.input_sizes or send.output_sizes
    taken = receive.output_sizes or receive.input_sizes
    return bool(sent and taken) and sent != taken


def _follow(
    dumps: Mapping[int, Dump],
    blocked: Mapping[int, Wait],
    waiting: Mapping[int, Wait],
    steps: tuple[Step, ...],
) -> Blame:
    """Follow the waits to a rank that waits for nobody, a rank without a dump, or round a circle."""
    wanted = {r for w in blocked.values() for r in w.absent}
    free = sorted((r for r in wanted if r not in blocked), key=lambda r: _last_seen(dumps[r]))
    if free:
        wait = _earliest(w for w in blocked.values() if set(w.absent) & set(free))
        ranks = tuple(r for r in free if r in wait.absent)
        return _blame(Fault.NEVER_ENTERED, ranks, MatchState.UNDECIDED, wait, None, waiting, steps)
    lost = {r for w in blocked.values() for r in w.undumped}
    if lost:
        wait = _earliest(w for w in blocked.values() if w.undumped)
        few = len(lost) <= len(dumps)
        fault = Fault.NO_DUMP if few else Fault.UNDECIDED
        ranks = tuple(sorted(wait.undumped)) if few else ()
        return _blame(fault, ranks, MatchState.UNDECIDED, wait, None, waiting, steps)
    wait = _earliest(blocked.values())
    return _blame(Fault.ORDER, (), MatchState.UNDECIDED, wait, None, waiting, steps)


def _earliest(waits: object) -> Wait:
    return min(waits, key=lambda w: w.entry.created_ns)  # type: ignore[call-overload, no-any-return]


def _last_seen(dump: Dump) -> int:
    return max((e.created_ns for e in dump.entries), default=0)


def _not_started(step: Step) -> tuple[int, ...]:
    """Ranks whose GPU had not reached the step while others' had: their stream is held up before it.

    Start events are recorded only with timing on, so "scheduled everywhere" says nothing.
    """
    states = step.states
    begun = [r for r, s in states.items() if s in (State.STARTED, State.COMPLETED)]
    waiting = [r for r, s in states.items() if s is State.SCHEDULED]
    if not any(states[r] is State.STARTED for r in begun):
        return ()
    return tuple(sorted(waiting))


def _last_agreed(steps: tuple[Step, ...], bad: Step | None) -> Step | None:
    agreed = [
        s
        for s in steps
        if s.done
        and not s.missing
        and s.match is MatchState.FULLY_MATCHED
        and (bad is None or (s.group.name == bad.group.name and s.seq < bad.seq))
    ]
    return agreed[-1] if agreed else None
