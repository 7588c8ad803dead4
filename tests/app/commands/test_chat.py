"""Does `firstfault chat` say what to do where its port is taken?"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from firstfault.commands.chat import COMMAND
from firstfault.errors import CannotAnalyse, UsageError


def test_a_taken_port_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(COMMAND, ["--port", str(port), "--no-open"])
    assert isinstance(done.exception, UsageError)
    assert f"127.0.0.1:{port} cannot be served" in str(done.exception)
    assert "FIRSTFAULT_PORT" in str(done.exception)


def test_a_folder_that_cannot_be_written_is_named_before_the_page_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path / "file" / "data"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = CliRunner().invoke(COMMAND, ["--port", str(port), "--no-open"])
    assert isinstance(done.exception, CannotAnalyse)
    assert "set FIRSTFAULT_DATA" in str(done.exception)
