"""Where in the program was each rank, by the stack that its watchdog printed below a timeout?

PyTorch prints it while its flight recorder is on: "Stack trace of the failed
collective:" and a frame a line, innermost first (ProcessGroupNCCL.cpp, FlightRecorder.hpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.standings import STACK_HEADING
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.log.scan import make_line
from firstfault_tools.log.traceback import is_library

MOST_FRAMES, MOST_RANKS = 80, 8
_FRAME = expression(r"^(?:\S{1,12} )?#(?P<depth>\d{1,3}) (?P<name>\S+) from (?P<path>.+):(?P<line>\d+)\s*$")  # fmt: skip
_HIDDEN = frozenset(
    {"wrapper", "decorate_context", "_call_impl", "_wrapped_call_impl", "_no_grad_wrapper", "_fn"}
)
"""Frames that only pass a call on."""


@dataclass(frozen=True, slots=True)
class Stand:
    """What a rank was in, and the frame that tells. number: of the frame's line in the log."""

    rank: int
    words: str
    file: str
    number: int
    text: str


def read_stands(incident: LogIncident) -> dict[int, Stand]:
    """The innermost line of the program itself, of each rank whose watchdog printed a stack."""
    found: dict[int, Stand] = {}
    for digest, number, text in incident.lines_with((STACK_HEADING,)):
        line = make_line(digest.file, number, text, digest.year)
        rank = line.place.rank
        if rank is None or rank in found or len(found) >= MOST_RANKS:
            continue
        stand = _read_stand(digest.lines_after(number, MOST_FRAMES))
        if stand is not None:
            words, place, frame = stand
            found[rank] = Stand(rank, words, digest.file, place, frame)
    return found


def _read_stand(rows: Iterator[tuple[int, str]]) -> tuple[str, int, str] | None:
    """(what was called where, number, text) of the frame that tells; None for a stack without one.

    The backward pass runs on a thread of its own, whose stack holds no line of the program.
    """
    called, backward = "", None
    for name, path, at, number, text in _frames(rows):
        if not is_library(path):
            place = f"{name} ({PurePosixPath(path).name}:{at})"
            return (f"{called} in {place}" if called else place), number, text
        if name not in _HIDDEN:
            called = name
        if "/autograd/" in path or name == "backward":
            backward = backward or ("the backward pass", number, text)
    return backward


def _frames(rows: Iterator[tuple[int, str]]) -> Iterator[tuple[str, str, int, int, str]]:
    """(function, path, line, number in the log, text) of each frame, innermost first."""
    for depth, (number, text) in enumerate(rows):
        match = _FRAME.match(text)
        if match is None or int(match["depth"]) != depth:
            return
        yield match["name"], match["path"], int(match["line"]), number, text


def name_places(incident: LogIncident, finding: Finding, ranks: tuple[int, ...]) -> Finding:
    """The finding with the lines of the program at which its ranks stood, where their stacks tell."""
    stands = read_stands(incident)
    told = [stands[rank] for rank in ranks if rank in stands]
    if not told:
        return finding
    if len(told) > 1 and len({s.words for s in told}) == 1:
        words = f"they were in {told[0].words}"
    else:
        words = ", ".join(f"rank {s.rank} was in {s.words}" for s in told)
    places = (Evidence(s.file, s.number, s.text.strip(), rank=s.rank) for s in told)
    return replace(
        finding, title=f"{finding.title}; {words}", evidence=(*finding.evidence, *places)
    )
