"""Where do the pieces become one answer? Evidence -> verdict -> fixes -> phases -> Diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from firstfault.grounding.quotes import quote_holds
from firstfault.investigation.activity import name_activity
from firstfault.investigation.artefacts import choose_artefacts
from firstfault.investigation.blanks import fill_commands, find_names
from firstfault.investigation.calculations import calculate, describe_calculations
from firstfault.investigation.chain_links import link_events, list_followers
from firstfault.investigation.citations import CitationBook, LogCheck
from firstfault.investigation.deciding import drop_frames, put_odd_first
from firstfault.investigation.diagnosis import (
    Diagnosis,
    FirstLine,
    Hypothesis,
    NextArtefact,
    SkippedInput,
    Struck,
)
from firstfault.investigation.examination import Examination, examine
from firstfault.investigation.fixes import choose_fixes
from firstfault.investigation.handed_in import find_handed_in
from firstfault.investigation.headline import name_cause, name_open
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.onset import name_onset
from firstfault.investigation.own_words import believe_alone, name_own_words
from firstfault.investigation.partial import is_partial, say_unread, weigh_unread
from firstfault.investigation.phases import describe_phases
from firstfault.investigation.place import FaultPlace, find_place
from firstfault.investigation.plain_words import put_plainly
from firstfault.investigation.precision import weigh_precision
from firstfault.investigation.receipt import write_receipt
from firstfault.investigation.remedy import name_setting, weigh_remedy
from firstfault.investigation.return_point import name_return_point
from firstfault.investigation.run_state import read_run_state
from firstfault.investigation.scheduler import find_schedulers
from firstfault.investigation.stack import read_lines
from firstfault.investigation.straggler import find_straggler
from firstfault.investigation.struck import find_struck
from firstfault.investigation.told_causes import believe_warning
from firstfault.investigation.told_layout import place_as_told
from firstfault.investigation.verdict import (
    Judgement,
    choose_category,
    judge,
    possible_cause,
    require_proof,
)
from firstfault.investigation.why import Steps, Why
from firstfault.investigation.wording import (
    explain,
    explain_healthy,
    explain_open,
    explain_unknown,
    find_companions,
    name_standouts,
    state_disproof,
)
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level, Verdict
from firstfault_tools.log.executors import Workers
from firstfault_tools.log.window import read_window
from firstfault_tools.registry import Artefact

MAX_HYPOTHESES = 5
SEARCH_FLOOR = 0.30
RAISED_ALIKE = "traceback.unhandled"
"""Kind of the findings that list every rank which raised the exception."""


def diagnose(
    artefacts: Sequence[Artefact],
    knowledge: Knowledge,
    skipped: Sequence[SkippedInput] = (),
    question: str = "",
    workers: Workers | None = None,
) -> Diagnosis:
    """Diagnosis of one incident from its artefacts. Deterministic; no model and no network."""
    return conclude(
        examine(artefacts, knowledge.signatures, workers), artefacts, knowledge, skipped, question
    )


def explain_decisions(
    artefacts: Sequence[Artefact],
    knowledge: Knowledge,
    skipped: Sequence[SkippedInput] = (),
    question: str = "",
    workers: Workers | None = None,
) -> tuple[Diagnosis, Why]:
    """The diagnosis, and how the judge came to it."""
    examination = examine(artefacts, knowledge.signatures, workers)
    steps = Steps()
    diagnosis = conclude(examination, artefacts, knowledge, skipped, question, steps)
    return diagnosis, Why(examination, tuple(steps.taken))


def conclude(
    examination: Examination,
    artefacts: Sequence[Artefact],
    knowledge: Knowledge,
    skipped: Sequence[SkippedInput] = (),
    question: str = "",
    steps: Steps | None = None,
) -> Diagnosis:
    """The answer that rests on an examination of the artefacts. steps: where what decided is noted."""
    question = put_plainly(question)
    examination = place_as_told(examination, question)
    examination, judgement = _judge(
        examination, artefacts, knowledge, skipped, question, steps or Steps()
    )
    unread: dict[str, SkippedInput] = {}
    book = CitationBook(_log_check(artefacts, examination, unread))
    diagnosis = _assemble(examination, judgement, knowledge, book, skipped)
    if not unread:
        return diagnosis
    told = replace(diagnosis.input, skipped=(*diagnosis.input.skipped, *unread.values()))
    return replace(diagnosis, input=told)


def _judge(
    examination: Examination,
    artefacts: Sequence[Artefact],
    knowledge: Knowledge,
    skipped: Sequence[SkippedInput],
    question: str,
    steps: Steps,
) -> tuple[Examination, Judgement]:
    """From the order of explanations to the verdict, step by step."""
    now = steps.take("judge", None, judge(examination, question, skipped))
    if (calm := _reassure(examination, now, question)) is not None:
        now = steps.take("harmless-and-asked", now, calm)
    else:
        told = believe_warning(examination, now, knowledge)
        now = steps.take("warning-names-a-cause", now, told)
        now = steps.take("begins-where-numbers-changed", now, name_onset(examination, now))
        if now.verdict is Verdict.UNKNOWN and knowledge.search is not None:
            suggested = _suggest(now, knowledge, question)
            now = steps.take("page-for-unexplained-lines", now, suggested)
        if len(examination.logs.digests) > 1:
            from firstfault.investigation.two_runs import compare_logs

            compared = compare_logs(examination, now, knowledge, artefacts, question)
            now = steps.take("good-run-beside-the-bad", now, compared)
        if question:
            from firstfault.investigation.answers import weigh_complaint

            weighed = weigh_complaint(examination, now, knowledge, question)
            now = steps.take("complaint-weighed", now, weighed)
        alone = believe_alone(examination, now, knowledge)
        now = steps.take("one-rank-alone-tells-trouble", now, alone)
        own = name_own_words(examination, now)
        now = steps.take("words-of-the-odd-rank", now, own)
        remedy = weigh_remedy(examination, now, question)
        now = steps.take("experiment-of-the-question", now, remedy)
        examination, named = name_setting(examination, now, question)
        now = steps.take("setting-named", now, named)
        if question:
            from firstfault.investigation.restated import leave_restated

            restated = leave_restated(examination, now, question)
            now = steps.take("says-only-what-was-said", now, restated)
    now = steps.take("asked-among-harmless", now, _answer_asked(examination, now, question))
    now = steps.take("proof-of-health", now, require_proof(examination, now, question, skipped))
    now = steps.take("precision-of-the-kind", now, weigh_precision(now, knowledge.precision))
    now = steps.take("reading-was-stopped", now, weigh_unread(examination.skipped, now))
    return examination, now


def _reassure(examination: Examination, judgement: Judgement, question: str) -> Judgement | None:
    if not question or not judgement.may_be_calm:
        return None
    # only asked for in healthy runs: the command need not load it otherwise
    from firstfault.investigation.reassurance import reassure

    return reassure(examination, judgement, question)


def _answer_asked(examination: Examination, judgement: Judgement, question: str) -> Judgement:
    """A healthy verdict that rests on the harmless thing that is asked about, where there are several."""
    finding = judgement.finding
    if judgement.verdict is not Verdict.HEALTHY or not question:
        return judgement
    if finding is not None and finding.kind.startswith("question."):
        return _tell_measured(examination, judgement, finding)
    from firstfault.investigation.reassurance import find_asked, find_measured, find_quoted_warning

    asked = (
        find_measured(examination, question, finding)
        or find_asked(examination, question)
        or find_quoted_warning(examination, question)
    )
    return judgement if asked is None else replace(judgement, finding=asked)


def _tell_measured(examination: Examination, judgement: Judgement, finding: Finding) -> Judgement:
    """The answer to one part of a question, and the judged curve that answers another part."""
    judged = (f for f in examination.chain.benign if f.kind.startswith("metrics."))
    other = next((f for f in judged if f.category is not finding.category), None)
    if other is None:
        return judgement
    return replace(judgement, finding=replace(finding, title=f"{finding.title}; {other.title}"))


def _log_check(
    artefacts: Sequence[Artefact], examination: Examination, unread: dict[str, SkippedInput]
) -> LogCheck:
    """Looks quotes up in the files themselves. A file that is gone or changed by then ends in `unread`."""
    paths = {a.name: a.path for a in artefacts}
    offsets: Mapping[str, Sequence[tuple[int, int]]] = {
        d.file: d.offsets for d in examination.logs.digests
    }

    def holds(file: str, line: int, quote: str) -> bool:
        path: Path | None = paths.get(file)
        if path is None:
            return False
        try:
            window = read_window(path, line, line, offsets.get(file, ()))
        except OSError as error:
            why = f"could not be read again for its quotes: {error.strerror or error}; run it once more"
            unread.setdefault(file, SkippedInput(file, why))
            return False
        return bool(window) and quote_holds(quote, window[0][1])

    return holds


def _suggest(judgement: Judgement, knowledge: Knowledge, question: str) -> Judgement:
    """The best page for lines that nothing explains, as a possible cause."""
    if not judgement.suspicious or knowledge.search is None:
        return judgement
    text = " ".join([question, *(line.message[:300] for line in judgement.suspicious[:6])])
    for page_id, score in knowledge.search(text, 3):
        page = knowledge.pages.get(page_id)
        if page is None or score < SEARCH_FLOOR or page.benign:
            continue
        finding = possible_cause(judgement.suspicious, page.id, page.title, page.category)
        return Judgement(Verdict.FAULT, finding, Confidence.POSSIBLE, judgement.suspicious)
    return judgement


def _assemble(
    examination: Examination,
    judgement: Judgement,
    knowledge: Knowledge,
    book: CitationBook,
    skipped: Sequence[SkippedInput],
) -> Diagnosis:
    judgement, main = _cite_finding(judgement, book)
    finding = judgement.finding
    place = find_place(examination, finding) if finding is not None else None
    calculations = calculate(examination, finding)
    fault = judgement.verdict in (Verdict.FAULT, Verdict.WARNING)
    placed = fault or judgement.verdict is Verdict.UNKNOWN
    artefacts = choose_artefacts(examination, judgement, knowledge)
    text, cause, category = _wording(examination, judgement, knowledge, book, main, artefacts)
    helped = fault or category is not None
    if judgement.verdict is Verdict.UNKNOWN:
        text = " ".join([text, *name_standouts(examination, book)])
    receipt = write_receipt(examination, skipped)
    unread = [say_unread(receipt)] if is_partial(receipt) else []
    text = " ".join([text, *describe_calculations(calculations), *unread])
    evidence = finding.evidence if finding is not None else ()
    lines = read_lines(examination, evidence)
    schedulers = find_schedulers("\n".join([lines, *(d.file for d in examination.logs.digests)]))
    fixes = (
        choose_fixes(examination, finding, knowledge, book, main, lines, schedulers)
        if finding is not None and helped
        else ()
    )
    fixes = name_return_point(fixes, finding, examination.logs.digests)
    hypotheses = _hypotheses(examination, judgement, cause, category, book, main)
    run_state = read_run_state(examination, finding, judgement.verdict)
    phases = describe_phases(examination, judgement, run_state, place, fixes, hypotheses, artefacts)
    diagnosis = Diagnosis(
        verdict=judgement.verdict,
        category=category,
        root_cause=cause,
        signature=finding.kind.removeprefix("signature.") if finding is not None else None,
        confidence=judgement.confidence,
        first_failing_rank=None,
        host=None,
        gpu=None,
        first_line=None,
        explanation=text,
        fixes=fixes,
        hypotheses=hypotheses,
        cascade=link_events(examination, judgement),
        citations=book.citations,
        phases=phases,
        next_artefacts=artefacts,
        input=receipt,
        schedulers=schedulers,
        named=find_names(lines) if helped else {},
        handed_in=find_handed_in(lines, [d.file for d in examination.logs.digests])
        if helped
        else (),
        alike=_list_alike(finding) if finding is not None else (),
        struck=find_struck(examination, finding) if finding is not None and placed else Struck(),
        straggler=find_straggler(examination.logs.work),
        disproof=state_disproof(judgement, knowledge),
        run_state=run_state,
        tools={**{n: r.data for n, r in examination.readings.items()}, **calculations},
    )
    if placed and place is not None:
        diagnosis = _set_place(diagnosis, place, evidence)
    if diagnosis.cascade:
        followers = list_followers(examination, diagnosis.first_failing_rank)
        diagnosis = replace(diagnosis, followers=followers)
    return fill_commands(diagnosis)


def _list_alike(finding: Finding) -> tuple[int, ...]:
    """Ranks that raised one and the same exception; empty where it is one rank's."""
    raised = finding.facts.get("ranks") if finding.kind == RAISED_ALIKE else None
    ranks = (
        tuple(r for r in raised if isinstance(r, int)) if isinstance(raised, (list, tuple)) else ()
    )
    return ranks if len(ranks) > 1 else ()


