"""Which other line begins where the numbers changed? What a log says from then on, and never before.

A curve tells when something changed and not why. The line that begins to come at that very place, again and again,
and that tells of trouble, is the first thing an engineer reads: a service that refuses, a cache that is flushed, a
kernel that falls back.
"""

from __future__ import annotations

from collections import Counter

from firstfault.investigation.examination import Examination
from firstfault.investigation.standouts import SHAPE, TELLS, is_step
from firstfault.investigation.verdict import Judgement, quote_first
from firstfault_tools.causality.odd_ranks.last_words import NOISE
from firstfault_tools.findings import Finding, Verdict
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

SEAM_LINES, MAX_LINES = 12, 20_000
"""Lines round the change within which the new line must begin."""

LEAST_TIMES, LEAST_BEFORE = 3, 5
"""Times that it comes from then on; lines before the change without which nothing is new."""


def name_onset(examination: Examination, judgement: Judgement) -> Judgement:
    """A verdict of numbers with the telling line that begins to come where they changed."""
    finding = judgement.finding
    if judgement.verdict not in (Verdict.FAULT, Verdict.WARNING) or finding is None:
        return judgement
    if not finding.kind.startswith("metrics.") or judgement.accounted:
        return judgement
    line = next(
        (x for d in examination.logs.digests if (x := _find_new(d, finding)) is not None), None
    )
    if line is None or finding.says(line.message[:30]):
        return judgement
    words = f"from there on the log says again and again: {quote_first([line])}"
    return judgement.tell_beside(finding, words, [line.evidence()])


def _find_new(digest: FileDigest, finding: Finding) -> Line | None:
    """The line of the shape that comes most often among those that begin at a line the finding quotes."""
    seams = [e.line for e in finding.evidence if e.file == digest.file and e.line]
    if not seams or min(seams) < LEAST_BEFORE:
        seams = seams[1:]
    first: dict[str, int] = {}
    times: Counter[str] = Counter()
    texts: dict[str, tuple[int, str]] = {}
    for number, text in digest.kept[:MAX_LINES]:
        if (
            len(text) > 2_000
            or NOISE.search(text)
            or not TELLS.search(text)
            or is_step(number, text)
        ):
            continue
        shape = SHAPE.sub(" ", text)[:160]
        times[shape] += 1
        if first.setdefault(shape, number) == number:
            texts[shape] = (number, text)
    near = [
        s
        for s, n in times.items()
        if n >= LEAST_TIMES
        and first[s] > LEAST_BEFORE
        and any(abs(first[s] - at) <= SEAM_LINES for at in seams)
    ]
    if not near:
        return None
    best = max(near, key=lambda s: times[s])
    return make_line(digest.file, *texts[best], digest.year)
