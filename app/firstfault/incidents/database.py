"""How is the database opened, brought up to date and written to?

SQLite runs in WAL mode with foreign keys on; a write transaction takes the write lock at its start
(BEGIN IMMEDIATE), so that two writers queue up and none fails half way. PostgreSQL takes row locks
where the callers ask for them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from firstfault.errors import CannotAnalyse, UsageError
from firstfault_tools.dataclass import dataclass

Clock = Callable[[], float]
BUSY_SECONDS = 30
MIGRATION_LOCK, EVIDENCE_LOCK = 0x46464D31, 0x46464531
"""Advisory lock numbers on PostgreSQL; SQLite's write lock covers both."""


@dataclass(frozen=True)
class Database:
    """An open database whose schema is current. `clock` gives seconds since the epoch."""

    engine: Engine
    clock: Clock = time.time
    _writer: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Threads of one process queue here on SQLite: its own waiting sleeps ever longer."""

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may change rows; committed at the end, rolled back on error."""
        turn = self._writer if self.is_sqlite else nullcontext()
        with (
            turn,
            self.engine.connect().execution_options(write=True) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads: one consistent view."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    def lock(self, connection: Connection, number: int, shared: bool = False) -> None:
        """Hold an application lock until the transaction ends; shared: beside others who share."""
        if not self.is_sqlite:
            kind = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
            connection.execute(text(f"SELECT {kind}(:n)"), {"n": number})

    def now(self, connection: Connection) -> float:
        """Time by which leases are judged: the server's where several machines share one."""
        if self.is_sqlite or self.clock is not time.time:
            return self.clock()
        value = connection.execute(
            text("SELECT extract(epoch FROM clock_timestamp())")
        ).scalar_one()
        return float(value)

    def forget_deleted(self) -> None:
        """Nothing of deleted rows stays in SQLite's files: freed pages are zeroed, the log is emptied."""
        if self.is_sqlite:
            with self._writer, self.engine.connect() as connection:
                raw = connection.connection.driver_connection
                if raw is not None:
                    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()


def open_database(url: str, clock: Clock = time.time) -> Database:
    """Database at `url`, migrated. Raises UsageError for a bad URL, CannotAnalyse if it is down."""
    try:
        engine = _create(url)
        event.listen(engine, "handle_error", _explain, retval=True)
        database = Database(engine, clock)
        _migrate(database)
    except DatabaseFailure:
        raise
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise UsageError(
            f"FIRSTFAULT_DATABASE_URL: {error}. Expected sqlite:///FILE or postgresql://HOST/NAME "
            "(the latter needs the package's postgres extra)."
        ) from error
    except (OperationalError, OSError) as error:
        reason = error.orig if isinstance(error, OperationalError) else error
        raise CannotAnalyse(
            f"the incident database cannot be opened ({reason}). Check FIRSTFAULT_DATABASE_URL, "
            "that the server runs, and that its folder may be written."
        ) from error
    return database


class DatabaseFailure(CannotAnalyse, OperationalError):
    """The database does not answer or is damaged, and what to do. Workers see an OperationalError."""

    def __init__(self, message: str, cause: BaseException) -> None:
        OperationalError.__init__(self, None, None, cause)
        self.said = message

    def __str__(self) -> str:
        return self.said


def _explain(context: ExceptionContext) -> BaseException | None:
    """Give an error of the driver words and a next step; errors of rows stay what they are."""
    error, engine = context.original_exception, context.engine
    if engine is None or type(error).__name__ not in ("OperationalError", "DatabaseError"):
        return None
    if engine.dialect.name != "sqlite":
        return DatabaseFailure(
            f"the incident database does not answer ({str(error).strip()}). Check that its server runs and "
            "FIRSTFAULT_DATABASE_URL; what was accepted before is kept, the last input may have to be given again.",
            error,
        )
    file = engine.url.database or ""
    if any(word in str(error) for word in ("malformed", "not a database", "disk image")):
        return DatabaseFailure(say_damage(file, str(error)), error)
    return DatabaseFailure(
        f"the incident database {file} cannot be used ({error}). Check that its folder may be written and "
        "has space, and that no other program holds it.",
        error,
    )


def say_damage(file: str, reason: str) -> str:
    """What to do about a damaged SQLite file."""
    return (
        f"the incident database {file} is damaged ({reason}). Stop Firstfault, move {file} and its -wal and "
        f"-shm aside, and put your backup of it in their place; without one, `sqlite3 {file} .recover | "
        "sqlite3 NEW` saves what can be read, and an absent file begins an empty record. The evidence is unharmed."
    )


def keep_file_private(file: Path) -> None:
    """A database file for its owner only, made where it is missing: SQLite's side files get its rights."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if file.exists():
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)
    elif os.access(file.parent, os.W_OK):
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))


def _create(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_pre_ping=True, pool_size=20, max_overflow=10)
    if parsed.database and parsed.database != ":memory:":
        keep_file_private(Path(parsed.database))
    engine = create_engine(parsed, connect_args={"timeout": BUSY_SECONDS}, pool_size=20)

    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA secure_delete=ON")
        cursor.close()

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def _migrate(database: Database) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    head = ScriptDirectory.from_config(config).get_current_head()
    with database.read() as connection:
        if MigrationContext.configure(connection).get_current_revision() == head:
            return
    with database.write() as connection:
        database.lock(connection, MIGRATION_LOCK)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
