"""Is anything lost or said twice when workers and clients are killed? At every write, and at random.

Processes are forked from a warm nursery, so that a start costs milliseconds, and die by SIGKILL.
The nursery never opens a database itself: no connection is carried over a fork.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection as Transaction

from firstfault.agent.enrich import make_question
from firstfault.conversation.rules import RuleAnswerer
from firstfault.incidents.database import Database
from firstfault.incidents.events import EventKind
from firstfault.incidents.record import open_record
from firstfault.incidents.records import IncidentState
from firstfault.service import NewIncident, PastedText, Service, open_service
from firstfault.settings import Settings, WorkerMode
from firstfault.worker import Worker
from firstfault.workspace import Workspace

LEASE = 0.4
KILLS = 50
WHY, WHICH = "Why CUDA_OOM, and how do I fix it?", "Which rank, and what is the fix?"
FORK = multiprocessing.get_context("fork")
Chaos = Callable[..., Settings]


def make_log(number: int) -> str:
    lines = [f"[rank{number % 8}]: step {n} loss {3 - n / 100:.3f}" for n in range(40)]
    lines.append(
        f"[rank{number % 8}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {number + 1}.00 GiB."
    )
    return "\n".join(lines) + "\n"


class Nursery:
    """Forks processes on demand and buries them."""

    def __init__(self) -> None:
        self._pipe, theirs = FORK.Pipe()
        self._process = FORK.Process(target=self._serve, args=(theirs,), daemon=True)
        self._process.start()

    def spawn(self, target: Callable[..., None], *args: object) -> int:
        """Process id of a fork that runs `target(workspace, *args)`."""
        return int(self._ask("spawn", target.__name__, *args))

    def join(self, pid: int, timeout: float = 20.0) -> int | None:
        """How the process ended: -9 for SIGKILL; None when it still runs after `timeout` seconds."""
        limit = time.monotonic() + timeout
        while True:
            code = self._ask("wait", pid)
            if code is not None or time.monotonic() >= limit:
                return code
            time.sleep(0.01)

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait for the end."""
        os.kill(pid, signal.SIGKILL)
        self.join(pid)

    def close(self) -> None:
        self._pipe.send(("end",))
        self._process.join()

    def _ask(self, *message: object) -> Any:
        self._pipe.send(message)
        return self._pipe.recv()

    def _serve(self, pipe: Connection[Any, Any]) -> None:
        warm = Workspace()
        diagnosis = warm.diagnose_text("warm.log", make_log(0).encode())
        for text in (WHY, WHICH):  # or every fork reads the tables of the conversation for itself
            for _ in RuleAnswerer().answer(make_question(diagnosis, {}, warm.knowledge, text)):
                pass
        ended: dict[int, int] = {}
        while (message := pipe.recv())[0] != "end":
            if message[0] == "spawn":
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        globals()[message[1]](warm, *message[2:])
                        code = 0
                    finally:
                        os._exit(code)
                pipe.send(pid)
                continue
            pid = message[1]
            if pid not in ended:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            pipe.send(ended.get(pid))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    opened = Nursery()
    yield opened
    opened.close()


@pytest.fixture
def chaos(make_settings: Chaos) -> Settings:
    return make_settings(worker=WorkerMode.EXTERNAL, lease_seconds=LEASE, max_attempts=1000)


def work_until_killed(workspace: Workspace, settings: Settings) -> None:
    Worker(open_record(settings), workspace).work(threading.Event())


def assert_whole(service: Service, incident: str, verdicts: int = 1, answers: int = 0) -> None:
    assert service.incident(incident).state is IncidentState.DONE
    events = service.events(incident)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    kinds = [e.kind for e in events]
    assert kinds.count(EventKind.VERDICT) == verdicts
    assert kinds.count(EventKind.PHASE) == 5 * verdicts
    assert kinds.count(EventKind.ANSWER) == answers
    assert kinds.count(EventKind.DONE) == verdicts + answers


