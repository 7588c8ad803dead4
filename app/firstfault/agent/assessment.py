"""What remains of the model's reply once it is held against the evidence?

Every part is kept or dropped whole. What is not real (an invented name, a number that does not follow, a
harmful command) is dropped and counted. What is real and not said by the lines word for word is
reasoning; it is shown as such where the model has earned it, and else only as an idea with its lines and
its test.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from pydantic import BaseModel

from firstfault.agent.context import TurnContext
from firstfault.agent.judge import Explanation
from firstfault.agent.reply import Account, Inapplicable, Paragraph, Reply
from firstfault.grounding.claims import (
    Claim,
    Fault,
    Objected,
    check_basis,
    check_question,
    check_wording,
    check_words,
    results_of,
)
from firstfault.grounding.effects import Effect, judge_command, may_propose
from firstfault.grounding.items import Ground, Item
from firstfault.investigation.diagnosis import Diagnosis, LedBy, PhaseName
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict
from firstfault_tools.hardware.bus import call_gpu

MAX_IDEAS = 3
_INLINE = expression(
    r"\s?[\[(]?\b(?P<id>F\d{1,4}:\d{1,9}(?:-\d{1,9})?|T[0-9a-f]{5})\b(?:\s?[,;]\s?(?:F\d{1,4}:\d{1,9}(?:-\d{1,9})?|T[0-9a-f]{5})\b){0,7}[\])]?"
)
_ONE_ID = expression(r"F\d{1,4}:\d{1,9}(?:-\d{1,9})?|T[0-9a-f]{5}")
_SPAN = expression(r"^(F\d{1,4}):(\d{1,9})-(?:F\d{1,4}:)?(\d{1,9})$")
MOST_OF_A_SPAN = 8
MOST_UNPROVEN, MOST_TERMS = 4, 10
"""Numbers that a paragraph without an incident may state beyond what is found or worked out, and names that no page holds
or numbers that its calculations assume."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Why a paragraph is shown though not all of it holds: numbers, names and commands that no page or line has.

    is_careful: it changes something, or waits longer, which is no first step on a run that fails.
    """

    unproven: tuple[str, ...]
    is_careful: bool


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph that holds. `said`: its lines say it in their own words; else it is reasoning.

    remark: what is said beside it.
    """

    claim: Claim
    said: bool
    remark: Remark | None = None


