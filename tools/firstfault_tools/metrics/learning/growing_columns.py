"""Which quantity inside the model ran away before the numbers broke? Columns of a table beside the log.

People who look for a NaN or a rising loss write down what the loss does not show: attention logits, activations, router
logits, by layer and head. The one that grows without bound while its neighbours stay where they were is where the
run broke; the loss is only where it shows.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level, Strength, Together
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.logs import Logs

BESIDE = ("logit", "act", "absmax", "abs_max", "rms", "kurtosis", "entropy", "changed")
MOST_ROWS, LEAST_ROWS, ENDS = 20_000, 6, 3
RAN_AWAY, STAYED = 20.0, 3.0
"""Times its first level from which on a quantity ran away; below which its neighbours stayed where they were."""
LARGE = 100.0
FP16_MAX = 65504.0
FEW_CHANGED = 0.02
"""Share of the parameters that an update still changes, below which rounding swallows it."""

_INNER = expression(r"(?i)logit|(?:^|_)act(?:ivation)?s?(?:_|$)|abs_?max|max_?abs|(?:^|_)rms(?:_|$)|kurtosis|(?:^|_)qk(?:_|$)|hidden_(?:norm|max)")  # fmt: skip
_ATTENTION = expression(r"(?i)attn|attention|(?:^|_)qk")
_ENTROPY = expression(r"(?i)(?:attn|attention)\w*entropy")
_CHANGED = expression(
    r"(?i)(?:frac|share|ratio|fraction|percent|pct)\w*changed|changed\w*(?:frac|share|ratio|pct)"
)
_STEP = expression(r"(?i)(?:global_)?(?:step|iter(?:ation)?)s?")
_SUBJECT = expression(r"(?i)layer(?:_?id)?|head(?:_?id)?|block|expert|rank|gpu|stage|module|name")


@dataclass(frozen=True, slots=True)
class _Course:
    """One column of one subject by step: (line, step, value)."""

    name: str
    subject: str
    points: tuple[tuple[int, str, float], ...]

    @property
    def start(self) -> float:
        finite = [abs(v) for _, _, v in self.points if math.isfinite(v)]
        return median(finite[:ENDS])

    @property
    def top(self) -> tuple[int, str, float]:
        """The largest finite one of the last values."""
        finite = [p for p in self.points if math.isfinite(p[2])]
        return max(finite[-ENDS:], key=lambda p: abs(p[2]))

    @property
    def grew(self) -> float:
        return abs(self.top[2]) / max(self.start, 1e-9)


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Quantities that ran away in the tables that stand beside a log."""
    return tuple(f for d in incident.digests for f in judge_table(d.kept, d.file))


