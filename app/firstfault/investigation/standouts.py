"""Which lines stand out before the first alarm? Rare lines that tell of a change or of trouble.

Asked where the log shows that ranks wait or that something ended, and nothing read says why. They are
quoted as what an engineer would look at next; they are no verdict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from firstfault.investigation.examination import Examination, choose_few
from firstfault_tools.causality.odd_ranks.last_words import NOISE
from firstfault_tools.causality.progress import read_progress
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding, Level
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

MAX_STANDOUTS = 3
MAX_LINES = 20_000
MOST_OFTEN = 2
"""A line of a shape that comes more often than this in the incident is ordinary there."""

SHAPE = expression(r"(?<![0-9a-f])[0-9a-f]*\d[0-9a-f]*|[\W_]+", re.IGNORECASE)
TELLS = expression(
    r"(?i)\b(?:warn\w*|error|fail\w*|restart\w*|reboot\w*|upgrad\w*|updat(?:ed|ing)|stopp\w+|kill\w*|evict\w*|drain\w*|"
    r"reset\w*|remov\w+|expir\w+|conflict\w*|duplicate\w*|mismatch\w*|differ\w*|unreachable|unhealthy|not ?ready|"
    r"timed? ?out|timeout|retry\w*|lost|down|flap\w*|reconnect\w*|disconnect\w*|denied|refused|throttl\w*|degraded|"
    r"corrupt\w*|missing|unable|cannot|could not|stale|lock(?:ed)?|busy|blocked|hung|slow|exceed\w*|full|unexpected\w*|"
    r"instead of|falling back|fallback|no longer|gave up|giving up|terminat\w+|exit(?:ed|ing)?|wait(?:ing)?)\b"
)
_SETTING = expression(r"\s*(?:\w+=|[\"'][\w.-]+[\"']: ).*,$")
"""A line of the arguments that a program prints at its start."""
ALARM = expression(r"Watchdog caught|ChildFailedError|Signal \d+ \(SIG")


def find_standouts(examination: Examination) -> list[Line]:
    """Rare telling lines up to the first alarm, the latest first; none that a finding quotes."""
    quoted = {(e.file, e.line) for f in examination.findings for e in f.evidence}
    alarms = _first_alarms(examination)
    shapes: Counter[str] = Counter()
    found: list[tuple[Line, str]] = []
    for digest in choose_few(examination.logs.digests):
        for number, text in _before_alarm(digest, alarms.get(digest.file)):
            shape = SHAPE.sub(" ", text)
            shapes[shape] += 1
            if shapes[shape] > MOST_OFTEN or (digest.file, number) in quoted:
                continue
            if _SETTING.match(text):
                continue
            if TELLS.search(text) and not NOISE.search(text) and not is_step(number, text):
                found.append((make_line(digest.file, number, text, digest.year), shape))
    rare = [line for line, shape in found if shapes[shape] <= MOST_OFTEN]
    timed = any(line.time is not None for line in rare)
    rare.sort(key=lambda line: line.time or 0.0 if timed else line.number, reverse=True)
    return rare[:MAX_STANDOUTS]


def _first_alarms(examination: Examination) -> dict[str, int]:
    """Line of the first symptom in every log."""
    first: dict[str, int] = {}
    for finding in examination.findings:
        if finding.level in (Level.SYMPTOM, Level.FAILURE, Level.CAUSE):
            for evidence in _lines_of(finding):
                first[evidence[0]] = min(first.get(evidence[0], evidence[1]), evidence[1])
    return first


def _lines_of(finding: Finding) -> Iterator[tuple[str, int]]:
    return ((e.file, e.line) for e in finding.evidence if e.line)


def _before_alarm(digest: FileDigest, alarm: int | None) -> Iterator[tuple[int, str]]:
    for number, text in digest.kept[:MAX_LINES]:
        if (alarm is not None and number >= alarm) or ALARM.search(text):
            return
        yield number, text


def is_step(number: int, text: str) -> bool:
    """The line counts a training step."""
    step = read_progress(number, text)
    return step is not None and step.training
