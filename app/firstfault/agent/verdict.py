"""What does the diagnosis become once the judge has ruled? And how is the model's part worded?

Where the tools lead, their verdict, cause, place and fixes are untouched and the model's explanations
stand beside them. Where the model leads, it says so, is at most likely, and the tools' reading stays.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from firstfault.agent.assessment import Assessment, Block, stands_on
from firstfault.agent.context import TurnContext
from firstfault.agent.evidence import to_citation
from firstfault.agent.judge import Explanation, Ruling, rule_on
from firstfault.agent.soundness import find_soundness, with_rank
from firstfault.grounding.claims import Claim
from firstfault.grounding.items import ItemKind
from firstfault.grounding.words import clear_marks
from firstfault.investigation.diagnose import diagnose
from firstfault.investigation.diagnosis import (
    ChainRole,
    Citation,
    Diagnosis,
    FirstLine,
    Fix,
    Hypothesis,
    LedBy,
    NextArtefact,
    Phase,
    PhaseName,
    PhaseStatus,
)
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Confidence, Verdict
from firstfault_tools.hardware.bus import call_gpu
from firstfault_tools.registry import Artefact

NOT_KNOWN = "not from the knowledge base"
MAX_FIXES = 4
_OPENINGS = {Verdict.HEALTHY: "Nothing wrong: ", Verdict.UNKNOWN: "Not decided by what was read: "}
"""How the tools open such a sentence, too: it has to be understood without the verdict beside it."""


def decide(context: TurnContext, assessment: Assessment, *, earned: bool) -> Ruling:
    """The judge's ruling over the tools' reading and what is left of the reply."""
    diagnosis = context.question.diagnosis
    tools = _reading_of(context, diagnosis)
    doubted = [i for d in assessment.doubts for i in d.claim.evidence]
    new = tuple(i for i in dict.fromkeys(doubted) if i not in stands_on(context, diagnosis))
    proposed = [replace(e, contradicts=new) for e in assessment.explanations]
    if earned and proposed and proposed[0].verdict in (Verdict.FAULT, Verdict.WARNING):
        proposed[0] = with_rank(context, proposed[0])
        proposed[0] = replace(proposed[0], seconded=second(context, proposed[0]))
    # against a confirmed fault no proof would count, and none is asked where tools and model agree
    open_ = tools.confidence is not Confidence.CONFIRMED and tools.verdict is not Verdict.HEALTHY
    if earned and open_ and proposed and proposed[0].verdict is Verdict.HEALTHY:
        told = {i for b in (*assessment.answer, *assessment.doubts) for i in b.claim.evidence}
        told |= {*proposed[0].lines, *proposed[0].against_lines}
        sound = find_soundness(context, proposed[0], tools, told)
        proposed[0] = replace(proposed[0], sound=sound)
    return rule_on(tools, proposed, earned=earned)


def second(context: TurnContext, explanation: Explanation) -> bool:
    """The deterministic detectors, given the cited lines alone, find a fault of the same kind."""
    lines: dict[str, list[tuple[int, str]]] = {}
    for identity in explanation.lines:
        item = context.book.find(identity)
        if item is not None and item.kind is ItemKind.LOG and item.line:
            lines.setdefault(item.file, []).append((item.line, item.text))
    if not lines:
        return False
    with tempfile.TemporaryDirectory(prefix="second-") as folder:
        artefacts = []
        for number, (name, rows) in enumerate(lines.items()):
            path = Path(folder) / f"{number}.log"
            path.write_text("\n".join(t for _, t in sorted(rows)) + "\n", "utf-8")
            artefacts.append(Artefact(name, path))
        found = diagnose(artefacts, context.question.knowledge, (), "")
    return (
        found.verdict in (Verdict.FAULT, Verdict.WARNING)
        and found.category is explanation.category
        and found.confidence in (Confidence.CONFIRMED, Confidence.LIKELY)
    )


def _reading_of(context: TurnContext, diagnosis: Diagnosis | None) -> Explanation:
    if diagnosis is None:
        return Explanation(LedBy.RULE, Verdict.UNKNOWN, None, "", Confidence.UNKNOWN)
    return Explanation(
        LedBy.RULE,
        diagnosis.verdict,
        diagnosis.category,
        diagnosis.root_cause,
        diagnosis.confidence,
        diagnosis.first_failing_rank,
        lines=tuple(sorted(stands_on(context, diagnosis))),
        test=diagnosis.disproof,
        failures=sum(c.role is not ChainRole.TEARDOWN for c in diagnosis.cascade),
    )


def apply(
    ruling: Ruling, assessment: Assessment, diagnosis: Diagnosis, context: TurnContext
) -> Diagnosis:
    """The diagnosis under the ruling."""
    book = Numbers(diagnosis.citations, context)
    ideas = [
        (e, _hypothesis(e, book, ruling))
        for e in (ruling.leader, *ruling.others)
        if e.proposer is LedBy.MODEL
    ]
    if ruling.leader.proposer is LedBy.RULE:
        return _stand_beside(ruling, diagnosis, book, ideas)
    leader = ruling.leader
    sentence = f"{_OPENINGS.get(leader.verdict, '')}{leader.cause}"
    same_kind = leader.category is diagnosis.category and leader.verdict is diagnosis.verdict
    same_place = same_kind and leader.rank == diagnosis.first_failing_rank
    lead, *beside = (row for _, row in ideas)
    tools_row = replace(diagnosis.hypotheses[0], test=diagnosis.disproof)
    if not same_kind and tools_row.confidence is Confidence.CONFIRMED:
        tools_row = replace(tools_row, confidence=Confidence.LIKELY)
    fixes = _fixes(ruling, assessment, diagnosis, context, book, same_kind)
    return replace(
        diagnosis,
        verdict=leader.verdict,
        category=leader.category,
        root_cause=sentence,
        signature=diagnosis.signature if same_kind else None,
        confidence=leader.confidence,
        first_failing_rank=leader.rank,
        host=leader.host or (diagnosis.host if same_place else None),
        gpu=leader.gpu or (diagnosis.gpu if same_place else None),
        first_line=_first_line(leader, context) or diagnosis.first_line,
        explanation=_explain(ruling, diagnosis, book),
        fixes=fixes,
        hypotheses=(lead, *([] if same_kind else [tools_row]), *diagnosis.hypotheses[1:], *beside),
        citations=tuple(book.citations),
        phases=tuple(_phase(p, ruling, fixes) for p in diagnosis.phases),
        next_artefacts=_next(leader, diagnosis),
        disproof=leader.test or diagnosis.disproof,
        led_by=LedBy.MODEL,
        disputed=ruling.disputed,
    )


def _stand_beside(
    ruling: Ruling,
    diagnosis: Diagnosis,
    book: Numbers,
    ideas: Sequence[tuple[Explanation, Hypothesis]],
) -> Diagnosis:
    """The tools' diagnosis with the faults that the model proposes behind its own."""
    known = {h.root_cause for h in diagnosis.hypotheses}
    agreed = {e.cause for e, _ in ideas if e.cause in ruling.leader.cause}
    added = [row for e, row in ideas if e.cause not in known | agreed and e.verdict not in (Verdict.HEALTHY, Verdict.UNKNOWN)]  # fmt: skip
    first, *others = diagnosis.hypotheses
    if ruling.disputed:
        first = replace(first, against=_beside(first.for_, (*first.against, *book.numbers(ruling.others[0].lines))))  # fmt: skip
    cause, host = ruling.leader.cause, diagnosis.host or ruling.leader.host or None
    if cause != diagnosis.root_cause:
        first = replace(first, root_cause=cause)
    return replace(
        diagnosis,
        root_cause=cause,
        host=host,
        hypotheses=(first, *others, *added),
        citations=tuple(book.citations),
        disputed=ruling.disputed,
    )


