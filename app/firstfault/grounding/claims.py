"""Does a claim hold against the evidence? Names each part that does not.

A claim is a paragraph with the ids of its evidence. Two questions are asked of it, by code and whoever
wrote it. `check_basis`: is everything in it real? Ids, quotes, names, numbers (or what follows from
them), flags, variables; no harmful advice, no secret. What fails is not shown. `check_wording`: do the
cited lines say it in their own words? What fails there is reasoning, and is shown as such or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache, lru_cache

from firstfault.grounding import words
from firstfault.grounding.advice import objections, raises_timeout
from firstfault.grounding.arithmetic import SCALES, follows
from firstfault.grounding.derived import Derived, derive
from firstfault.grounding.effects import tells_to_change, tells_to_destroy
from firstfault.grounding.forms import clock_stands, counted, lasted, name_stands, stands_shortened
from firstfault.grounding.items import Ground, Item, ItemKind, spoken
from firstfault.grounding.quotes import WRITTEN_AS, flatten
from firstfault.grounding.sums import FUNCTIONS, is_calculation
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.secrets import redact

MIN_SHARED_STEMS = 0.4
"""Share of a sentence's meaningful words that its evidence must use too, to be its own wording."""

_CERTAIN = expression(
    r"(?i)\b(?:confirm\w*|certain(?:ly)?|definite(?:ly)?|prove[sn]?|proof|undoubted(?:ly)?|no doubt|without doubt|must be|guarantee\w*|100 ?%|clearly|obviously)\b"
)
_CAUSAL = expression(
    r"(?i)\b(?:root cause|cause[sd]?|causing|because|due to|culprit|to blame|responsible for|"
    r"the (?:real|actual|true) (?:fault|problem|issue|failure)|triggered by|stems from|result of)\b"
)
_HEALTHY = expression(
    r"(?i)\b(?:run|job|training|everything|all|it|cluster|system)\b[^.;]{0,30}\b(?:is|are|was|looks|seems)\b(?P<between>[^.;]{0,12})\b(?:healthy|fine|ok(?:ay)?|harmless)\b"
    r"|\bnothing (?:is|was|went|at all is) wrong\b"
    r"|\b(?:all )?(?:lines?|messages?)\b[^.;]{0,20}\bsafe to ignore|\bsafe to (?:restart|continue)\b|\bno (?:fault|problem)s? (?:at all|in (?:the|this) run)\b"
)
_ASKED = expression(
    r"(?i)\b(?:whether|if) (?:or not )?(?:(?:the|this|that|your|our|a|whole|entire|training) ){0,3}$"
)
"""Right before what is only asked or supposed to be well."""
_NO_QUESTION = expression(
    r"(?i)\b(?:no|without|beyond) (?:doubt|question)|\b(?:do(?:es)? not|n't) (?:ask|wonder)"
)
_DENIED = expression(
    r"(?i)(?:\b(?:not|never|hardly|no longer|far from|neither)|n't)\b(?! (?:only|just|merely)\b)"
)
_NOT = expression(r"(?i)(?:\b(?:not|never|hardly|no longer)|n't)(?: all| yet)?(?: the)? $")
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
DIGITS_OF_A_CONSTANT = 5
_MACHINE_NAME = expression(
    r"(?i)^(?:(?:\d{1,3}\.){3}\d{1,3}|/\S+|(?:[a-z]+-)*(?:node|host|worker|compute|dgx|hgx|gpu-?node|srv|rack|server|bad\w*|trainer?)[-_]?\d[\w-]*)$"
)


_COUNTED = frozenset({"step", "iteration", "epoch", "exitcode", "signal", "seq", "seqnum", "stage"})
"""Nouns whose number a log often prints without them (`4469it`, `Exit Code:` above `137`): that it stands
there, or follows by arithmetic, is enough. A place (rank, GPU, node, line) and an Xid need their noun."""