def wait_until_settled(service: Service, incident: str, seconds: float = 30) -> None:
    limit = time.monotonic() + seconds
    while not service.incident(incident).state.is_final:
        assert time.monotonic() < limit, f"{incident} was never finished"
        time.sleep(0.02)


def die_at_write(workspace: Workspace, settings: Settings, count: int, committed: bool) -> None:
    """Work, and be killed around the `count`-th write transaction: before or after its commit."""
    real = Database.write
    seen = 0

    @contextmanager
    def write(self: Database) -> Iterator[Transaction]:
        nonlocal seen
        seen += 1
        mine = seen
        with real(self) as connection:
            yield connection
            if mine == count and not committed:
                os.kill(os.getpid(), signal.SIGKILL)
        if mine == count:
            os.kill(os.getpid(), signal.SIGKILL)

    Database.write = write  # type: ignore[method-assign,assignment]
    work_until_killed(workspace, settings)


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_a_worker_may_die_at_any_write(chaos: Settings, nursery: Nursery, committed: bool) -> None:
    with open_service(chaos, workers=False) as service:
        for count in range(1, 10):
            incident = service.start(NewIncident((PastedText(make_log(count)),)))
            service.ask(incident, WHY)
            doomed = nursery.spawn(die_at_write, chaos, count, committed)
            assert nursery.join(doomed) == -signal.SIGKILL
            heir = nursery.spawn(work_until_killed, chaos)
            wait_until_settled(service, incident)
            nursery.kill(heir)
            assert_whole(service, incident, verdicts=1, answers=1)


def report_until_killed(
    _: Workspace, settings: Settings, first: int, last: int, ledger: str
) -> None:
    """A client like the page: starts incidents, asks, and notes what it was told is accepted."""
    service = open_service(settings, workers=False)
    with open(ledger, "a", buffering=1) as book:
        for number in range(first, last):
            log = make_log(number)
            new = NewIncident((PastedText(log, f"rank{number}.log"),), f"report {number}")
            incident = service.start(new, key=f"report-{number}")
            book.write(f"{number} {incident}\n")
            service.ask(incident, WHICH, key="q")
            time.sleep(0.05)


def read_ledger(path: Path) -> dict[int, str]:
    lines = path.read_text().split("\n") if path.exists() else []
    return {int(n): i for n, _, i in (line.partition(" ") for line in lines[:-1])}


@pytest.mark.slow
def test_fifty_random_kills_lose_nothing(chaos: Settings, nursery: Nursery, tmp_path: Path) -> None:
    seed = int(os.environ.get("FIRSTFAULT_CHAOS_SEED", "7"))
    dice = random.Random(seed)
    ledger, total = tmp_path / "ledger", 60
    with open_service(chaos, workers=False) as service:
        workers = [nursery.spawn(work_until_killed, chaos) for _ in range(2)]
        client = nursery.spawn(report_until_killed, chaos, 0, total, str(ledger))
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.0, 0.25))
            if dice.random() < 0.4 and nursery.join(client, 0) is None:
                nursery.kill(client)
                known = read_ledger(ledger)
                # the last one may have been accepted without a note: its key makes that harmless
                first = max(max(known, default=0) - 1, 0)
                client = nursery.spawn(report_until_killed, chaos, first, total, str(ledger))
            else:
                victim = dice.randrange(2)
                nursery.kill(workers[victim])
                workers[victim] = nursery.spawn(work_until_killed, chaos)
        assert nursery.join(client, 60) == 0
        accepted = read_ledger(ledger)
        assert sorted(accepted) == list(range(total)), f"seed {seed}"
        for number, incident in accepted.items():
            wait_until_settled(service, incident, 60)
            assert_whole(service, incident, verdicts=1, answers=1)
            diagnosis = service.diagnosis(incident)
            assert diagnosis is not None
            assert diagnosis.first_failing_rank == number % 8
            file = service.evidence(incident)[0]
            assert file.path.read_text() == make_log(number)
        assert len(service.incidents(archived=None, limit=500)) == total
        for worker in workers:
            nursery.kill(worker)
