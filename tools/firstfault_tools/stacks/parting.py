"""Where did two ranks part? The function that both of them are in, at different lines of it.

Stacks are laid beside each other from the outermost frame on, as long as both are in the same function; the first of
these in which they stand at different lines is where the code went two ways. What is deeper differs because of it.
"""

from __future__ import annotations

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Json
from firstfault_tools.stacks.dump import StackFrame, ThreadStack

_WRAPPER = expression(
    r"(?:^|/)(?:contextlib|functools|runpy|threading)\.py$|torch/nn/modules/module\.py$|torch/utils/_contextlib\.py$|"
    r"torch/distributed/c10d_logger\.py$|torch/_dynamo/eval_frame\.py$|torch/autograd/function\.py$|<frozen "
)
"""Files whose functions only call others: another line of them says nothing of the program, and some ranks lack them."""

LONGEST_CUT = 12
"""Outermost frames that one of two dumps may lack, as people paste them."""


@dataclass(frozen=True, slots=True)
class Parting:
    """One function with the frames in which two threads stand in it, and what either calls there ('' if nothing)."""

    here: StackFrame
    there: StackFrame
    calls_here: str
    calls_there: str

    @property
    def place(self) -> str:
        """Such as `fit (trainer.py:338 and 341)`."""
        file = self.here.file.rsplit("/", 1)[-1]
        return f"{self.here.function} ({file}:{self.here.line} and {self.there.line})"

    def to_json(self, here: tuple[int, ...], there: tuple[int, ...]) -> dict[str, Json]:
        """As facts of a finding, with the ranks of either side."""
        sides: list[Json] = [
            {"line": self.here.line, "calls": self.calls_here, "ranks": list(here[:64])},
            {"line": self.there.line, "calls": self.calls_there, "ranks": list(there[:64])},
        ]
        return {"function": self.here.function, "file": self.here.file, "sides": sides}


def find_parting(here: ThreadStack, there: ThreadStack) -> Parting | None:
    """Where two threads parted; None where they share no function, or are at the same line of all that they share."""
    own, other = _outermost_first(here), _outermost_first(there)
    skip, other_skip = _align(own, other)
    own, other = own[skip:], other[other_skip:]
    for n, (left, right) in enumerate(zip(own, other, strict=False)):
        if _key(left) != _key(right):
            return None
        if left.line != right.line:
            known = left.line > 0 and right.line > 0
            return Parting(left, right, _callee(own, n), _callee(other, n)) if known else None
    return None


def _outermost_first(thread: ThreadStack) -> list[StackFrame]:
    return [f for f in reversed(thread.frames) if not _WRAPPER.search(f.file)]


def _align(own: list[StackFrame], other: list[StackFrame]) -> tuple[int, int]:
    """How many outermost frames one has more than the other; none where it could be either."""
    for skip in range(LONGEST_CUT + 1):
        mine = bool(other) and skip < len(own) and _key(own[skip]) == _key(other[0])
        theirs = bool(own) and skip < len(other) and _key(other[skip]) == _key(own[0])
        if mine or theirs:
            return (skip * (not theirs), skip * (not mine))
    return 0, 0


def _callee(frames: list[StackFrame], at: int) -> str:
    return frames[at + 1].function if at + 1 < len(frames) else ""


def _key(frame: StackFrame) -> tuple[str, str]:
    return frame.function, frame.file
