"""First schema: incidents with turns, events, evidence, runs, diagnoses, findings, feedback."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("updated", sa.Double(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("share", sa.String(length=40), nullable=True),
        sa.Column("last_event", sa.Integer(), nullable=False),
        sa.Column("last_turn", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(length=20), nullable=True),
        sa.Column("category", sa.String(length=30), nullable=True),
        sa.Column("signature", sa.String(length=200), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("gpu", sa.String(length=100), nullable=True),
        sa.Column("root_cause", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sa.UniqueConstraint("share"),
    )
    op.create_index("incidents_host", "incidents", ["host"], unique=False)
    op.create_index("incidents_signature", "incidents", ["signature"], unique=False)
    op.create_index("incidents_updated", "incidents", ["archived", "updated"], unique=False)
    op.create_table(
        "artefacts",
        sa.Column("incident", sa.String(length=40), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("incident", "name", name="artefacts_name"),
    )
    op.create_table(
        "events",
        sa.Column("incident", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("key", sa.String(length=120), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("incident", "key", name="events_key"),
        sa.UniqueConstraint("incident", "seq", name="events_seq"),
    )
    op.create_table(
        "evidence",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("incident", sa.String(length=40), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(length=20), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size", sa.Double(), nullable=False),
        sa.Column("modified", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("evidence_incident", "evidence", ["incident"], unique=False)
    op.create_index("evidence_sha256", "evidence", ["sha256"], unique=False)
    op.create_table(
        "feedback",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("incident", sa.String(length=40), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("helpful", sa.Boolean(), nullable=True),
        sa.Column("really", sa.Text(), nullable=False),
        sa.Column("category", sa.String(length=30), nullable=True),
        sa.Column("draft", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("feedback_incident", "feedback", ["incident"], unique=False)
    op.create_table(
        "findings",
        sa.Column("incident", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("category", sa.String(length=30), nullable=True),
        sa.Column("confidence", sa.String(length=20), nullable=False),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("line", sa.Integer(), nullable=True),
        sa.Column("quote", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("incident", "number", name="findings_number"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("incident", sa.String(length=40), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("heartbeat", sa.Double(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("incident", "turn", name="runs_turn"),
    )
    op.create_index("runs_state", "runs", ["state", "lease_until"], unique=False)
    op.create_table(
        "turns",
        sa.Column("incident", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("incident", "key", name="turns_key"),
        sa.UniqueConstraint("incident", "number", name="turns_number"),
    )
    op.create_table(
        "diagnoses",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("incident", sa.String(length=40), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["incident"], ["incidents.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_index("diagnoses_incident", "diagnoses", ["incident"], unique=False)


def downgrade() -> None:
    for name in ("diagnoses", "turns", "runs", "findings", "feedback", "evidence", "events", "artefacts", "incidents"):  # fmt: skip
        op.drop_table(name)
