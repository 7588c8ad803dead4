"""What happens between the epochs? Time lost from the last step of one to the first of the next.

Reads stamped lines with an epoch and a position in it (`[train: 41, 50 / 250]`, `Epoch: [41][ 50/250]`,
`Train: 41 [ 50/250`, `epoch 41 step 50/250`). Workers that are started anew each epoch
(`persistent_workers=False`) cost minutes that no step time shows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line
from firstfault_tools.log.kept import fold_digits
from firstfault_tools.metrics.series import MISSING
from firstfault_tools.metrics.sources.columns import read_stamp

GATE = ("rain", "poch", "POCH")
_ROW = expression(
    r"(?i)(?:epoch|train)[\s:\[=#]{1,4}(?P<epoch>\d{1,6})(?:/\d{1,6})?[\]\s,:|(>-]{1,6}(?:\[|iter\w*|step|batch|it)?[\s:\[]{0,3}(?P<at>\d{1,8})\s{0,2}(?:/|of)\s{0,2}(?P<of>\d{1,8})"
)
_STAMP = expression(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)")
_WORKERS = (
    "persistent_workers",
    "num_workers",
    "spawn_main",
    "popen_spawn_posix",
    "popen_fork",
    "worker process",
)
_OFF = expression(r"(?i)persistent_workers['\"]?\s*[:=]\s*['\"]?false")
_START = expression(r"spawn_main|popen_(?:spawn_posix|fork|forkserver)|_launch \(|dataloader\.py.{0,40}(?:__iter__|__init__|_get_iterator)|_get_iterator \(")  # fmt: skip
_OTHER = expression(r"(?i)\beval\w*|\bvalid\w*|\btest(?:ing)?\b")
_SAVE = expression(r"(?i)(?:checkpoint|model|state).{0,60}(?:saved|written|writing).{0,30}?\bin\s+(?P<s>\d+(?:\.\d+)?)\s?s")  # fmt: skip
TRIED = 400
LEAST_SECONDS, FACTOR, SHARE = 20.0, 3.0, 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One stamped line of a training step."""

    number: int
    text: str
    epoch: int
    at: int
    of: int
    time: float


def _read_rows(lines: Sequence[tuple[int, str]]) -> list[Row]:
    """Step lines that name their epoch and their time."""
    rows: list[Row] = []
    dull: set[bytes] = set()
    for index, (number, text) in enumerate(keep_marked(lines, GATE)[:50_000]):
        if index >= TRIED and not rows:
            break  # no step line names its epoch
        shape = fold_digits(text[:600])
        if shape in dull:
            continue
        found, stamp = _ROW.search(text[:600]), _STAMP.search(text[:200])
        if found is None or stamp is None:
            if len(dull) < TRIED:
                dull.add(shape)
            continue
        time = read_stamp(f"{stamp[1]} {stamp[2]}")
        if time != MISSING:
            rows.append(
                Row(number, text, int(found["epoch"]), int(found["at"]), int(found["of"]), time)
            )
    return rows


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Pauses at the borders of epochs that cost more than a tenth of the time."""
    rows = _read_rows(lines)
    if len(rows) < 6:
        return ()
    pace, borders, inside = [], [], 0.0
    for before, after in itertools.pairwise(rows):
        took = after.time - before.time
        if took < 0:
            continue
        if after.epoch == before.epoch and after.at > before.at:
            pace.append(took / (after.at - before.at))
            inside += took
        elif after.epoch == before.epoch + 1:
            borders.append((before, after, took))
    if len(pace) < 3 or len(borders) < 2:
        return ()
    usual = median(pace)
    lost = [took - usual * (after.at + before.of - before.at) for before, after, took in borders]
    pause = median(lost)
    each = pause * len(borders) / max(rows[-1].time - rows[0].time, 1.0)
    if pause < max(LEAST_SECONDS, FACTOR * usual) or each < SHARE:
        return ()
    return (_describe(lines, file, borders, pause, each),)


def _describe(
    lines: Sequence[tuple[int, str]],
    file: str,
    borders: Sequence[tuple[Row, Row, float]],
    pause: float,
    share: float,
) -> Finding:
    before, after, _ = borders[0]
    between = [(n, t) for n, t in lines if before.number < n < after.number]
    evaluated = _first_with(_OTHER, between)
    marked = keep_marked(lines, _WORKERS)
    off, start = _first_with(_OFF, marked, None), _first_with(_START, marked)
    known = off is not None or start is not None
    quoted = [(before.number, before.text), (after.number, after.text)]
    if known:
        why = "the DataLoader workers are torn down and started again for each epoch"
        why += " (persistent_workers=False)" if off is not None else ""
        quoted += [p for p in (off, start) if p is not None]
    elif evaluated is not None:
        why = "evaluation runs there"
        quoted.append(evaluated)
    else:
        why = "start of the DataLoader workers, evaluation or saving between the epochs"
    why += _say_saves(between, pause)
    return Finding(
        kind="metrics.epoch_pauses",
        title=f"about {pause:.0f} s pass between the last step of an epoch and the first of the next, {share:.0%} of all time, while steps inside an epoch are fast: {why}",
        level=Level.FAILURE if known and evaluated is None else Level.CONTEXT,
        category=Category.PERFORMANCE,
        confidence=Confidence.LIKELY if known else Confidence.POSSIBLE,
        evidence=tuple(quote_line(file, n, t) for n, t in quoted),
        facts={
            "pause_s": round(pause, 1),
            "cost_share": round(share, 3),
            "borders": len(borders),
            "explains": {"slow": round(share, 3) if evaluated is None else 0.2},
        },
    )


def _first_with(
    pattern: re.Pattern[str], lines: Sequence[tuple[int, str]], chars: int | None = 400
) -> tuple[int, str] | None:
    """The first line that holds the pattern in its first characters."""
    return next(((n, t) for n, t in lines if pattern.search(t[:chars])), None)


def _say_saves(between: Sequence[tuple[int, str]], pause: float) -> str:
    """Words for checkpoints that take a small part of the pause."""
    saves = [float(m["s"]) for _, t in between if (m := _SAVE.search(t[:400]))]
    if not saves or max(saves) >= 0.3 * pause:
        return ""
    return f"; the checkpoint takes only {max(saves):g} s of it"
