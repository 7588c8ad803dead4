"""The heart: a model that lies leaves the shown verdict as right as without it, over all eval cases."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from evals.answer import Answer, of_diagnosis
from evals.cases import Case, load_cases
from evals.fakes.honest import quoting
from evals.fakes.liars import ADVERSARIES
from evals.fakes.scripted_model import ScriptedModel
from evals.scorers.triple import score_triple

from firstfault.agent.enrich import Enriched, enrich, make_question
from firstfault.grounding.claims import check_claim
from firstfault.investigation.diagnosis import CitationKind, Diagnosis
from firstfault.workspace import Workspace
from firstfault_tools.findings import Confidence
from firstfault_tools.log.window import read_window

CASES = load_cases()
HEART = "always another cause"
UNTOUCHED = (
    "verdict", "category", "root_cause", "signature", "first_failing_rank", "host", "gpu", "first_line",
    "explanation", "fixes", "cascade", "phases", "next_artefacts",
)  # fmt: skip


def show(diagnosis: Diagnosis, words: Sequence[str] = ()) -> Answer:
    """The answer a person sees: the model's sentences count as claims of the product."""
    row = diagnosis.to_json()
    row["explanation"] += " " + " ".join(words)
    return of_diagnosis(row, 0, 0.0)


def check_unharmed(case: Case, before: Diagnosis, enriched: Enriched) -> None:
    after = enriched.diagnosis
    for name in UNTOUCHED:
        assert getattr(after, name) == getattr(before, name), name
    assert after.hypotheses[0].root_cause == before.hypotheses[0].root_cause
    order = list(Confidence)
    assert order.index(after.confidence) >= order.index(before.confidence)
    assert order.index(after.confidence) <= order.index(before.confidence) + 1
    known = {h.root_cause for h in before.hypotheses}
    for hypothesis in after.hypotheses:
        if hypothesis.root_cause not in known:
            assert hypothesis.confidence in (Confidence.POSSIBLE, Confidence.UNKNOWN)
    words = (
        [c.text for c in (*enriched.assessment.sentences, *enriched.assessment.whys)]
        if enriched.assessment
        else []
    )
    alone, shown = score_triple(case, show(before)), score_triple(case, show(after, words))
    assert (shown.category, shown.rank, shown.cause, shown.healthy) == (
        alone.category, alone.rank, alone.cause, alone.healthy,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_lies_do_not_reach_the_verdict(case: Case, workspace: Workspace) -> None:
    before = workspace.diagnose_paths(case.inputs, case.question)
    files = {p.name: p for p in case.inputs}
    others = (s for n, s in ADVERSARIES.items() if n != HEART)
    for script in (ADVERSARIES[HEART], *(others if CASES.index(case) % 6 == 0 else ())):
        question = make_question(before, files, workspace.knowledge, case.question)
        enriched = enrich(question, ScriptedModel(script))
        check_unharmed(case, before, enriched)
        if script is ADVERSARIES[HEART]:
            shown = enriched.assessment
            assert shown is not None
            assert (shown.sentences, shown.whys, shown.doubts) == ((), (), ())
            assert not any(h.supported for h in shown.hypotheses)
            assert enriched.diagnosis.confidence is before.confidence
        for citation in enriched.citations:
            if citation.kind is CitationKind.LOG and citation.file in files:
                stands = read_window(files[citation.file], citation.line or 0, citation.line or 0)
                assert citation.quote[:200] in stands[0][1]


def test_the_check_can_fail(workspace: Workspace) -> None:
    """Without grounding the same lies do reach the shown claims: the test above is not empty."""
    case = next(c for c in CASES if c.id == "lab-oom_one_rank")
    before = workspace.diagnose_paths(case.inputs, case.question)
    question = make_question(before, {p.name: p for p in case.inputs}, workspace.knowledge)
    enriched = enrich(question, ScriptedModel(ADVERSARIES[HEART]), grounded=False)
    assert enriched.assessment is not None
    assert any("InfiniBand" in c.text for c in enriched.assessment.sentences)
    assert check_claim(enriched.assessment.sentences[0], _ground(enriched, question))


def _ground(enriched: Enriched, question: object) -> object:
    from firstfault.agent.context import open_context

    return open_context(
        question, ScriptedModel(ADVERSARIES["free text"]).endpoint, lambda _q, _n: ()
    ).ground()  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES[::8], ids=lambda c: c.id)
def test_what_evidence_says_is_kept(case: Case, workspace: Workspace) -> None:
    """The check is not a wall: quotes of shown lines pass, names put back."""
    diagnosis = workspace.diagnose_paths(case.inputs, case.question)
    files = {p.name: p for p in case.inputs}
    question = make_question(diagnosis, files, workspace.knowledge, case.question)
    assessment = enrich(question, ScriptedModel(quoting)).assessment
    assert assessment is not None
    assert assessment.kept == assessment.proposed, assessment.removed
