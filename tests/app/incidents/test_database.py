"""Is the schema that migrations build the one the code uses, and does opening fail well?"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from tests.rows import each_row

from firstfault.errors import CannotAnalyse, UsageError
from firstfault.incidents.database import open_database
from firstfault.incidents.record import Record
from firstfault.incidents.schema import metadata


def test_migrations_build_exactly_the_schema(record: Record) -> None:
    with record.database.read() as connection:
        difference = compare_metadata(MigrationContext.configure(connection), metadata)
    assert difference == []


def test_open_again_keeps_what_is_there(make_settings: object) -> None:
    settings = make_settings()  # type: ignore[operator]
    for _ in range(2):
        database = open_database(settings.database)
        with database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS probe (n integer)")
            connection.exec_driver_sql("INSERT INTO probe VALUES (1)")
        database.close()
    database = open_database(settings.database)
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM probe").scalar_one() == 2
    database.close()


def test_two_processes_may_migrate_at_once(make_settings: object) -> None:
    url = make_settings().database  # type: ignore[operator]
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: open_database(url), range(6)))
    for database in opened:
        database.close()


def test_a_failed_write_leaves_nothing(record: Record) -> None:
    with pytest.raises(RuntimeError), record.database.write() as connection:  # noqa: PT012
        connection.exec_driver_sql("CREATE TABLE half (n integer)")
        raise RuntimeError("half way")
    with record.database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE half (n integer)")


@each_row(
    ("url", "error"),
    [
        ("nonsense", UsageError),
        ("oracle9://nowhere/x", UsageError),
        ("sqlite:////proc/none/incidents.sqlite", CannotAnalyse),
        ("postgresql+psycopg://127.0.0.1:1/none", CannotAnalyse),
    ],
)
def test_a_bad_url_says_what_to_do(url: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="FIRSTFAULT_DATABASE_URL"):
        open_database(url)