def _hypothesis(explanation: Explanation, book: Numbers, ruling: Ruling) -> Hypothesis:
    leads = explanation is ruling.leader
    sure = explanation.confidence if leads else Confidence.POSSIBLE
    for_ = book.numbers(explanation.lines)
    against = _beside(for_, book.numbers(explanation.against_lines))
    return Hypothesis(
        explanation.cause, explanation.category, sure, for_, against, say_test(explanation)
    )


def _beside(for_: Sequence[int], against: Sequence[int]) -> tuple[int, ...]:
    """Lines against, without those that are for it already."""
    return tuple(n for n in dict.fromkeys(against) if n not in for_)


def say_test(explanation: Explanation) -> str:
    """The test with its command, marked where no page knows it."""
    if not explanation.command:
        return explanation.test
    marked = "" if explanation.command_is_known else f" ({NOT_KNOWN})"
    return f"{explanation.test.rstrip('. ')}: `{explanation.command}`{marked}".lstrip(": ")


def _first_line(leader: Explanation, context: TurnContext) -> FirstLine | None:
    found = [
        i for x in leader.lines if (i := context.book.find(x)) and i.kind is ItemKind.LOG and i.line
    ]
    if not found:
        return None
    one = found[0]
    return FirstLine(one.file, one.line, one.text)


