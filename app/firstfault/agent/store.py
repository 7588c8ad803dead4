"""What must outlive the process? Consent, pending approvals, probes begun.

Beside the checkpoints of the graph, in the same place: a file of its own by default, the team's
PostgreSQL where the incidents are there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    select,
)
from sqlalchemy.exc import IntegrityError

from firstfault.incidents.database import keep_file_private
from firstfault.investigation.diagnosis import PhaseName
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Verdict

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from firstfault.settings import Settings

metadata = MetaData()
consents = Table(
    "agent_consents", metadata,
    Column("incident", String(64), primary_key=True), Column("endpoint", String(500), primary_key=True),
    Column("created", Float, nullable=False),
)  # fmt: skip
approvals = Table(
    "agent_approvals", metadata,
    Column("thread", String(100), primary_key=True), Column("incident", String(64), nullable=False, index=True),
    Column("request", Text, nullable=False), Column("decision", String(16)), Column("decided_in", Integer),
    Column("created", Float, nullable=False),
)  # fmt: skip
probes = Table(
    "agent_probes", metadata,
    Column("call", String(200), primary_key=True), Column("result", Text), Column("created", Float, nullable=False),
)  # fmt: skip
exams = Table(
    "agent_exams", metadata,
    Column("endpoint", String(500), primary_key=True), Column("model", String(200), primary_key=True),
    Column("prompt", String(16), primary_key=True), Column("marks", Text, nullable=False),
    Column("created", Float, nullable=False),
)  # fmt: skip
replies = Table(
    "agent_replies", metadata,
    Column("digest", String(64), primary_key=True), Column("incident", String(64), primary_key=True),
    Column("body", Text, nullable=False), Column("created", Float, nullable=False),
)  # fmt: skip


class ProbeState(StrEnum):
    """Whether a call of the probe may run."""

    NEW = "new"
    BEGUN = "begun"
    DONE = "done"


class Decision(StrEnum):
    """What a person said to a probe."""

    APPROVE = "approve"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class PendingProbe:
    """A probe that waits for a person. `thread` is the turn of the graph that stands still."""

    incident: str
    thread: str
    request: dict[str, Any]


@dataclass(frozen=True)
class AgentStore:
    """Small tables of the agent."""

    engine: Engine

    def has_consent(self, incident: str, endpoint: str) -> bool:
        """A person saw what would be sent to this endpoint and let it go."""
        query = select(consents).where(
            consents.c.incident == incident, consents.c.endpoint == endpoint
        )
        with self.engine.connect() as connection:
            return connection.execute(query).first() is not None

    def give_consent(self, incident: str, endpoint: str) -> None:
        """Remember the consent."""
        row = {"incident": incident, "endpoint": endpoint, "created": time.time()}
        with self._insert() as connection:
            connection.execute(consents.insert().values(**row))

    def ask_approval(self, incident: str, thread: str, request: dict[str, Any]) -> None:
        """Remember that a thread waits for a person."""
        with self._insert() as connection:
            connection.execute(
                approvals.insert().values(
                    thread=thread,
                    incident=incident,
                    request=json.dumps(request),
                    created=time.time(),
                )
            )

    def pending(self, incident: str) -> PendingProbe | None:
        """The probe of an incident that waits, the newest."""
        query = (
            select(approvals)
            .where(approvals.c.incident == incident, approvals.c.decision.is_(None))
            .order_by(approvals.c.created.desc())
        )
        with self.engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        return (
            PendingProbe(incident, row["thread"], json.loads(row["request"]))
            if row is not None
            else None
        )

    def decided_in(self, incident: str, turn: int) -> tuple[PendingProbe, Decision] | None:
        """The probe that was decided in this turn: a turn that is taken over decides nothing anew."""
        query = select(approvals).where(
            approvals.c.incident == incident, approvals.c.decided_in == turn
        )
        with self.engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            return None
        probe = PendingProbe(incident, row["thread"], json.loads(row["request"]))
        return probe, Decision(row["decision"])

    def decide(self, thread: str, decision: Decision, turn: int) -> bool:
        """Write a decision down; False when another one came first."""
        with self.engine.begin() as connection:
            done = connection.execute(
                approvals.update()
                .where(approvals.c.thread == thread, approvals.c.decision.is_(None))
                .values(decision=decision.value, decided_in=turn)
            )
            return done.rowcount == 1

    def begin_probe(self, call: str) -> tuple[ProbeState, str]:
        """Claim a call: NEW exactly once, afterwards what became of it."""
        try:
            with self.engine.begin() as connection:
                connection.execute(probes.insert().values(call=call, created=time.time()))
            return ProbeState.NEW, ""
        except IntegrityError:
            with self.engine.connect() as connection:
                result = connection.execute(
                    select(probes.c.result).where(probes.c.call == call)
                ).scalar()
            return (ProbeState.BEGUN, "") if result is None else (ProbeState.DONE, str(result))

    def end_probe(self, call: str, result: str) -> None:
        """Keep the result of a call."""
        with self.engine.begin() as connection:
            connection.execute(probes.update().where(probes.c.call == call).values(result=result))

    def save_exam(self, endpoint: str, model: str, prompt: str, marks: str) -> None:
        """Keep the result of an exam in place of an earlier one with the same prompt."""
        named = (
            (exams.c.endpoint == endpoint) & (exams.c.model == model) & (exams.c.prompt == prompt)
        )
        row = {"endpoint": endpoint, "model": model, "prompt": prompt, "marks": marks, "created": time.time()}  # fmt: skip
        with self.engine.begin() as connection:
            connection.execute(exams.delete().where(named))
            connection.execute(exams.insert().values(**row))

    def last_exam(self, endpoint: str, model: str) -> dict[str, Any] | None:
        """The newest result of a model, whatever its prompt."""
        query = (
            select(exams)
            .where(exams.c.endpoint == endpoint, exams.c.model == model)
            .order_by(exams.c.created.desc())
        )
        with self.engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        return dict(row) if row is not None else None

    def save_reply(self, digest: str, incident: str, body: str) -> None:
        """Keep what a model answered to exactly this, for this incident."""
        with self._insert() as connection:
            connection.execute(
                replies.insert().values(
                    digest=digest, incident=incident, body=body, created=time.time()
                )
            )

    def find_reply(self, digest: str, incident: str) -> str | None:
        """What a model answered to exactly this before, in this incident."""
        query = select(replies.c.body).where(
            replies.c.digest == digest, replies.c.incident == incident
        )
        with self.engine.connect() as connection:
            body = connection.execute(query).scalar()
        return str(body) if body is not None else None

    def delete_incident(self, incident: str) -> None:
        """Forget an incident."""
        with self.engine.begin() as connection:
            for table in (consents, approvals, replies):
                connection.execute(table.delete().where(table.c.incident == incident))
            connection.execute(
                probes.delete().where(probes.c.call.startswith(f"{incident}:", autoescape=True))
            )

    def close(self) -> None:
        """Give connections back."""
        self.engine.dispose()

    @contextmanager
    def _insert(self) -> Iterator[Any]:
        """A transaction in which finding the row there already is fine."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except IntegrityError:
            return


