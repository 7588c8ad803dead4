"""Where is the evidence of an incident, and when may its files go?

Files are content-addressed and may be shared by incidents: a file is deleted with the last incident
that names it. References (large files read in place) are never copied and never deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import delete, select

from firstfault.errors import InputUnreadable
from firstfault.incidents.database import EVIDENCE_LOCK, Database
from firstfault.incidents.records import EvidenceFile, Origin
from firstfault.incidents.schema import artefacts, evidence, incidents, runs
from firstfault_tools.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class EvidenceShelf:
    """Evidence of all incidents; `scratch` holds what is unpacked, `readings` what a reading finished, one folder an
    incident."""

    database: Database
    scratch: Path
    readings: Path

    def files(self, incident: str) -> tuple[EvidenceFile, ...]:
        """Inputs in the order in which they came."""
        query = select(evidence).where(evidence.c.incident == incident).order_by(evidence.c.id)
        with self.database.read() as connection:
            return tuple(
                EvidenceFile(
                    name=row["name"],
                    origin=Origin(row["origin"]),
                    path=Path(row["path"]),
                    size=int(row["size"]),
                    turn=row["turn"],
                    sha256=row["sha256"],
                    modified=row["modified"],
                )
                for row in connection.execute(query).mappings()
            )

    def scratch_of(self, incident: str) -> Path:
        """Folder for what is unpacked from this incident's archives."""
        return self.scratch / incident

    def clear_scratch(self, incident: str) -> None:
        """Remove what an earlier run unpacked."""
        shutil.rmtree(self.scratch_of(incident), ignore_errors=True)

    def reading_of(self, incident: str) -> Path:
        """Folder for what readings of this incident finished. Nothing that came from outside is put into it."""
        return self.readings / incident

    def clear_reading(self, incident: str) -> None:
        """Remove what readings finished: a verdict on all of it stands, or it is to be read anew."""
        shutil.rmtree(self.reading_of(incident), ignore_errors=True)

    def artefacts(self, incident: str) -> Mapping[str, Path]:
        """Display name -> file, as the last diagnosis saw them."""
        query = select(artefacts).where(artefacts.c.incident == incident)
        with self.database.read() as connection:
            return {r["name"]: Path(r["path"]) for r in connection.execute(query).mappings()}

    def artefact(self, incident: str, name: str) -> Path:
        """File behind one display name. Raises InputUnreadable when it is gone or has changed."""
        query = select(artefacts).where(artefacts.c.incident == incident, artefacts.c.name == name)
        with self.database.read() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            raise InputUnreadable(f"{name}: no such file in this incident")
        path = Path(row["path"])
        try:
            size = path.stat().st_size
        except OSError as error:
            raise InputUnreadable(
                f"{name}: {path} is gone ({error.strerror}). It was read in place; add it again."
            ) from error
        if size < row["size"]:
            raise InputUnreadable(
                f"{name}: {path} is shorter than when it was read (rotated?). Add it again."
            )
        return path

    def delete_incident(self, incident: str) -> int:
        """Delete an incident for good; returns how many evidence files went with it."""
        with self.database.write() as connection:
            self.database.lock(connection, EVIDENCE_LOCK)
            # runs before incidents: the order in which workers take these locks
            connection.execute(
                select(runs.c.id).where(runs.c.incident == incident).with_for_update()
            )
            mine = {
                row["sha256"]: Path(row["path"])
                for row in connection.execute(
                    select(evidence).where(
                        evidence.c.incident == incident, evidence.c.sha256.is_not(None)
                    )
                ).mappings()
            }
            connection.execute(delete(incidents).where(incidents.c.id == incident))
            gone = 0
            for sha256, path in mine.items():
                others = select(evidence.c.id).where(evidence.c.sha256 == sha256).limit(1)
                if connection.execute(others).first() is None:
                    path.unlink(missing_ok=True)
                    gone += 1
        self.clear_scratch(incident)
        self.clear_reading(incident)
        return gone
