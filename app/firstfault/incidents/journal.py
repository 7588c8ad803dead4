"""How are events written and read? Append-only, one gapless sequence an incident."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    """Sequence number of the new event; None when an event with this key is already there."""
    written = append_events(database, connection, incident, turn, [(key, body)])
    return written[0] if written else None


def append_events(
    database: Database,
    connection: Connection,
    incident: str,
    turn: int,
    said: Sequence[tuple[str, Body]],
) -> list[int]:
    """Sequence numbers of the new events, in order; one whose key is already there is left out.

    The incident's row is locked by the update that takes the numbers, so numbers have no holes and
    are visible in order. However many events, there are three round trips to the database.
    """
    mine = incidents.c.id == incident
    last = connection.execute(
        update(incidents)
        .where(mine)
        .values(last_event=incidents.c.last_event + len(said), updated=database.clock())
        .returning(incidents.c.last_event)
    ).scalar_one_or_none()
    if last is None:
        raise IncidentNotFound(f"incident {incident} does not exist; it may have been deleted")
    keys = [key for key, _ in said]
    known = set(
        connection.execute(
            select(events.c.key).where(events.c.incident == incident, events.c.key.in_(keys))
        ).scalars()
    )
    new = {key: body for key, body in said if key not in known}
    before = last - len(said)
    if len(new) < len(said):
        connection.execute(update(incidents).where(mine).values(last_event=before + len(new)))
    rows = [
        {
            "incident": incident,
            "seq": seq,
            "turn": turn,
            "kind": kind_of(body).value,
            "time": database.clock(),
            "key": key,
            "body": json.dumps(body_to_json(body)),
        }
        for seq, (key, body) in enumerate(new.items(), before + 1)
    ]
    if rows:
        connection.execute(events.insert(), rows)
    return list(range(before + 1, before + 1 + len(rows)))


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
