"""Which named part takes most of a step, by step lines that print the times of their parts?

`step 14 rollout 231.4 s train 9.8 s`, `fwd 141 ms | bwd 296 ms | grad allreduce wait 633 ms | data 2 ms`.
A large part that is no computation explains a slow step; by itself it is no fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from firstfault_tools.averages import median
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import keep_marked, quote_line

MARKERS = ("step", "iter", "Step", "Iter", "epoch", "Epoch", "loss", "Loss")
MAX_LINE, MOST, TRIED, LEAST = 2_000, 1_500, 200, 3
SHARE = 0.5
_PART = expression(
    r"(?P<name>[A-Za-z][A-Za-z_/-]{1,30}(?: [a-z]{2,20}){0,2})[ :=]{1,3}(?P<value>\d{1,7}(?:\.\d{1,6})?) ?(?P<unit>ms|s|sec)\b(?!/)"
)
_TIMED = expression(r"\d ?(?:ms|s|sec)\b(?!/)")
"""What each part ends with: looked for first, since names may begin anywhere."""

CLOCK_LINES, DAY = 2_000, 86_400
"""Lines from either end among which a clock is looked for; seconds of a day."""

LONG_SAVE = 60.0
"""Seconds from which a save is worth a word."""

_SAVED = expression(
    r"(?i)(?:saved|written|wrote)\b.{0,120}?\b(?:checkpoint|ckpt|state|model|step)\w*.{0,120}?\bin (?P<took>\d{1,6}(?:\.\d{1,6})?) ?s(?:ec\w*)?\b|"
    r"\b(?:checkpoint )?sav(?:e|ing) (?:duration|took|time)\b[ :=]{0,3}(?P<lasted>\d{1,6}(?:\.\d{1,6})?) ?s(?:ec\w*)?\b"
)
_INFERENCE = expression(
    r"(?i)\b(?:total |whole )?(?:inference|evaluation|validation|eval|test)\b.{0,20}?\b(?:time|took|in)\b[ :=]{1,3}(?P<hours>\d{1,3}):(?P<minutes>\d\d):(?P<seconds>\d\d)\b"
)
_CLOCK = expression(r"\b(\d\d):(\d\d):(\d\d)\b")
_BAR = expression(r"100%\|[^|]{0,80}\| ?\d{1,9}/\d{1,9} \[(?P<took>\d{1,3}:\d\d(?::\d\d)?)<")
_EVALUATION = expression(r"(?i)^(?:\S{1,40} )?(?:valid\w*|eval\w*|test\w*|predict\w*)\b")
_WHOLE = expression(
    r"(?i)^(?:.*\b)?(?:total|step[_ ]?time|iter(?:ation)?[_ ]?time|elapsed|time|dt|(?:avg_)?batch(?:[_ ](?:time|cost))?)$"
)
_COMPUTE = expression(r"(?i)\b(?:fwd|bwd|forward|backward|compute|train(?:ing)?|step|iter(?:ation)?|model|update\w*|eta|remaining|epoch)$")  # fmt: skip
_PAGES = (
    (expression(r"(?i)rollout|gen(?:erat\w*)?\b|sampl|sample"), "rollout-long-tail", "the trainer waits for the rollouts"),
    (expression(r"(?i)data|load|batch|input|fetch|read"), "dataloader-stall", "the GPUs wait for the input pipeline"),
    (expression(r"(?i)reduce|comm|gather|sync|nccl|wait|barrier"), "communication-stall", "the GPUs wait for communication or for a slower rank"),
    (expression(r"(?i)save|ckpt|checkpoint"), "training-stall", "the GPUs wait for the checkpoint"),
    (expression(r"(?i)opt(?:im\w*)?\b|adam"), "low-mfu", "the update of the optimizer bounds the step"),
    (expression(r"(?i)reward|env|verif|judge|log|eval"), "training-stall", "the GPUs wait for it"),
)  # fmt: skip


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The part that takes most of the steps of one log; evaluation that outlasts training."""
    return (*_find_part(lines, file), *_find_evaluation(lines, file), *_find_saves(lines, file))


