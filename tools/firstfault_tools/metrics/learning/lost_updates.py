"""Do the updates still change the weights? What a run itself counted, and the precision that swallows the rest.

A program that counts how many elements an optimizer step changed says so in a line or a column. Next to none changed
means that the update is below the spacing of the numbers the weights are kept in: 16-bit weights without an fp32 copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.logs import Logs
from firstfault_tools.metrics.learning.growing_columns import FEW_CHANGED

BESIDE = ("changed", "kind:metrics.updates_lost")
MOST_LINES = 20_000
_COUNTED = expression(
    r"(?i)\b(?:elements?|param(?:eter)?s?|weights?|values)\b[^.;]{0,20}\bchanged\b[^;\d]{0,40}(?P<share>\d+(?:\.\d+)?(?:e-\d+)?) ?(?P<percent>%)?"
)
_HALF = expression(
    r"(?i)\b(?:param(?:eter)?s?[ _]?)?(?:d?type|precision)\b[^\n]{0,40}?[:= ]\s{0,3}['\"]?(?:torch\.)?(?P<type>bf16|bfloat16|fp16|float16)\b"
)


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Next to nothing changed, with the type of the weights where it is told."""
    told = next(incident_half(incident), None)
    kind, place = told if told is not None else ("", None)
    lost = next((f for f in findings if f.kind == "metrics.updates_lost"), None)
    if lost is not None:
        return (
            ()
            if place is None
            else (replace(lost, title=_name(lost.title, kind), evidence=(*lost.evidence, place)),)
        )
    counted = next(_find_counted(incident), None)
    if counted is None:
        return ()
    words, line = counted
    title = (
        f"an optimizer step changes next to no weight ({words}): the update is smaller than half the spacing of the numbers "
        "that the weights are kept in, and rounding swallows it"
    )
    return (
        Finding(
            kind="metrics.updates_lost",
            title=_name(title, kind),
            level=Level.CAUSE,
            category=Category.NUMERICAL,
            evidence=(line, *((place,) if place is not None else ())),
            facts={"explains": {"unlearned": 0.9, "diverged": 0.6}, "survived": False},
        ),
    )


def _name(title: str, kind: str) -> str:
    return f"{title}; the weights are {kind} without an fp32 master copy" if kind else title


def incident_half(incident: Logs) -> Iterator[tuple[str, Evidence]]:
    """Lines that tell the 16-bit type of the weights."""
    for digest in incident.digests:
        for number, text in islice(digest.kept, MOST_LINES):
            match = _HALF.search(text[:1_000]) if "16" in text else None
            if match is not None:
                yield match["type"], quote_line(digest.file, number, text)


def _find_counted(incident: Logs) -> Iterator[tuple[str, Evidence]]:
    for digest in incident.digests:
        for number, text in islice(digest.kept, MOST_LINES):
            match = _COUNTED.search(text[:1_000]) if "changed" in text else None
            if match is None:
                continue
            share = float(match["share"]) / (100 if match["percent"] else 1)
            if 0 < share < FEW_CHANGED and ("%" in match[0] or "." in match["share"]):
                yield match[0].strip(), quote_line(digest.file, number, text)
