"""How did the run end? As planned, badly, or not at all in what was read.

A run that ended as planned got over every warning before; a run that was killed is never healthy,
even if its steps went on as before until the last line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from firstfault_tools.causality.progress import SURVIVED_STEPS, ProgressReader
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Confidence, Finding, Level
from firstfault_tools.log.digest import FileDigest, Line, Mark
from firstfault_tools.log.scan import make_line

TAIL_LINES = 400
PAGE = "exit-codes"
_WORDS = (
    "illed", "erminated", "Hangup", "borted", "us error", "egmentation", "exit", "Failed with result",
    "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_ME", "CANCELLED", "PREEMPTED", "signal", "disconnect", "by remote host",
    "finished", "ended", "completed", "done",
)  # fmt: skip
_BAD = expression(
    r"^(?:[\w.\[\]/:-]+ ){0,3}(?:Killed|Terminated|Hangup|Aborted|Bus error|Segmentation fault)(?: \(core dumped\))?\s*$|"
    r": line \d+:\s+\d+ (?:Killed|Terminated|Aborted|Hangup|Segmentation fault|Bus error)|"
    r"oomd\S*: .{0,40}[Kk]illed|oomd killed|"
    r"Main process exited, code=(?:killed|dumped|exited), status=(?!0\b)\w+|Failed with result '(?!success)|"
    r"\b[Ee]xit(?:s|ed)?(?: with)?(?: exit| return)? (?:code|status)(?: of [\w.-]+)?[ :=']+-?[1-9]\d{0,3}\b|"
    r"client_loop: send disconnect|^Connection to \S+ closed by remote host|"
    r"\b(?:job|run|task|workflow|pod|attempt|allocation|training)\b[^\n]{0,60}\b(?:finished|ended|completed|done|terminated)\b[^\n]{0,40}"
    r"(?:\((?:[Ff]ailed|[Cc]ancell?ed|[Pp]reempted|[Tt]imed? ?[Oo]ut|[Kk]illed|[Ee]rror)\)|"
    r"\b(?:status|state|result)[=:] ?'?(?:[Pp]reempted|[Ff]ailed|[Cc]ancell?ed|[Kk]illed|[Tt]imeout|[Ee]rror)|\bexit_code[=:] ?-?[1-9])|"
    r"non-zero exit (?:code|status)|exited on signal \d|died with <Signals\.|"
    r"\b(?:FAILED|TIMEOUT|NODE_FAIL|OUT_OF_ME\w*|CANCELLED(?: by \d+)?|PREEMPTED)\s+\d+:\d+"
)

_STATE = expression(r"\b(?:PREEMPTED|REQUEUED|NODE_FAIL|TIMEOUT|CANCELLED|FAILED)\b")
_AGAIN = expression(r"\b(?:RUNNING|COMPLETED\s+0:0|COMPLETING)\b")
"""States of a job in a table of the scheduler, before and after it was requeued."""


@dataclass(frozen=True, slots=True)
class BadEnd:
    """A line that tells of an end that nobody planned, and the last step before it."""

    line: Line
    step: int | None


def find_bad_end(
    digests: Iterable[FileDigest], progress: Mapping[str, ProgressReader]
) -> BadEnd | None:
    """The first line after the last step that tells of a bad end, or None."""
    for digest in digests:
        reader = progress[digest.file]
        step = reader.last_training()
        finish = reader.finished_at()
        floor = max(step.number if step is not None else 0, finish or 0)
        for line in _bad_lines(digest, floor):
            if (
                step is None
                and line.time is not None
                and _goes_on_after(progress.values(), line.time)
            ):
                continue
            if _is_superseded(digest, line):
                continue
            return BadEnd(line, step.counter if step is not None else None)
    return None


def describe_end(end: BadEnd | None) -> Finding | None:
    """Finding about an end that no other line explains; the weakest of all symptoms."""
    if end is None:
        return None
    said = " ".join(end.line.message.split())[:160]
    after = f" after step {end.step}" if end.step is not None else ""
    return Finding(
        kind="run.ended",
        title=f"the run did not end as planned{after}: «{said}» is all that is said of it",
        level=Level.SYMPTOM,
        confidence=Confidence.POSSIBLE,
        evidence=(end.line.evidence(),),
        host=end.line.place.host,
        time=end.line.time,
        page=PAGE,
        facts={"step": end.step, "survived": False},
    )


def _bad_lines(digest: FileDigest, floor: int) -> Iterator[Line]:
    wanted = set(digest.marked.get(Mark.EXIT, ())[-TAIL_LINES:])
    low = max(0, len(digest.kept) - TAIL_LINES)
    rows = digest.kept[low:]
    tail = {number for number, _ in rows}
    rows += [(n, text) for n in wanted - tail if (text := digest.text_of(n)) is not None]
    for number, text in sorted(rows):
        if number <= floor or len(text) > 2000 or not any(w in text for w in _WORDS):
            continue
        line = make_line(digest.file, number, text, digest.year)
        if _BAD.search(text) or _BAD.search(line.message):
            yield line


def _is_superseded(digest: FileDigest, line: Line) -> bool:
    """A later row of the same job says that it runs again or came to its end: it was requeued."""
    job = line.text.split(maxsplit=1)[0] if line.text.strip() else ""
    if not job[:1].isdigit() or not _STATE.search(line.text):
        return False
    at = digest.position(line.number)
    return any(
        text.split(maxsplit=1)[:1] == [job] and _AGAIN.search(text)
        for _, text in digest.kept[at + 1 : at + 1 + TAIL_LINES]
    )


def _goes_on_after(readers: Iterable[ProgressReader], time: float) -> bool:
    """Steps in some log follow `time`: what another log tells of then was not the end of the run."""
    return any(reader.steps_after(time) >= SURVIVED_STEPS for reader in readers)