def _explain(ruling: Ruling, diagnosis: Diagnosis, book: Numbers) -> str:
    leader = ruling.leader
    marks = "".join(book.marks(leader.lines))
    parts = [
        f"Led by the model's reasoning, not confirmed: {leader.cause.rstrip('. ')} {marks}.",
        leader.mechanism,
    ]
    if leader.against:
        parts.append(f"Against it: {leader.against.rstrip('. ')} {''.join(book.marks(leader.against_lines))}.")  # fmt: skip
    if say_test(leader):
        parts.append(f"What would settle it: {say_test(leader).rstrip('. ')}.")
    if not (leader.category is diagnosis.category and leader.verdict is diagnosis.verdict):
        parts.append(f"The tools read instead ({diagnosis.confidence.value}): {diagnosis.root_cause.rstrip('. ')}.")  # fmt: skip
    return " ".join(p for p in parts if p)


def _fixes(
    ruling: Ruling, assessment: Assessment, diagnosis: Diagnosis, context: TurnContext, book: Numbers, same_kind: bool
) -> tuple[Fix, ...]:  # fmt: skip
    """Fixes of the page that the leader names; the tools' ones hold only if their cause does."""
    leader = ruling.leader
    if leader.verdict in (Verdict.HEALTHY, Verdict.UNKNOWN):
        shown: tuple[Fix, ...] = ()
    else:
        shown = _fixes_of_page(leader, context, book)
    known = {f.text for f in shown}
    kept = []
    for number, fix in enumerate(diagnosis.fixes, 1):
        if fix.text in known:
            continue
        reason = assessment.not_applying.get(number)
        if reason is not None:
            kept.append(replace(fix, condition=f"the model says it does not fit: {reason.text}"))
        elif same_kind:
            kept.append(fix)
        else:
            kept.append(replace(fix, condition=f"only if this holds: {diagnosis.root_cause}"))
    return (*shown, *kept)


def _fixes_of_page(leader: Explanation, context: TurnContext, book: Numbers) -> tuple[Fix, ...]:
    from firstfault.grounding.advice import objections

    knowledge = context.question.knowledge
    page = knowledge.pages.get(leader.page)
    lines = [n for i, n in zip(leader.lines, book.numbers(leader.lines), strict=False) if ":" in i]
    if page is None or page.benign or not lines:
        return ()
    out: list[Fix] = []
    for fix in page.fixes:
        if len(out) >= MAX_FIXES or objections(fix.text, fix.command, knowledge.variables):
            continue
        item = context.book.add_passage(page.id, fix.heading, fix.quote, page.url)
        context.book.show((item,))
        number = book.numbers((item.id,))
        if number and "{" not in fix.text:
            out.append(Fix(fix.text, fix.kind.value, fix.changes_state, (lines[0], *number), fix.command))  # fmt: skip
    return tuple(out)


def _phase(phase: Phase, ruling: Ruling, fixes: Sequence[Fix]) -> Phase:
    leader = ruling.leader
    if phase.name is PhaseName.ROOT_CAUSE:
        done = PhaseStatus.DONE if leader.confidence is Confidence.LIKELY else PhaseStatus.OPEN
        return Phase(phase.name, done, f"{leader.confidence.value.capitalize()}: {leader.cause}")
    if phase.name is PhaseName.LOCALIZE:
        named = [f"rank {leader.rank}" if leader.rank is not None else "", leader.host and f"host {leader.host}", call_gpu(leader.gpu)]  # fmt: skip
        place = ", ".join(n for n in named if n)
        return Phase(phase.name, PhaseStatus.DONE, f"{place or 'No single rank'}, by the model's reading.")  # fmt: skip
    if phase.name is PhaseName.RESOLVE:
        return replace(phase, status=PhaseStatus.OPEN, findings=tuple(f.text for f in fixes[:3]))
    if phase.name is PhaseName.ISOLATE and ruling.disputed:
        return replace(phase, status=PhaseStatus.OPEN, summary=f"Disputed; what separates the two: {say_test(leader) or 'not known'}")  # fmt: skip
    return phase


def _next(leader: Explanation, diagnosis: Diagnosis) -> tuple[NextArtefact, ...]:
    if not leader.test and not leader.command:
        return diagnosis.next_artefacts
    marked = "" if not leader.command or leader.command_is_known else f" ({NOT_KNOWN})"
    own = NextArtefact(leader.test or "the output of the command", f"it would settle the leading explanation{marked}", leader.command)  # fmt: skip
    return (own, *diagnosis.next_artefacts)


REASONED = "*Reasoned from the cited lines, not word for word in them.*"
UNPROVEN = "Neither found in what was read, on a page nor recomputed; check before use"
CAREFUL = (
    "It changes something: no first step on a run that fails, and only where nothing else runs"
)
OWN_KNOWLEDGE = "*The model's own knowledge, on no page of the knowledge base.*"


