"""Which error did a run pass over again and again while it learned nothing?

Code that scores answers or reads samples often catches every exception, logs it and goes on with 0 or
with nothing. The run does not end; its curves go flat. An error line that comes back between the steps
of such a run is the cause of the flatness, not a detail beside it. Likewise trainers say at a resume which
arguments differ from the checkpoint: beside a loss that leaves its course after it, that is the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from dataclasses import replace as changed
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Confidence,
    Evidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.logs import Logs
from firstfault_tools.log.prefix import read_prefix

FLAT = (
    "metrics.rl_no_signal",
    "metrics.rl_reward_constant",
    "metrics.grad_norm_zero",
    "metrics.loss_zero",
    "metrics.never_learning",
)
"""Findings of a run that learns nothing, the most telling first."""
LEAST = 3
MOST_LINES, MOST_SHAPES = 50_000, 2_000
_MARKS = ("rror", "xception", "ailed", "RROR", "AILED", "annot ", "nable to", "ould not")
_ERROR = expression(
    r"\b(?:[A-Z]\w*(?:Error|Exception)|Error|ERROR|error|Exception|exception|[Ff]ailed|FAILED|[Ff]ailure|"
    r"[Cc]annot|[Uu]nable to|[Cc]ould not)\b"
)
_NO_ERROR = expression(
    r"(?i)\b(?:0 errors?|no errors?|error[_ ]?rate|errors?['\"]?\s?[:=]\s?0\b|Warning:|deprecat\w*|wandb|retry\w*|reconnect\w*)"
)
_REPEATED = expression(r"\[repeated (\d{1,9})x across cluster\].*$")
_SHAPE = expression(r"0x[0-9a-fA-F]+|\d+|'[^']{0,200}'|\"[^\"]{0,200}\"")
_SCORING = expression(
    r"(?i)reward|\bscor(?:e|es|er|ing)\b|compute_score|verif(?:y|ier|ication)|grad(?:er|ing)\b|judge|answer"
)
_SAMPLE = expression(
    r"(?i)sample|batch|dataset|record|image|video|audio|token|label|collat|example"
)


@dataclass(slots=True)
class Repeat:
    """An error line of one shape: how often, where first and last."""

    count: int
    words: str
    first: tuple[int, str]
    last: tuple[int, str]
    numbers: list[int] = field(default_factory=list)


def find_in_incident(incident: Any, findings: Sequence[Finding]) -> Iterable[Finding]:
    """The curve again, with what the log said before or beside it as its cause."""
    logs: Logs = incident
    return [*find_passed_over(logs, findings), *find_changed_setting(logs, findings)]


def find_passed_over(logs: Logs, findings: Sequence[Finding]) -> Iterable[Finding]:
    """The flat curve again, with the error that was passed over as its cause."""
    seen = [f for f in findings if f.kind in FLAT and f.evidence and f.level in (Level.CAUSE, Level.FAILURE)]  # fmt: skip
    if not seen:
        return ()
    flat = min(seen, key=lambda f: FLAT.index(f.kind))
    digest = next((d for d in logs.digests if d.file == flat.evidence[0].file), None)
    best: tuple[FileDigest, Repeat] | None = None
    for other in logs.digests if digest is not None else ():
        for repeat in _read_repeats(other):
            if best is None or repeat.count > best[1].count:
                best = other, repeat
    if best is None:
        return ()
    return (_describe(flat, best[0].file, best[1]),)


def _read_repeats(digest: FileDigest) -> list[Repeat]:
    found: dict[str, Repeat] = {}
    for number, text in digest.kept[:MOST_LINES]:
        if len(text) > 4_000 or not any(mark in text for mark in _MARKS):
            continue
        body = text[read_prefix(text)[1] :].strip()
        again = _REPEATED.search(body)
        words = _REPEATED.sub("", body).strip()
        if not _ERROR.search(words) or _NO_ERROR.search(words):
            continue
        shape = _SHAPE.sub("#", words)[:200]
        known = found.get(shape)
        times = 1 + (int(again[1]) if again is not None else 0)
        if known is None:
            if len(found) < MOST_SHAPES:
                found[shape] = Repeat(times, words, (number, text), (number, text), [number])
            continue
        known.count += times
        known.last = number, text
        known.numbers.append(number)
    return [r for r in found.values() if _goes_along(digest, r)]


def _goes_along(digest: FileDigest, repeat: Repeat) -> bool:
    """It comes again between lines of other kinds, and is no single burst at the start or the end."""
    if repeat.count < LEAST or len(repeat.numbers) < 2:
        return False
    apart = sum(b - a > 1 for a, b in zip(repeat.numbers, repeat.numbers[1:], strict=False))
    covered = repeat.last[0] - repeat.first[0]
    return apart >= 2 or (apart >= 1 and covered * 3 >= digest.lines_total)


def _describe(flat: Finding, file: str, repeat: Repeat) -> Finding:
    words = re.sub(r"\s+", " ", repeat.words)[:220].rstrip(" .")
    scoring = flat.kind.startswith("metrics.rl_") or _SCORING.search(words) is not None
    if scoring:
        what, category, page = (
            "the reward or score function raises an error",
            Category.CODE_BUG,
            "swallowed-errors",
        )
    elif _SAMPLE.search(words):
        what, category, page = "samples fail with an error", Category.DATA, "swallowed-errors"
    else:
        what, category, page = (
            "an error comes back with the steps",
            Category.CODE_BUG,
            "swallowed-errors",
        )
    title = flat.title[0].lower() + flat.title[1:]
    quoted = dict((repeat.first, repeat.last))
    return changed(
        flat,
        kind="metrics.passed_over_error",
        title=(
            f"{what[0].upper()}{what[1:]} that is caught, logged and passed over ({repeat.count} times): «{words}»"
            + ("; such answers count as 0. So " if scoring else ". With it ")
            + title
        ),
        level=Level.CAUSE,
        category=category,
        confidence=Confidence.LIKELY,
        evidence=(
            *(Evidence(file, n, t.strip()[:600]) for n, t in quoted.items()),
            *flat.evidence[:2],
        ),
        page=page,
        facts={**flat.facts, "times": repeat.count, "starts_at": 1},
        strength=Strength(Together.REPEATED_SERIES),
    )


LEFT = frozenset(
    {"metrics.divergence", "metrics.resume_loss_jump", "metrics.loss_inflated", "metrics.lr_jump"}
)
MOST_SETTING_LINES = 20_000
_DIFFERS = expression(
    r"(?P<name>[a-z][a-z_]{3,40}): (?P<now>\S{1,40}) \(from args\) != (?P<old>\S{1,40}) \(from trainer_state\.json\)|"
    r"> overriding (?P<over>[a-z ]{4,40}) value to (?P<to>\S{1,40})"
)
_MATTERS = expression(
    r"learning|lr\b|warmup|warm-up|batch|accumulation|decay|beta|scheduler|precision|seed"
)


def find_changed_setting(logs: Logs, findings: Sequence[Finding]) -> Iterable[Finding]:
    """The verdict on the loss again, with the setting that changed before it."""
    left = next((f for f in findings if _left_its_course(f)), None)
    if left is None:
        return ()
    file, at = left.evidence[0].file, left.evidence[-1].line
    digest = next((d for d in logs.digests if d.file == file), None)
    told = _read_changes(digest.kept[:MOST_SETTING_LINES], at) if digest is not None else []
    if not told:
        return ()
    title = left.title[0].lower() + left.title[1:]
    quoted = {n: t for n, t, _ in told[:2]}
    return (
        changed(
            left,
            kind="metrics.changed_setting",
            title=f"The resumed run uses other settings than its checkpoint ({', '.join(dict.fromkeys(s for _, _, s in told[:4]))}); with them {title}",
            level=Level.CAUSE,
            evidence=(
                *(Evidence(file, n, t.strip()[:600]) for n, t in quoted.items()),
                *left.evidence[:2],
            ),
            page="resume-state",
            facts={**left.facts, "starts_at": 1},
            strength=Strength(Together.REPEATED_SERIES),
        ),
    )


def _left_its_course(finding: Finding) -> bool:
    """A loss or a rate that left its course, as a fault and with its lines."""
    return (
        finding.kind in LEFT
        and bool(finding.evidence)
        and finding.level in (Level.CAUSE, Level.FAILURE)
    )


def _read_changes(lines: Iterable[tuple[int, str]], until: int) -> list[tuple[int, str, str]]:
    """(line, text, words) of settings that are said to differ from the checkpoint's, before that line."""
    return [
        (number, text, _say_change(m))
        for number, text in lines
        if number < until and ("trainer_state.json)" in text or "> overriding" in text)
        for m in _DIFFERS.finditer(text)
        if _MATTERS.search(m["name"] or m["over"])
    ]


def _say_change(told: re.Match[str]) -> str:
    if told["name"]:
        return f"{told['name']} {told['now']} instead of {told['old']}"
    return f"{told['over']} now {told['to']}"
