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
    ENDLESS = "endless"


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
            r"(?i)\b(?:training|it|program|process|run) (?:just )?stops? (?:at|after|there)\b[^.?!]{0,40}\b(?:no|without)\b|"
            r"\b(?:step|iteration|progress(?: bar)?)\b[^.?!]{0,20}\b(?:still|stays?|stuck|remains?)\b[^.?!]{0,8}\b(?:0|at)\b|\bstill (?:at )?step 0\b|"
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
        Complaint.ENDLESS,
        expression(
            r"(?i)\b(?:never|does(?: not|n't)|do(?: not|n't)|won't) (?:\w+ )?stops?\b(?! at)|"
            r"\b(?:talks?|talking|goes|go|keeps?|continues?)\b[^.?!]{0,20}\b(?:on|generating|talking)\b"
            r"[^.?!]{0,30}\b(?:until|till|max\w*|forever|endless\w*)|\bendless(?:ly)?\b|\bno (?:eos|end token)\b|\bnot? (?:generat\w+|emit\w*|produc\w+) (?:\w+ )?(?:eos|end)"
        ),
    ),
    (
        Complaint.SETBACK,
        expression(
            rf"(?i)\bresum\w*\b[^.?!]{{0,80}}\b{_MEASURE}\b[^.?!]{{0,50}}\b{_WORSE}|"
            rf"\b{_MEASURE}\b[^.?!]{{0,50}}\b{_WORSE}\b[^.?!]{{0,50}}\b(?:after|on|when|upon) (?:\w+ ){{0,3}}(?:resum\w*|restart\w*|reload\w*|load\w*)|"
            r"\bafter (?:\w+ ){0,3}(?:load|merg|sav|export|convert|reload)\w*\b[^.?!]{0,60}\b(?:it is|is only|gives?|only|drops? to|falls? to|fell to)\b[^.?!]{0,12}\d"
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
_PACE = expression(
    r"(?i)\b(?:slow\w*|sluggish|bottleneck|idle|utili[sz]ation|throughput|speed(?: ?up)?|faster|long(?:er)? (?:time|than)|"
    r"so long|too long|takes? (?:about |around |over |more than )?\d[\d.]* ?(?:h|hours?|min\w*|s|sec\w*|days?)|crawl\w*|"
    r"load average|lags?|stalls?|waits? for|waiting for|scal(?:es?|ing)|MFU|GPU usage|TFLOPS|performance)\b|\b\d ?% (?:GPU|of the time)|\bGPU\b[^.?!]{0,30}\b\d{1,2} ?%|"
    r"\b(?:takes? as long|all day|where does the time go)\b|慢|遅い|langsam|lente?"
)
"""Words of a question that is about speed, whether or not it states a fact."""
_SAME = expression(
    r"(?i)\b(?:identical|the same|equal|duplicat\w*)\b[^?!]{0,60}\b(?:ranks?|GPUs?|process\w*|digit)\b|\b(?:ranks?|GPUs?|process\w*)\b[^?!]{0,60}\b(?:identical|the same|equal)\b|"
    r"\baccuracy\b[^?!]{0,40}\b(?:worse|lower|drops?|differs?)\b"
)
_MEMORY = expression(
    r"(?i)\b(?:memory|VRAM|OOM)\b|\bGPU ?\d[^.?!]{0,30}\d+ ?(?:GB|GiB|MiB)\b|\b\d+ ?(?:GB|GiB) (?:more|extra|come)|显存"
)
"""Words of a question about memory."""

ASKED_WEIGHT = 0.5
"""Weight a fact must have to answer a question about speed that complains of nothing."""

_START = expression(
    r"(?i)(?<!of the )(?<!after the )\b(?:first|1st) (?:few )?(?:steps?|iterations?|batch(?:es)?|epoch|minutes)\b|(?<!from )\bstep [01]\b"
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
    Complaint.ENDLESS: Category.DATA,
}
_ANY_CLASS = (Category.CODE_BUG, Category.CHECKPOINT, Category.NUMERICAL, Category.DATA)
"""Rooms in which the reason lies when nothing is learned."""

_MAKES_HANG = frozenset(
    {
        "signature.rccl-iommu",
        "signature.rccl-missing-setting",
        "signature.old-kernel-notice",
        "hardware.acs_redirect",
    }
)
"""Notices that are harmless while a run goes on and are known to make one stand still."""

_HOLDS_UP = frozenset(
    {
        "ranks.odd_data",
        "ranks.odd_model",
        "ranks.odd_checkpoint",
        "stacks.one_process",
        "hardware.acs_redirect",
    }
)
"""Differences and stacks that are no fault where all goes on, and tell why nothing does."""

LEAST_WEIGHT, STALL_WEIGHT = 0.15, 0.82
"""Share of the time that a setting must cost to explain slowness; and to explain that nothing advances."""

_WAITS = (Complaint.SLOW, Complaint.STALLED)
_SEEMS = expression(r"(?i)\b(?:seems?|looks?|appears?)\b.{0,40}\b(?:hang|hung|stuck|frozen|freeze)")
_REPLAY = "signature.resume-skips-data"
"""Reading up to the position of a resume takes its time and is announced."""

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
    "signature.dataloader-few-workers": 0.6,
    "signature.rccl-missing-setting": 0.6,
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


def asks_pace(question: str) -> bool:
    """A sentence about speed that is not about the start-up."""
    sentences = re.split(r"(?<=[.?!;])\s+|\s[–—]\s", question[:2000])
    return any(_PACE.search(s) and not _START.search(s) for s in sentences)


def weigh_complaint(
    examination: Examination, judgement: Judgement, knowledge: Knowledge, question: str
) -> Judgement:
    """A verdict that does not contradict what the person sees.

    Only verdicts without a fault are touched: what the log shows outranks what is said.
    """
    complaint = read_complaint(question) if question else None
    told = _explanation(examination, judgement, complaint, question)
    if told is not None:
        return Judgement(Verdict.WARNING, told, told.confidence, judgement.suspicious)
    open_verdict = judgement.verdict is Verdict.HEALTHY or (
        judgement.verdict is Verdict.UNKNOWN and judgement.finding is None
    )
    if open_verdict and question:
        from firstfault.investigation.concern import find_concern, find_work

        found = find_concern(examination, question)
        if found is not None and found.level is Level.FAILURE:
            return Judgement(Verdict.WARNING, found, found.confidence, judgement.suspicious)
        calm = not judgement.suspicious and not examination.chain.teardown
        if found is not None and calm:
            return Judgement(Verdict.HEALTHY, found, found.confidence)
        asks_of_notice = judgement.verdict is Verdict.UNKNOWN and bool(examination.chain.benign)
        if asks_of_notice and calm and not judgement.pace_asked and find_work(examination):
            return Judgement(Verdict.HEALTHY, examination.chain.benign[0], Confidence.LIKELY)
    if (
        open_verdict
        and not judgement.suspicious
        and (complaint in _WAITS or _SEEMS.search(question))
    ):
        replay = next((f for f in examination.chain.context if f.kind == _REPLAY), None)
        if replay is not None:
            return Judgement(
                Verdict.HEALTHY, replace(replay, level=Level.BENIGN), Confidence.LIKELY
            )
    if complaint is None or not open_verdict or _is_explained(examination, complaint):
        return judgement
    if complaint in (Complaint.STALLED, Complaint.ENDLESS):
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
    classes = _rooms(question) if complaint is Complaint.UNLEARNED else (category,)
    for page_id, score in knowledge.search(question, CONSIDERED_PAGES) if knowledge.search else ():
        about = knowledge.pages.get(page_id)
        if about is not None and about.category in classes and not about.benign:
            if score >= PAGE_FLOOR:
                title, page = f"{title}; the description fits best: {about.title}", page_id
                category = about.category
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
    examination: Examination, judgement: Judgement, complaint: Complaint | None, question: str
) -> Finding | None:
    """A fact that is harmless by itself (a setting, a load) and accounts for what is complained of."""
    lone = judgement.finding if judgement.verdict is Verdict.UNKNOWN else None
    if lone is not None and lone.kind == "hardware.idle_odd" and complaint is not Complaint.STALLED:
        return _name_late_gpu(lone) if complaint is Complaint.SLOW or asks_pace(question) else None
    if judgement.verdict is not Verdict.HEALTHY and not (
        judgement.verdict is Verdict.UNKNOWN and judgement.finding is None
    ):
        return None
    if _MEMORY.search(question):
        held = next(
            (f for f in examination.chain.context if f.facts.get("explains") == "memory"), None
        )
        if held is not None:
            return replace(held, level=Level.FAILURE)
    asked = complaint is None and bool(question) and asks_pace(question)
    if complaint in _UNLEARNED:
        return _report_of_nothing(examination, complaint)
    if _SAME.search(question) and (alike := _report_of_nothing(examination, Complaint.UNLEARNED)):
        return alike
    if complaint not in (Complaint.SLOW, Complaint.STALLED) and not asked:
        return None
    if complaint is Complaint.STALLED and judgement.verdict is Verdict.UNKNOWN:
        hint = next((f for f in examination.chain.context if f.kind in _MAKES_HANG), None)
        if hint is not None:
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
    if complaint is Complaint.STALLED:
        held = next((f for f in examination.chain.context if f.kind in _HOLDS_UP), None)
        if held is not None:
            category = held.category or _class_of_wait(held)
            return replace(
                held, level=Level.FAILURE, category=category, confidence=Confidence.LIKELY
            )
    least = (
        STALL_WEIGHT if complaint is Complaint.STALLED else ASKED_WEIGHT if asked else LEAST_WEIGHT
    )
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
        if f.kind in _STATES and complaint is not Complaint.STALLED
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


_UNLEARNED = (Complaint.UNLEARNED, Complaint.SETBACK, Complaint.DIVERGED, Complaint.ENDLESS)
_LEFT_OUT = frozenset({"signature.optimizer-left-out"})
"""What a resume left out, on purpose or not: no fault until somebody complains of what follows."""
_END_TOKEN = frozenset({"signature.pad-token-is-eos"})
"""Settings of a tokenizer that are harmless until somebody complains that answers do not end."""


def _rooms(question: str) -> tuple[Category, ...]:
    """Where to look when nothing is learned: at the checkpoint only where one is spoken of."""
    spoken = re.search(r"(?i)resum|restor|\bload|checkpoint|pre-?trained|\bweights\b", question)
    return _ANY_CLASS if spoken else tuple(c for c in _ANY_CLASS if c is not Category.CHECKPOINT)


def _report_of_nothing(examination: Examination, complaint: Complaint) -> Finding | None:
    """A zero or a constant in just what is complained of, which nobody would notice otherwise."""
    if complaint is Complaint.ENDLESS:
        told = next((f for f in examination.chain.context if f.kind in _END_TOKEN), None)
        return replace(told, level=Level.FAILURE, confidence=Confidence.LIKELY) if told else None
    wanted = {"setback", "any"} if complaint is Complaint.SETBACK else {"unlearned", "any"}
    known = [
        f
        for f in examination.chain.context
        if f.facts.get("explains") in wanted or f.facts.get("also") in wanted
    ]
    known += [
        f for f in examination.chain.benign if f.kind == _FRESH and _after_training(examination, f)
    ]
    if not known and complaint is not Complaint.UNLEARNED:
        known = [f for f in examination.chain.context if f.kind in _LEFT_OUT]
    if not known:
        return None
    first = max(known, key=_weight)
    if first.kind == _FRESH:
        first = replace(
            first,
            title=f"{first.title.partition(': expected')[0]}; it was loaded to be used and not trained again, so its answers are random: the "
            "trained head was not saved with the weights or the adapter (modules_to_save, the task type of the adapter), or its name differs",
        )
    return replace(first, level=Level.FAILURE)


def _class_of_wait(finding: Finding) -> Category:
    words = finding.title.lower()
    data = any(w in words for w in ("queue", "load", "data", "batch", "worker", "read"))
    return Category.DATA if data else Category.PERFORMANCE


def _name_late_gpu(finding: Finding) -> Finding:
    """The one GPU without work, where the run goes on slowly: the process that the others wait for."""
    number = re.match(r"GPU (\d{1,2})\b", finding.title)
    rank = int(number[1]) if number is not None and finding.host is None else finding.rank
    which = f" (rank {rank} where ranks follow the GPUs)" if rank is not None else ""
    title = (
        f"{finding.title.partition(': they')[0]}: its process{which} is late in every step, held up on the CPU, by its data or by its "
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


_FRESH = "signature.weights-newly-initialized-head"


def _after_training(examination: Examination, finding: Finding) -> bool:
    """A new head in a model that was loaded to be used: training came before it or is not in the log at all."""
    place = finding.evidence[0]
    reader = examination.logs.progress.get(place.file)
    return reader is not None and not any(
        p.training and not p.full for p in reader.after(place.line)
    )


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
