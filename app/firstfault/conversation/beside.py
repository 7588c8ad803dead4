"""What does a question name beside the verdict: another finding that answers it, or trouble that only follows from the fault?"""

from __future__ import annotations

import re

from firstfault.conversation.named_events import relate, say_relation
from firstfault.conversation.telling import Telling
from firstfault.conversation.topics import topics_in
from firstfault.conversation.words import plain_words
from firstfault.investigation.diagnosis import Hypothesis
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Verdict

_IS_ERROR = expression(
    r"(?i)\bwarn\b|error|exception|fail|fatal|abort|timed out|time ?out\b|watchdog caught|status=\d"
)
_SETTING = expression(r"\b\w+=\S+")
LEAST_AHEAD, HALF = 2, 0.5
"""Words of the question that another finding must hold more than the verdict does, and the share of them where the verdict has none."""


def find_nearer(t: Telling) -> Hypothesis | None:
    """The weaker explanation that holds clearly more of the question's words than the verdict; None where none does."""
    hypotheses = t.diagnosis.hypotheses
    if t.diagnosis.verdict is not Verdict.FAULT or len(hypotheses) < 2:
        return None
    words = set(tokenize(t.asked.text)) - plain_words()

    def held(text: str) -> int:
        return len(words & set(tokenize(text)))

    best = max(hypotheses[1:], key=lambda h: held(h.root_cause))
    shared, own = held(best.root_cause), held(t.diagnosis.root_cause)
    most = not own and words and shared >= HALF * len(words)
    return best if shared >= own + LEAST_AHEAD or most else None


def say_nearer(t: Telling) -> str:
    """The finding that answers a why better than the verdict does, with the verdict behind it; '' where none does."""
    found = find_nearer(t)
    if found is None:
        return ""
    marks = t.sources.marks(found.for_, t.diagnosis)
    return (
        f"Because of this ({found.confidence.value}): {found.root_cause} {marks}.\n\n"
        f"The verdict of the whole run is: {t.cause} {t.main}."
    )


def say_consequence(t: Telling) -> str:
    """Of a part that the question suspects beside its why: that its trouble came after the fault and follows from it."""
    d, out = t.diagnosis, []
    if d.verdict is not Verdict.FAULT:
        return ""
    for topic in topics_in(t.asked.text):
        if d.category in topic.categories and topic.word.search(d.root_cause):
            continue
        words = [m[0] for m in topic.word.finditer(t.asked.text)]
        word = words[-1] if words else topic.id
        own = expression(rf"(?i)(?<![a-z]){re.escape(word)}(?![a-z])")
        seen = [x for x in t.evidence.lines if topic.seen.search(x.text) or own.search(x.text)]  # fmt: skip
        looks = [
            relate(t, t.evidence, x) for x in seen if _IS_ERROR.search(_SETTING.sub("", x.text))
        ]
        after = [r for r in looks if not r.is_fault and r.seconds is not None and r.seconds >= 1]
        if not after or any((r.seconds or 0.0) <= -1 or r.is_fault for r in looks):
            continue
        count = f"{len(after)} lines of trouble" if len(after) > 1 else "line of trouble"
        out.append(f"The {count} with {word} are a consequence, not the cause: {say_relation(t, after[0])}, and none comes before it.")  # fmt: skip
    return " ".join(out[:2])


def say_last_sign(t: Telling) -> str:
    """When the rank at fault was last heard of, where that is before the line that decides; '' where it is not known."""
    last = t.record.last_sign
    if last is None or last.time is None or t.record.fault_time is None:
        return ""
    from firstfault.conversation.run_answers import at_line, clock

    mark = at_line(t, last.file, last.line, last.text)
    return f" It stopped before that line: its last own words are of {clock(last.time)} UTC ({mark}): `{last.text.strip()[:200]}`."


_MARKS_OF_HARDWARE = expression(
    r"(?i)\bserial(?: number)?\b[^\n]{0,12}\d{6}|GPU-[0-9a-f]{8}-|\bXid\b|\bAER\b|\breboot required\b|severity=\w+"
)
MOST_HARDWARE_LINES = 10


def say_hardware_lines(t: Telling) -> list[str]:
    """Lines of the host at fault that name the part: serial number, UUID, Xids, earlier errors of its link; [] for other faults."""
    d, first = t.diagnosis, t.diagnosis.first_line
    if d.category is not Category.HARDWARE or not t.host:
        return []
    own = [x for x in t.evidence.lines if t.host in x.text and _MARKS_OF_HARDWARE.search(x.text)]
    shown = [x for x in own if first is None or (x.file, x.number) != (first.file, first.line)]
    return [f"Also of {t.host}: {x.file}:{x.number}: {x.text.strip()[:200]}" for x in shown[:MOST_HARDWARE_LINES]]  # fmt: skip
