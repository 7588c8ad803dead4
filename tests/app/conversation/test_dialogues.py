"""Do whole conversations go as an engineer would expect, in the service and without a model?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from evals.cases import find_case

from firstfault.incidents.events import AnswerPart
from firstfault.service import NamedPath, NewIncident, PastedText, Service
from firstfault_tools.knowledge.pack import read_yaml

TABLE = read_yaml(Path(__file__).with_name("dialogues.yaml").read_text(encoding="utf-8"))
TEXTS: Mapping[str, str] = TABLE["texts"]
DIALOGUES = {d["id"]: d for d in TABLE["dialogues"]}


@pytest.fixture
def database_url() -> str:
    """SQLite alone: what is said does not depend on the database, which tests/app/service asks of both."""
    return ""


def start(service: Service, dialogue: Mapping[str, Any]) -> str:
    if "open" in dialogue:
        return service.start(NewIncident((), dialogue["open"]))
    if "paste" in dialogue:
        return service.start(NewIncident((PastedText(TEXTS[dialogue["paste"]], "a.log"),)))
    folder = find_case(dialogue["case"])
    given = read_yaml((folder / "case.yaml").read_text())["inputs"]
    return service.start(NewIncident(tuple(NamedPath(folder / name) for name in given)))


def settle(service: Service, incident: str) -> None:
    for _ in service.follow(incident, timeout=60):
        pass
    assert service.incident(incident).state.is_final


def check(turn: Mapping[str, Any], part: AnswerPart) -> None:
    assert part.kind.startswith(turn.get("kind", "")), f"{turn}: {part.kind}: {part.text[:300]}"
    for wanted in turn.get("want", ()):
        assert re.search(wanted, part.text), f"{turn}: {part.kind}: {part.text[:500]}"
    marks = {int(n) for n in re.findall(r"\[(\d{1,3})\]", part.text)}
    assert {c.n for c in part.citations} <= marks, f"{turn}: a source that no mark leads to"
    if "phase" in turn:
        assert part.walk is not None
        phases = {p.name.value: p.status.value for p in part.walk.phases}
        assert turn["phase"].items() <= phases.items(), f"{turn}: {phases}"


@pytest.mark.parametrize("name", DIALOGUES)
def test_a_conversation(service: Service, name: str) -> None:
    dialogue = DIALOGUES[name]
    assert 6 <= len(dialogue["turns"]) <= 12
    incident = start(service, dialogue)
    settle(service, incident)
    for turn in dialogue["turns"]:
        if "add" in turn:
            text = TEXTS[turn["add"]]
            service.add_evidence(incident, (PastedText(text, f"{turn['add']}.log"),))
            settle(service, incident)
            continue
        number = service.ask(incident, turn["say"])
        settle(service, incident)
        parts = service.answer(incident, number)
        assert len(parts) == 1, f"{turn}: {len(parts)} parts"
        check(turn, parts[0])


def test_what_is_said_reaches_the_post_mortem(service: Service) -> None:
    incident = start(service, DIALOGUES["likely-oom-stands"])
    settle(service, incident)
    service.ask(incident, "Anna: we already checked the memory")
    settle(service, incident)
    report = service.report(incident)
    said = [row for row in report.timeline if row.source == "said"]
    assert [row.text.partition(" at ")[0] for row in said] == ["Anna"]


def test_a_question_above_a_log_is_answered_after_the_verdict(service: Service) -> None:
    given = NewIncident(
        (PastedText(TEXTS["oom"], "a.log"),), "What happened and who should I page?"
    )
    incident = service.start(given)
    settle(service, incident)
    parts = service.answer(incident, 1)
    assert [p.kind for p in parts] == ["incident.page_whom"]
