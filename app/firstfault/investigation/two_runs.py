"""What differs between a good and a bad run, or between before and after, that can explain what is worse?

Asked where nothing that was read says why, and where the verdict is an effect that was measured (slower steps, a
gradient of zero) and not what made it. Which of two logs is the good one, the names of the files say (yesterday,
before, good), or the log in which the effect stands, or the person, who tells of a change since. The comparison is
that of `firstfault compare`. A difference is believed where it is known to make just this worse, or where it is
(nearly) the only one: what two runs have in common cannot tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from firstfault.investigation.examination import Examination
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.verdict import Judgement
from firstfault.investigation.vetoes import read_statement
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Confidence,
    Evidence,
    Finding,
    Level,
    Verdict,
)
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.registry import Artefact
from firstfault_tools.roles import Role
from firstfault_tools.run_comparison.comparison import (
    Comparison,
    Difference,
    compare_diff,
    compare_runs,
)
from firstfault_tools.run_comparison.effects import EFFECT_OF, Change, Effect
from firstfault_tools.run_comparison.settings import Kind, Setting

LEAST_WEIGHT = 0.6
"""Of a difference, in relevance.yaml: a known contributor."""

LEAST_ALONE = 0.3
"""The same where no other difference is known to have the effect: a possible contributor."""

MOST_ONLY = 2
"""Differences in all, up to which they are told whatever they are: nothing else tells the runs apart."""

MOST_TOLD = 3
MOST_DIFF = 1024 * 1024
"""Bytes of an artefact that is looked at for a diff."""

LEAST_RATIO = 1.15
"""How much worse the bad run must be, where nobody says so in numbers: steps of one run vary by a twentieth."""

_GOOD = expression(
    r"(?i)(?:^|[^a-z])(?:yesterday|before|good|old|ok|prev(?:ious)?|base(?:line)?|ref(?:erence)?|healthy|fast|works?|working|fine)(?:[^a-z]|$)"
)
_BAD = expression(
    r"(?i)(?:^|[^a-z])(?:today|after|bad|new|now|slow|broken|cur(?:rent)?|fail(?:ed|ing)?|regress\w*|hang\w*)(?:[^a-z]|$)"
)
_SINCE = expression(
    r"(?i)\b(?:since|after|now|today|new|used to|yesterday|before|last (?:week|month|night)|upgrad\w+|no longer|only (?:added|changed)|changed|seit|früher|depuis|desde)\b"
)

_CATEGORIES = {
    Effect.SLOW: Category.PERFORMANCE, Effect.DIVERGED: Category.NUMERICAL, Effect.MEMORY: Category.OOM,
    Effect.HANG: Category.COMMUNICATION, Effect.CRASH: Category.ENVIRONMENT,
}  # fmt: skip
_MEASURED = (Effect.SLOW, Effect.DIVERGED, Effect.MEMORY)
_EFFECTS = {c: e for e, c in _CATEGORIES.items() if e in _MEASURED}
_WORSE = {
    Effect.SLOW: "is slower than the one before", Effect.DIVERGED: "learns worse than the one before",
    Effect.MEMORY: "takes more memory than the one before", Effect.HANG: "hangs, and the one before did not",
    Effect.CRASH: "fails, and the one before did not",
}  # fmt: skip
UNTOLD = "question."
"""Kinds of verdicts that only repeat the complaint."""

MEASURED = "metrics."
"""Kinds of findings that name a quantity that is wrong, and not what made it so."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A good and a bad run."""

    good: Artefact
    bad: Artefact


def compare_logs(
    examination: Examination,
    judgement: Judgement,
    knowledge: Knowledge,
    artefacts: Sequence[Artefact],
    question: str,
) -> Judgement:
    """The difference that explains what is worse: the cause where no line is one, beside an effect where one leads."""
    effect = _effect_of(judgement)
    if judgement.verdict is not Verdict.UNKNOWN and not _is_untold(judgement) and effect is None:
        return judgement
    said = [e for c in read_statement(question).complaints if (e := EFFECT_OF.get(c)) is not None]
    if not said and judgement.finding is not None and judgement.finding.has(FindingRole.WAITING):
        said = [Effect.HANG]
    wanted = [effect] if effect is not None else said
    pair = _tell_apart(examination, artefacts, question, judgement.finding)
    if pair is not None:
        told = _from_pair(examination, judgement, knowledge, pair, wanted, effect is not None)
        if told is not judgement:
            return told
    if not wanted or not _SINCE.search(question):
        return judgement
    return _from_diff(judgement, knowledge, artefacts, wanted, effect is not None)