@dataclass(frozen=True, slots=True)
class AskedByModel:
    """The one question that is left, with its default."""

    phase: PhaseName
    text: str
    default: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of the reply that did not hold, by its field, and why. `shown`: all the same, with a remark."""

    name: str
    objections: tuple[Objected, ...]
    is_lead: bool = False
    shown: bool = False


@dataclass(frozen=True)
class Assessment:
    """What may be shown. `removed` counts reasons; `proposed` and `kept` count parts of the reply.

    not_applying: number of a shown fix -> why it does not fit.
    """

    answer: tuple[Block, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    doubts: tuple[Block, ...] = ()
    not_applying: Mapping[int, Claim] = field(default_factory=dict)
    question: AskedByModel | None = None
    proposed: int = 0
    kept: int = 0
    removed: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    """Of answer and explanations: what a model may be asked to say once more."""


@dataclass
class _Sieve:
    """One pass over a reply."""

    context: TurnContext
    ground: Ground
    earned: bool
    grounded: bool
    removed: Counter[str] = field(default_factory=Counter)
    proposed: int = 0
    kept: int = 0
    left_out: list[LeftOut] = field(default_factory=list)

    def passes(self, faults: Sequence[Any]) -> bool:
        """Count one part, and the reasons why it falls."""
        self.proposed += 1
        named = {o.fault.value for o in faults} if self.grounded else set()
        self.removed.update(named)
        self.kept += not named
        return not named

    def block(
        self, paragraph: Paragraph, otherwise: Sequence[str] = (), number: int = 0
    ) -> Block | None:
        """The paragraph with its lines, or nothing. Without lines of its own it stands on `otherwise`."""
        claim = lift_ids(paragraph.text, paragraph.lines, self.ground)
        if not claim.evidence:
            claim = replace(claim, evidence=tuple(otherwise))
        faults = check_basis(claim, self.ground)
        beyond = check_wording(claim, self.ground)
        if self.earned and self.context.question.diagnosis is None:
            # a question without an incident: what no page says is the model's own knowledge, and marked
            faults = tuple(f for f in faults if f.fault is not Fault.NO_EVIDENCE)
        if not self.earned:
            # who has not passed may repeat what lines say, and no more
            faults = (*faults, *beyond)
        remark = self._remark(faults)
        if faults and self.grounded:
            # what is the model's knowledge it would only leave out, asked once more; a bare number it may work out
            again = number == 0 and (
                remark is None or any(f.bare and not f.is_used for f in faults)
            )
            left = LeftOut(f"answer[{number}]", tuple(faults), again, remark is not None)
            self.left_out.append(left)
        if not self.passes(() if remark is not None else faults):
            return None
        self._go_on_from(claim)
        return Block(claim, not beyond, remark)

    def _remark(self, faults: Sequence[Objected]) -> Remark | None:
        """What is said beside a paragraph that is shown all the same; None where all holds, or it may not be shown.

        Only where no incident was given: there a name, a command or an assumed number is the model's knowledge
        and marked so, while beside a log it would be read as measured or printed; and who asks how something is
        changed is told, with care. A calculation that comes out otherwise, a place, a quoted sentence, what
        destroys always fall.
        """
        if not faults or not self.earned or self.context.question.diagnosis is not None:
            return None
        numbers = sum(f.bare and not f.is_used for f in faults)
        known = sum(f.is_term or f.is_used for f in faults)
        careful = sum(f.is_careful for f in faults)
        if numbers + known + careful < len(faults) or numbers > MOST_UNPROVEN or known > MOST_TERMS:
            return None
        return Remark(tuple(f.part for f in faults if not f.is_careful), careful > 0)

    def _go_on_from(self, claim: Claim) -> None:
        """What one paragraph works out, the next may use."""
        if new := results_of(claim, self.ground) - self.ground.computed:
            self.ground = replace(self.ground, computed=self.ground.computed | new)

    def explanation(self, account: Account, number: int = 0) -> Explanation | None:
        """The account without the parts that do not hold; nothing where its cause does not."""
        ground = self.ground
        if account.verdict is Verdict.HEALTHY:
            ground = replace(ground, healthy=True)
        cause = lift_ids(account.cause, account.lines, ground)
        faults = self._object(account, cause, ground)
        if not self.passes(faults):
            name = f"explanations[{number}].cause"
            self.left_out.append(LeftOut(name, tuple(faults), is_lead=number == 0))
            return None
        # what is well or not decided has nobody to blame
        blames = account.verdict not in (Verdict.HEALTHY, Verdict.UNKNOWN)
        mechanism = lift_ids(account.mechanism, cause.evidence, ground)
        told = bool(account.mechanism) and self.passes(check_basis(mechanism, ground) if mechanism.evidence else check_words(mechanism.text, ground))  # fmt: skip
        test, command = self._test(account, self._items(cause.evidence))
        against = lift_ids(account.against, account.against_lines, ground)
        around = self._items((*cause.evidence, *against.evidence))
        weighed = bool(account.against) and self.passes(check_words(against.text, ground, around))
        pages = self.context.question.knowledge.pages
        return Explanation(
            proposer=LedBy.MODEL,
            verdict=account.verdict,
            category=account.category if blames else None,
            cause=cause.text,
            rank=account.rank if blames else None,
            host=account.host,
            gpu=account.gpu,
            mechanism=mechanism.text if told else "",
            lines=_merge(cause.evidence, mechanism.evidence if told else ()),
            against=against.text if weighed else "",
            against_lines=against.evidence if weighed else (),
            test=test,
            command=command,
            command_is_known=bool(command) and self.context.question.knowledge.tells_command(command),
            page=account.page if account.page in pages else "",
        )  # fmt: skip

    def _object(self, account: Account, cause: Claim, ground: Ground) -> list[Objected]:
        """What speaks against the cause, its place and, of a run that is not shown to be well, that word."""
        faults = list(check_basis(cause, ground))
        if account.verdict is Verdict.UNKNOWN and not cause.evidence:
            faults = [f for f in faults if f.fault is not Fault.NO_EVIDENCE]
        place = self._place(account)
        faults += check_words(place, ground) if place else ()
        if account.verdict is Verdict.HEALTHY and not self.earned:
            faults += check_words(account.cause, replace(ground, healthy=False))
        return faults

    def _place(self, account: Account) -> str:
        rank = f"rank {account.rank}. " if account.rank is not None else ""
        host = f"host {account.host}. " if account.host else ""
        return rank + host + (f"{call_gpu(account.gpu)}." if account.gpu else "")

    def _items(self, ids: Sequence[str]) -> list[Item]:
        return [self.ground.items[i] for i in ids if i in self.ground.items]

    def _test(self, account: Account, cited: Sequence[Item]) -> tuple[str, str]:
        """Test and command; each falls alone, since a good test may come with a bad command."""
        test = " ".join(account.test.split())
        test = test if test and self.passes(check_words(test, self.ground, cited)) else ""
        command = account.command.strip()
        if not command:
            return test, ""
        knowledge = self.context.question.knowledge
        known = knowledge.tells_command(command) and judge_command(command) is Effect.READS
        if self.grounded and not known and not may_propose(command):
            self.proposed += 1
            self.removed["command"] += 1
            return test, ""
        self.proposed += 1
        self.kept += 1
        return test, command

    def doubt(self, paragraph: Paragraph, weighed: frozenset[str]) -> Block | None:
        """A doubt that holds and stands on a line the tools' reading does not stand on already."""
        claim = lift_ids(paragraph.text, paragraph.lines, self.ground)
        new = [i for i in claim.evidence if i not in weighed]
        faults = check_basis(replace(claim, evidence=tuple(new)), self.ground)
        if not self.earned:
            faults = (*faults, *check_wording(claim, self.ground))
        told = any(_names_something(claim.text, self.ground.items[i].text) for i in new if i in self.ground.items)  # fmt: skip
        if self.grounded and not told:
            self.proposed += 1
            self.removed["doubt"] += 1
            return None
        return Block(claim, False) if self.passes(faults) else None


