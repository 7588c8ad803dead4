"""Do objects come back from JSON as they went in? For the diagnosis of every kind of case."""

from __future__ import annotations

import json

import pytest
from evals.cases import find_case
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault.incidents.events import (
    AnswerPart,
    Done,
    EventKind,
    Failed,
    InputSummary,
    Progress,
    Received,
    RelatedFound,
    Stopped,
    VerdictReached,
    body_from_json,
    body_to_json,
    kind_of,
)
from firstfault.incidents.plain import read_diagnosis
from firstfault.incidents.records import Related, TurnKind, clean_text, new_id
from firstfault.investigation.diagnosis import Citation, CitationKind, SkippedInput
from firstfault.workspace import Workspace
from firstfault_tools.knowledge.pack import read_yaml

SOME = ("comm-ib-port-flap", "healthy-gradscaler-nan-norm", "abstain-segfault-no-core", "lab-oom_one_rank")  # fmt: skip


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


@each_row("name", SOME)
def test_a_diagnosis_survives_the_database(name: str, workspace: Workspace) -> None:
    folder = find_case(name)
    case = read_yaml((folder / "case.yaml").read_text())
    diagnosis = workspace.diagnose_paths([folder / i for i in case["inputs"]], "why?")
    again = read_diagnosis(json.loads(json.dumps(diagnosis.to_json())))
    assert again.to_json() == diagnosis.to_json()
    assert again.hypotheses == diagnosis.hypotheses
    body = VerdictReached(diagnosis)
    back = body_from_json(EventKind.VERDICT, json.loads(json.dumps(body_to_json(body))))
    assert isinstance(back, VerdictReached)
    assert back.diagnosis.input == diagnosis.input


@each_row(
    "body",
    [
        Received(
            TurnKind.QUESTION, "a?", (InputSummary("x", "pasted", 3),), (SkippedInput("y", "z"),)
        ),
        Progress("read", "2"),
        RelatedFound("once", (Related("i", "t", 1.5, "c", True, False, False),)),
        AnswerPart("a [1]", (Citation(1, CitationKind.LOG, "q", file="f", line=3),), "model", 2),
        Failed("broken", 3),
        Stopped(),
        Done(1.25),
    ],
    ids=lambda b: type(b).__name__,
)
def test_every_body_survives_the_database(body: object) -> None:
    data = json.loads(json.dumps(body_to_json(body)))  # type: ignore[arg-type]
    assert body_from_json(kind_of(body), data) == body  # type: ignore[arg-type]


def test_ids_are_long_and_plain() -> None:
    ids = {new_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(i) == 22 and i.isalnum() and i.isascii() for i in ids)


@given(st.text(alphabet=st.characters(), max_size=60))
def test_cleaned_text_can_be_stored_anywhere(text: str) -> None:
    cleaned = clean_text(text, 40)
    assert "\0" not in cleaned
    assert len(cleaned.encode("utf-8").decode("utf-8")) <= 40
