"""Which tables hold the record? SQLAlchemy Core; SQLite and PostgreSQL alike.

Times are seconds since the epoch, UTC. Rows of an incident go with it (ON DELETE CASCADE).
Migrations in `migrations/versions` build exactly this; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()


def _incident() -> Column[str]:
    return Column(
        "incident", String(40), ForeignKey("incidents.id", ondelete="CASCADE"), nullable=False
    )


incidents = Table(
    "incidents",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("key", String(200), unique=True),
    Column("title", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("archived", Boolean, nullable=False),
    Column("share", String(40), unique=True),
    Column("last_event", Integer, nullable=False),
    Column("last_turn", Integer, nullable=False),
    Column("verdict", String(20)),
    Column("category", String(30)),
    Column("signature", String(200)),
    Column("host", String(255)),
    Column("gpu", String(100)),
    Column("root_cause", Text),
    Index("incidents_updated", "archived", "updated"),
    Index("incidents_signature", "signature"),
    Index("incidents_host", "host"),
)
turns = Table(
    "turns",
    metadata,
    _incident(),
    Column("number", Integer, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("text", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("key", String(200)),
    UniqueConstraint("incident", "number", name="turns_number"),
    UniqueConstraint("incident", "key", name="turns_key"),
)
events = Table(
    "events",
    metadata,
    _incident(),
    Column("seq", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("time", Double, nullable=False),
    Column("key", String(120), nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("incident", "seq", name="events_seq"),
    UniqueConstraint("incident", "key", name="events_key"),
)
evidence = Table(
    "evidence",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    _incident(),
    Column("turn", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("origin", String(20), nullable=False),
    Column("sha256", String(64)),
    Column("path", Text, nullable=False),
    Column("size", Double, nullable=False),
    Column("modified", Double),
    Index("evidence_incident", "incident"),
    Index("evidence_sha256", "sha256"),
)
artefacts = Table(
    "artefacts",
    metadata,
    _incident(),
    Column("name", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("size", Double, nullable=False),
    UniqueConstraint("incident", "name", name="artefacts_name"),
)
runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    _incident(),
    Column("turn", Integer, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("state", String(20), nullable=False),
    Column("worker", String(200)),
    Column("attempt", Integer, nullable=False),
    Column("lease_until", Double),
    Column("heartbeat", Double),
    Column("created", Double, nullable=False),
    Column("finished", Double),
    Column("error", Text),
    UniqueConstraint("incident", "turn", name="runs_turn"),
    Index("runs_state", "state", "lease_until"),
)
diagnoses = Table(
    "diagnoses",
    metadata,
    Column("run", Integer, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    _incident(),
    Column("turn", Integer, nullable=False),
    Column("created", Double, nullable=False),
    Column("body", Text, nullable=False),
    Index("diagnoses_incident", "incident"),
)
findings = Table(
    "findings",
    metadata,
    _incident(),
    Column("number", Integer, nullable=False),
    Column("title", Text, nullable=False),
    Column("category", String(30)),
    Column("confidence", String(20), nullable=False),
    Column("file", Text),
    Column("line", Integer),
    Column("quote", Text),
    UniqueConstraint("incident", "number", name="findings_number"),
)
feedback = Table(
    "feedback",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    _incident(),
    Column("created", Double, nullable=False),
    Column("helpful", Boolean),
    Column("really", Text, nullable=False),
    Column("category", String(30)),
    Column("draft", Text),
    Index("feedback_incident", "incident"),
)
experiments = Table(
    "experiments",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("incident", String(40), ForeignKey("incidents.id", ondelete="CASCADE")),
    Column("kind", String(20), nullable=False),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("design", Text, nullable=False),
    Column("result", Text),
    Index("experiments_incident", "incident"),
)
trials = Table(
    "trials",
    metadata,
    Column(
        "experiment", String(40), ForeignKey("experiments.id", ondelete="CASCADE"), nullable=False
    ),
    Column("number", Integer, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("experiment", "number", name="trials_number"),
)
