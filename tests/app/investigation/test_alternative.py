"""Does a check that speaks against the verdict name what is looked at next, in few words?"""

from __future__ import annotations

from dataclasses import replace

from evals.cases import load_cases
from evals.diagnosed import Diagnoses

from firstfault.investigation.alternative import (
    MOST_WORDS,
    SEE_PAGE,
    list_mistaken,
    name_alternative,
)
from firstfault.investigation.diagnosis import Diagnosis, Hypothesis
from firstfault.investigation.next_action import choose_action
from firstfault.workspace import Workspace
from firstfault_tools.findings import Category, Confidence

WORKSPACE = Workspace()
DIAGNOSES = Diagnoses(WORKSPACE)
CASES = {c.id: c for c in load_cases()}
PAGES = WORKSPACE.knowledge.pages


def diagnose(case: str) -> Diagnosis:
    return DIAGNOSES.of(CASES[case]).diagnosis


def with_page(diagnosis: Diagnosis, page: str) -> Diagnosis:
    lead = replace(diagnosis.hypotheses[0], page=page)
    return replace(diagnosis, hypotheses=(lead,), next_artefacts=())


def test_a_rival_comes_first_then_another_check_then_the_page() -> None:
    told = diagnose("induced-stuck-lock")
    action = choose_action(told, PAGES)
    assert action is not None
    assert action.reading[-1][1].startswith("next suspect: rank 1 stands elsewhere")
    page = with_page(told, "stale-file-handle")
    done = PAGES["stale-file-handle"].checks[0].text
    assert name_alternative(page, PAGES, done) == "check next: the same `stat` on another node"
    one_check = with_page(told, "driver-too-old")
    assert name_alternative(one_check, PAGES, PAGES["driver-too-old"].checks[0].text) == SEE_PAGE
    assert name_alternative(with_page(told, ""), {}, "") == ""


def test_what_was_refuted_is_no_suspect_and_no_name_is_long() -> None:
    told = with_page(diagnose("induced-stuck-lock"), "")
    refuted = Hypothesis("the switch is full", Category.COMMUNICATION, Confidence.UNKNOWN, (), (1,))
    rival = replace(refuted, root_cause="a " + "very " * 30 + "long cause", for_=(1,), against=())
    both = replace(told, hypotheses=(*told.hypotheses, refuted, rival))
    named = name_alternative(both, {}, "")
    assert named.startswith("next suspect: a very very")
    assert len(named.split()) <= MOST_WORDS + 1  # the mark of what was cut


def test_the_page_says_what_a_fault_is_taken_for() -> None:
    found = list_mistaken(with_page(diagnose("induced-stuck-lock"), "stale-file-handle"), PAGES)
    assert found is not None
    assert found[1][0].startswith("Not a missing file")
