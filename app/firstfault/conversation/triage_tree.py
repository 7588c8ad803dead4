"""Running, learning, steady? The triage tree, walked one question at a time, or answered from the log.

The state is a fold over the messages, as in walk.py: what is told unasked is not asked again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.conversation.blocks import write_block
from firstfault.conversation.reply import Reply
from firstfault.conversation.run_answers import at_line
from firstfault.conversation.sources import Sources
from firstfault.conversation.telling import Telling
from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.investigation.knowledge import Knowledge
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.metrics.learning.loss_trend import Pace, read_trend
from firstfault_tools.metrics.series import StepSeries

TABLE = Path(__file__).with_name("triage_tree.yaml")
FIRST = "running"
TOLD_AT_ONCE = 2
"""Answers within one message from which on it walks the tree without being asked to."""
UNSTEADY = 0.2
"""Of the median step time by which a twentieth of the steps, or the second half, must be longer to be no stable pace."""
_YES = re.compile(
    r"(?i)^\W*(?:yes|yep|yeah|it does|they do|it did|it is|right|correct|ja|oui|si)\b"
)
_NO = re.compile(
    r"(?i)^\W*(?:no|nope|not|never|it does(?: not|n.?t)|it did(?: not|n.?t)|nein|non)\b"
)
FALLS = (Pace.ON_CURVE, Pace.SLOW, Pace.LEVELS_OFF)


@dataclass(frozen=True, slots=True)
class TreeQuestion:
    """One question, how its answers are told, and where they lead."""

    ask: str
    leads: Mapping[bool, str]
    words: Mapping[bool, re.Pattern[str]]

    def read(self, text: str) -> bool | None:
        """The answer that a text tells unasked; a denial before an assertion, since it holds its words."""
        return next((told for told in (False, True) if self.words[told].search(text)), None)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk stands: the questions answered, and the question or leaf it came to."""

    answers: tuple[tuple[str, bool], ...]
    at: str

    @property
    def is_leaf(self) -> bool:
        return self.at not in load_tree()[0]


@cache
def load_tree() -> tuple[
    Mapping[str, TreeQuestion], Mapping[str, Mapping[str, str]], re.Pattern[str]
]:
    """Questions, leaves, and the words with which one begins."""
    data: Mapping[str, Any] = read_yaml(TABLE.read_text(encoding="utf-8"))
    questions = {
        name: TreeQuestion(
            row["ask"],
            {True: row["if_yes"], False: row["if_no"]},
            {
                True: re.compile(row["yes_words"], re.IGNORECASE),
                False: re.compile(row["no_words"], re.IGNORECASE),
            },
        )
        for name, row in data["questions"].items()
    }
    return questions, data["leaves"], re.compile("|".join(data["begin"]), re.IGNORECASE)


def walk_tree(messages: Sequence[str]) -> Place | None:
    """Where the messages lead; None where no walk was begun, or the last message is no part of it."""
    place: Place | None = None
    for text in messages:
        told = _told(text)
        if place is None or place.is_leaf:
            begun = load_tree()[2].search(text) is not None or len(told) >= TOLD_AT_ONCE
            place = _go({}, told) if begun else None
            continue
        known = dict(place.answers)
        plain = True if _YES.match(text) else False if _NO.match(text) else None
        if plain is not None and place.at not in told:
            told[place.at] = plain
        moved = _go(known, told)
        place = moved if moved != place else None
    return place


def _told(text: str) -> dict[str, bool]:
    found = {name: q.read(text) for name, q in load_tree()[0].items()}
    return {name: answer for name, answer in found.items() if answer is not None}


def _go(known: Mapping[str, bool], told: Mapping[str, bool]) -> Place:
    """From the root along what is known. A loss or pace that is told means that steps come."""
    answers = {**known, **told}
    if FIRST not in answers and {"loss", "pace"} & answers.keys():
        answers[FIRST] = True
    questions, path, at = load_tree()[0], [], FIRST
    while at in questions and at in answers:
        path.append((at, answers[at]))
        at = questions[at].leads[answers[at]]
    return Place(tuple(path), at)


def reply_to_walk(place: Place, knowledge: Knowledge, sources: Sources) -> Reply:
    """The next question with its answers, or the leaf with its command and page."""
    questions, leaves, _ = load_tree()
    trail = " ".join(f"{questions[name].ask} {'Yes' if told else 'No'}." for name, told in place.answers)  # fmt: skip
    if not place.is_leaf:
        ask = questions[place.at].ask
        return Reply(f"{trail} {ask}".strip(), "triage.question", ("Yes", "No"))
    return Reply(f"{_say_leaf(leaves[place.at], knowledge, sources)}\n\nBy the tree: {trail}", "triage.leaf", ("What should I collect?",))  # fmt: skip


