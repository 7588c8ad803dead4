"""Where do the parts of the record meet? One object over one database and one data folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from firstfault.incidents.database import Clock, Database, open_database
from firstfault.incidents.drafts import FeedbackStore
from firstfault.incidents.evidence import EvidenceShelf
from firstfault.incidents.runs import RunQueue
from firstfault.incidents.store import IncidentStore
from firstfault.incidents.verdicts import VerdictStore
from firstfault.settings import Settings

DAY = 86_400


@dataclass(frozen=True)
class Record:
    """Everything on record, by subject."""

    settings: Settings
    database: Database

    @cached_property
    def queue(self) -> RunQueue:
        return RunQueue(self.database, self.settings.lease_seconds, self.settings.max_attempts)

    @cached_property
    def incidents(self) -> IncidentStore:
        return IncidentStore(self.database, self.queue)

    @cached_property
    def shelf(self) -> EvidenceShelf:
        return EvidenceShelf(self.database, self.settings.data / "scratch")

    @cached_property
    def verdicts(self) -> VerdictStore:
        return VerdictStore(self.database)

    @cached_property
    def feedback(self) -> FeedbackStore:
        return FeedbackStore(self.database, self.settings.data / "draft_cases")

    def purge(self) -> Sequence[str]:
        """Delete for good what retention no longer keeps; which incidents went."""
        days = self.settings.retention_days
        if not days:
            return ()
        old = self.incidents.idle_since(self.database.clock() - days * DAY)
        for incident in old:
            self.shelf.delete_incident(incident)
        return old


def open_record(settings: Settings, clock: Clock = time.time) -> Record:
    """Record of an installation; the database is created or migrated where needed."""
    return Record(settings, open_database(settings.database, clock))
