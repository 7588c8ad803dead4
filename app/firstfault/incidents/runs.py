"""Who works on what? A queue of runs in the database, each held under a lease.

A worker that falls silent loses its lease; another takes the run over. Whatever a worker writes, it
writes in a transaction that first proves that it still holds the lease, so a worker that comes
back from the dead changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select, update

from firstfault.errors import FirstfaultError
from firstfault.incidents.database import Database
from firstfault.incidents.events import Failed, Stopped
from firstfault.incidents.journal import append_event
from firstfault.incidents.records import IncidentState, Run, RunKind, RunState
from firstfault.incidents.schema import incidents, runs
from firstfault.limits import read_note
from firstfault_tools.dataclass import dataclass

OPEN_STATES = (RunState.QUEUED.value, RunState.RUNNING.value)


class LeaseLost(FirstfaultError):
    """The run was stopped, deleted or taken over; the worker drops what it has."""


@dataclass(frozen=True, slots=True)
class RunQueue:
    """Runs of all incidents. Runs of one incident are executed one after the other."""

    database: Database
    lease_seconds: float = 15.0
    max_attempts: int = 2
    places: Path | None = None
    """Folder of the notes that say where a run stood when its worker died."""

    def enqueue(self, connection: Connection, incident: str, turn: int, kind: RunKind) -> None:
        """Add a run; the caller's transaction makes it durable together with its input."""
        connection.execute(
            runs.insert().values(
                incident=incident,
                turn=turn,
                kind=kind.value,
                state=RunState.QUEUED.value,
                attempt=0,
                created=self.database.clock(),
            )
        )
        _set_state(connection, incident, IncidentState.QUEUED)

    def claim(self, worker: str) -> Run | None:
        """Take the oldest run that is free: queued, or running under an expired lease."""
        earlier = runs.alias()
        # who looks in vain must not make those wait who write
        with self.database.read() as connection:
            if (
                connection.execute(select(runs.c.id).where(self._free(connection)).limit(1)).first()
                is None
            ):
                return None
        with self.database.write() as connection:
            now = self.database.now(connection)
            free = self._free(connection)
            blocked = exists().where(
                earlier.c.incident == runs.c.incident,
                earlier.c.id < runs.c.id,
                earlier.c.state.in_(OPEN_STATES),
            )
            row = (
                connection.execute(
                    select(runs)
                    .where(free, ~blocked)
                    .order_by(runs.c.id)
                    .limit(1)
                    .with_for_update(skip_locked=True)
                )
                .mappings()
                .first()
            )
            if row is None:
                return None
            if row["attempt"] >= self.max_attempts:
                self._give_up(connection, row)
                return None
            claimed = connection.execute(
                update(runs)
                .where(runs.c.id == row["id"])
                .values(
                    state=RunState.RUNNING.value,
                    worker=worker,
                    attempt=row["attempt"] + 1,
                    heartbeat=now,
                    lease_until=now + self.lease_seconds,
                )
                .returning(*runs.c)
            )
            taken = _run(claimed.mappings().one())
            _set_state(connection, taken.incident, IncidentState.RUNNING)
            return taken

    def _free(self, connection: Connection) -> ColumnElement[bool]:
        """Queued, or running under an expired lease."""
        return or_(
            runs.c.state == RunState.QUEUED.value,
            and_(
                runs.c.state == RunState.RUNNING.value,
                runs.c.lease_until < self.database.now(connection),
            ),
        )

    def beat(self, run: Run) -> bool:
        """Prolong the lease; False when it is no longer this worker's."""
        with self.database.write() as connection:
            now = self.database.now(connection)
            done = connection.execute(
                update(runs)
                .where(*self._mine(run))
                .values(heartbeat=now, lease_until=now + self.lease_seconds)
            )
            return done.rowcount == 1

    def hold(self, connection: Connection, run: Run) -> None:
        """Prove within a transaction that the run is still this worker's, else raise LeaseLost.

        The row stays locked until the transaction ends, so nobody takes it over in between.
        """
        row = connection.execute(
            select(runs.c.id).where(*self._mine(run)).with_for_update()
        ).first()
        if row is None:
            raise LeaseLost(f"run {run.id} of incident {run.incident} is no longer ours")

    def finish(
        self, connection: Connection, run: Run, state: RunState, error: str | None = None
    ) -> None:
        """End a run that is held."""
        connection.execute(
            update(runs)
            .where(runs.c.id == run.id)
            .values(
                state=state.value, finished=self.database.clock(), lease_until=None, error=error
            )
        )
        self._settle(connection, run.incident, state)

    def release(self, run: Run) -> None:
        """Put a held run back at once: an orderly shutdown does not wait for the lease to expire."""
        with self.database.write() as connection:
            connection.execute(
                update(runs)
                .where(*self._mine(run))
                .values(
                    state=RunState.QUEUED.value,
                    lease_until=None,
                    worker=None,
                    attempt=runs.c.attempt - 1,
                )
            )

    def stop(self, incident: str) -> int:
        """Stop every open run of an incident; returns how many. A worker on it loses its lease."""
        with self.database.write() as connection:
            rows = (
                connection.execute(
                    select(runs)
                    .where(runs.c.incident == incident, runs.c.state.in_(OPEN_STATES))
                    .order_by(runs.c.id)
                    .with_for_update()
                )
                .mappings()
                .all()
            )
            for row in rows:
                self.finish(connection, _run(row), RunState.STOPPED)
                append_event(
                    self.database,
                    connection,
                    incident,
                    row["turn"],
                    f"run-{row['id']}/stopped",
                    Stopped(),
                )
            return len(rows)

    def of_incident(self, incident: str) -> tuple[Run, ...]:
        """Every run of an incident, oldest first."""
        query = select(runs).where(runs.c.incident == incident).order_by(runs.c.id)
        with self.database.read() as connection:
            return tuple(_run(row) for row in connection.execute(query).mappings())

    def _mine(self, run: Run) -> tuple[Any, ...]:
        return (
            runs.c.id == run.id,
            runs.c.worker == run.worker,
            runs.c.attempt == run.attempt,
            runs.c.state == RunState.RUNNING.value,
        )

    def _give_up(self, connection: Connection, row: Any) -> None:
        message = (
            f"could not analyse: {row['attempt']} workers died on this input{self._say_place(row['id'])}, so it "
            "is no longer tried. Leave that file out, or raise FIRSTFAULT_MAX_ATTEMPTS and start it again."
        )
        self.finish(connection, _run(row), RunState.FAILED, message)
        key = f"run-{row['id']}/error"
        append_event(self.database, connection, row["incident"], row["turn"], key, Failed(message))

    def note_of(self, run: int) -> Path | None:
        """Where a run's note lies."""
        return self.places / f"run-{run}" if self.places is not None else None

    def _say_place(self, run: int) -> str:
        note = self.note_of(run)
        return read_note(note) if note is not None else ""

    def _settle(self, connection: Connection, incident: str, state: RunState) -> None:
        waiting = connection.execute(
            select(runs.c.id).where(runs.c.incident == incident, runs.c.state.in_(OPEN_STATES))
        ).first()
        _set_state(connection, incident, IncidentState.QUEUED if waiting is not None else state)


def _set_state(connection: Connection, incident: str, state: IncidentState) -> None:
    connection.execute(
        update(incidents).where(incidents.c.id == incident).values(state=state.value)
    )


def _run(row: Any) -> Run:
    return Run(
        id=row["id"],
        incident=row["incident"],
        turn=row["turn"],
        kind=RunKind(row["kind"]),
        state=RunState(row["state"]),
        worker=row["worker"],
        attempt=row["attempt"],
        lease_until=row["lease_until"],
        heartbeat=row["heartbeat"],
        error=row["error"],
    )
