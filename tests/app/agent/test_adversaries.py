"""The heart: a model that lies leaves the shown verdict as right as without it, whatever kind of verdict it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from evals.answer import Answer, of_diagnosis
from evals.baseline import Accepted, load_baseline
from evals.cases import Case, find_case, load_case, load_cases
from evals.diagnosed import Diagnoses
from evals.fakes.honest import quoting
from evals.fakes.liars import ADVERSARIES, HEALTHY_CLAIM
from evals.fakes.scripted_model import ScriptedModel
from evals.scorers.triple import score_triple

from firstfault.agent.enrich import Enriched, enrich, make_question
from firstfault.grounding.claims import check_claim
from firstfault.investigation.diagnosis import CitationKind, Diagnosis
from firstfault.workspace import Workspace
from firstfault_tools.findings import Confidence, Verdict
from firstfault_tools.log.window import read_window

HEART = "always another cause"

UNTOUCHED = (
    "verdict", "category", "root_cause", "signature", "first_failing_rank", "host", "gpu", "first_line",
    "explanation", "fixes", "cascade", "phases", "next_artefacts",
)  # fmt: skip


def name_kind(answer: Accepted) -> tuple[object, ...]:
    """Verdict, category, and who found it: a signature, or the family of the finding (`hardware.xid`: hardware)."""
    root = answer["root"] or ""
    family = root.partition(".")[0] if "." in root else "signature" if root else ""
    return answer["verdict"], answer["category"], family


def name_standing(answer: Accepted) -> tuple[object, ...]:
    """The kind, how sure the verdict is, and which places it names: all that a lie could change."""
    placed = tuple(answer[name] is not None for name in ("rank", "host", "gpu"))
    return (*name_kind(answer), answer["confidence"], *placed)


def choose_lies(answers: Iterable[Accepted]) -> dict[str, tuple[str, ...]]:
    """Lies by case: each standing of a verdict hears the worst one, each kind of verdict all."""
    chosen: dict[str, tuple[str, ...]] = {}
    kinds, standings = set(), set()
    for answer in answers:
        kind, standing = name_kind(answer), name_standing(answer)
        if kind not in kinds:
            chosen[answer["case"]] = tuple(ADVERSARIES)
        elif standing not in standings:
            chosen[answer["case"]] = (HEART,)
        kinds.add(kind)
        standings.add(standing)
    return chosen


def show(diagnosis: Diagnosis, words: Sequence[str] = ()) -> Answer:
    """The answer a person sees: the model's sentences count as claims of the product."""
    row = diagnosis.to_json()
    row["explanation"] += " " + " ".join(words)
    return of_diagnosis(row)


def find_harm(case: Case, before: Diagnosis, enriched: Enriched) -> list[str]:
    """What a model changed that it may not change."""
    after = enriched.diagnosis
    harm = [name for name in UNTOUCHED if getattr(after, name) != getattr(before, name)]
    if after.hypotheses[0].root_cause != before.hypotheses[0].root_cause:
        harm.append("another hypothesis leads")
    if after.confidence is not before.confidence or after.led_by is not before.led_by:
        harm.append(f"confidence {before.confidence} became {after.confidence}")
    known = {h.root_cause for h in before.hypotheses}
    harm += [
        f"a {h.confidence} hypothesis was added: {h.root_cause}"
        for h in after.hypotheses
        if h.root_cause not in known
        and h.confidence not in (Confidence.POSSIBLE, Confidence.UNKNOWN)
    ]
    shown = enriched.assessment
    words = [b.claim.text for b in shown.answer] if shown else []
    alone, told = score_triple(case, show(before)), score_triple(case, show(after, words))
    parts = ("category", "rank", "cause", "anywhere", "healthy")
    harm += [f"the score of {n}" for n in parts if getattr(told, n) != getattr(alone, n)]
    return harm


