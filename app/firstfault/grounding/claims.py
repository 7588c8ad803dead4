"""Is every part of a claim said by the evidence it cites? Names each part that is not.

A claim is one sentence with the ids of its evidence. The check is by code and does not depend on who
wrote the sentence: numbers, names, quotes, flags, variables, causes and certainty must all come from
the cited items. What fails is not shown as a fact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from firstfault.grounding import words
from firstfault.grounding.advice import objections, raises_timeout
from firstfault.grounding.items import Ground, Item, ItemKind
from firstfault.grounding.quotes import flatten
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Confidence, Verdict
from firstfault_tools.log.secrets import redact

MIN_SHARED_STEMS = 0.4
"""Share of a sentence's meaningful words that its evidence or the verdict must use too."""

_CERTAIN = expression(
    r"(?i)\b(?:confirm\w*|certain(?:ly)?|definite(?:ly)?|prove[sn]?|proof|undoubted(?:ly)?|no doubt|without doubt|must be|guarantee\w*|100 ?%|clearly|obviously)\b"
)
_CAUSAL = expression(
    r"(?i)\b(?:root cause|cause[sd]?|causing|because|due to|culprit|to blame|responsible for|"
    r"the (?:real|actual|true) (?:fault|problem|issue|failure)|triggered by|stems from|result of)\b"
)
_HEALTHY = expression(
    r"(?i)\b(?:healthy|nothing (?:is|was|went) wrong|no (?:fault|failure|problem|error)s?\b|harmless|benign|all (?:is )?(?:good|well|fine)|safe to (?:ignore|restart|continue))"
)
_SETS = expression(r"(?i)\b(?:set|export|use|add|enable|disable|try|unset)\b")
_CONTRADICTS = expression(
    r"(?i)\b(?:verdict|diagnosis|conclusion|assessment)\b[^.]{0,40}\b(?:wrong|incorrect|false|mistaken|invalid|not (?:right|correct|true))\b"
    r"|\b(?:wrong|incorrect|false|mistaken) (?:\w+ )?(?:verdict|diagnosis|conclusion)\b"
)
_REPORT = expression(
    r"(?i)^\W*(?:in \S{1,80},? )?lines? \d{1,9}\b.{0,20}? (?:reads|says|shows|prints)\W*$"
)
_ABSENT = expression(
    r"(?i)\b(?:no|not|none|never|nothing|without|absent|neither|nor|zero)\b|\b0 (?:lines?|match\w*|times|errors?)\b"
)
_SECRETIVE = expression(
    r"(?i)\b(?:password|passphrase|api.?key|secret|access token|credential|private key)s?\b"
)


