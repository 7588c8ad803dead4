"""Which exception ended (or nearly ended) a rank, and in whose code?

Reads Python tracebacks out of interleaved logs: lines of one speaker belong together, chains are
followed to their first exception, and a DataLoader worker's original traceback counts as its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.digest import FileDigest, Line, Mark
from firstfault_tools.log.scan import make_line

if TYPE_CHECKING:
    from firstfault_tools.log.boxed import BoxReader

MAX_TRACEBACKS = 400
MAX_LINES = 400
MAX_FRAMES = 80
MAX_EXCERPT, MAX_BETWEEN_FRAMES = 2_000, 40
"""Lines of a log that may be an excerpt without the heads of its stacks; lines between two frames."""
MOST_BEHIND = 6
"""Lines behind an exception in which another one may be told to come of it."""

_HEAD = expression(r"Traceback \(most recent call last\)")
_SPAWNED = expression(r"^-- Process (\d+) terminated with the following error:\s*$")
"""What torch.multiprocessing.spawn prints before the traceback of the process with that index."""

_TOLD_RANK = expression(r"Traceback \(most recent call last\): \(RANK (\d+)\)")
_FRAME = expression(
    r'^\s*(?:│\s*)?File "(?P<path>[^"]{1,500})", line (?P<line>\d+)(?:, in (?P<name>.{1,200}))?'
)
_EXCEPTION = expression(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)+(?:error|timeout|gaierror|herror|_[A-Z]\w*)|"
    r"(?:[A-Za-z_][\w]*\.)*[A-Z][\w]*(?:\([A-Za-z]\w*\))?)(?:: ?(?P<message>.*))?$"
)
_KNOWN_TYPE = expression(
    r"(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Failure|Fault|Iteration|Killed|Unavailable|Expired|OOM|Mismatch\w*|NotFound|Refused|Abort\w*)\)?$"
)
_CHAIN = expression(
    r"The above exception was the direct cause|During handling of the above exception"
)
_IGNORED = expression(
    r"^\s*(?:Exception ignored (?:in|on calling|while)\b|--- Logging error ---|Error in (?:atexit\._run_exitfuncs|sys\.excepthook))"
)
LINES_TO_IGNORED = 2
EDGE = "│"
"""Edge of the box that some programs draw round a traceback."""

_LIBRARY = expression(
    r"site-packages|dist-packages|/lib/python\d|<frozen|<string>|/usr/lib/|importlib|/opt/conda/lib|^<|^\?\?|"
    r"\.(?:cpp|cc|h|cu)$|^(?:threading|queue)\.py$"
)
_TORCH = expression(r"(?:^|/)torch/")


def is_library(path: str) -> bool:
    """The file of a stack frame belongs to Python, to an installed package or to native code."""
    return _LIBRARY.search(path) is not None


def is_torch(path: str) -> bool:
    """The file belongs to PyTorch, also where its path begins at the package.

    Of a process that hangs such a frame may be the most telling one; of an exception it never is.
    """
    return _TORCH.search(path) is not None


@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame of a traceback."""

    path: str
    line: int
    name: str
    number: int
    """Line of the log that shows the frame."""

    @property
    def in_library(self) -> bool:
        return is_library(self.path) or is_torch(self.path)


@dataclass(frozen=True, slots=True)
class Traceback:
    """One exception with its stack. `line` is the line that names the exception."""

    start: int
    line: Line
    type: str
    message: str
    frames: tuple[Frame, ...]
    chained: bool
    """Raised while another exception of the same traceback was handled: not the first one."""

    told_rank: int | None = None
    """Rank that raised it where another rank prints it, as torch.distributed.checkpoint does."""

    ignored: bool = False
    """Python said `Exception ignored in` before it: raised in a destructor, it stopped nothing."""

    @property
    def rank(self) -> int | None:
        return self.told_rank if self.told_rank is not None else self.line.place.rank

    @property
    def user_frame(self) -> Frame | None:
        """Innermost frame outside installed libraries, else the innermost one."""
        for frame in reversed(self.frames):
            if not frame.in_library:
                return frame
        return self.frames[-1] if self.frames else None

    @property
    def short_type(self) -> str:
        return self.type.split(".")[-1]


def read_tracebacks(digest: FileDigest) -> tuple[Traceback, ...]:
    """Tracebacks of one log in the order of their exception lines."""
    found: dict[int, Traceback] = {}
    for start in digest.marked.get(Mark.TRACEBACK, ())[:MAX_TRACEBACKS]:
        for traceback in _follow(digest, start):
            known = found.get(traceback.line.number)
            if known is None or len(traceback.frames) > len(known.frames):
                found[traceback.line.number] = traceback
    if not found and digest.lines_total <= MAX_EXCERPT:
        for start in _headless(digest):
            for traceback in _follow(digest, start):
                found.setdefault(traceback.line.number, traceback)
    return tuple(found[number] for number in sorted(found))