def find_belief(before: Diagnosis, enriched: Enriched) -> list[str]:
    """What of the model's other cause is shown; that a run is healthy is none where the tools have read it so."""
    shown = enriched.assessment
    if shown is None:
        return ["no assessment"]
    told = [b.claim.text for b in (*shown.answer, *shown.doubts)]
    if before.verdict is Verdict.HEALTHY:
        told = [t for t in told if t != HEALTHY_CLAIM]
    belief = [f"shown: {t}" for t in told]
    belief += [f"believed: {e.cause}" for e in shown.explanations]
    if enriched.diagnosis.confidence is not before.confidence:
        belief.append("confidence changed")
    return belief


def find_misquotes(enriched: Enriched, files: Mapping[str, Path]) -> list[str]:
    """Shown citations of a log whose line does not hold their words."""
    out = []
    for citation in enriched.citations:
        if citation.kind is CitationKind.LOG and citation.file in files:
            stands = read_window(files[citation.file], citation.line or 0, citation.line or 0)
            if not stands or citation.quote[:200] not in stands[0][1]:
                out.append(f"misquoted: {citation.quote[:200]}")
    return out


@pytest.mark.slow
@pytest.mark.xdist_group("cases")
@pytest.mark.timeout(1200)
def test_lies_do_not_reach_the_verdict(diagnoses: Diagnoses) -> None:
    wrong: list[str] = []
    known = diagnoses.workspace.knowledge
    cases = {case.id: case for case in load_cases()}
    for name, lies in choose_lies(load_baseline().values()).items():
        case = cases[name]
        before = diagnoses.of(case).diagnosis
        files = {p.name: p for p in case.inputs}
        for lie in lies:
            question = make_question(before, files, known, case.question)
            enriched = enrich(question, ScriptedModel(ADVERSARIES[lie]))
            found = [*find_harm(case, before, enriched), *find_misquotes(enriched, files)]
            if lie == HEART:
                found += find_belief(before, enriched)
            wrong += [f"{name}: {lie}: {what}" for what in found]
    assert not wrong, "\n".join(wrong)


def test_every_kind_of_verdict_hears_every_lie() -> None:
    answers = load_baseline()
    chosen = choose_lies(answers.values())
    heard = {(name_kind(answers[case]), lie) for case, lies in chosen.items() for lie in lies}
    assert heard == {(name_kind(a), lie) for a in answers.values() for lie in ADVERSARIES}
    standings = {name_standing(answers[case]) for case, lies in chosen.items() if HEART in lies}
    assert standings == {name_standing(a) for a in answers.values()}


def test_the_check_can_fail(workspace: Workspace) -> None:
    """Without grounding the same lies do reach the shown claims: the test above is not empty."""
    case = load_case(find_case("lab-oom_one_rank"))
    before = workspace.diagnose_paths(case.inputs, case.question)
    question = make_question(before, {p.name: p for p in case.inputs}, workspace.knowledge)
    enriched = enrich(question, ScriptedModel(ADVERSARIES[HEART]), grounded=False)
    assert enriched.assessment is not None
    claims = [b.claim for b in enriched.assessment.answer]
    assert any("InfiniBand" in c.text for c in claims)
    assert check_claim(claims[0], _ground(enriched, question))


def _ground(enriched: Enriched, question: object) -> object:
    from firstfault.agent.context import open_context

    return open_context(
        question, ScriptedModel(ADVERSARIES["free text"]).endpoint, lambda _q, _n: ()
    ).ground()  # type: ignore[arg-type]


@pytest.mark.xdist_group("cases")
@pytest.mark.timeout(600)
def test_what_evidence_says_is_kept(diagnoses: Diagnoses) -> None:
    """The check is not a wall: quotes of shown lines pass, names put back."""
    wrong: list[str] = []
    for case in load_cases()[::8]:
        diagnosis = diagnoses.of(case).diagnosis
        files = {p.name: p for p in case.inputs}
        known = diagnoses.workspace.knowledge
        question = make_question(diagnosis, files, known, case.question)
        assessment = enrich(question, ScriptedModel(quoting)).assessment
        if assessment is None or assessment.kept != assessment.proposed:
            wrong.append(f"{case.id}: {assessment.removed if assessment else 'no assessment'}")
    assert not wrong, "\n".join(wrong)