class Fault(StrEnum):
    """What is wrong with a claim."""

    NO_EVIDENCE = "no_evidence"
    UNKNOWN_ID = "unknown_id"
    QUOTE = "quote"
    NUMBER = "number"
    NAME = "name"
    FLAG = "flag"
    VARIABLE = "variable"
    CAUSE = "cause"
    VERDICT = "verdict"
    WORDS = "words"
    ADVICE = "advice"
    LEAK = "leak"


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence and the ids it cites."""

    text: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Objected:
    """One thing that is wrong with a claim, and the part of it that is meant."""

    fault: Fault
    part: str


def check_claim(claim: Claim, ground: Ground, *, asserts: bool = True) -> tuple[Objected, ...]:
    """Everything that speaks against showing a claim as a fact; empty when it holds.

    asserts: False for a statement shown as a mere possibility: then words of certainty are the only
    verdict words looked at, and its cause need not be the verdict's.
    """
    out: list[Objected] = []
    cited, unknown = _resolve(claim.evidence, ground)
    out += [Objected(Fault.UNKNOWN_ID, i) for i in unknown]
    if not cited:
        out.append(Objected(Fault.NO_EVIDENCE, ""))
    text = words.clear_marks(claim.text)
    said = "\n".join(_spoken(i) for i in cited)
    if _ABSENT.search(text):
        said += "\n" + "\n".join(i.echo for i in cited)
    out += [Objected(Fault.QUOTE, q[:80]) for q in words.quotes(text) if not _is_quoted(q, said)]
    # what stands between quotation marks is checked as a whole, wherever it was cut
    own = words.without_quotes(text)
    out += _check_numbers(own, said, cited)
    out += _check_names(own, said, ground)
    out += _check_place(text, ground, cited)
    out += _check_cause(text, said, ground, cited, asserts)
    out += _check_advice(text, ground)
    out += check_leak(text, ground)
    return tuple(out)


def check_question(text: str, ground: Ground) -> tuple[Objected, ...]:
    """What speaks against asking a person this: invented names, secrets, leaks, bad advice."""
    everything = "\n".join(_spoken(i) for i in ground.items.values()) + "\n" + ground.verdict_text
    out = [
        *(Objected(Fault.FLAG, f) for f in sorted(words.flags(text)) if f not in everything),
        *_check_variables(text, everything, ground),
        *(
            Objected(Fault.NUMBER, f"{n} {v}")
            for n, v in sorted(words.placed_numbers(text))
            if not _pair_stands(n, v, everything, list(ground.items.values()))
        ),
        *_check_advice(text, ground),
        *check_leak(text, ground),
    ]
    if _SECRETIVE.search(text):
        out.append(Objected(Fault.LEAK, "asks for a secret"))
    if _CERTAIN.search(text) or _HEALTHY.search(text):
        out.append(Objected(Fault.VERDICT, "a question that states a verdict"))
    return tuple(out)


def check_leak(text: str, ground: Ground) -> tuple[Objected, ...]:
    """Instructions or secrets in what is about to be shown."""
    out = []
    if redact(text) != text:
        out.append(Objected(Fault.LEAK, "a secret"))
    if ground.private and words.shingles((text,)) & words.shingles(ground.private):
        out.append(Objected(Fault.LEAK, "instructions"))
    return tuple(out)


def _resolve(ids: Sequence[str], ground: Ground) -> tuple[list[Item], list[str]]:
    cited = [ground.items[i] for i in dict.fromkeys(ids) if i in ground.items]
    return [i for i in cited if i.kind is not ItemKind.USER], [
        i for i in ids if i not in ground.items
    ]


def _spoken(item: Item) -> str:
    place = f"rank {item.rank} " if item.rank is not None else ""
    host = f"host {item.host} " if item.host else ""
    line = f"{item.file} line {item.line} " if item.line else f"{item.file} "
    return f"{place}{host}{line}{item.heading} {item.text}"


def _check_numbers(text: str, said: str, cited: Sequence[Item]) -> list[Objected]:
    out = [
        Objected(Fault.NUMBER, f"{noun} {value}")
        for noun, value in sorted(words.placed_numbers(text))
        if not _pair_stands(noun, value, said, cited)
    ]
    known = words.numbers(said)
    out += [Objected(Fault.NUMBER, f"{n:g}") for n in sorted(words.numbers(text) - known)]
    spelled = words.spelled_numbers(text) - known - words.spelled_numbers(said)
    out += [Objected(Fault.NUMBER, f"{n:g}") for n in sorted(spelled)]
    out += [Objected(Fault.NUMBER, t) for t in sorted(words.clock_times(text)) if t not in said]
    return out


def _pair_stands(noun: str, value: int, said: str, cited: Sequence[Item]) -> bool:
    if noun == "line":
        return any(i.line == value for i in cited) or (noun, value) in words.placed_numbers(said)
    if noun == "rank":
        if any(i.rank == value for i in cited):
            return True
        return (
            re.search(
                rf"(?i)rank[\s_:=#\[\]s]*{value}\b|\[{value}\]|\branks?\b[^.\n]{{0,60}}\b{value}\b",
                said,
            )
            is not None
        )
    if (noun, value) in words.placed_numbers(said):
        return True
    return (
        re.search(rf"(?i){noun[:4]}\w*\W{{0,4}}(?:\w+\W{{1,3}}){{0,2}}{value}\b", said) is not None
    )


def _check_names(text: str, said: str, ground: Ground) -> list[Objected]:
    low = said.lower()
    out: list[Objected] = []
    out += [Objected(Fault.FLAG, f) for f in sorted(words.flags(text)) if f not in said]
    out += _check_variables(text, said, ground)
    names = words.identifiers(text) - words.variables(text)
    out += [
        Objected(Fault.NAME, n)
        for n in sorted(names)
        if n.lower() not in low and not _is_place(n, said)
    ]
    return out


def _is_quoted(quote: str, said: str) -> bool:
    return flatten(quote).lower() in flatten(said).lower()


def _is_place(name: str, said: str) -> bool:
    """`rank3` for `rank 3`, `GPU-4` for `GPU 4`."""
    match = re.fullmatch(r"([A-Za-z]+)[-_]?(\d+)", name)
    return (
        match is not None and re.search(rf"(?i)\b{match[1]}\W{{0,2}}{match[2]}\b", said) is not None
    )


def _check_variables(text: str, said: str, ground: Ground) -> list[Objected]:
    out = []
    for name in sorted(words.variables(text)):
        known = name in ground.variables
        if name not in said or (not known and _SETS.search(text)):
            out.append(Objected(Fault.VARIABLE, name))
    return out


def _check_place(text: str, ground: Ground, cited: Sequence[Item]) -> list[Objected]:
    """A rank, GPU, node or host and the cause said of it must stand in one and the same item.

    Two true lines put together can make a false sentence.
    """
    groups = words.cause_groups(text)
    places = [p for p in words.placed_numbers(text) if p[0] in ("rank", "gpu", "node", "host")]
    if not groups or not places:
        return []
    on_verdict = bool({i.id for i in cited} & ground.verdict_ids)
    out = []
    for noun, value in sorted(places):
        if noun == "rank" and value == ground.verdict_rank and on_verdict:
            continue
        if not any(
            _pair_stands(noun, value, _spoken(i), [i]) and words.cause_groups(_spoken(i)) & groups
            for i in cited
        ):
            out.append(Objected(Fault.CAUSE, f"nothing says this of {noun} {value}"))
    return out


def _check_cause(
    text: str, said: str, ground: Ground, cited: Sequence[Item], asserts: bool
) -> list[Objected]:
    out = []
    verdict_said = f"{ground.verdict_text}\n{said}"
    foreign = words.cause_groups(text) - words.cause_groups(said)
    out += [Objected(Fault.CAUSE, g) for g in sorted(foreign)]
    on_verdict = bool({i.id for i in cited} & ground.verdict_ids)
    if (
        _HEALTHY.search(text)
        and ground.verdict is not Verdict.HEALTHY
        and not _HEALTHY.search(said)
    ):
        out.append(Objected(Fault.VERDICT, "healthy"))
    if asserts and _CONTRADICTS.search(words.without_quotes(text)):
        out.append(Objected(Fault.VERDICT, "contradicts it"))
    if _CERTAIN.search(text) and not (on_verdict and ground.confidence is Confidence.CONFIRMED):
        out.append(Objected(Fault.VERDICT, "certainty"))
    # a quotation was checked as a whole: its `because` is the log's
    if asserts and _CAUSAL.search(words.without_quotes(text)):
        outside = words.cause_groups(text) - words.cause_groups(
            ground.verdict_text
            + "\n"
            + "\n".join(i.text for i in cited if i.id in ground.verdict_ids)
        )
        if not on_verdict or outside or ground.verdict is Verdict.UNKNOWN:
            out.append(Objected(Fault.VERDICT, "another cause"))
    stems = words.content_stems(text)
    if stems and len(
        stems & words.content_stems(verdict_said if asserts else said)
    ) < MIN_SHARED_STEMS * len(stems):
        out.append(Objected(Fault.WORDS, "says more than its evidence"))
    return out


def _check_advice(text: str, ground: Ground) -> list[Objected]:
    if _REPORT.match(words.without_quotes(text)):
        return []  # a line read aloud, checked word for word, advises nothing
    out = [Objected(Fault.ADVICE, o.rule) for o in objections(text, text, ground.variables)]
    if raises_timeout(text):
        out.append(Objected(Fault.ADVICE, "raises_timeout"))
    return out
