"""A damaged database file, and one that does not answer: said with the file and the next step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from firstfault.errors import FirstfaultError
from firstfault.incidents.acceptance import PastedText
from firstfault.service import NewIncident, open_service
from firstfault.settings import Settings

ROOT = Path(__file__).parents[3]


def run(data: Path, *words: str) -> tuple[int, str]:
    path = os.pathsep.join([str(ROOT / "app"), str(ROOT / "tools")])
    done = subprocess.run(
        [sys.executable, "-c", "from firstfault.cli import main; main()", *words],
        env={**os.environ, "FIRSTFAULT_DATA": str(data), "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def overwrite(file: Path, first: int) -> None:
    data = bytearray(file.read_bytes())
    data[first:] = b"\xff" * (len(data) - first)
    file.write_bytes(data)


@pytest.mark.parametrize("first", [0, 4096])
def test_a_damaged_file_is_named_with_the_next_step(tmp_path: Path, first: int) -> None:
    with open_service(Settings(data=tmp_path), workers=False):  # type: ignore[call-arg]
        pass
    file = tmp_path / "incidents.sqlite"
    overwrite(file, first)
    for words in (("incidents",), ("doctor", "--offline")):
        code, said = run(tmp_path, *words)
        assert code == 4, said
        assert str(file) in said
        assert "backup" in said
        assert "Traceback" not in said
        assert "sqlalche" not in said
    assert "[XX] database" in said


def test_a_database_that_is_gone_is_an_error_of_ours_and_workers_see_theirs(tmp_path: Path) -> None:
    with open_service(Settings(data=tmp_path), workers=False) as service:  # type: ignore[call-arg]
        service.record.database.close()
        overwrite(tmp_path / "incidents.sqlite", 0)
        with pytest.raises(FirstfaultError, match="is damaged") as caught:
            service.start(NewIncident((PastedText("RuntimeError: boom"),)))
        assert isinstance(caught.value, DBAPIError)


@pytest.mark.postgres
def test_a_server_that_does_not_answer_is_said(tmp_path: Path, postgres_url: str) -> None:
    settings = Settings(data=tmp_path, database_url=postgres_url)  # type: ignore[call-arg]
    with open_service(settings, workers=False) as service:
        bad = service.record.database.engine.url.set(port=1)
        engine = service.record.database.engine
        engine.dispose()
        engine.pool._creator = lambda *_: (_ for _ in ()).throw(engine.dialect.dbapi.OperationalError(f"no {bad.port}"))  # type: ignore[attr-defined,union-attr]  # fmt: skip
        with pytest.raises(FirstfaultError, match="does not answer"):
            service.start(NewIncident((PastedText("RuntimeError: boom"),)))