_APART = {
    "xid": r"(?i)\bs?xid \(pci:[0-9a-f:.]{{4,20}}\): {value}\b",
    "gpu": r"(?i)\bgpu\b[^\n]{{0,60}}\b(?:physical id|index|idx|id|device)\W{{0,3}}{value}\b|line \d+ \s*\|?\s*{value}\s*[,|]|\d\d:\d\d:\d\d(?:\.\d+)?,\s{{0,2}}{value}\s*,",
}
"""Number and noun as the driver and Fabric Manager print them, with the bus address between; rows of nvidia-smi,
as a table and as `--query-gpu=timestamp,index`."""

GPUS_OF_A_NODE = (4, 8)
"""What a node of today holds: the rank that is named tells its GPU where ranks follow the GPUs."""

_RANK_NAMES = "task|worker|process|proc|replica|trainer|actor|index|pod"
"""How launchers without ranks name them (JAX, Ray, TensorFlow, Kubernetes)."""


CHANGES, RAISES, DESTROYS = "changes_state", "raises_timeout", "destroys"
"""Advice that is objected to: it changes something, it waits longer, it cannot be undone."""


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
    """A paragraph and the ids it cites."""

    text: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Objected:
    """One thing that is wrong with a claim, and the part of it that is meant."""

    fault: Fault
    part: str
    bare: bool = False
    """A number without a noun that was neither found nor worked out."""

    is_code: bool = False
    """It stands between backticks: a command, a setting, a piece of code."""

    is_used: bool = False
    """A calculation that comes out right is made of it: an assumption."""

    @property
    def is_term(self) -> bool:
        """A name of a setting, a flag or a thing that neither evidence nor knowledge holds, and no quoted sentence."""
        if self.part.startswith("<"):
            return False  # a hidden name that was made up
        if self.fault is Fault.QUOTE and self.is_code:
            return True
        if re.search(r"\d\d$", self.part):
            return False  # a host, a version
        quoted = self.fault is Fault.QUOTE and not re.search(r"\s", self.part)
        return quoted or self.fault in (Fault.NAME, Fault.VARIABLE, Fault.FLAG)

    @property
    def is_careful(self) -> bool:
        """Right where somebody asks how it is done, and no first step against a failure."""
        return self.fault is Fault.ADVICE and self.part in (CHANGES, RAISES)


def check_claim(claim: Claim, ground: Ground) -> tuple[Objected, ...]:
    """Everything that speaks against showing a claim as a fact; empty when it holds."""
    return (*check_basis(claim, ground), *check_wording(claim, ground))


def check_basis(claim: Claim, ground: Ground) -> tuple[Objected, ...]:
    """What in a claim is not real: invented, not to be computed, harmful or secret."""
    cited, unknown = _resolve(claim.evidence, ground)
    out = [Objected(Fault.UNKNOWN_ID, i) for i in unknown]
    if not any(i.kind is not ItemKind.USER for i in cited):
        out.append(Objected(Fault.NO_EVIDENCE, ""))
    return (*out, *check_words(claim.text, ground, cited))


def check_words(text: str, ground: Ground, cited: Sequence[Item] = ()) -> tuple[Objected, ...]:
    """The same for words that need no evidence of their own: a test, a question, a reason."""
    text = words.clear_marks(text)
    whole = ground.everything
    if _ABSENT.search(text):
        whole += "\n" + "\n".join(i.echo for i in ground.items.values() if i.echo)
    quotes = words.quotes(text)
    shown = _as_shown(whole) if quotes else ""
    strange = [q for q in quotes if not _is_real(q, shown, ground)]
    sums = {q for q in strange if is_calculation(q)}
    codes = words.code_spans(text)
    out = [Objected(Fault.QUOTE, q[:80], is_code=q in codes) for q in strange if q not in sums]
    # what stands between quotation marks is checked as a whole, wherever it was cut; a calculation is done again
    own = words.without_quotes(text, frozenset(sums))
    out += _check_numbers(own, ground, cited)
    out += _check_names(own, whole, ground)
    if not ground.healthy and _says_healthy(own):
        out.append(Objected(Fault.VERDICT, "healthy"))
    out += _check_advice(text, ground)
    out += check_leak(text, ground)
    return tuple(out)


