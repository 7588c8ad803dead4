"""Do many events written at once get numbers without holes, each key once?"""

from __future__ import annotations

import pytest

from firstfault.errors import IncidentNotFound
from firstfault.incidents.events import Progress
from firstfault.incidents.journal import append_events, read_events
from firstfault.service import NewIncident, PastedText, Service


@pytest.fixture
def incident(idle_service: Service) -> str:
    return idle_service.start(NewIncident((PastedText("[rank0]: ValueError: no"),)))


def write(service: Service, incident: str, *keys: str) -> list[int]:
    database = service.record.database
    with database.write() as connection:
        said = [(key, Progress("read", key)) for key in keys]
        return append_events(database, connection, incident, 1, said)


def test_known_keys_are_left_out_and_leave_no_hole(idle_service: Service, incident: str) -> None:
    assert write(idle_service, incident, "a", "b") == [2, 3]
    assert write(idle_service, incident, "b", "c", "a", "d") == [4, 5]
    assert write(idle_service, incident, "d", "c") == []
    assert write(idle_service, incident, "e") == [6]
    events = read_events(idle_service.record.database, incident)
    assert [e.seq for e in events] == [1, 2, 3, 4, 5, 6]
    said = [e.body.detail for e in events[1:] if isinstance(e.body, Progress)]
    assert said == ["a", "b", "c", "d", "e"]
    assert idle_service.incident(incident).last_event == 6


def test_a_key_twice_at_once_counts_once(idle_service: Service, incident: str) -> None:
    assert write(idle_service, incident, "a", "a", "b") == [2, 3]
    assert idle_service.incident(incident).last_event == 3


def test_no_events_change_nothing(idle_service: Service, incident: str) -> None:
    assert write(idle_service, incident) == []
    assert idle_service.incident(incident).last_event == 1


def test_events_of_a_deleted_incident_are_refused(idle_service: Service, incident: str) -> None:
    idle_service.delete(incident)
    with pytest.raises(IncidentNotFound):
        write(idle_service, incident, "a")
