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


def test_events_of_a_run(tmp_path: Path) -> None:
    begin, rows = 1_795_947_000, []
    for hour in range(40):
        rows.append({"timestamp": begin + 3600 * hour, "event_type": "checkpoint", "step": hour})
        if hour % 5 == 0:
            rows.append({"timestamp": begin + 3600 * hour + 60, "event_type": "failure"})
    log = tmp_path / "training_events.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    done = CliRunner().invoke(COMMAND, ["--events", str(log)])
    assert done.exit_code == 0
    assert "8 of 8 failures came within the window after checkpoint; risk ratio" in done.output
    told = json.loads(CliRunner().invoke(COMMAND, ["--events", str(log), "--json"]).output)
    assert (told["events"], told["failures"], told["left_out"]) == (40, 8, 0)
    log.write_text("loss 3\n")
    refused = CliRunner().invoke(COMMAND, ["--events", str(log)])
    assert "event_type and timestamp" in str(refused.exception)
