"""What remains of the model's reply once it is held against the evidence, and what does it change?

The published verdict stays. Its confidence may fall by one step where quoted evidence contradicts it;
causes may be put beside it. Whatever is not said by evidence is removed, or shown as a hypothesis
without support, and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from firstfault.agent.context import TurnContext
from firstfault.agent.evidence import to_citation
from firstfault.agent.reply import HypothesisClaim, NextProbe, Reply, Sentence
from firstfault.grounding.claims import (
    Claim,
    Fault,
    Objected,
    check_claim,
    check_leak,
    check_question,
)
from firstfault.grounding.items import Ground, Item, ItemKind
from firstfault.grounding.words import cause_categories, clear_marks
from firstfault.investigation.diagnosis import Citation, Diagnosis, Hypothesis, PhaseName
from firstfault_tools.findings import Category, Confidence, Verdict

MAX_UNSUPPORTED = 2
_FALL = {
    Confidence.CONFIRMED: Confidence.LIKELY,
    Confidence.LIKELY: Confidence.POSSIBLE,
    Confidence.POSSIBLE: Confidence.POSSIBLE,
    Confidence.UNKNOWN: Confidence.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Weighed:
    """A hypothesis of the model. `supported`: evidence says all of it; else it is only an idea."""

    text: str
    category: Category
    supports: tuple[str, ...]
    contradicts: tuple[str, ...]
    test: str
    supported: bool
    page: str = ""


@dataclass(frozen=True, slots=True)
class AskedByModel:
    """The one question that is left, with its default."""

    phase: PhaseName
    text: str
    default: str


@dataclass(frozen=True)
class Assessment:
    """What may be shown. `removed` counts reasons; `proposed` and `kept` count claims."""

    sentences: tuple[Claim, ...] = ()
    whys: tuple[Claim, ...] = ()
    hypotheses: tuple[Weighed, ...] = ()
    doubts: tuple[Claim, ...] = ()
    question: AskedByModel | None = None
    probe: NextProbe | None = None
    proposed: int = 0
    kept: int = 0
    removed: Mapping[str, int] = field(default_factory=dict)


def assess(reply: Reply, context: TurnContext, *, grounded: bool = True) -> Assessment:
    """Hold a reply against the evidence. `grounded=False` lets all pass; for measuring only."""
    reply = _restore(reply, context)
    ground = context.ground()
    removed: Counter[str] = Counter()
    # what is only in the person's words proves nothing, and a claim may not be made of it
    sentences = _keep(reply.explanation, ground, removed, grounded)
    whys = _keep_chain(reply.whys, ground, removed, grounded)
    hypotheses = tuple(_weigh(h, ground, context, removed, grounded) for h in reply.hypotheses)
    doubts = _keep_doubts(reply, ground, context, removed, grounded)
    question = _question(reply, ground, removed, grounded)
    probe = reply.next_probe
    if probe is not None and grounded and _faults(probe.reason, ground):
        removed["probe"] += 1
        probe = None
    proposed = sum(
        len(part) for part in (reply.explanation, reply.whys, reply.hypotheses, reply.doubts)
    )
    return Assessment(
        sentences=sentences,
        whys=whys,
        hypotheses=_order(hypotheses),
        doubts=doubts,
        question=question,
        probe=probe,
        proposed=proposed,
        kept=len(sentences) + len(whys) + len(doubts) + sum(h.supported for h in hypotheses),
        removed=dict(removed),
    )


def merge(diagnosis: Diagnosis, assessment: Assessment, context: TurnContext) -> Diagnosis:
    """The diagnosis with the model's hypotheses beside it; verdict, place, cause and fixes as they were."""
    if diagnosis.verdict is Verdict.HEALTHY and not assessment.doubts:
        extra: tuple[Weighed, ...] = ()
    else:
        extra = assessment.hypotheses
    book = _Numbers(diagnosis.citations, context)
    confidence = _FALL[diagnosis.confidence] if assessment.doubts else diagnosis.confidence
    against = book.numbers(tuple(i for d in assessment.doubts for i in d.evidence))
    first, *others = diagnosis.hypotheses
    first = replace(
        first, confidence=confidence, against=tuple(dict.fromkeys((*first.against, *against)))
    )
    known = {h.root_cause for h in diagnosis.hypotheses}
    added = [
        Hypothesis(
            h.text,
            h.category,
            Confidence.POSSIBLE if h.supported else Confidence.UNKNOWN,
            book.numbers(h.supports) if h.supported else (),
            book.numbers(h.contradicts),
        )
        for h in extra
        if h.text not in known
    ]
    return replace(
        diagnosis,
        confidence=confidence,
        hypotheses=(first, *others, *added),
        citations=tuple(book.citations),
    )


