"""Which experiments are on record? Design, trials and result, each trial durable before the next begins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from firstfault.errors import CannotAnalyse, UsageError
from firstfault.incidents.database import Database
from firstfault.incidents.plain import from_plain, to_plain
from firstfault.incidents.records import new_id
from firstfault.incidents.schema import experiments, incidents, trials
from firstfault_tools.dataclass import dataclass
from firstfault_tools.experiments.experiment import Design, Result
from firstfault_tools.experiments.trial import Trial

ID_LENGTH = 8
MOST_LISTED = 500


@dataclass(frozen=True)
class StoredExperiment:
    """One experiment. incident: None where it belongs to none. Times are seconds since the epoch, UTC."""

    id: str
    incident: str | None
    created: float
    updated: float
    design: Design
    trials: tuple[Trial, ...]
    result: Result | None


@dataclass(frozen=True, slots=True)
class ExperimentStore:
    """Experiments of all incidents, and those of none."""

    database: Database

    def create(self, design: Design, incident: str | None = None) -> str:
        """A new experiment; its id, durable when this returns."""
        identity = new_id()[:ID_LENGTH]
        now = self.database.clock()
        with self.database.write() as connection:
            if incident is not None:
                known = connection.execute(
                    select(incidents.c.id).where(incidents.c.id == incident)
                ).first()
                if known is None:
                    raise UsageError(f"no incident {incident}; `firstfault incidents` lists them")
            connection.execute(
                experiments.insert().values(
                    id=identity, incident=incident, created=now, updated=now,
                    kind=design.kind.value, design=json.dumps(to_plain(design)), result=None,
                )
            )  # fmt: skip
        return identity

    def add_trial(self, experiment: str, number: int, trial: Trial) -> None:
        """Trial `number` (from 1). Raises CannotAnalyse where another process has written it first."""
        try:
            with self.database.write() as connection:
                connection.execute(
                    trials.insert().values(
                        experiment=experiment, number=number, body=json.dumps(to_plain(trial))
                    )
                )
                connection.execute(
                    update(experiments)
                    .where(experiments.c.id == experiment)
                    .values(updated=self.database.clock())
                )
        except IntegrityError as error:
            raise CannotAnalyse(
                f"trial {number} of experiment {experiment} was written by another process; it goes on there, or "
                f"`firstfault experiment resume {experiment}` takes it up later"
            ) from error

    def finish(self, experiment: str, result: Result) -> None:
        """Store the result."""
        self._change(experiment, result=json.dumps(to_plain(result)))

    def attach(self, experiment: str, incident: str) -> None:
        """Make it an experiment of an incident."""
        self._change(experiment, incident=incident)

    def _change(self, experiment: str, **values: Any) -> None:
        with self.database.write() as connection:
            connection.execute(
                update(experiments)
                .where(experiments.c.id == experiment)
                .values(updated=self.database.clock(), **values)
            )

    def get(self, experiment: str) -> StoredExperiment:
        """One experiment by its id. Raises UsageError."""
        with self.database.read() as connection:
            row = connection.execute(
                select(experiments).where(experiments.c.id == experiment)
            ).first()
            if row is None:
                raise UsageError(
                    f"no experiment {experiment}; `firstfault experiment list` names them"
                )
            done = connection.execute(
                select(trials.c.body).where(trials.c.experiment == experiment).order_by(trials.c.number)
            ).scalars()  # fmt: skip
            return _read(row._asdict(), [json.loads(body) for body in done])

    def list(
        self, incident: str | None = None, limit: int = MOST_LISTED
    ) -> tuple[StoredExperiment, ...]:
        """Experiments, last changed first; those of one incident where it is named."""
        query = select(experiments.c.id).order_by(experiments.c.updated.desc()).limit(limit)
        if incident is not None:
            query = query.where(experiments.c.incident == incident)
        with self.database.read() as connection:
            found = connection.execute(query).scalars().all()
        return tuple(self.get(identity) for identity in found)


def _read(row: Mapping[str, Any], done: Sequence[Mapping[str, Any]]) -> StoredExperiment:
    return StoredExperiment(
        row["id"],
        row["incident"],
        row["created"],
        row["updated"],
        from_plain(Design, json.loads(row["design"])),
        tuple(from_plain(Trial, body) for body in done),
        from_plain(Result, json.loads(row["result"])) if row["result"] else None,
    )