def assess(
    reply: Reply, context: TurnContext, *, earned: bool = False, grounded: bool = True
) -> Assessment:
    """Hold a reply against the evidence. `grounded=False` lets all pass; for measuring only.

    earned: the model has passed its exam; its reasoning may then be shown beside what lines say.
    """
    reply = _restore(reply, context)
    diagnosis = context.question.diagnosis
    ground = context.ground()
    calls_healthy = bool(reply.explanations) and reply.explanations[0].verdict is Verdict.HEALTHY
    tools_healthy = diagnosis is not None and diagnosis.verdict is Verdict.HEALTHY
    ground = replace(ground, healthy=tools_healthy or (earned and calls_healthy))
    sieve = _Sieve(context, ground, earned, grounded)
    explanations = tuple(
        e
        for number, account in enumerate(reply.explanations[:MAX_IDEAS])
        if (e := sieve.explanation(account, number))
    )
    stand = explanations[0].lines if explanations else ()
    answer = tuple(b for n, p in enumerate(reply.answer) if (b := sieve.block(p, stand, n)))
    weighed = stands_on(context, diagnosis)
    doubts = tuple(b for p in reply.doubts if (b := sieve.doubt(p, weighed)))
    return Assessment(
        answer=answer,
        explanations=explanations,
        doubts=doubts,
        not_applying=_keep_inapplicable(reply.not_applying, sieve, diagnosis),
        question=_keep_question(reply, sieve),
        proposed=sieve.proposed,
        kept=sieve.kept,
        removed=dict(sieve.removed),
        left_out=tuple(sieve.left_out),
    )


