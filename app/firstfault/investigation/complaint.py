"""What does the person say is wrong? Facts of their question, not their guesses.

"9.1 s instead of 5.1 s" is evidence that the run is slow, whatever the log says; "is it the network?"
is a guess. A run somebody watches slow down, stand still or diverge is not called healthy only because
its log holds no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import islice

from firstfault.investigation.examination import Examination
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.verdict import Judgement
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level, Verdict

CONSIDERED_PAGES = 6
PAGE_FLOOR = 0.12
"""Share of the question's words that the best page of the complaint's class must explain."""


class Complaint(StrEnum):
    """What is said to be wrong with the run."""

    SLOW = "slow"
    STALLED = "stalled"
    DIVERGED = "diverged"
    UNLEARNED = "unlearned"
    SETBACK = "setback"


_RATE = (
    r"(?:\b(?:s|sec|seconds|ms|min|minutes|h|hours|it/s|iter/s|tok(?:ens)?/s|tps|samples/s|images/s|img/s|"
    r"[TGP]?FLOPS|[TGP]?FLOPs?(?:/s)?|MFU|GB/s|Gb/s|throughput|busbw|bandwidth|steps?|iterations?|epochs?|speed|utili[sz]ation)\b)"
)
_MEASURE = r"(?:loss|accuracy|mAP|metrics?|perplexity|reward|score|AP)"
_WORSE = r"(?:rais\w+|ris\w+|rose|jump\w*|high\w*|worse|drops?|dropped|falls?|fell|back|spik\w+)"
_WORDS: tuple[tuple[Complaint, re.Pattern[str]], ...] = (
    (
        Complaint.SLOW,
        expression(
            rf"(?i)\d[^.?!]{{0,60}}{_RATE}[^?!]{{0,60}}\binstead of\b[^?!]{{0,12}}\d|\d ?{_RATE} instead of \d|"
            rf"{_RATE}[^?!]{{0,60}}\b(?:fell|falls|dropp?ed|drops|decreased|collapsed|went|rose|grew|increased|jumped)\b[^?!]{{0,40}}\d|"
            rf"{_RATE}[^?!]{{0,60}}\b(?:takes?|took)\b[^?!]{{0,20}}\d[^?!]{{0,20}}\b(?:longer|more|instead|as long)\b|"
            r"\b(?:two|three|four|five|six|seven|eight|ten|twice|\d+(?:\.\d+)?) ?(?:times|x|%|percent)? ?(?:slower|as slow|as long)\b|"
            r"\bat (?:a |about )?(?:half|third|quarter|fifth|tenth|one \w+|1/\d+|\d+ ?%)\b[^?!]{0,30}\bspeed|\bsaw-?tooth\b|"
            r"\bsince\b[^?!]{0,60}\b(?:takes?|take)\b[^?!]{0,10}\d|"
            rf"{_RATE}[^?!]{{0,80}}\bonly (?:about |at |reache[sd] |gets? )?\d|\bonly \d[^?!]{{0,20}}{_RATE}|"
            rf"\d ?{_RATE}[^.?!]{{0,30}}\bonly\b|{_RATE}[^?!]{{0,40}}\bof (?:the|its|our) (?:usual|normal|expected|planned|former|previous)\b|"
            rf"\b(?:below|under|far from) (?:the )?(?:expected|expectation|usual|normal|planned|spec)\w*|"
            rf"{_RATE}[^?!]{{0,30}}\b(?:stays?|stuck|remains?|is stuck|stayed) at\b[^?!]{{0,10}}\d|"
            r"\b(?:half|a third|a quarter|a fifth|a tenth|\d+ ?%) (?:of )?the (?:throughput|speed|rate|bandwidth|performance|MFU)\b|"
            r"\b(?:throughput|speed|rate|bandwidth|performance|MFU|utili[sz]ation) (?:is|was|are) (?:\w+ )?(?:half|low|lower|poor|bad|slow|down|a third)\b|"
            r"\b(?:is|are|was|were|runs?|got|gets|became|becomes|trains?|feels|so|too|very|much|painfully|extremely|suddenly) (?:\w+ )?(?:slow|slower|sluggish)\b|"
            r"\bslow(?:er)? (?:than|since|after|from|training|down)\b|\bslows? down\b|\bslowed\b|\bnot scal\w+|\b(?:does(?: not|n't)|do(?: not|n't)) scale\b|"
            r"\bnothing happens for\b|\bGPUs? (?:are |is |sit |sits )?(?:at (?:0|\d) ?%|idle)|"
            r"\b(?:most|half|\d+(?:\.\d+)? ?%|two thirds|three quarters) of (?:each|every|the|a) (?:training )?(?:step|iteration|time|epoch)\b|"
            r"\bbandwidth\b[^.?!]{0,20}\d(?:\.\d+)? ?[GM]i?[Bb]\w*/s|"
            r"\b(?:pass|passes|gaps?|delays?|takes?|lost|lose)\b[^.?!]{0,40}\bbetween\b[^.?!]{0,12}\b(?:epochs?|steps?|iterations?)\b|"
            r"\b(?:stood still|stands? still|froze|freezes|freeze|halted|hiccups?)\b[^.?!]{0,20}\b(?:for|every|at|after)\b|"
            rf"\d ?{_RATE} (?:per|a|for each) (?:step|iteration|epoch|batch)|\bothers? (?:report|get|reach|need|have)\b[^.?!]{{0,20}}\d|"
            r"\b(?:train\w*|run|job|it|everything|step\w*|loading) (?:\w+ )?(?:slow|slower|slowly|crawls)\b|"
            r"\butili[sz]ation\b[^.?!\d]{0,20}\b[0-4]?\d ?%|\bsits? at (?:0|\d|1\d) ?%|\b(?:low|lower) (?:usage|load|utili[sz]ation)\b|"
            r"\bGPUs? (?:\w+ ){0,3}(?:mostly |often )?idle\b|"
            rf"\d[^.?!]{{0,4}} ?{_RATE}[^?!]{{0,50}}\b(?:expected|should be|one node|single|normally|others?)\b[^?!]{{0,25}}\d|"
            rf"\b(?:one|1|single|two|2|four|4|eight|8) (?:GPUs?|nodes?|cards?)\b[^?!]{{0,20}}\d ?{_RATE}[^?!]{{0,40}}\b(?:GPUs?|nodes?|cards?)\b[^?!]{{0,20}}\d|"
            rf"{_RATE} (?:\w+ )?halved\b|"
            r"\bcrawl\w*\b|\btakes? \d[^.?!]{0,40}\b(?:expected|although)\b|"
            r"\bat (?:0|\d|1\d) ?% (?:utili[sz]ation|usage|load)|"
            rf"\b(?:pauses?|stalls?|waits?|hiccups?)\b[^?!]{{0,40}}\b(?:every|each|between)\b"
        ),
    ),
    (
        Complaint.STALLED,
        expression(
            r"(?i)\b(?:step|iteration|progress(?: bar)?)\b[^.?!]{0,20}\b(?:still|stays?|stuck|remains?)\b[^.?!]{0,8}\b(?:0|at)\b|\bstill (?:at )?step 0\b|"
            r"\b(?:no progress|not advanc\w+|does(?: not|n't) (?:advance|progress|move)|seems? (?:to )?(?:hang|stuck|be stuck)|looks? (?:hung|stuck)|hangs?|hanging|stuck)\b"
        ),
    ),
    (
        Complaint.DIVERGED,
        expression(
            r"(?i)\bloss\b[^.?!]{0,50}\b(?:explod\w+|diverg\w+|spik\w+|jump(?:s|ed)|ris(?:es|ing)|nan|inf|flat|stuck|"
            r"plateau\w*|does(?: not|n't) (?:go down|decrease|move|fall|change)|stopped (?:falling|decreasing)|"
            r"(?:goes|went) up|worse)|\bdiverg(?:es|ed|ing)\b|\b(?:gets?|is|became|becomes|turns?) nan\b|"
            r"\bgrad(?:ient)?[ _]norm\b[^.?!]{0,30}\b(?:explod\w+|spik\w+|nan|inf|zero|grows?|growing|rises?)|"
            r"\breward\b[^.?!]{0,60}\b(?:falls?|drops?|collaps\w+|declin\w+)|\bloss\b[^.?!]{0,40}\b(?:too (?:high|large)|\d+ times|twice|much higher)|"
            r"\b(?:starts?|began|begins?) at loss \d|"
            r"\bmodel (?:learns nothing|does(?: not|n't) learn|collapsed)"
        ),
    ),
    (
        Complaint.SETBACK,
        expression(
            rf"(?i)\bresum\w*\b[^.?!]{{0,80}}\b{_MEASURE}\b[^.?!]{{0,50}}\b{_WORSE}|"
            rf"\b{_MEASURE}\b[^.?!]{{0,50}}\b{_WORSE}\b[^.?!]{{0,50}}\b(?:after|on|when|upon) (?:\w+ ){{0,3}}(?:resum\w*|restart\w*|reload\w*|load\w*)"
        ),
    ),
    (
        Complaint.UNLEARNED,
        expression(
            r"(?i)\b(?:identical|same|equal|like|as|unchanged|no different|no difference)\b[^.?!]{0,30}"
            r"\b(?:before|base|initial\w*|original|untrained|pre-?trained|random)\b|"
            r"\b(?:has|have|had|shows?|with) no (?:visible |measurable )?effect\b|\bnothing (?:is|was|gets|has been) (?:learned|learnt|updated|trained)|"
            r"\blearn(?:s|ed|ing)? nothing\b|\bnot learning\b|"
            rf"\b(?:weights?|parameters?|params|adapter|model|outputs?|{_MEASURE})\b[^.?!]{{0,30}}\b(?:never|does(?: not|n't)|do(?: not|n't)|did(?: not|n't)|not) (?:\w+ )?"
            r"(?:chang\w*|mov\w*|updat\w*|learn\w*|improv\w*|train\w*|decreas\w*)|"
            rf"\b{_MEASURE}\b[^.?!]{{0,30}}\b(?:constant|flat|stuck|stays?|zero|is 0|all along|unchanged|chance level)\b|"
            r"\b(?:of|like|as) (?:a )?random (?:init\w*|model|guess\w*|weights)"
        ),
    ),
)
_START = expression(
    r"(?i)\b(?:first|1st) (?:few )?(?:steps?|iterations?|batch(?:es)?|epoch|minutes)\b|(?<!from )\bstep [01]\b"
)
"""What is said of the first steps is said of the start-up."""

_PAST = expression(
    r"(?i)\b(?:than|as|like) (?:\w+ )?(?:yesterday|before|last (?:week|month|time|run)|usual|it was|the (?:last|old|previous))\b"
)
"""A comparison with an earlier run that the question gives no figure of."""

_GUESS = expression(
    r"(?i)^\s*(?:is|are|was|were|do|does|did|should|could|can|will|would|might|may|why is it|or|which)\b.*\?$"
)
_CLASS = {
    Complaint.SLOW: Category.PERFORMANCE,
    Complaint.STALLED: Category.PERFORMANCE,
    Complaint.DIVERGED: Category.NUMERICAL,
    Complaint.UNLEARNED: Category.CODE_BUG,
    Complaint.SETBACK: Category.CHECKPOINT,
}
_ANY_CLASS = (Category.CODE_BUG, Category.CHECKPOINT, Category.NUMERICAL, Category.DATA)
"""Rooms in which the reason lies when nothing is learned."""

_MAKES_HANG = frozenset({"signature.rccl-iommu", "signature.old-kernel-notice"})
"""Notices that are harmless while a run goes on and are known to make one stand still."""

LEAST_WEIGHT, STALL_WEIGHT = 0.15, 0.82
"""Share of the time that a setting must cost to explain slowness; and to explain that nothing advances."""

_OUTLIVED = frozenset(
    {
        "signature.nfs-server-not-responding", "signature.ethernet-link-down",
        "signature.lustre-client-evicted", "kernel.nic_link_down", "kernel.eth_link_down",
    }
)  # fmt: skip
"""Faults that a run got over, and that made it stand still meanwhile."""

_STATES = frozenset({"hardware.nvlink_inactive", "hardware.nvlink_slow", "hardware.pcie_width"})
"""Faults read from the output of a command, which may stand anywhere in a log."""

_TELLING = {
    "signature.dataloader-too-many-workers": 0.7,
    "signature.tf-function-retracing": 0.7,
}
"""Warnings that are harmless where nobody complains, with the share of the time they may cost."""

_TITLES = {
    Complaint.STALLED: "the run does not advance, as the question says",
    Complaint.SLOW: "the run is slower than it was or should be, as the question says; no line that was read says why",
    Complaint.DIVERGED: "the loss does not behave, as the question says; no line that was read says why",
    Complaint.UNLEARNED: "the run learns nothing, as the question says; no line that was read says why",
    Complaint.SETBACK: "the resumed run does not go on where it stopped, as the question says; no line that was read says why",
}


def read_complaint(question: str) -> Complaint | None:
    """The complaint that the question states as a fact; None where it only asks or guesses."""
    for sentence in re.split(r"(?<=[.?!;])\s+|\s[–—]\s", question[:2000]):
        if _GUESS.match(sentence) or _START.search(sentence):
            continue
        for complaint, pattern in _WORDS:
            if pattern.search(sentence):
                return complaint
    return None


def weigh_complaint(
    examination: Examination, judgement: Judgement, knowledge: Knowledge, question: str
) -> Judgement:
    """A verdict that does not contradict what the person sees.

    Only verdicts without a fault are touched: what the log shows outranks what is said.
    """
    complaint = read_complaint(question) if question else None
    told = _explanation(examination, judgement, complaint)
    if told is not None:
        return Judgement(Verdict.WARNING, told, told.confidence, judgement.suspicious)
    open_verdict = judgement.verdict is Verdict.HEALTHY or (
        judgement.verdict is Verdict.UNKNOWN and judgement.finding is None
    )
    if complaint is None or not open_verdict or _is_explained(examination, complaint):
        return judgement
    if complaint is Complaint.STALLED:
        return judgement
    compared = judgement.pace_asked or _PAST.search(question) is not None
    if complaint is Complaint.SLOW and compared and not re.search(r"\d", question):
        # slower than something that was not handed in: nothing to compare with
        return Judgement(
            Verdict.UNKNOWN, None, Confidence.UNKNOWN, judgement.suspicious, pace_asked=True
        )
    category = _CLASS[complaint]
    evidence = tuple(_last_steps(examination))
    if not evidence:
        return judgement
    title, page = _TITLES[complaint], None
    classes = _ANY_CLASS if complaint is Complaint.UNLEARNED else (category,)
    for page_id, score in knowledge.search(question, CONSIDERED_PAGES) if knowledge.search else ():
        found = knowledge.pages.get(page_id)
        if found is not None and found.category in classes and not found.benign:
            if score >= PAGE_FLOOR:
                title, page = f"{title}; the description fits best: {found.title}", page_id
                category = found.category
            break
    if page is None and complaint is Complaint.UNLEARNED:
        # what was complained of was not seen to be well, and nothing tells in which room to look
        return Judgement(Verdict.UNKNOWN, None, Confidence.UNKNOWN, judgement.suspicious)
    finding = Finding(
        kind=f"question.{complaint.value}",
        title=title,
        level=Level.SYMPTOM,
        category=category,
        confidence=Confidence.POSSIBLE,
        evidence=evidence,
        rank=None,
        page=page,
    )
    return Judgement(Verdict.WARNING, finding, Confidence.POSSIBLE, judgement.suspicious)


def _explanation(
    examination: Examination, judgement: Judgement, complaint: Complaint | None
) -> Finding | None:
    """A fact that is harmless by itself (a setting, a load) and accounts for what is complained of."""
    if judgement.verdict is not Verdict.HEALTHY and not (
        judgement.verdict is Verdict.UNKNOWN and judgement.finding is None
    ):
        return None
    if complaint in _UNLEARNED:
        return _report_of_nothing(examination, complaint)
    if complaint not in (Complaint.SLOW, Complaint.STALLED):
        return None
    if complaint is Complaint.STALLED and judgement.verdict is Verdict.UNKNOWN:
        hint = next((f for f in examination.chain.context if f.kind in _MAKES_HANG), None)
        if hint is not None:
            return replace(hint, level=Level.FAILURE, confidence=Confidence.POSSIBLE)
    least = LEAST_WEIGHT if complaint is Complaint.SLOW else STALL_WEIGHT
    facts = [f for f in examination.chain.context if f.facts.get("explains") == "slow"]
    known = (*examination.chain.context, *examination.chain.benign)
    facts += [
        replace(f, facts={**f.facts, "weight": _TELLING[f.kind]}, category=Category.PERFORMANCE)
        for f in known
        if f.kind in _TELLING
    ]
    facts += [
        replace(f, facts={**f.facts, "weight": 0.6}, category=Category.PERFORMANCE)
        for f in examination.chain.survived
        if f.kind in _OUTLIVED
    ]
    # what a command shows is a state: steps printed below it did not get over it
    facts += [
        replace(f, facts={**f.facts, "weight": 0.75})
        for f in examination.chain.survived
        if f.kind in _STATES and complaint is Complaint.SLOW
    ]
    found = sorted((f for f in facts if _weight(f) >= least), key=_weight, reverse=True)
    if not found:
        return None
    first = found[0]
    beside = [f for f in found[1:3] if f.kind.partition(".")[0] != first.kind.partition(".")[0] and _weight(f) >= 0.4]  # fmt: skip
    return replace(
        first,
        title="; ".join(f.title for f in (first, *beside)),
        level=Level.FAILURE,
        evidence=(*first.evidence, *(e for f in beside for e in f.evidence[:2])),
        host=first.host or next((f.host for f in beside if f.host), None),
    )


_UNLEARNED = (Complaint.UNLEARNED, Complaint.SETBACK, Complaint.DIVERGED)


def _report_of_nothing(examination: Examination, complaint: Complaint) -> Finding | None:
    """A zero or a constant in just what is complained of, which nobody would notice otherwise."""
    wanted = {"setback", "any"} if complaint is Complaint.SETBACK else {"unlearned", "any"}
    known = [f for f in examination.chain.context if f.facts.get("explains") in wanted]
    if not known:
        return None
    first = max(known, key=_weight)
    return replace(first, level=Level.FAILURE)


def _weight(finding: Finding) -> float:
    weight = finding.facts.get("weight")
    return float(weight) if isinstance(weight, int | float) else 0.0


def _is_explained(examination: Examination, complaint: Complaint) -> bool:
    """Something known to be harmless, or outlived, accounts for what is complained of."""
    harmless = (*examination.chain.benign, *examination.chain.survived)
    return any(f.category is _CLASS[complaint] or f.kind.startswith("metrics.") for f in harmless)


def _last_steps(examination: Examination) -> Iterator[Evidence]:
    """First and last training step of the first log that has any."""
    for digest in examination.logs.digests:
        reader = examination.logs.progress[digest.file]
        ends = [next((p for p in reader.after(0) if p.training), None), reader.last_training()]
        found = [reader.line(p).evidence() for p in ends if p is not None]
        if found:
            yield from islice(dict.fromkeys(found), 2)
            return