def _cite_finding(judgement: Judgement, book: CitationBook) -> tuple[Judgement, list[int]]:
    """The judgement with its finding as it is shown, and the numbers of the lines that carry it."""
    if judgement.finding is None:
        return judgement, []
    finding = put_odd_first(drop_frames(judgement.finding))
    main = book.cite_logs(finding.evidence)
    if finding.evidence and not main:
        # nothing quotable holds: the finding may not be shown as a verdict
        return Judgement(Verdict.UNKNOWN, None, Confidence.UNKNOWN, judgement.suspicious), []
    return replace(judgement, finding=finding), main


def _set_place(diagnosis: Diagnosis, place: FaultPlace, evidence: Sequence[Evidence]) -> Diagnosis:
    """The diagnosis with whom the fault struck, and its first line."""
    first = evidence[0] if evidence else None
    return replace(
        diagnosis,
        first_failing_rank=place.rank,
        host=place.host,
        gpu=place.gpu,
        first_line=FirstLine(first.file, first.line, first.text) if first is not None else None,
        local_rank=place.process.local_rank,
    )


def _wording(
    examination: Examination,
    judgement: Judgement,
    knowledge: Knowledge,
    book: CitationBook,
    main: Sequence[int],
    artefacts: Sequence[NextArtefact],
) -> tuple[str, str, Category | None]:
    finding = judgement.finding
    category = choose_category(examination, judgement)
    if judgement.verdict is Verdict.HEALTHY:
        text, cause = explain_healthy(examination, judgement, knowledge, book)
        return text, cause, category
    if finding is None:
        text, cause = explain_unknown(examination, judgement, book)
        return text, name_open(cause, artefacts), None
    if judgement.verdict is Verdict.UNKNOWN:
        text = explain_open(examination, finding, book, main)
        return text, name_open(f"Not decided: {finding.title}", artefacts), category
    activity = name_activity(examination, finding)
    cause = name_cause(finding, find_companions(examination, finding), activity)
    text = explain(examination, finding, knowledge, book, main, judgement.confidence)
    return text, cause, category