def _headless(digest: FileDigest) -> list[int]:
    """Lines before the first frames of stacks whose head was cut off, as in a pasted excerpt."""
    starts: list[int] = []
    last: dict[object, int] = {}
    for number, text in digest.kept:
        if 'File "' not in text:
            continue
        line = make_line(digest.file, number, text, digest.year)
        if _FRAME.match(line.message) is None:
            continue
        before = last.get(line.place.key)
        last[line.place.key] = number
        if before is None or number - before > MAX_BETWEEN_FRAMES:
            starts.append(number)
    return starts[:MAX_TRACEBACKS]


def _follow(digest: FileDigest, start: int) -> list[Traceback]:
    text = digest.text_of(start)
    if text is None:
        return []
    head = make_line(digest.file, start, text, digest.year)
    position = digest.position(start)
    indent = len(head.message) - len(head.message.lstrip())
    frames: list[Frame] = []
    _read_frame(head.message, start, frames)
    out: list[Traceback] = []
    chained = False
    told_rank = _rank_told(digest, head, position)
    ignored = _is_ignored(digest, head, position)
    ended_at: int | None = None
    box: BoxReader | None = None
    for number, line, body in _lines_of(digest, head, start):
        stripped = body.strip()
        if _CHAIN.search(stripped):
            chained = True
            frames = []
            continue
        if _HEAD.search(stripped):
            if (out or not (frames or box)) and not chained:
                break  # what follows belongs to that head, which is followed itself
            continue
        if _read_frame(body, number, frames):
            continue
        if stripped.startswith(EDGE):
            box = box or _open_box()
            _read_box_line(box, body, number, frames)
            continue
        match = _EXCEPTION.match(stripped)
        if match is not None and frames and _is_exception(match, body, indent):
            out.append(
                Traceback(
                    start, line, match["type"], match["message"] or "", tuple(frames),
                    chained and bool(out), told_rank, ignored,
                )
            )  # fmt: skip
            ended_at = number
        elif ended_at is not None and number > ended_at + MOST_BEHIND and not chained:
            break
    return out


def _rank_told(digest: FileDigest, head: Line, position: int) -> int | None:
    """Rank that the head of a stack names, or the line above it that tells of a spawned process."""
    before = digest.kept[position - 1][1] if position else ""
    told = _TOLD_RANK.search(head.text) or _SPAWNED.search(before)
    return int(told[1]) if told is not None else None


def _lines_of(digest: FileDigest, head: Line, start: int) -> Iterator[tuple[int, Line, str]]:
    """Lines of the stream that `head` stands in, without empty ones and marks below code."""
    for number, text in digest.lines_after(start, MAX_LINES):
        line = make_line(digest.file, number, text, digest.year)
        own = line.place.key == head.place.key
        if own or _continues(line, head):
            body = line.message if own else text
            if not set(body.strip()) <= {"^", "~", " "}:
                yield number, line, body


def _read_frame(body: str, number: int, frames: list[Frame]) -> bool:
    """Add the frame that a line names, if it names one."""
    frame = _FRAME.match(body)
    if frame is not None and len(frames) < MAX_FRAMES:
        frames.append(Frame(frame["path"], int(frame["line"]), frame["name"] or "", number))
    return frame is not None


def _open_box() -> BoxReader:
    # few logs hold a box: the module is loaded for those only
    from firstfault_tools.log.boxed import BoxReader

    return BoxReader()


def _read_box_line(box: BoxReader, body: str, number: int, frames: list[Frame]) -> None:
    """Add the frame that a line of a boxed traceback names, or find the code of the last one."""
    place = box.read_place(body)
    if place is not None and len(frames) < MAX_FRAMES:
        frames.append(Frame(*place, number))
    elif place is None and frames and box.read_code(body) is not None:
        # the code of a frame stands on the line after `number`
        frames[-1] = replace(frames[-1], number=number - 1)


def _is_ignored(digest: FileDigest, head: Line, position: int) -> bool:
    """The stream of the traceback announced it as an exception that is ignored."""
    for number, text in reversed(digest.kept[max(0, position - LINES_TO_IGNORED) : position]):
        line = make_line(digest.file, number, text, digest.year)
        if line.place.key == head.place.key:
            return _IGNORED.search(line.message) is not None
    return False


def _continues(line: Line, head: Line) -> bool:
    """An unlabelled line inside a labelled stream still belongs to it when only the label is lost."""
    return head.place.rank is None and head.place.pid is None and line.place.rank is None


def _is_exception(match: re.Match[str], body: str, indent: int) -> bool:
    if len(body) - len(body.lstrip()) > indent + 1:
        return False
    name = match["type"]
    return bool(_KNOWN_TYPE.search(name)) or ("." in name and match["message"] is not None)
