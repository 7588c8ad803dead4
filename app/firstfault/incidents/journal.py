"""How are events written and read? Append-only, one gapless sequence an incident."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select, update

from firstfault.errors import IncidentNotFound
from firstfault.incidents.database import Database
from firstfault.incidents.events import (
    Body,
    Event,
    EventKind,
    body_from_json,
    body_to_json,
    kind_of,
)
from firstfault.incidents.schema import events, incidents

MAX_EVENTS = 5_000


def append_event(
    database: Database, connection: Connection, incident: str, turn: int, key: str, body: Body
) -> int | None:
    """Sequence number of the new event; None when an event with this key is already there.

    The incident's row is locked by the update that takes the number, so numbers have no holes and
    are visible in order.
    """
    seq = connection.execute(
        update(incidents)
        .where(incidents.c.id == incident)
        .values(last_event=incidents.c.last_event + 1, updated=database.clock())
        .returning(incidents.c.last_event)
    ).scalar_one_or_none()
    if seq is None:
        raise IncidentNotFound(f"incident {incident} does not exist; it may have been deleted")
    known = connection.execute(
        select(events.c.seq).where(events.c.incident == incident, events.c.key == key)
    ).first()
    if known is not None:
        connection.execute(
            update(incidents).where(incidents.c.id == incident).values(last_event=seq - 1)
        )
        return None
    connection.execute(
        events.insert().values(
            incident=incident,
            seq=seq,
            turn=turn,
            kind=kind_of(body).value,
            time=database.clock(),
            key=key,
            body=json.dumps(body_to_json(body)),
        )
    )
    return int(seq)


def read_events(
    database: Database, incident: str, after: int = 0, limit: int = MAX_EVENTS
) -> tuple[Event, ...]:
    """Events of an incident with a sequence number above `after`, in order."""
    query = (
        select(events)
        .where(events.c.incident == incident, events.c.seq > after)
        .order_by(events.c.seq)
        .limit(min(limit, MAX_EVENTS))
    )
    with database.read() as connection:
        return tuple(_event(row) for row in connection.execute(query).mappings())


def _event(row: Any) -> Event:
    kind = EventKind(row["kind"])
    return Event(
        incident=row["incident"],
        seq=row["seq"],
        turn=row["turn"],
        kind=kind,
        time=row["time"],
        body=body_from_json(kind, json.loads(row["body"])),
    )