def judge_table(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The quantity that ran away while its neighbours stayed, and updates that change next to nothing."""
    courses = list(_read_courses(lines))
    texts = dict(islice(lines, MOST_ROWS)) if courses else {}
    found = (_find_runaway(courses, file, texts), _find_lost_updates(courses, file, texts))
    return tuple(f for f in found if f is not None)


def _read_courses(lines: Sequence[tuple[int, str]]) -> Iterator[_Course]:
    rows = ((n, t) for n, t in islice(lines, MOST_ROWS) if t.strip() and not t.startswith("#"))
    _, head = next(rows, (0, ""))
    names = _cells(head)
    step = next((i for i, n in enumerate(names) if _STEP.fullmatch(n)), None)
    wanted = [i for i, n in enumerate(names) if _is_judged(n)]
    if step is None or not wanted:
        return
    for (i, who), points in _read_points(rows, names, step, wanted).items():
        if sum(math.isfinite(v) for _, _, v in points) >= LEAST_ROWS:
            yield _Course(names[i], who, tuple(points))


def _is_judged(name: str) -> bool:
    """Whether a column of this name is one of those that this file is about."""
    return any(words.search(name) for words in (_INNER, _ENTROPY, _CHANGED))


def _read_points(
    rows: Iterable[tuple[int, str]], names: Sequence[str], step: int, wanted: Sequence[int]
) -> dict[tuple[int, str], list[tuple[int, str, float]]]:
    """(line, step, value) by column and subject; nothing where a row has other columns than the heading."""
    subjects = [i for i, n in enumerate(names) if _SUBJECT.fullmatch(n)]
    read: dict[tuple[int, str], list[tuple[int, str, float]]] = defaultdict(list)
    for number, text in rows:
        cells = _cells(text)
        if len(cells) != len(names):
            return {}
        who = ", ".join(f"{names[i]} {cells[i]}" for i in subjects)
        for i in wanted:
            with suppress(ValueError):
                read[i, who].append((number, cells[step], float(cells[i])))
    return read


def _cells(text: str) -> list[str]:
    separator = "\t" if "\t" in text else ","
    return [c.strip() for c in next(csv.reader([text[:4_000]], delimiter=separator), [])]


def _find_runaway(courses: Sequence[_Course], file: str, texts: dict[int, str]) -> Finding | None:
    inner = [c for c in courses if _INNER.search(c.name)]
    worst = max(inner, key=lambda c: c.grew, default=None)
    if worst is None or worst.grew < RAN_AWAY or abs(worst.top[2]) < LARGE:
        return None
    others = [c for c in inner if c is not worst and c.grew < STAYED]
    number, step, value = worst.top
    first = worst.points[0]
    beyond = any(math.isinf(v) for _, _, v in worst.points)
    limit = (
        f" and then inf (the largest number of fp16 is {FP16_MAX:g})"
        if beyond and abs(value) > FP16_MAX / 4
        else ""
    )
    where = f" of {worst.subject}" if worst.subject else ""
    name = f"{worst.name}{where}"
    explode = _ATTENTION.search(worst.name) is not None
    what = f"the attention logits explode: {name}" if explode else f"{name} runs away: it"
    beside = (
        f", while {len(others)} other columns or rows of its kind stay where they were"
        if others
        else ""
    )
    entropy = _tell_entropy(courses, worst.subject)
    return Finding(
        kind="metrics.inner_growth",
        title=f"{what} grew from {worst.start:.4g} (step {first[1]}) to {value:.4g} (step {step}){limit}{entropy}{beside}",
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        evidence=(
            replace(quote_line(file, first[0], texts.get(first[0], "")), usual=True),
            quote_line(file, number, texts.get(number, "")),
        ),
        facts={"explains": {"diverged": 0.9}, "survived": False},
        strength=Strength(Together.SERIES),
    )


def _tell_entropy(courses: Sequence[_Course], subject: str) -> str:
    own = next((c for c in courses if c.subject == subject and _ENTROPY.search(c.name)), None)
    if own is None or own.points[-1][2] > 0.1 * own.start:
        return ""
    return f" while its {own.name} fell from {own.start:.3g} to {own.points[-1][2]:.2g}"


def _find_lost_updates(
    courses: Sequence[_Course], file: str, texts: dict[int, str]
) -> Finding | None:
    for course in courses:
        end = abs(course.points[-1][2])
        if _CHANGED.search(course.name) and end <= FEW_CHANGED and end < course.start / 5:
            number, step, _ = course.points[-1]
            return Finding(
                kind="metrics.updates_lost",
                title=(
                    f"{course.name} fell from {course.start:.3g} to {end:.2g} at step {step}: nearly no parameter changes any more, because the "
                    "update is smaller than half the spacing of the numbers that the weights are kept in, and rounding swallows it"
                ),
                level=Level.CAUSE,
                category=Category.NUMERICAL,
                evidence=tuple(
                    quote_line(file, n, texts.get(n, "")) for n in (course.points[0][0], number)
                ),
                facts={"explains": {"unlearned": 0.9, "diverged": 0.6}, "survived": False},
                strength=Strength(Together.SERIES),
            )
    return None