def say(assessment: Assessment, context: TurnContext) -> tuple[str, tuple[Citation, ...]]:
    """What is shown of an assessment as Markdown with [n] marks, and the citations behind them."""
    book = _Numbers((), context)
    blocks = [" ".join(_say_claim(c, book) for c in assessment.sentences)]
    if assessment.whys:
        rows = [f"{n}. {_say_claim(c, book)}" for n, c in enumerate(assessment.whys, 1)]
        blocks.append("**Five whys**, as far as the evidence goes:\n\n" + "\n".join(rows))
    if assessment.hypotheses:
        blocks.append(
            "**Other causes to weigh:**\n\n"
            + "\n".join(_say_weighed(h, book) for h in assessment.hypotheses)
        )
    if assessment.doubts:
        rows = [f"- {_say_claim(c, book)}" for c in assessment.doubts]
        blocks.append(
            "**Speaks against the verdict**, so it counts as less sure:\n\n" + "\n".join(rows)
        )
    if assessment.probe is not None:
        flag = assessment.probe.component.value
        blocks.append(
            f"**A measurement worth taking:** `firstfault probe --only {flag}`. {_say_claim(_claim(assessment.probe.reason), book)}"
        )
    if assessment.question is not None:
        blocks.append(
            f"**One question** ({assessment.question.phase.value}): {assessment.question.text} If you do not know: {assessment.question.default}"
        )
    return "\n\n".join(b for b in blocks if b), tuple(book.citations)


def say_removed(assessment: Assessment) -> str:
    """How much of the reply was left out and why; empty when nothing was."""
    count = assessment.proposed - assessment.kept
    if count <= 0 and not assessment.removed:
        return ""
    reasons = ", ".join(f"{k} {v}" for k, v in sorted(assessment.removed.items()))
    return f"{count} of {assessment.proposed} statements of the model are not said by the evidence and are left out or marked ({reasons})"


def _restore(reply: Reply, context: TurnContext) -> Reply:
    """Names put back. Copies are not validated: a real name may be longer than its placeholder."""

    def walk(value: Any) -> Any:
        if isinstance(value, BaseModel):
            changed = {name: walk(getattr(value, name)) for name in type(value).model_fields}
            return value.model_copy(update=changed)
        if isinstance(value, list):
            return [walk(v) for v in value]
        return _bare(context.veil.restore(value)) if type(value) is str else value

    restored: Reply = walk(reply)
    return restored


def _bare(text: str) -> str:
    return re.sub(r"^\[?(E\d+)\]?$", r"\1", text)


def _claim(sentence: Sentence) -> Claim:
    return Claim(" ".join(sentence.text.split()), tuple(sentence.evidence))


def _faults(sentence: Sentence, ground: Ground) -> list[str]:
    return [o.fault.value for o in check_claim(_claim(sentence), ground)]


def _keep(
    sentences: list[Sentence], ground: Ground, removed: Counter[str], grounded: bool
) -> tuple[Claim, ...]:
    out = []
    for sentence in sentences:
        faults = _faults(sentence, ground) if grounded else []
        removed.update(dict.fromkeys(faults, 1))
        if not faults:
            out.append(_claim(sentence))
    return tuple(out)


def _keep_chain(
    whys: list[Sentence], ground: Ground, removed: Counter[str], grounded: bool
) -> tuple[Claim, ...]:
    """Whys up to the first that evidence does not say: what comes after hangs in the air."""
    out: list[Claim] = []
    for why in whys:
        faults = _faults(why, ground) if grounded else []
        if faults:
            removed.update(dict.fromkeys(faults, 1))
            break
        out.append(_claim(why))
    return tuple(out)


def _weigh(
    claim: HypothesisClaim,
    ground: Ground,
    context: TurnContext,
    removed: Counter[str],
    grounded: bool,
) -> Weighed:
    page = context.question.knowledge.pages.get(claim.page)
    shown = page is not None and any(i.page == claim.page for i in ground.items.values())
    text = claim.statement
    known_for = tuple(i for i in claim.supports if i in ground.items)
    known_against = tuple(i for i in claim.contradicts if i in ground.items)
    cited = [ground.items[i] for i in known_for]
    faults: list[str] = []
    objected: tuple[Objected, ...] = ()
    if grounded:
        objected = check_claim(Claim(text, known_for), ground, asserts=False)
        faults = [o.fault.value for o in objected]
        if not any(i.kind in (ItemKind.LOG, ItemKind.TOOL) for i in cited):
            faults.append("no_evidence")
        if claim.page and (not shown or page is None or page.category is not claim.category):
            faults.append("page")
        named = cause_categories(text)
        if claim.category.value not in named and not claim.page:
            faults.append("cause")
        leaks = check_leak(text, ground) or check_question(claim.test, ground)
    else:
        leaks = ()
    removed.update(dict.fromkeys(faults, 1))
    if any(o.fault in (Fault.LEAK, Fault.ADVICE, Fault.VERDICT) for o in objected):
        text = ""
    return Weighed(
        text=text,
        category=claim.category,
        supports=known_for,
        contradicts=known_against,
        test="" if leaks else claim.test,
        supported=not faults,
        page=claim.page if shown else "",
    )


