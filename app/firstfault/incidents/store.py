"""How are incidents kept, found, shared, archived and deleted? One class over the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, String, cast, exists, or_, select, update
from sqlalchemy.exc import IntegrityError

from firstfault.errors import IncidentNotFound, UsageError
from firstfault.incidents.database import EVIDENCE_LOCK, Database
from firstfault.incidents.events import Received
from firstfault.incidents.journal import append_event
from firstfault.incidents.records import (
    EvidenceFile,
    Incident,
    IncidentState,
    RunKind,
    Turn,
    TurnKind,
    clean_text,
    new_id,
)
from firstfault.incidents.runs import RunQueue
from firstfault.incidents.schema import evidence, findings, incidents, turns
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log.secrets import redact

MAX_TITLE, MAX_TEXT, MAX_KEY, MAX_LISTED = 200, 100_000, 200, 500


@dataclass(frozen=True, slots=True)
class IncidentProgress:
    """Sequence number of the last event, and whether no run is open."""

    last_event: int
    is_settled: bool


@dataclass(frozen=True, slots=True)
class IncidentStore:
    """Incidents and their turns."""

    database: Database
    queue: RunQueue

    def create(
        self,
        title: str,
        received: Received,
        files: Sequence[EvidenceFile],
        key: str,
        kind: RunKind,
    ) -> str:
        """A new incident with its first turn and run, durable when this returns; its id.

        The same non-empty key twice gives the first incident's id again.
        """
        identity = new_id()
        _check_key(key)
        try:
            with self.database.write() as connection:
                now = self.database.clock()
                connection.execute(
                    incidents.insert().values(
                        id=identity,
                        key=key or None,
                        title=clean_text(redact(title), MAX_TITLE),
                        state=IncidentState.QUEUED.value,
                        created=now,
                        updated=now,
                        archived=False,
                        last_event=0,
                        last_turn=0,
                    )
                )
                self._add(connection, identity, received, files, "", kind)
        except IntegrityError:
            known = self._by_key(key)
            if known is None:
                raise
            return known
        return identity

    def add_turn(
        self,
        incident: str,
        received: Received,
        files: Sequence[EvidenceFile],
        key: str,
        kind: RunKind,
    ) -> int:
        """A further turn with its run; its number. The same non-empty key twice adds it once."""
        _check_key(key)
        try:
            with self.database.write() as connection:
                return self._add(connection, incident, received, files, key, kind)
        except IntegrityError:
            query = select(turns.c.number).where(turns.c.incident == incident, turns.c.key == key)
            with self.database.read() as connection:
                number = connection.execute(query).scalar_one_or_none()
            if number is None:
                raise
            return int(number)

    def _add(
        self,
        connection: Connection,
        incident: str,
        received: Received,
        files: Sequence[EvidenceFile],
        key: str,
        kind: RunKind,
    ) -> int:
        self.database.lock(connection, EVIDENCE_LOCK, shared=True)
        number = connection.execute(
            update(incidents)
            .where(incidents.c.id == incident)
            .values(last_turn=incidents.c.last_turn + 1)
            .returning(incidents.c.last_turn)
        ).scalar_one_or_none()
        if number is None:
            raise _missing(incident)
        connection.execute(
            turns.insert().values(
                incident=incident,
                number=number,
                kind=received.turn.value,
                text=clean_text(redact(received.text), MAX_TEXT),
                created=self.database.clock(),
                key=key or None,
            )
        )
        rows = [
            {
                "incident": incident,
                "turn": number,
                "name": file.name,
                "origin": file.origin.value,
                "sha256": file.sha256,
                "path": str(file.path),
                "size": file.size,
                "modified": file.modified,
            }
            for file in files
        ]
        if rows:
            connection.execute(evidence.insert(), rows)
        append_event(
            self.database, connection, incident, number, f"turn-{number}/received", received
        )
        self.queue.enqueue(connection, incident, number, kind)
        return int(number)

    def get(self, incident: str) -> Incident:
        """One incident. Raises IncidentNotFound."""
        return self._one(select(incidents).where(incidents.c.id == incident), incident)

    def numbered(self, prefix: str) -> tuple[tuple[int, Incident], ...]:
        """Incidents whose key is `prefix` and a number, in order of it."""
        wanted = select(incidents).where(incidents.c.key.startswith(prefix, autoescape=True))
        with self.database.read() as connection:
            rows = connection.execute(wanted).mappings().all()
        found = ((str(row["key"])[len(prefix) :], _incident(row)) for row in rows)
        return tuple(sorted(((int(n), i) for n, i in found if n.isdecimal()), key=lambda x: x[0]))

    def progress(self, wanted: Sequence[str]) -> dict[str, IncidentProgress]:
        """How far incidents are: the cheap question that followers ask again and again."""
        query = select(incidents.c.id, incidents.c.last_event, incidents.c.state)
        with self.database.read() as connection:
            rows = connection.execute(query.where(incidents.c.id.in_(wanted))).all()
        return {r[0]: IncidentProgress(r[1], IncidentState(r[2]).is_final) for r in rows}

    def get_shared(self, token: str) -> Incident:
        """The incident behind a share token."""
        return self._one(select(incidents).where(incidents.c.share == token), "behind this link")

    def turns(self, incident: str) -> tuple[Turn, ...]:
        """Turns of an incident in order."""
        query = select(turns).where(turns.c.incident == incident).order_by(turns.c.number)
        with self.database.read() as connection:
            return tuple(
                Turn(r["number"], TurnKind(r["kind"]), redact(r["text"]), r["created"])
                for r in connection.execute(query).mappings()
            )

    def search(
        self, query: str = "", archived: bool | None = False, limit: int = 100
    ) -> tuple[Incident, ...]:
        """Incidents, last changed first; every word of `query` must occur in what is on record."""
        wanted = select(incidents).order_by(incidents.c.updated.desc(), incidents.c.id)
        if archived is not None:
            wanted = wanted.where(incidents.c.archived == archived)
        for word in query.split()[:12]:
            wanted = wanted.where(_mentions(word))
        with self.database.read() as connection:
            rows = connection.execute(wanted.limit(min(limit, MAX_LISTED))).mappings()
            return tuple(_incident(row) for row in rows)

    def set_archived(self, incident: str, archived: bool) -> None:
        """Take an incident out of the list, or put it back."""
        self._change(incident, archived=archived)

    def set_title(self, incident: str, title: str) -> None:
        """Rename an incident."""
        if not title.strip():
            raise UsageError("a title needs at least one character")
        self._change(incident, title=clean_text(redact(title.strip()), MAX_TITLE))

    def share(self, incident: str) -> str:
        """Token of the read-only view; the same one every time until it is withdrawn."""
        known = self.get(incident).share
        if known is not None:
            return known
        with self.database.write() as connection:
            connection.execute(
                update(incidents)
                .where(incidents.c.id == incident, incidents.c.share.is_(None))
                .values(share=new_id())
            )
        return self.get(incident).share or ""

    def withdraw_share(self, incident: str) -> None:
        """The share link stops working; a new one will be another."""
        self._change(incident, share=None)

    def idle_since(self, limit: float) -> tuple[str, ...]:
        """Ids of settled incidents last changed before `limit` (seconds since the epoch)."""
        final = [s.value for s in IncidentState if s.is_final]
        query = select(incidents.c.id).where(
            incidents.c.updated < limit, incidents.c.state.in_(final)
        )
        with self.database.read() as connection:
            return tuple(connection.execute(query).scalars())

    def _change(self, incident: str, **values: Any) -> None:
        with self.database.write() as connection:
            done = connection.execute(
                update(incidents).where(incidents.c.id == incident).values(**values)
            )
            if done.rowcount != 1:
                raise _missing(incident)

    def _one(self, query: Select[Any], name: str) -> Incident:
        with self.database.read() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            raise _missing(name)
        return _incident(row)

    def _by_key(self, key: str) -> str | None:
        with self.database.read() as connection:
            found = connection.execute(select(incidents.c.id).where(incidents.c.key == key))
            return found.scalar_one_or_none()


def _mentions(word: str) -> Any:
    escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    pattern = f"%{escaped}%"
    columns = (
        incidents.c.title,
        incidents.c.root_cause,
        incidents.c.signature,
        incidents.c.category,
        incidents.c.host,
        incidents.c.gpu,
        incidents.c.id,
    )
    direct = [cast(c, String).ilike(pattern, escape="\\") for c in columns]
    in_turns = exists().where(
        turns.c.incident == incidents.c.id, turns.c.text.ilike(pattern, escape="\\")
    )
    in_findings = exists().where(
        findings.c.incident == incidents.c.id,
        or_(
            findings.c.title.ilike(pattern, escape="\\"),
            findings.c.quote.ilike(pattern, escape="\\"),
        ),
    )
    in_files = exists().where(
        evidence.c.incident == incidents.c.id, evidence.c.name.ilike(pattern, escape="\\")
    )
    return or_(*direct, in_turns, in_findings, in_files)


def _check_key(key: str) -> None:
    if len(key) > MAX_KEY:
        raise UsageError(f"an idempotency key has at most {MAX_KEY} characters, not {len(key)}")


def _missing(incident: str) -> IncidentNotFound:
    return IncidentNotFound(
        f"no incident {incident}; it may have been deleted, or its retention has ended"
    )


def _incident(row: Any) -> Incident:
    return Incident(
        id=row["id"],
        title=redact(row["title"]),
        state=IncidentState(row["state"]),
        created=row["created"],
        updated=row["updated"],
        archived=bool(row["archived"]),
        share=row["share"],
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        category=Category(row["category"]) if row["category"] else None,
        signature=row["signature"],
        host=row["host"],
        gpu=row["gpu"],
        root_cause=row["root_cause"] and redact(row["root_cause"]),
        last_event=row["last_event"],
        last_turn=row["last_turn"],
    )
