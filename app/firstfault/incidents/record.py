"""Where do the parts of the record meet? One object over one database and one data folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from functools import cached_property

from firstfault.errors import CannotAnalyse
from firstfault.incidents.database import Clock, Database, open_database
from firstfault.incidents.drafts import FeedbackStore
from firstfault.incidents.evidence import EvidenceShelf
from firstfault.incidents.experiments import ExperimentStore
from firstfault.incidents.runs import RunQueue
from firstfault.incidents.store import IncidentStore
from firstfault.incidents.verdicts import VerdictStore
from firstfault.paths import keep_private
from firstfault.settings import Settings
from firstfault_tools.dataclass import dataclass

DAY = 86_400
EXPERIMENTS = "experiments"
"""Folder below the data folder for what trials are given: host files, configurations, checkouts."""


@dataclass(frozen=True)
class Record:
    """Everything on record, by subject."""

    settings: Settings
    database: Database

    @cached_property
    def queue(self) -> RunQueue:
        return RunQueue(
            self.database,
            self.settings.lease_seconds,
            self.settings.max_attempts,
            self.settings.data / "runs",
        )

    @cached_property
    def incidents(self) -> IncidentStore:
        return IncidentStore(self.database, self.queue)

    @cached_property
    def shelf(self) -> EvidenceShelf:
        return EvidenceShelf(
            self.database, self.settings.data / "scratch", self.settings.data / "readings"
        )

    @cached_property
    def verdicts(self) -> VerdictStore:
        return VerdictStore(self.database)

    @cached_property
    def experiments(self) -> ExperimentStore:
        return ExperimentStore(self.database)

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
            self.delete(incident)
        return old

    def delete(self, incident: str) -> int:
        """Rows, evidence no other incident uses, what was unpacked and drafts; how many files went.

        What the agent keeps of it is forgotten by `firstfault.agent.forgetting`.
        """
        for experiment in self.experiments.list(incident):
            shutil.rmtree(self.settings.data / EXPERIMENTS / experiment.id, ignore_errors=True)
        gone = self.shelf.delete_incident(incident)
        self.feedback.delete_draft(incident)
        self.database.forget_deleted()
        return gone


def open_record(settings: Settings, clock: Clock = time.time) -> Record:
    """Record of an installation; the database is created or migrated where needed."""
    try:
        keep_private(settings.data)
    except OSError as error:
        raise CannotAnalyse(
            f"the data folder {settings.data} cannot be used ({error.strerror or error}). "
            "Set FIRSTFAULT_DATA to a folder of your own."
        ) from error
    return Record(settings, open_database(settings.database, clock))
