"""Does a run stay with one worker, and does it outlive a dead one?"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from firstfault.incidents.database import Database
from firstfault.incidents.events import EventKind, Progress, Received
from firstfault.incidents.journal import append_event, read_events
from firstfault.incidents.record import Record
from firstfault.incidents.records import IncidentState, Run, RunKind, RunState, TurnKind
from firstfault.incidents.runs import LeaseLost, RunQueue


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(record: Record, clock: Clock) -> Record:
    return Record(record.settings, Database(record.database.engine, clock))


_serial = itertools.count()


def new(record: Record) -> str:
    received = Received(TurnKind.REPORT, "why?")
    return record.incidents.create("t", received, (), f"key-{next(_serial)}", RunKind.DIAGNOSE)


def claim(record: Record, worker: str = "a") -> Run:
    run = record.queue.claim(worker)
    assert run is not None
    return run


def finish(record: Record, run: Run, state: RunState = RunState.DONE) -> None:
    with record.database.write() as connection:
        record.queue.hold(connection, run)
        record.queue.finish(connection, run, state)


def test_runs_are_taken_in_order_and_once(timed: Record) -> None:
    first, second = new(timed), new(timed)
    assert [claim(timed).incident, claim(timed, "b").incident] == [first, second]
    assert timed.queue.claim("c") is None


def test_runs_of_one_incident_wait_for_each_other(timed: Record) -> None:
    incident = new(timed)
    timed.incidents.add_turn(incident, Received(TurnKind.QUESTION, "and?"), (), "", RunKind.ANSWER)
    run = claim(timed)
    assert timed.queue.claim("b") is None
    finish(timed, run)
    assert claim(timed, "b").kind is RunKind.ANSWER


def test_an_expired_lease_is_taken_over_and_the_first_worker_is_fenced(
    timed: Record, clock: Clock
) -> None:
    incident = new(timed)
    dead = claim(timed, "dead")
    clock.time += timed.queue.lease_seconds - 1
    assert timed.queue.claim("b") is None
    clock.time += 2
    alive = claim(timed, "b")
    assert (alive.id, alive.attempt) == (dead.id, 2)
    assert not timed.queue.beat(dead)
    with pytest.raises(LeaseLost), timed.database.write() as connection:
        timed.queue.hold(connection, dead)
    finish(timed, alive)
    assert timed.incidents.get(incident).state is IncidentState.DONE


def test_a_heartbeat_keeps_the_lease(timed: Record, clock: Clock) -> None:
    new(timed)
    run = claim(timed)
    for _ in range(5):
        clock.time += timed.queue.lease_seconds * 0.9
        assert timed.queue.beat(run)
        assert timed.queue.claim("b") is None


def test_a_run_that_kills_its_workers_ends_as_failed(timed: Record, clock: Clock) -> None:
    incident = new(timed)
    queue = RunQueue(timed.database, lease_seconds=1, max_attempts=3)
    for n in range(3):
        run = queue.claim(f"w{n}")
        assert run is not None
        clock.time += 2
    assert queue.claim("w9") is None
    assert timed.incidents.get(incident).state is IncidentState.FAILED
    last = read_events(timed.database, incident)[-1]
    assert last.kind is EventKind.ERROR
    assert last.is_closing


def test_release_gives_the_run_back_without_counting_the_attempt(timed: Record) -> None:
    new(timed)
    run = claim(timed)
    timed.queue.release(run)
    assert claim(timed, "b").attempt == 1


@pytest.mark.parametrize("begun", [False, True])
def test_stop_ends_waiting_and_running_runs(timed: Record, begun: bool) -> None:
    incident = new(timed)
    run = claim(timed) if begun else None
    assert timed.queue.stop(incident) == 1
    assert timed.queue.stop(incident) == 0
    assert timed.incidents.get(incident).state is IncidentState.STOPPED
    assert read_events(timed.database, incident)[-1].kind is EventKind.STOPPED
    assert timed.queue.claim("b") is None
    if run is not None:
        with pytest.raises(LeaseLost), timed.database.write() as connection:
            timed.queue.hold(connection, run)


def test_many_workers_share_the_queue_without_doubling(record: Record) -> None:
    wanted = {new(record) for _ in range(24)}

    def work(name: str) -> list[str]:
        taken = []
        misses = 0
        while misses < 3:
            run = record.queue.claim(name)
            if run is None:
                misses += 1
                continue
            taken.append(run.incident)
            finish(record, run)
        return taken

    with ThreadPoolExecutor(6) as pool:
        taken = list(itertools.chain(*pool.map(work, "abcdef")))
    assert sorted(taken) == sorted(wanted)


def test_events_are_gapless_and_unique_under_concurrent_writers(record: Record) -> None:
    incident = new(record)

    def say(n: int) -> int | None:
        with record.database.write() as connection:
            return append_event(
                record.database, connection, incident, 1, f"k{n % 40}", Progress("read", str(n))
            )

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(say, range(80)))
    assert sorted(n for n in numbers if n is not None) == list(range(2, 42))
    events = read_events(record.database, incident)
    assert [e.seq for e in events] == list(range(1, 42))
    assert read_events(record.database, incident, after=40) == (events[-1],)


def test_hold_names_one_attempt_only(timed: Record) -> None:
    new(timed)
    run = claim(timed)
    with pytest.raises(LeaseLost), timed.database.write() as connection:
        timed.queue.hold(connection, replace(run, attempt=run.attempt + 1))
