"""Do the files hold a good and a bad run, and which difference between them can explain what is worse?

Asked where nothing that was read says why a run is slower or learns worse. Which of two logs is the good one, the
names of the files say (yesterday, before, good), or the person, who tells of a change since. The comparison itself is
that of `firstfault compare`; a difference is believed where it is known to make just this worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault.investigation.examination import Examination
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.verdict import Judgement
from firstfault.investigation.vetoes import read_statement
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Evidence,
    Finding,
    Level,
    Verdict,
)
from firstfault_tools.registry import Artefact
from firstfault_tools.roles import Role
from firstfault_tools.run_comparison.comparison import Comparison, Difference, compare_runs
from firstfault_tools.run_comparison.effects import EFFECT_OF, Change, Effect
from firstfault_tools.run_comparison.settings import Setting

LEAST_WEIGHT = 0.6
"""Of a difference, in relevance.yaml: a known contributor."""

LEAST_RATIO = 1.15
"""How much worse the bad run must be, where nobody says so in numbers: steps of one run vary by a twentieth."""

_GOOD = expression(
    r"(?i)(?:^|[^a-z])(?:yesterday|before|good|old|ok|prev(?:ious)?|base(?:line)?|ref(?:erence)?|healthy|fast|works?|working|fine)(?:[^a-z]|$)"
)
_BAD = expression(
    r"(?i)(?:^|[^a-z])(?:today|after|bad|new|now|slow|broken|cur(?:rent)?|fail(?:ed|ing)?|regress\w*)(?:[^a-z]|$)"
)
_SINCE = expression(
    r"(?i)\b(?:since|after|now|today|new|used to|yesterday|before|last (?:week|month|night)|upgrad\w+|no longer|seit|früher|depuis|desde)\b"
)

_CATEGORIES = {Effect.SLOW: Category.PERFORMANCE, Effect.DIVERGED: Category.NUMERICAL, Effect.MEMORY: Category.OOM}  # fmt: skip
UNTOLD = "question."
"""Kinds of verdicts that only repeat the complaint."""


def compare_logs(
    examination: Examination,
    judgement: Judgement,
    knowledge: Knowledge,
    artefacts: Sequence[Artefact],
    question: str,
) -> Judgement:
    """The difference that explains what is worse as a likely cause, where no line does."""
    if judgement.verdict is not Verdict.UNKNOWN and not _is_untold(judgement):
        return judgement
    pair = _tell_apart(examination, artefacts, question)
    if pair is None:
        return judgement
    good, bad = pair
    said = [
        e for c in read_statement(question).complaints if (e := EFFECT_OF.get(c)) in _CATEGORIES
    ]
    result = compare_runs([good], [bad], said)
    change = _find_worse(result, said)
    if change is None or change.effect is None:
        return judgement
    able = [
        d
        for d in result.differences
        if change.effect in d.explains and d.weight >= LEAST_WEIGHT and d.good and d.bad
    ]
    if not able:
        return judgement
    found = _describe(examination, change, able, good, bad, knowledge)
    return replace(judgement, verdict=Verdict.FAULT, finding=found, confidence=Confidence.LIKELY)


def _is_untold(judgement: Judgement) -> bool:
    return judgement.finding is not None and judgement.finding.kind.startswith(UNTOLD)


def _tell_apart(
    examination: Examination, artefacts: Sequence[Artefact], question: str
) -> tuple[Artefact, Artefact] | None:
    """(good, bad) where exactly two logs are of runs, and names or times and words say which is which."""
    logs = examination.logs
    runs = [
        d
        for d in logs.digests
        if logs.role_of(d.file) is Role.RUN and logs.progress[d.file].trained()
    ]
    if len(runs) != 2 or any(d.name_rank is not None for d in runs):
        return None
    names = [d.file for d in runs]
    good = [n for n in names if _GOOD.search(n) and not _BAD.search(n)]
    bad = [n for n in names if _BAD.search(n) and not _GOOD.search(n)]
    if len(good) != 1 and len(bad) == 1:
        good = [n for n in names if n != bad[0]]
    if len(good) != 1:
        times = [next(iter(logs.progress[d.file].step_times()), None) for d in runs]
        if None in times or times[0] == times[1] or not _SINCE.search(question):
            return None
        good = [names[0] if (times[0] or 0) < (times[1] or 0) else names[1]]
    by_name = {a.name: a for a in artefacts}
    other = next(n for n in names if n != good[0])
    return (by_name[good[0]], by_name[other]) if {good[0], other} <= set(by_name) else None


def _find_worse(result: Comparison, said: Sequence[Effect]) -> Change | None:
    """The quantity that is worst: of what is complained of, where something is."""
    worse = [c for c in result.changes if c.worse and c.effect in _CATEGORIES and c.good]
    worse = [c for c in worse if max(c.ratio, 1 / c.ratio if c.ratio else 99) >= LEAST_RATIO]
    return next((c for c in worse if not said or c.effect in said), None)


def _describe(
    examination: Examination,
    change: Change,
    able: Sequence[Difference],
    good: Artefact,
    bad: Artefact,
    knowledge: Knowledge,
) -> Finding:
    first = able[0]
    page = knowledge.pages.get(first.page or "")
    category = _CATEGORIES[change.effect] if change.effect is not None else None
    times = max(change.ratio, 1 / change.ratio)
    sides = ((first.bad, bad), (first.good, good))
    quotes = [q for s, a in sides if s is not None and (q := _quote(examination, s, a)) is not None]
    differ = "; ".join(d.tell() for d in able[:2])
    return Finding(
        kind="runs.difference",
        title=f"{change.what} is {change.bad:.4g} {change.unit}".rstrip()
        + f" in {bad.name} against {change.good:.4g} in {good.name} ({times:.1f} times), and what differs is {differ}: {first.why}",
        level=Level.CAUSE,
        category=category,
        confidence=Confidence.LIKELY,
        evidence=tuple(quotes),
        page=page.id if page is not None else None,
    )


def _quote(examination: Examination, setting: Setting, artefact: Artefact) -> Evidence | None:
    """The line that states a setting; None where it stands in a structured file."""
    digest = next((d for d in examination.logs.digests if d.file == artefact.name), None)
    text = examination.logs.text_of(digest, setting.line) if digest is not None else None
    return Evidence(artefact.name, setting.line, text.strip()[:600]) if text else None