def _say_leaf(leaf: Mapping[str, str], knowledge: Knowledge, sources: Sources) -> str:
    page = knowledge.pages.get(leaf["page"])
    mark = ""
    if page is not None:
        mark = " " + sources.add(Citation(0, CitationKind.PAGE, page.summary, page=page.id, heading="Summary", url=page.url))  # fmt: skip
    return f"{leaf['say']}{mark}.\n\n{write_block(leaf['command'])}"


# ---- from a log


def tell_tree(t: Telling) -> str:
    """The tree answered by the evidence, each answer with its lines; what no line tells stays a question."""
    answers, shown = _read_log(t)
    place = _go({}, answers)
    questions, leaves, _ = load_tree()
    rows = [f"- {questions[n].ask} {'Yes' if told else 'No'}: {shown[n]}" for n, told in place.answers if n in shown]  # fmt: skip
    if place.is_leaf:
        head = _say_leaf(leaves[place.at], t.question.knowledge, t.sources)
        if place.at == "crash":
            head = f"It is a crash: {t.cause} {t.main}."
    else:
        head = f"What was read does not tell: {questions[place.at].ask}"
    return head + "\n\nBy the tree:\n\n" + "\n".join(rows) if rows else head


def _read_log(t: Telling) -> tuple[dict[str, bool], dict[str, str]]:
    d = t.diagnosis
    series = next(((f, s) for f, s in t.record.artefacts.steps.items() if len(s) > 1), None)
    goes_on = d.category in (Category.NUMERICAL, Category.PERFORMANCE)
    answers: dict[str, bool] = {}
    shown: dict[str, str] = {}
    if d.verdict is Verdict.FAULT and not goes_on:
        answers["running"], shown["running"] = False, f"{t.cause} {t.main}"
    elif series is not None:
        file, steps = series
        answers["running"] = True
        shown["running"] = f"steps stand up to the last line, {_at(t, file, steps, len(steps) - 1)}"
    answers["started"] = series is not None
    shown["started"] = (
        f"the first is at {_at(t, *series, 0)}" if series else "no line of a step was read"
    )
    if series is not None:
        _read_loss(t, *series, answers, shown)
        _read_pace(t, *series, answers, shown)
    return answers, shown


def _at(t: Telling, file: str, series: StepSeries, row: int) -> str:
    line = int(series.line[row])
    return at_line(t, file, line, t.record.artefacts.text_of(file, line))


def _read_loss(
    t: Telling, file: str, series: StepSeries, answers: dict[str, bool], shown: dict[str, str]
) -> None:
    trend = read_trend(series)
    if trend is None:
        return
    lost = t.diagnosis.verdict is Verdict.FAULT and t.diagnosis.category is Category.NUMERICAL
    answers["loss"] = trend.pace in FALLS and not lost
    ends = f"{trend.first:.4g} at {_at(t, file, series, trend.first_row)} to {trend.last:.4g} at {_at(t, file, series, trend.last_row)}"
    shown["loss"] = f"{t.cause} {t.main}" if lost else f"it {trend.pace.value}, from {ends}"
    answers["ever"] = trend.whole_per_doubling > 0.01 * abs(trend.last)
    shown["ever"] = f"over all by {trend.whole_per_doubling:.3g} with each doubling of the steps"


def _read_pace(
    t: Telling, file: str, series: StepSeries, answers: dict[str, bool], shown: dict[str, str]
) -> None:
    import numpy as np

    rows = series.rows_with("step_time_ms")
    times = series.values("step_time_ms")[rows]
    if len(times) < 8:
        return
    usual, slow = float(np.median(times)), float(np.quantile(times, 0.95))
    late = float(np.median(times[len(times) // 2 :])) / float(np.median(times[: len(times) // 2]))
    answers["pace"] = slow <= (1 + UNSTEADY) * usual and late <= 1 + UNSTEADY
    slowest = int(rows[int(np.argmax(times))])
    shown["pace"] = (
        f"{usual:,.0f} ms in the middle, {slow:,.0f} for the slowest twentieth, second half {late:.2f} times the first; longest at "
        f"{_at(t, file, series, slowest)}"
    )
