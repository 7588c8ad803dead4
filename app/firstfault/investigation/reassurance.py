"""Which odd but harmless thing is asked about, and why is it harmless? Only for runs without a fault.

"Is this a problem?" is answered by the mechanism, not by "no failure was found". What a question may be
about and what the log must show for it stands in `reassurance.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from firstfault.investigation.complaint import asks_pace
from firstfault.investigation.examination import Examination
from firstfault.investigation.health import OF_CLASS
from firstfault.investigation.verdict import Judgement
from firstfault.investigation.vetoes import read_statement
from firstfault_tools.averages import median
from firstfault_tools.expressions import expression
from firstfault_tools.findings import (
    Category,
    Complaint,
    Confidence,
    Evidence,
    Finding,
    Level,
    Verdict,
)
from firstfault_tools.log.digest import FileDigest

MAX_LINES = 20_000
MAX_CHARS = 2_000
LEAST_VALUES = 4
LEAST_SHARED = 2
LEAST_PAUSES = 2
MOST_MEASURED = 2
LEAST_QUOTED, LEAST_STEPS = 3, 3
_WARNS = expression(r"(?i)warn|\[W\d|^W\d{4}|notice|deprecat|ignor")
_WORD = expression(r"[A-Za-z_][\w.]{3,}")
_NAME = expression(r"\b(?:[A-Z]?[a-z]+(?:[A-Z][a-z]+)+|[A-Za-z]+(?:_[A-Za-z]+)+)\b")
_THIS_WARNING = expression(r"(?i)\b(?:this|the|that) (?:user ?)?warning\b")
_RHYTHM = expression(r"(?i)\bevery (\d{2,7}) (?:training )?(?:iterations?|steps?|iters?)\b")
_PAUSE = expression(
    r"(?i)\b(?:validation loss at|running evaluation at|sav(?:ing|ed) checkpoint at|evaluat\w+ at)\b[^\d\n]{0,30}\b(?:iteration|step)s? +(\d+)\b"
)
_COMMON = frozenset(
    {
        "this", "that", "what", "does", "have", "with", "from", "will", "there", "warning", "error",
        "problem", "wrong", "normal", "training", "train", "loss", "step", "steps", "rank", "should", "worry", "need", "mean", "harmless",
    }
)  # fmt: skip


def reassure(examination: Examination, judgement: Judgement, question: str) -> Judgement | None:
    """Healthy, with the reason for what is asked about; None where nothing of the kind is known."""
    if not judgement.may_be_calm or not question:
        return None
    found = _planned_pause(examination, question) or _known_oddity(examination, question)
    if found is None:
        return None
    return Judgement(Verdict.HEALTHY, found, Confidence.LIKELY)


def find_measured(examination: Examination, question: str, lead: Finding | None) -> Finding | None:
    """The judged curves of the very quantities that are complained of, which are fine; then the one that leads."""
    complaints = [*read_statement(question).complaints]
    if asks_pace(question):
        complaints.append(Complaint.SLOW)
    judged = [f for f in examination.chain.benign if f.kind.startswith("metrics.")]
    found = [next((f for f in judged if f.category in OF_CLASS[c]), None) for c in complaints]
    told = [f for f in (*found, lead) if f is not None and f.kind.startswith("metrics.")]
    titles = list(dict.fromkeys(f.title.rstrip(".") for f in told))[:MOST_MEASURED]
    return replace(told[0], title="; ".join(titles)) if told else None


def find_asked(examination: Examination, question: str) -> Finding | None:
    """The harmless, outlived or noted finding whose line shares most words with the question."""
    words = {w.lower().strip("._") for w in _WORD.findall(question[:2000])} - _COMMON
    names = {w.lower() for w in _NAME.findall(question[:2000])}
    chain = examination.chain
    best: Finding | None = None
    most = 0
    for finding in (*chain.benign, *chain.survived, *chain.context):
        text = " ".join([finding.title, *(e.text[:MAX_CHARS] for e in finding.evidence[:2])])
        told = {w.lower().strip("._") for w in _WORD.findall(text)}
        # a name such as `find_unused_parameters` or `FailedScheduling` is met by chance by no other line
        shared = sum(2 if w in names else 1 for w in words & told)
        if shared and finding.category is Category.HARDWARE:
            # what says itself that it was corrected answers more than that something was logged
            shared += "corrected" in told
        # what a machine reports is told in few lines, and no log of a run says it by chance
        least = 1 if finding.category is Category.HARDWARE else LEAST_SHARED
        if shared > most and shared >= least and finding.evidence:
            best, most = finding, shared
    return best


def find_quoted_warning(examination: Examination, question: str) -> Finding | None:
    """The warning whose words the question repeats, where the steps went on after it."""
    words = {w.lower().strip("._") for w in _WORD.findall(question[:2000])} - _COMMON
    best: tuple[int, FileDigest, int, str] | None = None
    for digest in examination.logs.digests:
        for number, text in _lines(digest):
            if _WARNS.search(text) is None:
                continue
            told = {w.lower().strip("._") for w in _WORD.findall(text)}
            shared = len(words & told)
            if shared >= LEAST_QUOTED and (best is None or shared > best[0]):
                best = shared, digest, number, text
    if best is None and _THIS_WARNING.search(question[:2000]):
        best = _only_warning(examination)
    if best is None:
        return None
    _, digest, number, text = best
    after = list(islice((p for p in examination.logs.progress[digest.file].after(number) if p.training), 4))  # fmt: skip
    if len(after) < LEAST_STEPS:
        return None
    said = " ".join(text.split())
    said = said.partition("Warning: ")[2] or said
    return Finding(
        kind="question.warning",
        title=f"the line that is asked about is only a warning, no failure («{said[:140]}»): the steps go on after it as before, so it is harmless for this run",
        level=Level.BENIGN,
        category=Category.ENVIRONMENT,
        evidence=(Evidence(digest.file, number, text.strip()[:600]),),
    )


def _only_warning(examination: Examination) -> tuple[int, FileDigest, int, str] | None:
    """The one warning of all logs, where "this warning" can be no other."""
    told = [
        (0, d, n, t) for d in examination.logs.digests for n, t in _lines(d) if "Warning: " in t
    ]
    return told[0] if len({t.partition("Warning: ")[2] for _, _, _, t in told}) == 1 else None


def _known_oddity(examination: Examination, question: str) -> Finding | None:
    table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    for entry in table["entries"]:
        if not re.search(entry["asked"], question[:2000], re.IGNORECASE):
            continue
        for digest in examination.logs.digests:
            found = _match(entry, digest, examination)
            if found is not None:
                return found
    return None


def _lines(digest: FileDigest) -> Iterator[tuple[int, str]]:
    for number, text in islice(digest.kept, MAX_LINES):
        yield number, text[:MAX_CHARS]


def _match(
    entry: Mapping[str, Any], digest: FileDigest, examination: Examination
) -> Finding | None:
    pattern = expression(entry["line"])
    hits = [(n, t, m) for n, t in _lines(digest) if (m := pattern.search(t)) is not None]
    if not hits:
        return None
    for key, wanted in (("without", False), ("and", True)):
        if key in entry:
            other = expression(entry[key])
            if any(other.search(t) for _, t in _lines(digest)) is not wanted:
                return None
    finish = examination.logs.progress[digest.file].finished_at()
    if entry.get("ended") and finish is None:
        return None
    if entry.get("after_end") and (finish is None or hits[0][0] < finish):
        return None
    words: dict[str, str] = {}
    if "value" in pattern.groupindex:
        values = [float(m["value"].rstrip(".")) for _, _, m in hits]
        if not _holds(entry, values):
            return None
        words = {
            "first": f"{values[0]:.4g}", "last": f"{values[-1]:.4g}", "least": f"{min(values):.3g}",
            "most": f"{max(values):.3g}", "middle": f"{median(values[1:]):.4g}",
        }  # fmt: skip
    ends = dict.fromkeys([hits[0][:2], hits[-1][:2]])
    return Finding(
        kind=f"question.{entry['id']}",
        title=entry["says"].format(**words),
        level=Level.BENIGN,
        category=Category(entry["category"]),
        evidence=tuple(Evidence(digest.file, n, t.strip()[:600]) for n, t in ends),
    )


def _holds(entry: Mapping[str, Any], values: Sequence[float]) -> bool:
    """Whether the numbers in the lines behave as the harmless case does."""
    if len(values) < LEAST_VALUES:
        return False
    first, last = values[0], values[-1]
    if "falls" in entry and not last < entry["falls"] * first:
        return False
    if "never_rises" in entry and last > (1 + entry["never_rises"]) * min(values):
        return False
    if entry.get("starts_highest") and max(values[len(values) // 2 :]) > first / 2:
        return False
    if "below" in entry and max(values) > entry["below"]:
        return False
    if "settles" in entry:
        middle = median(values[1:])
        spread = max(abs(v - middle) for v in values[1:])
        return bool(first > (1 + entry["settles"]) * middle and spread <= entry["settles"] * middle)
    return True


def _planned_pause(examination: Examination, question: str) -> Finding | None:
    """A pause at every n-th step where the log shows an evaluation or a save at just these steps."""
    asked = _RHYTHM.search(question[:2000])
    if asked is None or int(asked[1]) == 0:
        return None
    every = int(asked[1])
    for digest in examination.logs.digests:
        found = [(n, t, int(m[1])) for n, t in _lines(digest) if (m := _PAUSE.search(t))]
        due = [(n, t, step) for n, t, step in found if step % every == 0]
        if len({step for _, _, step in due}) < LEAST_PAUSES:
            continue
        return Finding(
            kind="question.planned-pause",
            title=(
                f"the pause every {every} steps is the evaluation or checkpoint that the log shows at just these "
                f"steps ({due[0][2]} and {due[-1][2]}): no training step runs on the GPUs meanwhile, and the "
                "steps go on after it; planned, no hang"
            ),
            level=Level.BENIGN,
            category=Category.PERFORMANCE,
            evidence=tuple(Evidence(digest.file, n, t.strip()[:600]) for n, t, _ in (due[0], due[-1])),
        )  # fmt: skip
    return None
