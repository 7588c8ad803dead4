"""Did a loss become NaN under a name that no step reader knows? Progress bars, hand-made loggers.

`avr_loss=nan`, `IDLoss=nan`, `loss_ctc=nan`: whatever is called a loss, was a number before and is none
in its last lines is broken. Evaluation losses and best values are left out: they may be infinite.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import may_hold
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.logs import Logs
from firstfault_tools.log.prefix import read_prefix

MOST_LINES, MOST_NAMES = 50_000, 64
LEAST = 2
_LOSS = expression(
    r"(?<![\w./-])(?P<name>[A-Za-z][\w./-]{0,40}[Ll]oss[\w./-]{0,24}|[Ll]oss[\w./-]{0,24}|LOSS|dist|ppl|perplexity|nll)['\"]?\s?[=:]\s?['\"]?(?:tensor\()?"
    r"(?P<value>[-+]?(?:nan|NaN|inf|\d[\d.]*(?:[eE][-+]?\d+)?))"
)
_MARKS = ("oss", "OSS", "dist=", "dist:", "ppl", "perplexity", "nll")
_NO_NUMBER = ("nan", "NaN", "inf")
_OTHER = expression(
    r"(?i)val|eval|test|best|min|scale|dev_|weight|coef|factor|ratio|aux_loss_coeff"
)
_PLACE = expression(
    r"(?i)(?:\b(?:step|iter(?:ation)?|batch|epoch)s?\b['\"]?[ =:\[]{1,3}\d+\]?[^,|]{0,2}){1,2}|\b\d+/\d+\b"
)


@dataclass(slots=True)
class Track:
    """One name: last finite value, first line without one since, and how many."""

    finite: str = ""
    good: tuple[int, str] | None = None
    bad: tuple[int, str] | None = None
    word: str = ""
    times: int = 0


def find_in_incident(incident: Any, findings: Sequence[Finding]) -> Iterable[Finding]:
    """A loss that is lost by its last line, where no reader of steps has said so already."""
    logs: Logs = incident
    if any(
        f.level in (Level.CAUSE, Level.FAILURE) and f.has(FindingRole.LOSS_LOST) and not f.survived
        for f in findings
    ):
        return ()
    for digest in logs.digests:
        lost = {name: t for name, t in read_tracks(digest).items() if t.times >= LEAST}
        if lost:
            return (_describe(digest.file, lost),)
    return ()


def _follow_losses(lines: Sequence[tuple[int, str]]) -> dict[tuple[int | None, str], Track]:
    found: dict[tuple[int | None, str], Track] = {}
    for number, text in lines:
        if len(text) > 8_000:
            continue
        rank = read_prefix(text)[0].rank
        for told in _LOSS.finditer(text):
            if _OTHER.search(told["name"]):
                continue
            key = rank, told["name"]
            if key not in found and len(found) >= MOST_NAMES:
                continue
            track = found.setdefault(key, Track())
            if told["value"].lstrip("+-").lower() in ("nan", "inf"):
                track.times += 1
                if track.bad is None:
                    track.bad, track.word = (number, text), told["value"]
            else:
                track.finite, track.good = told["value"], (number, text)
                track.bad, track.times = None, 0
    return found


def read_tracks(digest: FileDigest) -> dict[str, Track]:
    """Losses of one log by speaker and name, as their last lines leave them."""
    if not may_hold(digest.kept, _NO_NUMBER):
        return {}
    kept = digest.kept[:MOST_LINES]
    broken = [text for _, text in kept if "nan" in text or "NaN" in text or "inf" in text]
    if not any(mark in text for text in broken for mark in _MARKS):
        return {}
    lines = [line for line in kept if any(mark in line[1] for mark in _MARKS)]
    found = _follow_losses(lines)
    out: dict[str, Track] = {}
    # a head that is switched off prints NaN from the start beside losses that are well
    well = any(t.bad is None for t in found.values())
    for (_, name), track in found.items():
        if well and not track.finite:
            continue
        if track.bad is not None and (name not in out or _line(track) < _line(out[name])):
            out[name] = track
    return out


def _line(track: Track) -> int:
    return track.bad[0] if track.bad is not None else 0


def _describe(file: str, lost: dict[str, Track]) -> Finding:
    name, track = min(lost.items(), key=lambda item: _line(item[1]))
    number, text = track.bad or (0, "")
    place = _PLACE.search(text)
    where = f" at {' '.join(place[0].split()).strip(' ,|')}" if place is not None else ""
    others = [n for n in lost if n != name][:4]
    word = "infinite" if "inf" in track.word.lower() else "NaN"
    title = f"{name} became {word}{where}"
    if track.finite:
        title += f", {track.finite} just before"
    else:
        title += ", from its first line on"
    if others:
        title += f" (with it {', '.join(others)})"
    title += f", and stays so ({track.times} lines): the run diverged or overflowed (learning rate, data or precision)"
    quoted = [q for q in (track.good, track.bad) if q is not None]
    return Finding(
        kind="metrics.loss_not_finite",
        title=title,
        level=Level.CAUSE,
        category=Category.NUMERICAL,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(Evidence(file, n, t.strip()[:600]) for n, t in quoted),
        facts={"name": name, "before": track.finite, "starts_at": number},
    )
