"""A record to test on: SQLite in a fresh folder, and a real PostgreSQL server where one is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firstfault.incidents.record import Record, open_record
from firstfault.service import Service, open_service
from firstfault.settings import Settings, WorkerMode

MakeSettings = Callable[..., Settings]


def _server_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    plain = shutil.which("initdb")
    return Path(plain).parent if plain else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL prefix of a throw-away PostgreSQL on a free loopback port."""
    programs = _server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (initdb not found)")
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="ff-pg-", dir="/tmp"))
    if as_user:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"

    def call(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd=folder)

    call(str(programs / "initdb"), "-D", str(data), "-U", "firstfault", "-A", "trust", "-E", "UTF8")
    call(
        str(programs / "pg_ctl"), "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start"
    )  # fmt: skip
    try:
        yield f"postgresql://firstfault@127.0.0.1:{port}"
    finally:
        call(str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of an empty database, dropped afterwards."""
    from sqlalchemy import create_engine, text

    name = f"t{os.urandom(6).hex()}"
    admin = create_engine(
        postgres_server.replace("postgresql://", "postgresql+psycopg://") + "/postgres",
        isolation_level="AUTOCOMMIT",
    )
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield f"{postgres_server}/{name}"
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Both databases, one after the other; '' means SQLite in the data folder."""
    if request.param == "sqlite":
        return ""
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def make_settings(database_url: str, tmp_path: Path) -> MakeSettings:
    """Settings over the database under test and a fresh data folder."""

    def make(**more: object) -> Settings:
        values: dict[str, object] = {"data": tmp_path / "data", "database_url": database_url}
        return Settings(**(values | more))  # type: ignore[arg-type]

    return make


@pytest.fixture
def record(make_settings: MakeSettings) -> Iterator[Record]:
    """An empty record."""
    opened = open_record(make_settings())
    yield opened
    opened.database.close()


@pytest.fixture
def service(make_settings: MakeSettings) -> Iterator[Service]:
    """A service whose own threads execute the runs."""
    with open_service(make_settings(lease_seconds=5, worker=WorkerMode.THREAD)) as opened:
        yield opened


@pytest.fixture
def idle_service(make_settings: MakeSettings) -> Iterator[Service]:
    """A service without workers: what it accepts waits."""
    with open_service(make_settings(worker=WorkerMode.EXTERNAL), workers=False) as opened:
        yield opened