def _find_saves(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Saves that say how long they took, against the time that the log covers."""
    saves = [
        (float(found["took"] or found["lasted"]), number, text)
        for number, text in keep_marked(
            lines, ("aved", "ritten", "wrote", "ave duration", "aving took", "ave time")
        )[:MOST]
        if (found := _SAVED.search(text[:600])) is not None
    ]
    long = [save for save in saves if save[0] >= LONG_SAVE]
    if not long:
        return ()
    covered = _covered_s(lines)
    spent = sum(took for took, *_ in saves)
    if spent > covered > 0:
        covered = 0  # saves that overlap, or clocks that say nothing
    share = spent / covered if covered else 0.5
    words = (
        f"saving a checkpoint takes {median(s for s, *_ in long):.0f} s each time"
        + (f", {share:.0%} of the time" if covered else "")
        + ": training waits for the storage meanwhile, while steps are fast"
    )
    places = [save[1:] for save in (long[0], long[-1])]
    return (_make("save_part", words, file, places, "training-stall", share, share),)


def _covered_s(lines: Sequence[tuple[int, str]]) -> int:
    """Seconds between the first and the last clock of a log, step lines often print none; 0 where it is not told."""
    ends = [
        next((m for _, t in islice(rows, CLOCK_LINES) if (m := _CLOCK.search(t[:200]))), None)
        for rows in (iter(lines), reversed(lines))
    ]
    first, last = (int(m[1]) * 3600 + int(m[2]) * 60 + int(m[3]) if m else 0 for m in ends)
    return (last - first) % DAY


def _find_evaluation(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Evaluation whose progress bar takes longer than the epoch's."""
    if (timed := _find_timed_evaluation(lines, file)) is not None:
        return (timed,)
    took: dict[bool, list[tuple[float, int, str]]] = {True: [], False: []}
    for number, text in keep_marked(lines, ("100%",))[:MOST]:
        bar = _BAR.search(text[:400])
        if bar is None:
            continue
        seconds = 0.0
        for part in bar["took"].split(":"):
            seconds = 60 * seconds + int(part)
        took[_EVALUATION.match(text.strip()) is not None].append((seconds, number, text))
    if not took[True] or not took[False]:
        return ()
    evaluation = median([s for s, *_ in took[True] if s > 0] or [0.0])
    training = median(s for s, *_ in took[False])
    if evaluation < 60 or evaluation < SHARE * (evaluation + training):
        return ()
    share = evaluation / (evaluation + training)
    places = [took[False][-1][1:], took[True][-1][1:]]
    words = f"evaluation takes {evaluation:.0f} s after every {training:.0f} s of training, {share:.0%} of the time: validation, not training, is slow"
    return (_make("evaluation_part", words, file, places, "training-stall", share, share),)


def _find_timed_evaluation(lines: Sequence[tuple[int, str]], file: str) -> Finding | None:
    """Evaluations that say how long they took, against the time that the log covers."""
    told = [
        (int(m["hours"]) * 3600 + int(m["minutes"]) * 60 + int(m["seconds"]), number, text)
        for number, text in keep_marked(lines, ("nference time", "valuation time", "alidation time", "valuation took", "alidation took"))[:MOST]
        if (m := _INFERENCE.search(text[:600])) is not None
    ]  # fmt: skip
    ends = [m for m in (_CLOCK.search(t[:200]) for _, t in (*lines[:20], *lines[-20:])) if m] if len(told) > 1 else []  # fmt: skip
    if len(ends) < 2:
        return None
    at = [int(m[1]) * 3600 + int(m[2]) * 60 + int(m[3]) for m in ends]
    covered = max(at) - min(at)
    spent = sum(seconds for seconds, *_ in told)
    if covered <= 0 or min(s for s, *_ in told) < 60 or not SHARE <= spent / covered <= 1.2:
        return None
    share = min(1.0, spent / covered)
    words = (
        f"evaluation takes {median(s for s, *_ in told) / 60:.0f} min each time, {share:.0%} of the {covered / 60:.0f} min that the log covers: "
        "validation, not training, is slow, and the training GPUs idle meanwhile"
    )
    places = [told[0][1:], told[-1][1:]]
    return _make("evaluation_part", words, file, places, "training-stall", share, share)


def _read_rows(
    lines: Sequence[tuple[int, str]],
) -> tuple[list[dict[str, float]], list[tuple[int, str]]]:
    """Seconds by part of each step line that tells of two or more, and the line."""
    rows: list[dict[str, float]] = []
    places: list[tuple[int, str]] = []
    tried = 0
    for number, text in lines:
        if not any(marker in text for marker in MARKERS):
            continue
        tried += 1
        if tried > (MOST if rows else TRIED):
            break  # such lines come from the first step on
        parts = {}
        if len(text) <= MAX_LINE and len(_TIMED.findall(text)) >= 2:
            parts = _read_parts(text)
        if len(parts) >= 2:
            rows.append(parts)
            places.append((number, text))
    return rows, places


def _find_part(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    rows, places = _read_rows(lines)
    if len(rows) < LEAST:
        return ()
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            values[name].append(value)
    steady = {n: median(v) for n, v in values.items() if len(v) * 2 > len(rows)}
    whole = max((v for n, v in steady.items() if _WHOLE.search(n)), default=0.0)
    own = {n: v for n, v in steady.items() if not _WHOLE.search(n)}
    total = max(whole, sum(own.values()))
    if len(own) + (whole > 0) < 2 or not own or total <= 0:
        return ()
    name, value = max(own.items(), key=lambda one: one[1])
    page = next(((p, w) for pattern, p, w in _PAGES if pattern.search(name)), None)
    if page is None or _COMPUTE.search(name) or value < SHARE * total:
        return ()
    share = value / total
    words = f"'{name}' takes {value:g} of {total:g} s, {share:.0%} of every step: {page[1]}"
    shown = list(dict.fromkeys([places[0], places[-1]]))
    return (_make("step_part", words, file, shown, page[0], share, 0.9 * share),)


def _make(
    kind: str,
    title: str,
    file: str,
    places: Sequence[tuple[int, str]],
    page: str,
    share: float,
    weight: float,
) -> Finding:
    """A part of the time that explains slowness, where somebody asks for it."""
    return Finding.of_slowness(
        kind=f"metrics.{kind}",
        title=title,
        evidence=tuple(quote_line(file, n, t) for n, t in places),
        page=page,
        weight=round(weight, 3),
        facts={"share": round(share, 3)},
    )


def _read_parts(text: str) -> dict[str, float]:
    """Seconds by name of a line that names a step."""
    out: dict[str, float] = {}
    for found in _PART.finditer(text):
        value = float(found["value"]) / (1000.0 if found["unit"] == "ms" else 1.0)
        out.setdefault(found["name"].strip().lower(), value)
    return out