def say(
    assessment: Assessment, ruling: Ruling, context: TurnContext, *, briefly: bool = False
) -> tuple[str, tuple[Citation, ...]]:
    """The model's part as Markdown with [n] marks, and the citations behind them. briefly: the answer alone."""
    book = Numbers((), context)
    blocks = [say_block(b, book) for b in assessment.answer]
    if any(not b.said for b in assessment.answer):
        cited = any(b.claim.evidence for b in assessment.answer)
        blocks.append(REASONED if cited else OWN_KNOWLEDGE)
    if briefly and blocks:
        return "\n\n".join(blocks), tuple(book.citations)
    blocks += [*_say_ruling(ruling, book), *_say_objections(assessment, book)]
    return "\n\n".join(b for b in blocks if b), tuple(book.citations)


def _say_ruling(ruling: Ruling, book: Numbers) -> Iterator[str]:
    """What leads and what is to weigh beside it, as far as the model proposes it."""
    leader = ruling.leader
    if leader.proposer is LedBy.MODEL:
        head = "**Leads, by the model's reasoning**" + (", **disputed**" if ruling.disputed else "")
        yield f"{head} ({leader.confidence.value}): {_say_explanation(leader, book)}"
    ideas = [e for e in ruling.others if e.proposer is LedBy.MODEL]
    if ideas:
        rows = "\n".join(f"- {_say_idea(e, book)}" for e in ideas)
        yield f"**Other explanations to weigh**, by the model, not checked word for word:\n\n{rows}"
    if ruling.disputed and leader.proposer is LedBy.RULE:
        yield "The verdict above is **disputed** by this; the test separates the two."


def _say_objections(assessment: Assessment, book: Numbers) -> Iterator[str]:
    """What the model holds against the tools' reading and their fixes."""
    if assessment.doubts:
        rows = "\n".join(f"- {say_block(d, book)}" for d in assessment.doubts)
        yield f"**Speaks against the tools' reading:**\n\n{rows}"
    if assessment.not_applying:
        rows = "\n".join(f"- fix {n}: {_say_claim(c, book)}" for n, c in sorted(assessment.not_applying.items()))  # fmt: skip
        yield f"**Fixes that may not fit this run:**\n\n{rows}"


def _say_explanation(explanation: Explanation, book: Numbers) -> str:
    parts = [
        f"{explanation.cause.rstrip('. ')} {''.join(book.marks(explanation.lines))}.",
        explanation.mechanism,
        f"Against it: {explanation.against.rstrip('. ')} {''.join(book.marks(explanation.against_lines))}."
        if explanation.against
        else "",
        f"Test: {say_test(explanation).rstrip('. ')}." if say_test(explanation) else "",
    ]
    return " ".join(p for p in parts if p)


def _say_idea(explanation: Explanation, book: Numbers) -> str:
    kind = explanation.category.value if explanation.category else explanation.verdict.value
    test = f" Test: {say_test(explanation).rstrip('. ')}." if say_test(explanation) else ""
    return (
        f"{kind}: {explanation.cause.rstrip('. ')} {''.join(book.marks(explanation.lines))}.{test}"
    )


def say_block(block: Block, book: Numbers) -> str:
    """One paragraph with its marks, and a remark on what could not be proven of it."""
    told = [_say_claim(block.claim, book)]
    if block.remark is not None and block.remark.unproven:
        told.append(f"*{UNPROVEN}: {', '.join(block.remark.unproven)}.*")
    if block.remark is not None and block.remark.is_careful:
        told.append(f"*{CAREFUL}.*")
    return " ".join(told)


def _say_claim(claim: Claim, book: Numbers) -> str:
    text = clear_marks(claim.text).rstrip(". ")
    return f"{text} {''.join(book.marks(claim.evidence))}".rstrip() + "."


@dataclass
class Numbers:
    """Numbers evidence ids as citations, after those that are there already."""

    given: tuple[Citation, ...]
    context: TurnContext
    citations: list[Citation] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.citations = list(self.given)
        ids = self.context.book.by_citation
        self.known = {ids[c.n]: c.n for c in self.given if c.n in ids}

    def numbers(self, ids: Sequence[str]) -> tuple[int, ...]:
        """Numbers of those ids that may be shown."""
        return tuple(n for i in ids if (n := self._number(i)) is not None)

    def marks(self, ids: Sequence[str]) -> list[str]:
        """The same as [n] marks."""
        return [f"[{n}]" for n in self.numbers(ids)]

    def _number(self, identity: str) -> int | None:
        item = self.context.book.find(identity)
        if item is None or item.kind is ItemKind.USER or not item.text.strip():
            return None
        if identity not in self.known:
            self.known[identity] = len(self.citations) + 1
            self.citations.append(to_citation(item, self.known[identity]))
        return self.known[identity]