def _is_untold(judgement: Judgement) -> bool:
    return judgement.finding is not None and judgement.finding.kind.startswith(UNTOLD)


def _effect_of(judgement: Judgement) -> Effect | None:
    """What the verdict measured to be wrong of the run as a whole; None where it names a cause or a place."""
    first = judgement.finding
    if first is None or judgement.verdict not in (Verdict.FAULT, Verdict.WARNING):
        return None
    if first.rank is not None or first.category is None:
        return None
    slow = first.category is Category.PERFORMANCE
    return _EFFECTS.get(first.category) if slow or first.kind.startswith(MEASURED) else None


def _tell_apart(
    examination: Examination, artefacts: Sequence[Artefact], question: str, first: Finding | None
) -> Pair | None:
    """The pair where exactly two logs are of runs, and names, times, words or the effect say which is which."""
    logs = examination.logs
    runs = [
        d
        for d in logs.digests
        if logs.role_of(d.file) is Role.RUN and logs.progress[d.file].trained()
    ]
    if len(runs) != 2 or any(d.name_rank is not None for d in runs):
        return None
    names = [d.file for d in runs]
    bad = _in_effect(names, first) or _named(names, _BAD, _GOOD) or _other(names, _named(names, _GOOD, _BAD))  # fmt: skip
    bad = bad or _later(examination, runs, question)
    by_name = {a.name: a for a in artefacts}
    good = _other(names, bad)
    if bad is None or good is None or not {good, bad} <= set(by_name):
        return None
    return Pair(by_name[good], by_name[bad])


def _in_effect(names: Sequence[str], first: Finding | None) -> str | None:
    """The one log of two in which what was measured stands."""
    if first is None or not first.kind.startswith(MEASURED):
        return None
    files = {e.file for e in first.evidence} & set(names)
    return files.pop() if len(files) == 1 else None


def _named(names: Sequence[str], this: re.Pattern[str], that: re.Pattern[str]) -> str | None:
    found = [n for n in names if this.search(n) and not that.search(n)]
    return found[0] if len(found) == 1 else None


def _other(names: Sequence[str], one: str | None) -> str | None:
    return None if one is None else next((n for n in names if n != one), None)


def _later(examination: Examination, runs: Sequence[FileDigest], question: str) -> str | None:
    """The later of two logs, where the person tells of a change since."""
    progress = examination.logs.progress
    times = [next(iter(progress[d.file].step_times()), None) for d in runs]
    if None in times or times[0] == times[1] or not _SINCE.search(question):
        return None
    return runs[0].file if (times[0] or 0) > (times[1] or 0) else runs[1].file


def _from_pair(
    examination: Examination,
    judgement: Judgement,
    knowledge: Knowledge,
    pair: Pair,
    wanted: Sequence[Effect],
    leads: bool,
) -> Judgement:
    result = compare_runs([pair.good], [pair.bad], wanted)
    if leads:
        able = _choose(result.differences, wanted)
        return _beside(examination, judgement, able, pair, f"{pair.good.name}, which does not show it,")  # fmt: skip
    change = _find_worse(result, wanted)
    if change is None or change.effect is None:
        able = _choose(result.differences, wanted) if wanted else []
        return _suspect(judgement, knowledge, able, wanted, f"what differs from {pair.good.name}")
    able = _choose(result.differences, (change.effect,))
    if not able:
        return judgement
    found = Finding(
        kind="runs.difference",
        title=f"{change.what} is {change.bad:.4g} {change.unit}".rstrip()
        + f" in {pair.bad.name} against {change.good:.4g} in {pair.good.name} ({change.times:.1f} times), and what differs is {_tell(able)}",
        level=Level.CAUSE,
        category=_CATEGORIES[change.effect],
        evidence=_quote_all(examination, able[0], pair),
        page=_page(knowledge, able[0]),
    )
    return replace(judgement, verdict=Verdict.FAULT, finding=found, confidence=Confidence.LIKELY)