def open_store(settings: Settings) -> AgentStore:
    """Store of an installation; its tables are made where they are missing."""
    url = settings.database if is_postgres(settings) else f"sqlite:///{agent_file(settings)}"
    if not is_postgres(settings):
        keep_file_private(agent_file(settings))
    engine = create_engine(url, connect_args={} if is_postgres(settings) else {"timeout": 30})
    if not is_postgres(settings):

        def prepare(connection: Any, _record: Any) -> None:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA secure_delete=ON")

        event.listen(engine, "connect", prepare)
    metadata.create_all(engine, checkfirst=True)
    return AgentStore(engine)


def is_postgres(settings: Settings) -> bool:
    """The incidents are in PostgreSQL, so the agent's state is there too."""
    return settings.database.startswith("postgresql")


def agent_file(settings: Settings) -> Path:
    """SQLite file of the agent."""
    return settings.data / "agent.sqlite"


def checkpoints_file(settings: Settings) -> Path:
    """SQLite file of the graph's checkpoints."""
    return settings.data / "agent_checkpoints.sqlite"


@contextmanager
def open_checkpoints(settings: Settings) -> Iterator[BaseCheckpointSaver[Any]]:
    """Checkpointer of the graph, in SQLite or PostgreSQL."""
    if is_postgres(settings):
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg import Connection
        from psycopg.rows import dict_row

        url = settings.database.replace("postgresql+psycopg://", "postgresql://")
        with Connection.connect(
            url, autocommit=True, prepare_threshold=0, row_factory=dict_row
        ) as shared:
            saver = PostgresSaver(shared, serde=make_serializer())
            saver.setup()
            yield saver
        return
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver

    file = checkpoints_file(settings)
    keep_file_private(file)
    connection = sqlite3.connect(file, check_same_thread=False, timeout=30)
    connection.execute("PRAGMA secure_delete=ON")
    try:
        saver_lite = SqliteSaver(connection, serde=make_serializer())
        saver_lite.setup()
        yield saver_lite
    finally:
        connection.close()


def make_serializer() -> JsonPlusSerializer:
    """Serializer of checkpoints that brings back the agent's own types and no others."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from firstfault.agent import reply

    own = [
        (kind.__module__, kind.__name__)
        for kind in (
            reply.Reply, reply.ProbeComponent, reply.Paragraph, reply.Account, reply.Inapplicable,
            reply.NextQuestion, Category, PhaseName, Verdict,
        )
    ]  # fmt: skip
    return JsonPlusSerializer(allowed_msgpack_modules=own)