def _says_healthy(text: str) -> bool:
    """It says that something is well; not whether it is, or that it is not."""
    place = 0
    while match := _HEALTHY.search(text[place:]):
        start = place + match.start()
        before = text[max(0, start - 60) : start]
        asked = _ASKED.search(before) and not _NO_QUESTION.search(before)
        if not asked and not _DENIED.search(match["between"] or "") and not _NOT.search(before):
            return True
        # a match reaches over more than one `is`, so the next may begin within it
        place = start + 1
    return False


def check_wording(claim: Claim, ground: Ground) -> tuple[Objected, ...]:
    """What a claim says beyond the words of its cited items: a cause, certainty, anything new.

    A denial names a cause in order to deny it; its reason is what stands in the line, so the cause
    need not.
    """
    cited = [i for i in _resolve(claim.evidence, ground)[0] if i.kind is not ItemKind.USER]
    text = words.clear_marks(claim.text)
    own = words.without_quotes(text)
    said = "\n".join(spoken(i) for i in cited)
    if _ABSENT.search(text):
        said += "\n" + "\n".join(i.echo for i in cited)
    out = [
        Objected(Fault.CAUSE, g)
        for g in sorted(words.cause_groups(text) - words.cause_groups(said))
    ]
    out += _check_place(text, cited)
    if _CERTAIN.search(own):
        out.append(Objected(Fault.VERDICT, "certainty"))
    if _CONTRADICTS.search(own):
        out.append(Objected(Fault.VERDICT, "contradicts it"))
    # a quotation was checked as a whole: its `because` is the log's
    if _CAUSAL.search(own) and not _CAUSAL.search(said):
        out.append(Objected(Fault.VERDICT, "a cause that no line names"))
    stems = words.content_stems(text)
    if stems and len(stems & words.content_stems(said)) < MIN_SHARED_STEMS * len(stems):
        out.append(Objected(Fault.WORDS, "says more than its evidence"))
    return tuple(out)


def check_question(text: str, ground: Ground) -> tuple[Objected, ...]:
    """What speaks against asking a person this: invented names, secrets, leaks, bad advice."""
    out = list(check_words(text, ground))
    if _SECRETIVE.search(text):
        out.append(Objected(Fault.LEAK, "asks for a secret"))
    if _CERTAIN.search(text) or re.search(r"(?i)\bhealthy\b", text):
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
    known = [ground.items[i] for i in dict.fromkeys(ids) if i in ground.items]
    return known, [i for i in ids if i not in ground.items]


def _is_real(quote: str, shown: str, ground: Ground) -> bool:
    """The quote stands in what was shown, or it is a name that the knowledge base uses."""
    wanted = _as_shown(quote)
    if wanted.rstrip(".,;: ") in shown or flatten(quote).lower() in ground.lore:
        return True
    return stands_shortened(wanted, (_as_shown(spoken(i)) for i in ground.items.values()))


def _as_shown(text: str) -> str:
    """Text as quotes are compared: a line with a chat mark was shown with other brackets, and is quoted so."""
    return flatten(text).lower().translate(WRITTEN_AS)


def _check_numbers(text: str, ground: Ground, cited: Sequence[Item]) -> list[Objected]:
    known = _known(ground)
    given = _given(cited)
    placed = words.placed_numbers(text, plural=False)
    listed = words.listed_numbers(text)
    out = [
        Objected(Fault.NUMBER, f"{noun} {value}")
        for noun, value in sorted(placed)
        if not _is_placed(noun, value, text, ground, known, given)
    ]
    out += [
        Objected(Fault.NUMBER, f"{noun}s {value}")
        for noun, value in sorted(listed)
        if not (_is_there(noun, value, ground) or value in known or follows(str(value), given))
    ]
    # what was objected to or found above by its noun is not asked again as a bare number
    fine = {float(v) for _, v in placed | listed}
    found = _derive(text, ground, cited)
    out += [
        Objected(Fault.NUMBER, stated, bare=True, is_used=stated.lstrip("-") in found.used)
        for stated in _bare_numbers(text, ground)
        if float(stated) not in fine
        and stated.lstrip("-") not in found.numbers
        and not _number_holds(stated, ground, cited)
    ]
    out += [Objected(Fault.NUMBER, f"= {n}") for n in found.wrong]
    out += [
        Objected(Fault.NUMBER, t)
        for t in sorted(words.clock_times(text))
        if not _time_holds(t, ground) and t not in found.numbers
    ]
    return out


