"""Which lines show work going on? Steps, progress bars and counters, with rank and place.

An error after which the steps go on did not stop the run; a rank that still counts up while the
others wait is busy, not dead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

_HINT = re.compile(r"(?i)iter|step|epoch|%\s?\||loss|\d+/\d+|batch")
_STEP = re.compile(
    r"(?i)(?:^|[\s\[{'\"(|:,=])"
    r"(?:global[_ ]?step|iteration|iter|steps?|train_step|update|batch(?:_idx| idx)?)['\"]?\s{0,9}[:=#]?\s{0,9}\[?\s{0,9}(?P<step>\d{1,9})(?![\d.]*\s?(?:s|ms|%|GiB|MiB|GB|MB)\b)"
)
_BAR = re.compile(
    r"(?P<percent>\d{1,3})%\s?\|[^|]{0,200}\|\s*(?P<done>[\d.]+[kMG]?)/(?P<total>[\d.]+[kMG]?)\s*\[(?P<elapsed>[\d:]+)<(?P<left>[\d:?]+(?: days?, [\d:]+)?)"
)
_COUNT = re.compile(r"(?<![\w/.:])(?P<done>\d{1,12})\s?/\s?(?P<total>\d{1,12})(?![\w/:.])")
_DICT = re.compile(r"^\s*\{['\"](?:loss|train_loss|train/loss|epoch|step|eval_loss)['\"]\s*:")
_METRIC = re.compile(r"(?i)\b(?:lm |train[_ ]?|total_?)?loss['\"]?\s*[:= ]\s*[-\d.]+")


@dataclass(frozen=True, slots=True)
class Progress:
    """One line that shows work: its counter where it has one, and the bar's times in seconds."""

    line: Line
    counter: int | None
    total: int | None = None
    training: bool = False
    elapsed_s: int | None = None
    left_s: int | None = None


def read_progress(digest: FileDigest) -> tuple[Progress, ...]:
    """Progress lines of one log, in order."""
    out = []
    for number, text in digest.kept:
        if len(text) > 4000 or not _HINT.search(text):
            continue
        found = _read_text(digest, number, text)
        if found is not None:
            out.append(found)
    return tuple(out)


def _read_text(digest: FileDigest, number: int, text: str) -> Progress | None:
    if "ProcessGroup" in text and "%|" not in text:
        return None
    bar = _BAR.search(text)
    if bar is not None:
        return Progress(
            make_line(digest.file, number, text, digest.year), _number(bar["done"]),
            _number(bar["total"]), True, _clock(bar["elapsed"]), _clock(bar["left"]),
        )  # fmt: skip
    training = _METRIC.search(text) is not None
    step = _STEP.search(text)
    if step is not None and (training or "%" in text or "/" in text):
        return Progress(
            make_line(digest.file, number, text, digest.year), int(step["step"]), None, training
        )
    if training and (_DICT.match(text) or step is not None):
        return Progress(make_line(digest.file, number, text, digest.year), None, None, True)
    count = _COUNT.search(text)
    if count is not None and int(count["total"]) > 0 and int(count["done"]) <= int(count["total"]):
        return Progress(
            make_line(digest.file, number, text, digest.year),
            int(count["done"]), int(count["total"]), False,
        )  # fmt: skip
    return None


def _number(text: str) -> int | None:
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1:], 1.0)
    try:
        return int(float(text.rstrip("kMG")) * scale)
    except ValueError:
        return None


def _clock(text: str) -> int | None:
    days = 0
    if " day" in text:
        head, _, text = text.partition(", ")
        days = int(head.split()[0].split(":")[0])
    parts = text.split(":")
    if not all(p.isdigit() for p in parts) or len(parts) > 3:
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + days * 86400


def steps_after(progress: Sequence[Progress], number: int) -> int:
    """How many further training steps were finished after line `number` of the same file.

    Counts distinct counters above the highest one before; lines without a counter count as one each.
    """
    before = [p.counter for p in progress if p.line.number <= number and p.training and p.counter]
    highest = max(before, default=-1)
    later = [p for p in progress if p.line.number > number and p.training]
    counted = {p.counter for p in later if p.counter is not None and p.counter > highest}
    uncounted = sum(1 for p in later if p.counter is None)
    return max(len(counted), uncounted)