def _beside(
    examination: Examination,
    judgement: Judgement,
    able: Sequence[Difference],
    pair: Pair | None,
    against: str,
) -> Judgement:
    """The verdict's own finding with the difference in its sentence."""
    first = judgement.finding
    if first is None or not able:
        return judgement
    quotes = _quote_all(examination, able[0], pair) if pair is not None else ()
    told = replace(
        first,
        title=f"{first.title}; what differs from {against} is {_tell(able)}",
        evidence=(*first.evidence, *quotes),
    )
    return replace(judgement, finding=told)


def _from_diff(
    judgement: Judgement,
    knowledge: Knowledge,
    artefacts: Sequence[Artefact],
    wanted: Sequence[Effect],
    leads: bool,
) -> Judgement:
    """What a diff handed in says was changed, where that can have the effect."""
    for artefact in artefacts:
        if b"\0" in artefact.head():
            continue
        text = artefact.data(MOST_DIFF).decode("utf-8", errors="replace")
        able = _choose(compare_diff(artefact.name, text, wanted), wanted)
        if not able:
            continue
        first = judgement.finding
        if leads and first is not None:
            title = f"{first.title}; of what was changed ({artefact.name}) this can be behind it: {_tell(able)}"
            return replace(judgement, finding=replace(first, title=title))
        return _suspect(judgement, knowledge, able, wanted, f"what was changed ({artefact.name})")
    return judgement


def _suspect(
    judgement: Judgement,
    knowledge: Knowledge,
    able: Sequence[Difference],
    wanted: Sequence[Effect],
    among: str,
) -> Judgement:
    """A difference as a possible cause: it can have the effect that the person tells of, which was not measured."""
    if not able:
        return judgement
    versions = able[0].kind is Kind.VERSION and wanted[0] not in _MEASURED
    found = Finding(
        kind="runs.change",
        title=f"the run {_WORSE[wanted[0]]}, and of {among} this can be behind it: {_tell(able)}",
        level=Level.CAUSE,
        category=Category.ENVIRONMENT if versions else _CATEGORIES[wanted[0]],
        confidence=Confidence.POSSIBLE,
        page=_page(knowledge, able[0]),
    )
    return replace(judgement, verdict=Verdict.FAULT, finding=found, confidence=Confidence.POSSIBLE)


def _choose(differences: Sequence[Difference], effects: Sequence[Effect]) -> list[Difference]:
    """What is known to have the effect; else what may and is alone; else all, where they are very few."""
    able = [d for d in differences if set(d.explains) & set(effects)]
    known = [d for d in able if d.weight >= LEAST_WEIGHT]
    if known:
        return known[:MOST_TOLD]
    if len(able) == 1 and able[0].weight >= LEAST_ALONE:
        return able
    stated = [d for d in differences if d.good is not None and d.bad is not None]
    return stated if len(differences) == len(stated) <= MOST_ONLY else []


def _tell(able: Sequence[Difference]) -> str:
    differ = "; ".join(d.tell() for d in able)
    return f"{differ}: {able[0].why}" if able[0].why else differ


def _find_worse(result: Comparison, said: Sequence[Effect]) -> Change | None:
    """The quantity that is worst: of what is complained of, where something is."""
    worse = [c for c in result.changes if c.worse and c.effect in _MEASURED and c.good]
    worse = [c for c in worse if c.times >= LEAST_RATIO]
    return next((c for c in worse if not said or c.effect in said), None)


def _page(knowledge: Knowledge, difference: Difference) -> str | None:
    page = knowledge.pages.get(difference.page or "")
    return page.id if page is not None else None


def _quote_all(
    examination: Examination, difference: Difference, pair: Pair
) -> tuple[Evidence, ...]:
    sides = ((difference.bad, pair.bad), (difference.good, pair.good))
    return tuple(
        q for s, a in sides if s is not None and (q := _quote(examination, s, a)) is not None
    )


def _quote(examination: Examination, setting: Setting, artefact: Artefact) -> Evidence | None:
    """The line that states a setting; None where it stands in a structured file."""
    digest = next((d for d in examination.logs.digests if d.file == artefact.name), None)
    text = digest.text_of(setting.line) if digest is not None else None
    return Evidence(artefact.name, setting.line, text.strip()[:600]) if text else None