def _is_placed(
    noun: str,
    value: int,
    text: str,
    ground: Ground,
    known: Collection[float],
    given: Collection[float],
) -> bool:
    """A number behind its noun that was shown so, or that follows from what is cited."""
    if _is_there(noun, value, ground) or (noun == "gpu" and _sits_there(value, text, ground)):
        return True
    if noun in _COUNTED and (value in known or follows(str(value), given)):
        return True
    if ground.general and _pair_stands(noun, value, ground.lore):
        return True  # an example, as the pages have them
    return value == 0 and 0.0 in known and noun in ground.everything.lower()


def _bare_numbers(text: str, ground: Ground) -> list[str]:
    """Numbers that are neither of a name, nor of a version that was shown, nor a constant."""
    there = {v for v in words.versions(text) if v in ground.everything}
    parts = {n for v in there for n in words.stated_numbers(v)}
    stated = dict.fromkeys(words.stated_numbers(words.without_names(text)))
    return [n for n in stated if n not in parts and not _is_constant(n, ground)]


def results_of(claim: Claim, ground: Ground) -> frozenset[float]:
    """Numbers that a claim works out: what is said after it may go on from them."""
    found = _derive(words.clear_marks(claim.text), ground, _resolve(claim.evidence, ground)[0])
    return frozenset(float(n) for n in found.numbers if ":" not in n)


def _derive(text: str, ground: Ground, cited: Sequence[Item]) -> Derived:
    """What follows in a text from calculations, times and durations that it writes out.

    Without an incident what goes into a calculation may be assumed, so only what comes out is checked.
    """
    asked = [i for i in ground.items.values() if i.kind is ItemKind.USER]
    found = derive(
        text,
        cache(lambda written, _value: ground.general or _number_holds(written, ground, cited)),
        lambda clock: _time_holds(clock, ground),
        [i.text for i in asked],
        [i.text for i in cited],
    )
    return replace(found, numbers=found.numbers | lasted(text, cited))


def _number_holds(stated: str, ground: Ground, cited: Sequence[Item]) -> bool:
    """A bare number stands somewhere, was computed or counted, or follows by one step from what is cited."""
    value = float(stated)
    if {value, -value} & (_known(ground) | ground.computed | counted(cited)):
        return True
    return _is_constant(stated, ground) or follows(stated, _given(cited))


def _time_holds(clock: str, ground: Ground) -> bool:
    return clock in ground.everything or clock_stands(clock, ground.everything)


def _known(ground: Ground) -> frozenset[float]:
    if not ground.general:
        return ground.numbers
    return _with_powers(ground.numbers) | _powers_of_lore(ground.lore)


def _given(cited: Sequence[Item]) -> frozenset[float]:
    return frozenset(n for i in cited for n in words.numbers(i.text))


@lru_cache(maxsize=1)
def _powers_of_lore(lore: str) -> frozenset[float]:
    """Every number that the knowledge pages state, also in thousands and beyond, and the scales of units."""
    return _with_powers(words.numbers(lore)) | set(SCALES)


def _with_powers(numbers: Collection[float]) -> frozenset[float]:
    return frozenset(n * power for n in numbers for power in (1.0, 1e3, 1e6, 1e9, 1e12))


def _is_constant(stated: str, ground: Ground) -> bool:
    """A number of the field that the knowledge base names: 65504, the largest of fp16. Short ones stand there by chance."""
    return len(stated) >= DIGITS_OF_A_CONSTANT and re.search(rf"(?<![\w.]){re.escape(stated)}(?![\w.]*\d)", ground.lore) is not None  # fmt: skip


