"""Does the list name what is on record, and does deleting ask first?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from firstfault.commands.incidents import COMMAND
from firstfault.errors import IncidentNotFound, UsageError
from firstfault.service import NewIncident, PastedText, open_service


@pytest.fixture
def incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path))
    with open_service(workers=False) as service:
        return service.start(NewIncident((PastedText("boom"),), "why did it stop?"))


def test_list_search_and_json(incident: str) -> None:
    run = CliRunner()
    assert incident in run.invoke(COMMAND, []).output
    assert incident in run.invoke(COMMAND, ["stop why"]).output
    assert run.invoke(COMMAND, ["other"]).output == "No incident matches.\n"
    rows = json.loads(run.invoke(COMMAND, ["--json"]).stdout)
    assert [(r["id"], r["state"]) for r in rows] == [(incident, "queued")]


def test_deleting_asks_and_is_for_good(incident: str) -> None:
    run = CliRunner()
    assert isinstance(run.invoke(COMMAND, ["--delete", incident]).exception, UsageError)
    done = run.invoke(COMMAND, ["--delete", incident, "--yes"])
    assert done.exit_code == 0, done.output
    assert "No incidents yet: `firstfault chat`" in run.invoke(COMMAND, []).output
    gone = run.invoke(COMMAND, ["--delete", incident, "--yes"])
    assert isinstance(gone.exception, IncidentNotFound)


def test_correlation_over_the_record(incident: str) -> None:
    run = CliRunner()
    assert "0 faults among 1 incidents" in run.invoke(COMMAND, ["--correlate"]).output
    row = json.loads(run.invoke(COMMAND, ["--correlate", "--json"]).stdout)
    assert row["incidents"] == 1