_ARGUING = frozenset(
    [
        "the",
        "this",
        "that",
        "these",
        "those",
        "and",
        "but",
        "not",
        "with",
        "from",
        "line",
        "lines",
        "log",
        "verdict",
        "cause",
        "evidence",
        "contradicts",
        "contradict",
        "wrong",
        "right",
        "run",
        "rank",
        "ranks",
        "because",
        "shows",
        "says",
        "real",
        "root",
        "fault",
        "was",
        "were",
        "has",
        "have",
        "does",
    ]
)


def _order(hypotheses: tuple[Weighed, ...]) -> tuple[Weighed, ...]:
    ideas = [h for h in hypotheses if not h.supported and h.text][:MAX_UNSUPPORTED]
    return (*(h for h in hypotheses if h.supported), *ideas)


def _names_something(text: str, quoted: str) -> bool:
    """A word or number of the claim stands in the cited line; words of argument alone do not count."""
    line = quoted.lower()
    words = {w.strip(".,:;()").lower() for w in text.split()}
    return any(len(w) >= 3 and w not in _ARGUING and w in line for w in words)


def _keep_doubts(
    reply: Reply, ground: Ground, context: TurnContext, removed: Counter[str], grounded: bool
) -> tuple[Claim, ...]:
    """Doubts that hold and that stand on something the diagnosis has not weighed already.

    A doubt must name something of the line it cites: that a line "contradicts the verdict" says nothing.
    """
    diagnosis = context.question.diagnosis
    weighed = {f"E{c.n}" for c in diagnosis.citations} if diagnosis is not None else set()
    out = []
    for doubt in reply.doubts:
        new = [
            i
            for i in doubt.evidence
            if i in ground.items
            and i not in weighed
            and ground.items[i].kind in (ItemKind.LOG, ItemKind.TOOL)
        ]
        told = any(_names_something(doubt.text, ground.items[i].text) for i in new)
        if grounded and (not told or _faults(doubt, ground)):
            removed["doubt"] += 1
        else:
            out.append(_claim(doubt))
    return tuple(out)


def _question(
    reply: Reply, ground: Ground, removed: Counter[str], grounded: bool
) -> AskedByModel | None:
    asked = reply.next_question
    if asked is None:
        return None
    if grounded and (check_question(asked.text, ground) or check_question(asked.default, ground)):
        removed["question"] += 1
        return None
    return AskedByModel(asked.phase, asked.text, asked.default)


@dataclass
class _Numbers:
    """Numbers evidence ids as citations, after those that are there already."""

    given: tuple[Citation, ...]
    context: TurnContext
    citations: list[Citation] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.citations = list(self.given)
        self.known = {f"E{c.n}": c.n for c in self.given}

    def numbers(self, ids: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(n for i in ids if (n := self._number(i)) is not None)

    def marks(self, ids: tuple[str, ...]) -> list[str]:
        return [f"[{n}]" for n in self.numbers(ids)]

    def _number(self, identity: str) -> int | None:
        item: Item | None = self.context.book.items.get(identity)
        if item is None or item.kind is ItemKind.USER or not item.text.strip():
            return None
        if identity not in self.known:
            self.known[identity] = len(self.citations) + 1
            self.citations.append(to_citation(item, self.known[identity]))
        return self.known[identity]


def _say_claim(claim: Claim, book: _Numbers) -> str:
    text = clear_marks(claim.text).rstrip(". ")
    return f"{text} {''.join(book.marks(claim.evidence))}."


def _say_weighed(weighed: Weighed, book: _Numbers) -> str:
    if not weighed.supported:
        return f"- An idea of the model, **not supported by the evidence**: {weighed.text}"
    row = f"- {weighed.category.value}, possible: {weighed.text.rstrip('.')} {''.join(book.marks(weighed.supports))}"
    if weighed.contradicts:
        row += f"; against it {''.join(book.marks(weighed.contradicts))}"
    return row + (f". Test: {weighed.test}" if weighed.test else ".")