def say_removed(assessment: Assessment) -> str:
    """How much of the reply was left out and why; empty when nothing was."""
    count = assessment.proposed - assessment.kept
    if count <= 0:
        return ""
    reasons = ", ".join(f"{k} {v}" for k, v in sorted(assessment.removed.items()))
    return f"{count} of {assessment.proposed} parts of the model's reply did not hold and are left out ({reasons})"


def stands_on(context: TurnContext, diagnosis: Diagnosis | None) -> frozenset[str]:
    """Ids of the lines that the tools' reading stands on."""
    if diagnosis is None or not diagnosis.hypotheses:
        return frozenset()
    ids = context.book.by_citation
    return frozenset(ids[n] for n in diagnosis.hypotheses[0].for_ if n in ids)


def lift_ids(text: str, ids: Sequence[str], ground: Ground) -> Claim:
    """The text without the ids that stand in it, and all of its ids, spans of lines resolved."""
    inline = [m for found in _INLINE.finditer(text) for m in _ONE_ID.findall(found[0])]
    plain = " ".join(text.split())
    if inline:
        # only what an id has left behind is tidied: a quotation must stay as it stands
        plain = re.sub(r"\( ?[,;]? ?\)", "", _INLINE.sub("", plain))
        plain = re.sub(r"\s([.,;:])(?=\s|$)", r"\1", plain)
    out: list[str] = []
    for identity in (*ids, *inline):
        out += _resolve_span(identity.strip(" []()"), ground)
    return Claim(plain, tuple(dict.fromkeys(out)))


def _resolve_span(identity: str, ground: Ground) -> list[str]:
    span = _SPAN.match(identity)
    if span is None:
        return [identity]
    first, last = int(span[2]), int(span[3])
    named = [f"{span[1]}:{n}" for n in range(first, min(last, first + 400) + 1)]
    found = [i for i in named if i in ground.items]
    return found[:MOST_OF_A_SPAN] or [identity]


def _merge(*parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(i for part in parts for i in part))


def _restore(reply: Reply, context: TurnContext) -> Reply:
    """Names put back. Copies are not validated: a real name may be longer than its placeholder."""

    def walk(value: Any) -> Any:
        if isinstance(value, BaseModel):
            changed = {name: walk(getattr(value, name)) for name in type(value).model_fields}
            return value.model_copy(update=changed)
        if isinstance(value, list):
            return [walk(v) for v in value]
        return context.veil.restore(value) if type(value) is str else value

    restored: Reply = walk(reply)
    return restored


_ARGUING_WORDS = """the this that these those and but not with from line lines log verdict cause evidence
    contradicts contradict wrong right run rank ranks because shows says real root fault was were has have does"""
_ARGUING = frozenset(_ARGUING_WORDS.split())


def _names_something(text: str, quoted: str) -> bool:
    """A word or number of the claim stands in the cited line; words of argument alone do not count."""
    line = quoted.lower()
    words = {w.strip(".,:;()").lower() for w in text.split()}
    return any(len(w) >= 3 and w not in _ARGUING and w in line for w in words)


def _keep_inapplicable(
    rows: Sequence[Inapplicable], sieve: _Sieve, diagnosis: Diagnosis | None
) -> dict[int, Claim]:
    out: dict[int, Claim] = {}
    count = len(diagnosis.fixes) if diagnosis is not None else 0
    for row in rows:
        claim = lift_ids(row.why, row.lines, sieve.ground)
        real = 1 <= row.fix <= count
        if sieve.passes(check_basis(claim, sieve.ground) if claim.evidence else check_words(claim.text, sieve.ground)) and real:  # fmt: skip
            out[row.fix] = claim
    return out


def _keep_question(reply: Reply, sieve: _Sieve) -> AskedByModel | None:
    asked = reply.question
    if asked is None:
        return None
    faults = (
        *check_question(asked.text, sieve.ground),
        *check_question(asked.default, sieve.ground),
    )
    if not sieve.passes(faults):
        return None
    return AskedByModel(asked.phase, asked.text, asked.default)