def _is_there(noun: str, value: int, ground: Ground) -> bool:
    """There is such a rank, line, GPU, step in what was shown."""
    items = ground.items.values()
    if (noun, value) in ground.cells:
        return True
    if noun == "line":
        return any(i.line == value for i in items)
    if noun == "rank" and (
        value in ground.ranks or value < ground.world_size or any(i.rank == value for i in items)
    ):
        return True
    return _pair_stands(noun, value, ground.everything)


def _sits_there(gpu: int, text: str, ground: Ground) -> bool:
    """A rank that is named beside the GPU, and is there, sits on it."""
    ranks = (value for noun, value in words.placed_numbers(text) if noun == "rank")
    return any(
        _is_there("rank", rank, ground) and any(rank % n == gpu for n in GPUS_OF_A_NODE)
        for rank in ranks
    )


def _pair_stands(noun: str, value: int, said: str) -> bool:
    if noun == "rank":
        pattern = (
            rf"(?i)rank[\s_:=#\[\]s]*{value}\b|\[{value}\]|\branks?\b[^.\n]{{0,60}}\b{value}\b|"
            rf"(?<![a-z])(?:{_RANK_NAMES})\w*[\s_:=#/\-]{{0,3}}{value}\b"
        )
        return re.search(pattern, said) is not None
    if (noun, value) in words.placed_numbers(said):
        return True
    near = rf"(?i){noun[:4]}\w*\W{{0,4}}(?:\w+\W{{1,3}}){{0,2}}{value}\b(?!\.\d)"
    apart = _APART.get(noun)
    return re.search(near, said) is not None or (
        apart is not None and re.search(apart.format(value=value), said) is not None
    )


def _check_names(text: str, whole: str, ground: Ground) -> list[Objected]:
    low = whole.lower()
    out = [
        Objected(Fault.FLAG, f)
        for f in sorted(words.flags(text))
        if f not in whole and f.lower() not in ground.lore
    ]
    out += [
        Objected(Fault.VARIABLE, v)
        for v in sorted(words.variables(text))
        if v not in whole and v not in ground.variables and v.lower() not in ground.lore
    ]
    names = words.identifiers(text) - words.variables(text) - FUNCTIONS.keys()
    out += [
        Objected(Fault.NAME, n)
        for n in sorted(names)
        if not name_stands(n, low) and not _is_place(n, whole) and not _is_known(n, ground)
    ]
    return out


def _is_known(name: str, ground: Ground) -> bool:
    """A name of the field, found in the knowledge base; a machine is never known from there."""
    return not _MACHINE_NAME.match(name) and name.lower() in ground.lore


def _is_place(name: str, said: str) -> bool:
    """`rank3` for `rank 3`, `GPU-4` for `GPU 4`."""
    match = re.fullmatch(r"([A-Za-z]{1,40})[-_]?(\d{1,9})", name)
    return (
        match is not None and re.search(rf"(?i)\b{match[1]}\W{{0,2}}{match[2]}\b", said) is not None
    )


def _check_place(text: str, cited: Iterable[Item]) -> list[Objected]:
    """A rank, GPU, node or host and the cause said of it must stand in one and the same item.

    Two true lines put together can make a false sentence.
    """
    groups = words.cause_groups(text)
    places = [p for p in words.placed_numbers(text) if p[0] in ("rank", "gpu", "node", "host")]
    if not groups or not places:
        return []
    lines = [(i, spoken(i)) for i in cited]
    return [
        Objected(Fault.CAUSE, f"nothing says this of {noun} {value}")
        for noun, value in sorted(places)
        if not any(
            ((noun == "rank" and i.rank == value) or _pair_stands(noun, value, said))
            and words.cause_groups(said) & groups
            for i, said in lines
        )
    ]


def _check_advice(text: str, ground: Ground) -> list[Objected]:
    if _REPORT.match(words.without_quotes(text)):
        return []  # a line read aloud, checked word for word, advises nothing
    out = [Objected(Fault.ADVICE, o.rule) for o in objections(text, text, ground.variables)]
    if raises_timeout(text):
        out.append(Objected(Fault.ADVICE, RAISES))
    if tells_to_change(text):
        out.append(Objected(Fault.ADVICE, DESTROYS if tells_to_destroy(text) else CHANGES))
    return out
