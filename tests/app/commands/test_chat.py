"""Does `firstfault chat` say what to do where its port is taken?"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from firstfault.commands.chat import COMMAND
from firstfault.errors import UsageError


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
