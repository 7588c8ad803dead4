"""Which fact answers a complaint, where no fault was found?

A run somebody watches slow down, stand still or diverge is not called healthy only because its log holds
no error. Facts that are harmless by themselves (a setting, a load, a fault that the run got over) say
what they account for: `Finding.explains`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from firstfault.investigation.complaint import (
    asks_memory,
    asks_pace,
    asks_sameness,
    load_vocabulary,
    read_complaint,
)
from firstfault.investigation.examination import Examination
from firstfault.investigation.health import accounts_for
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.verdict import Judgement
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Complaint,
    Confidence,
    Evidence,
    Finding,
    Level,
    Verdict,
)

CONSIDERED_PAGES = 6
PAGE_FLOOR = 0.12
"""Share of the question's words that the best page of the complaint's class must explain."""

LEAST_WEIGHT, ASKED_WEIGHT, STALL_WEIGHT = 0.15, 0.5, 0.82
"""Share of the time that a fact must cost to explain slowness; to answer a mere question about speed; and
to explain that nothing advances."""
HOLDS_UP = 0.9
"""Weight from which a fact tells why a run stands still; below, it is known to make some stand still."""
BESIDE_WEIGHT = 0.4
"""Weight from which a second fact, of another tool, is told beside the first."""

_ANY_CLASS = (Category.CODE_BUG, Category.CHECKPOINT, Category.NUMERICAL, Category.DATA)
"""Rooms in which the reason lies when nothing is learned."""
_WAITS = (Complaint.SLOW, Complaint.STALLED)
_UNLEARNED = (Complaint.UNLEARNED, Complaint.SETBACK, Complaint.DIVERGED, Complaint.ENDLESS)
_NOTICES = ("signature.", "kernel.")
"""Kinds told by a line that a program or the kernel wrote; other tools measured what they say."""

_SEEMS = expression(r"(?i)\b(?:seems?|looks?|appears?)\b.{0,40}\b(?:hang|hung|stuck|frozen|freeze)")
_PAST = expression(
    r"(?i)\b(?:than|as|like) (?:\w+ )?(?:yesterday|before|last (?:week|month|time|run)|usual|it was|the (?:last|old|previous))\b|"
    r"\bslower (?:than|since)\b|\b(?:twice|\d{1,4} ?x|times) as (?:slow|long)\b|\bused to (?:be|run|take)\b|\b(?:got|became|gets) slower\b|"
    r"\bsince (?:yesterday|monday|last week|the (?:upgrade|update|move)).{0,40}\bslow|langsamer als|plus lente? que|más lent[oa] que|"
    r"比.{1,12}慢|より遅|보다 느"
)
"""A comparison with an earlier run that the question gives no figure of."""
_CHECKPOINT = expression(r"(?i)resum|restor|\bload|checkpoint|pre-?trained|\bweights\b")


def weigh_complaint(
    examination: Examination, judgement: Judgement, knowledge: Knowledge, question: str
) -> Judgement:
    """A verdict that does not contradict what the person sees.

    Only verdicts without a fault are touched: what the log shows outranks what is said.
    """
    complaint = read_complaint(question)
    told = _find_answer(examination, judgement, complaint, question)
    if told is not None:
        return Judgement(Verdict.WARNING, told, told.confidence, judgement.suspicious)
    if not _is_open(judgement):
        return judgement
    checked = _check_concern(examination, judgement, question)
    if checked is not None:
        return checked
    if not judgement.suspicious and (complaint in _WAITS or _SEEMS.search(question)):
        replay = next(
            (f for f in examination.chain.context if f.has(FindingRole.REPLAYS_DATA)), None
        )
        if replay is not None:
            harmless = replace(replay, level=Level.BENIGN)
            return Judgement(Verdict.HEALTHY, harmless, Confidence.LIKELY)
    if complaint is None or _is_explained(examination, complaint):
        return judgement
    return _take_word(examination, judgement, knowledge, question, complaint)


def _is_open(judgement: Judgement) -> bool:
    """No fault was found: the run is well, or nothing is known."""
    return judgement.verdict is Verdict.HEALTHY or (
        judgement.verdict is Verdict.UNKNOWN and judgement.finding is None
    )


def _check_concern(
    examination: Examination, judgement: Judgement, question: str
) -> Judgement | None:
    """What the log shows of the very quantity that the question names."""
    from firstfault.investigation.concern import find_concern, find_work

    found = find_concern(examination, question)
    if found is not None and found.level is Level.FAILURE:
        return Judgement(Verdict.WARNING, found, found.confidence, judgement.suspicious)
    if judgement.suspicious or examination.chain.teardown:
        return None
    if found is not None:
        return Judgement(Verdict.HEALTHY, found, found.confidence)
    asks_of_notice = judgement.verdict is Verdict.UNKNOWN and bool(examination.chain.benign)
    if asks_of_notice and find_work(examination):
        return Judgement(Verdict.HEALTHY, examination.chain.benign[0], Confidence.LIKELY)
    return None


def _take_word(
    examination: Examination,
    judgement: Judgement,
    knowledge: Knowledge,
    question: str,
    complaint: Complaint,
) -> Judgement:
    """The complaint itself as a finding, with the page that its description fits best."""
    if complaint in (Complaint.STALLED, Complaint.ENDLESS):
        return judgement
    undecided = replace(judgement, verdict=Verdict.UNKNOWN, finding=None, confidence=Confidence.UNKNOWN)  # fmt: skip
    compared = _PAST.search(question) is not None
    if complaint is Complaint.SLOW and compared and not re.search(r"\d", question):
        # slower than something that was not handed in: nothing to compare with
        return undecided
    evidence = tuple(_last_steps(examination))
    if not evidence:
        return judgement
    wording = load_vocabulary().of(complaint)
    title, page, category = wording.untold, None, wording.category
    classes = _rooms(question) if complaint is Complaint.UNLEARNED else (category,)
    for page_id, score in knowledge.search(question, CONSIDERED_PAGES) if knowledge.search else ():
        about = knowledge.pages.get(page_id)
        if about is not None and about.category in classes and not about.benign:
            if score >= PAGE_FLOOR:
                title, page = f"{title}; the description fits best: {about.title}", page_id
                category = about.category
            break
    if page is None and complaint in (Complaint.UNLEARNED, Complaint.SLOW):
        # what was complained of was not seen to be well, and nothing tells in which room to look
        return undecided
    finding = Finding(
        kind=f"question.{complaint.value}",
        title=title,
        level=Level.SYMPTOM,
        category=category,
        confidence=Confidence.POSSIBLE,
        evidence=evidence,
        page=page,
    )
    return Judgement(Verdict.WARNING, finding, Confidence.POSSIBLE, judgement.suspicious)


def _find_answer(
    examination: Examination, judgement: Judgement, complaint: Complaint | None, question: str
) -> Finding | None:
    """A fact that is harmless by itself and accounts for what is complained of."""
    lone = judgement.finding if judgement.verdict is Verdict.UNKNOWN else None
    if lone is not None and lone.kind == "hardware.idle_odd" and complaint is not Complaint.STALLED:
        return _name_late_gpu(lone) if complaint is Complaint.SLOW or asks_pace(question) else None
    # an earlier run that was ended is not what the person sees of the later one
    ended = complaint in _UNLEARNED and lone is not None and lone.kind == "run.ended"
    if not _is_open(judgement) and not ended:
        return None
    context = examination.chain.context
    held = next((f for f in context if f.explains(Complaint.MEMORY)), None)
    if held is not None and asks_memory(question):
        return replace(held, level=Level.FAILURE)
    if complaint in _UNLEARNED:
        return _find_nothing_learned(examination, complaint)
    alike = (
        _find_nothing_learned(examination, Complaint.UNLEARNED) if asks_sameness(question) else None
    )
    return alike or _account_for_pace(examination, judgement, complaint, question)


def _account_for_pace(
    examination: Examination, judgement: Judgement, complaint: Complaint | None, question: str
) -> Finding | None:
    """What accounts for a run that stands still or is slow."""
    if complaint is Complaint.STALLED:
        undecided = judgement.verdict is Verdict.UNKNOWN
        stop = _find_stop(examination.chain.context, undecided=undecided)
        return stop or _find_slowness(examination, STALL_WEIGHT)
    if complaint is Complaint.SLOW:
        return _find_slowness(examination, LEAST_WEIGHT)
    return _find_slowness(examination, ASKED_WEIGHT) if asks_pace(question) else None


def _find_stop(context: Sequence[Finding], undecided: bool) -> Finding | None:
    """What holds a run up; where its log tells nothing else, also what is known to."""
    weight = Complaint.STALLED
    held = next((f for f in context if f.explains(weight) >= HOLDS_UP), None)
    if held is not None:
        category = held.category or _class_of_wait(held)
        return replace(held, level=Level.FAILURE, category=category, confidence=Confidence.LIKELY)
    hint = next((f for f in context if f.explains(weight)), None) if undecided else None
    if hint is None:
        return None
    title = hint.title
    if hint.category is Category.PERFORMANCE:  # known for the bandwidth that it costs
        title = f"direct transfers between the GPUs (P2P) can hang in such a state: {title}"
    return replace(
        hint,
        title=title,
        category=Category.ENVIRONMENT,
        level=Level.FAILURE,
        confidence=Confidence.POSSIBLE,
    )


def _find_slowness(examination: Examination, least: float) -> Finding | None:
    """The fact that costs most of the time, and what another tool says beside it."""
    chain = examination.chain
    facts = [f for f in (*chain.context, *chain.benign, *chain.survived) if _cost(f) >= least]
    if not facts:
        return None
    first, *rest = sorted(facts, key=_cost, reverse=True)
    room = first.kind.partition(".")[0]
    beside = [f for f in rest[:2] if f.kind.partition(".")[0] != room and _cost(f) >= BESIDE_WEIGHT]
    return replace(
        first,
        title="; ".join(f.title for f in (first, *beside)),
        level=Level.FAILURE,
        # a notice is filed under what it is about; here it is told for the time that it costs
        category=Category.PERFORMANCE if first.kind.startswith(_NOTICES) else first.category,
        evidence=(*first.evidence, *(e for f in beside for e in f.evidence[:2])),
        host=first.host or next((f.host for f in beside if f.host), None),
    )


def _cost(finding: Finding) -> float:
    return finding.explains(Complaint.SLOW)


def _find_nothing_learned(examination: Examination, complaint: Complaint) -> Finding | None:
    """A zero, a constant or a setting in just what is complained of, which nobody would notice otherwise."""
    chain = examination.chain
    wanted = [complaint]
    if complaint is Complaint.DIVERGED:
        wanted.append(Complaint.UNLEARNED)
    known = [f for f in chain.context if any(f.explains(c) for c in wanted)]
    if complaint is not Complaint.ENDLESS:
        known += [
            f
            for f in chain.benign
            if f.has(FindingRole.NEW_HEAD) and _after_training(examination, f)
        ]
    if not known:
        return None
    first = max(known, key=lambda f: max(f.explains(c) for c in wanted))
    if first.has(FindingRole.NEW_HEAD):
        first = replace(
            first,
            title=first.reworded(
                "; it was loaded to be used and not trained again, so its answers are random: the "
                "trained head was not saved with the weights or the adapter (modules_to_save, the task type of the adapter), or its name differs"
            ),
        )
    return replace(first, level=Level.FAILURE)


def _rooms(question: str) -> tuple[Category, ...]:
    """Where to look when nothing is learned: at the checkpoint only where one is spoken of."""
    if _CHECKPOINT.search(question):
        return _ANY_CLASS
    return tuple(c for c in _ANY_CLASS if c is not Category.CHECKPOINT)


def _class_of_wait(finding: Finding) -> Category:
    words = finding.title.lower()
    data = any(w in words for w in ("queue", "load", "data", "batch", "worker", "read"))
    return Category.DATA if data else Category.PERFORMANCE


def _name_late_gpu(finding: Finding) -> Finding:
    """The one GPU without work, where the run goes on slowly: the process that the others wait for."""
    number = re.match(r"GPU (\d{1,2})\b", finding.gpu or "")
    rank = int(number[1]) if number is not None and finding.host is None else finding.rank
    which = f" (rank {rank} where ranks follow the GPUs)" if rank is not None else ""
    title = finding.reworded(
        f": its process{which} is late in every step, held up on the CPU, by its data or by its "
        "host, and the others spin in the collective until it comes"
    )
    return replace(
        finding,
        title=title,
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        rank=rank,
        page="straggler-domination",
    )


def _after_training(examination: Examination, finding: Finding) -> bool:
    """A new head in a model that was loaded to be used: training came before it or is not in the log at all."""
    place = finding.evidence[0]
    reader = examination.logs.progress.get(place.file)
    return reader is not None and not any(
        p.training and not p.full for p in reader.after(place.line)
    )


def _is_explained(examination: Examination, complaint: Complaint) -> bool:
    """Something known to be harmless, or outlived, accounts for what is complained of."""
    harmless = (*examination.chain.benign, *examination.chain.survived)
    return any(accounts_for(f, complaint) for f in harmless)


def _last_steps(examination: Examination) -> Iterator[Evidence]:
    """First and last training step of the first log that has any."""
    for digest in examination.logs.digests:
        reader = examination.logs.progress[digest.file]
        ends = [next((p for p in reader.after(0) if p.training), None), reader.last_training()]
        found = [reader.line(p).evidence() for p in ends if p is not None]
        if found:
            yield from islice(dict.fromkeys(found), 2)
            return
