"""What of one incident does the page draw at a time? All parts of it are read once, before the first is drawn.

A worker writes while the page is drawn. Two parts that each read for themselves may see the incident before and after
its verdict: both then showed the button that ends the reading, and a page may hold a key only once.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.errors import FirstfaultError
from firstfault.incidents.events import Event
from firstfault.incidents.records import EvidenceFile, Incident
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.door import service
from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An incident as it stood when the page began to be drawn. diagnosis: None before the first verdict."""

    incident: Incident
    events: Sequence[Event]
    diagnosis: Diagnosis | None
    evidence: Sequence[EvidenceFile]

    @property
    def is_read(self) -> bool:
        """Whether evidence is being read towards the first verdict; the work then shows how far it is."""
        return self.diagnosis is None and bool(self.evidence) and not self.incident.state.is_final


def read_snapshot(incident: Incident) -> Snapshot:
    """Its events, verdict and evidence now; no events where the incident is gone meanwhile."""
    try:
        events = service().events(incident.id)
    except FirstfaultError:
        events = ()
    return Snapshot(
        incident, events, service().diagnosis(incident.id), service().evidence(incident.id)
    )
