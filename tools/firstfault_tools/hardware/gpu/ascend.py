"""Which Ascend NPU failed first, by the result codes that torch_npu prints beside its rank?

The code stands in the exception, the rank in the line below it: `(PID:.., Device:3, RankID:11)`. Ranks
that only waited print a timeout code, which is no cause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line

GATE = ("error code is ", "RankID:", "aicore error exception")
NEAR, MOST = 4, 400
"""Lines between a code and the rank it belongs to; code lines looked at."""

_CODE = expression(
    r"(?i)\bNPU\b.{0,200}?error code is (?P<code>\d{6})\b|ERR\d{5}.{0,80}error code is (?P<other>\d{6})\b"
)
_SEAT = expression(
    r"\(PID:(?P<pid>\d{1,9}), Device:(?P<device>\d{1,4}), RankID:(?P<rank>-?\d{1,6})\)"
)
_CORE = expression(r"error from device\(chipId:(?P<device>\d{1,4}),.{0,80}?there is an? (?P<what>[\w ]{2,40}?) (?:error )?exception")  # fmt: skip
_PREFIX = expression(r"^(?:[\w.-]{1,60}[:|] ?|\[[\w.:-]{1,60}\]:? ?|\(\w[^)]{1,60}\) )")


@dataclass(frozen=True, slots=True)
class Fault:
    """One code with the NPU it was printed for. kind: as in the table."""

    code: str
    kind: str
    what: str
    rank: int | None
    device: str | None
    place: tuple[int, str]


@cache
def load_codes() -> dict[str, dict[str, str]]:
    """Meaning by code."""
    path = Path(__file__).with_name("ascend_codes.json")
    codes: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))["codes"]
    return codes


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The first fault of an NPU; waits only where nothing else is told."""
    kept = keep_marked(lines, GATE)
    if not kept:
        return ()
    seats = [(n, t, s) for n, t in kept if (s := _SEAT.search(t)) is not None]
    faults = []
    for number, text in kept:
        found = _CODE.search(text)
        row = load_codes().get(found["code"] or found["other"]) if found is not None else None
        if found is None or row is None:
            continue
        rank, device = _find_seat(number, text, seats)
        faults.append(
            Fault(
                found["code"] or found["other"],
                row["kind"],
                row["what"],
                rank,
                device,
                (number, text),
            )
        )
        if len(faults) >= MOST:
            break
    own = [f for f in faults if f.kind in ("kernel", "device")]
    if not own:
        return ()
    return (_describe(own, kept, file),)


def _find_seat(
    number: int, text: str, seats: Sequence[tuple[int, str, re.Match[str]]]
) -> tuple[int | None, str | None]:
    """(rank, device) printed nearest to a code by the same process."""
    prefix = _PREFIX.match(text)
    head = prefix[0] if prefix is not None else ""
    close = [(n, t, s) for n, t, s in seats if abs(n - number) <= NEAR]
    own = [one for one in close if one[1].startswith(head)] if head else []
    near = [(abs(n - number), n < number, s) for n, _, s in own or close]
    if not near:
        return None, None
    seat = min(near, key=lambda one: one[:2])[2]
    rank = int(seat["rank"])
    return (rank if rank >= 0 else None), seat["device"]


def _describe(own: Sequence[Fault], kept: Sequence[tuple[int, str]], file: str) -> Finding:
    first = own[0]
    ranks = {f.rank for f in own} - {None}
    rank = first.rank if len(ranks) == 1 else None
    places = [first.place]
    core = next(((n, t, m) for n, t in kept if (m := _CORE.search(t)) is not None), None)
    if core is not None:
        places.append((core[0], core[1]))
    device = first.device or (core[2]["device"] if core is not None else None)
    who = f"NPU {device}" if device is not None else "an Ascend NPU"
    of = f" (rank {rank})" if rank is not None else ""
    kernel = first.kind == "kernel"
    why = (
        "an operator got bad input or is faulty, or the device is"
        if kernel
        else "the device or its firmware is at fault"
    )
    return Finding(
        kind="hardware.ascend_code",
        title=f"{who}{of} {first.what}, code {first.code}: {why}; timeouts of the other ranks only follow",
        level=Level.CAUSE,
        category=Category.HARDWARE,
        confidence=Confidence.POSSIBLE if kernel else Confidence.LIKELY,
        evidence=tuple(quote_line(file, n, t) for n, t in dict.fromkeys(places)),
        rank=rank,
        facts={"code": first.code, "device": device},
    )