def _hypotheses(
    examination: Examination,
    judgement: Judgement,
    cause: str,
    category: Category | None,
    book: CitationBook,
    main: Sequence[int],
) -> tuple[Hypothesis, ...]:
    lead = Hypothesis(cause, category, judgement.confidence, tuple(main))
    out = [_of_finding(lead, judgement.finding)]
    told = [judgement.finding.title] if judgement.finding is not None else [cause]
    if judgement.verdict is Verdict.HEALTHY:
        return tuple(out)
    for other in examination.chain.rivals:
        if len(out) >= MAX_HYPOTHESES:
            break
        numbers = tuple(book.cite_logs(other.evidence[:2]))
        if not numbers or numbers[0] in main or any(_same(t, other.title) for t in told):
            continue
        told.append(other.title)
        sure = Confidence.LIKELY if "by_experiment" in other.facts else Confidence.POSSIBLE
        rival = Hypothesis(other.title, other.category, sure, numbers, tuple(main[:1]))
        out.append(_of_finding(rival, other))
    if any("experiment" in f.facts for f in examination.findings):
        from firstfault.investigation.tested import tested_hypotheses

        out += tested_hypotheses(examination.findings, told, book)
    return tuple(out)


def _of_finding(hypothesis: Hypothesis, finding: Finding | None) -> Hypothesis:
    """The hypothesis with its finding's page, and whether what was read names the cause by itself."""
    if finding is None:
        return hypothesis
    inferred = finding.level is not Level.CAUSE and finding.kind.startswith(_NAMES_A_FAILURE)
    stated = not inferred or finding.category is Category.HARDWARE
    return replace(hypothesis, page=finding.page or "", stated=stated)


_NAMES_A_FAILURE = ("signature.", "exit.")
"""Kinds that know a message or an exit code: below the level of a cause they tell what failed, and why is inferred. Other
kinds were measured, compared or recorded, as a fault of the hardware always is."""


def _same(one: str, other: str) -> bool:
    """Two wordings of one cause: equal, or one contained in the other."""
    one, other = one.lower(), other.lower()
    return one in other or other in one
