"""What pasted checks of ports say where connections failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.network.packet_filter import find_in_incident
from firstfault_tools.log.scan import build_set, scan_file

FAILED = Finding("signature.x", "x", Level.FAILURE, Category.COMMUNICATION)


def find(tmp_path: Path, lines: list[str]) -> list[tuple[object, Level]]:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    made = LogIncident((scan_file(path, "log.txt", signatures),), signatures)
    return [(f.facts["port"], f.level) for f in find_in_incident(made, [FAILED])]


@pytest.mark.parametrize(
    ("lines", "port", "level"),
    [
        (["nc: connect to 10.0.0.9 port 8482 (tcp) failed: Connection timed out",
          "Connection to 10.0.0.9 8476 port [tcp/*] succeeded!"], 8482, Level.CAUSE),
        (["$ ncat -zv h1 29500", "Ncat: No route to host.", "$ ncat -zv h1 22", "Ncat: Connected to h1:22."], 29500, Level.CAUSE),
        (["$ telnet 10.0.0.9 29500", "Trying 10.0.0.9...",
          "telnet: connect to address 10.0.0.9: Connection timed out"], 29500, Level.FAILURE),
        (["(UNKNOWN) [10.0.0.9] 29500 (?) : Connection timed out"], 29500, Level.FAILURE),
        (["Nmap scan report for h1", "22/tcp    open     ssh", "29500/tcp filtered unknown"], 29500, Level.CAUSE),
    ],
)  # fmt: skip
def test_closed_ports(tmp_path: Path, lines: list[str], port: int, level: Level) -> None:
    assert find(tmp_path, lines) == [(port, level)]


@pytest.mark.parametrize(
    "lines",
    [
        ["nc: connect to 10.0.0.9 port 8482 (tcp) failed: Connection refused"],
        ["Connection to 10.0.0.9 8476 port [tcp/*] succeeded!"],
        ["nc: connect to h1 port 29500 (tcp) failed: Connection timed out", "Connection to h1 29500 port [tcp/*] succeeded!"],
        ["2 packets transmitted, 2 received, 0% packet loss"],
    ],
)  # fmt: skip
def test_ports_that_say_nothing(tmp_path: Path, lines: list[str]) -> None:
    assert find(tmp_path, lines) == []
