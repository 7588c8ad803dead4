"""Which threads stood where, according to py-spy, faulthandler or gdb?

Text of `py-spy dump` (with --locals and --native too) and its JSON, `faulthandler` tracebacks (fatal
errors, dump_traceback_later) and gdb's `thread apply all bt`. One file may hold many processes. The
rank comes from a heading above the stack, from the file's name, or is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import HostileArtefact, UnreadableArtefact
from firstfault_tools.expressions import expression

LIMIT_BYTES = 64 * 1024 * 1024
MAX_FRAMES = 1000
_RANK_HEADING = expression(r"\b(?:global[ _])?rank[ _:=#]{0,2}(\d{1,7})\b", re.IGNORECASE)
_RANK_NAME = expression(r"(?:rank|worker)[_\-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_HOST_HEADING = expression(r"\b(?:host|node)(?:name)?[ :=]+([A-Za-z0-9][\w.-]{0,252})")
_PROCESS = expression(r"^Process (\d{1,9}): (.*)$")
_OWN_ARGUMENT = expression(
    r"(?<![\w-])(?:GLOBAL_)?RANK[= ](\d{1,7})\b|\brank[ _:=#]{1,2}(\d{1,7})\b|"
    r"--(?:local[-_]|node[-_]|machine[-_])?rank[= ](\d{1,4})\b"
)
"""Rank that somebody noted behind a process, or that its launcher gave it as an argument; the first is the surest."""
_PID_HEADING = expression(r"\bpid[ :=]*(\d{1,9})\b", re.IGNORECASE)
_SPY_THREAD = expression(r"^Thread (?:0x[0-9A-Fa-f]+|\d+) \(([\w+ ]+)\)(?:: \"(.*)\")?")
_SPY_FRAME = expression(r"^ {2,}(\S.*?) \(([^()]*?)(?::(\d{1,9}))?\)\s*(?:#.*)?$")
_FAULT_THREAD = expression(
    r"^(?:Current thread|Thread) 0x[0-9a-fA-F]+(?: \[(.*?)\])? \(most recent call first\):"
)
_FAULT_FRAME = expression(r'^\s+File "(.*?)", line (\d{1,9}|\?\?\?) in (.+?)\s*$')
_FATAL = expression(r"^(?:Fatal Python error: (.+?)|Timeout \(([\d:.]+)\)!)\s*$")
_GDB_THREAD = expression(
    r"^Thread \d+ \((?:Thread 0x[0-9a-f]+ )?\(?LWP (\d{1,9})\)?.*?\)(?: \"(.*?)\")?"
)
_GDB_FRAME = expression(
    r"^#\d+\s+(?:0x[0-9a-f]+ in )?([^\s(]+)\s*\(.*?(?:at ([^\s:]+):(\d{1,9})|from (\S+))?\s*$"
)


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One frame, innermost first in a thread. `line` is 0 where unknown.

    at, text: the line of the dump that shows it (1-based; 0 in JSON), as it stands there.
    """

    function: str
    file: str
    line: int
    at: int = field(default=0, compare=False)
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        place = self.file.rsplit("/", 1)[-1]
        return (
            f"{self.function} ({place}:{self.line})" if self.line else f"{self.function} ({place})"
        )


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread of one process. `at`: its first line in the file, 1-based (0 in JSON)."""

    file: str
    at: int
    rank: int | None
    host: str | None
    pid: int | None
    thread: str
    state: str
    heading: str
    fatal: str
    native: bool
    frames: tuple[StackFrame, ...]

    @property
    def owner(self) -> str:
        """Who stands here, for people: `rank 3`, else `process 1281`, else the file."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"process {self.pid}" if self.pid is not None else self.file


def rank_of_file(name: str) -> int | None:
    """Rank in a file name such as `pyspy_rank_3.txt` or `stacks_rank_0`; None without one."""
    found = _RANK_NAME.findall(name.rsplit("/", 1)[-1])
    return int(found[-1]) if found else None


def looks_like_stacks(head: bytes) -> bool:
    """Whether a file begins as a stack dump; a log that contains a traceback further on does not."""
    start = head[:4096].decode("utf-8", errors="replace")
    if start.lstrip()[:1] in ("[", "{"):
        return '"frames"' in start and '"thread_id"' in start and '"owns_gil"' in start
    every = [line for line in start.splitlines() if line.strip()]
    lines = every[:8]
    if any(_FATAL.match(line) or _FAULT_THREAD.match(line) for line in lines[:4]):
        # a log may begin with the end of a crash: then most of its lines are something else
        own = sum(1 for line in every if _FAULT_FRAME.match(line) or _FAULT_THREAD.match(line))
        return 2 * own >= len(every) - 2 and own > 0
    if any(_PROCESS.match(line) for line in lines):
        spied = any(map(_SPY_THREAD.match, every)) and any(map(_SPY_FRAME.match, every))
        if spied or "Python v" in start:
            return True
    return any(_GDB_THREAD.match(line) for line in lines) and "\n#0 " in start


def parse_stacks(data: bytes, name: str) -> tuple[ThreadStack, ...]:
    """Threads of all processes in a dump, in the file's order.

    Raises `UnreadableArtefact` where there is no stack, `HostileArtefact` beyond 64 MiB.
    """
    if len(data) > LIMIT_BYTES:
        raise HostileArtefact(f"{name}: {len(data)} bytes of stacks, the limit is {LIMIT_BYTES}")
    text = data.decode("utf-8", errors="replace")
    if text.lstrip()[:1] in ("[", "{"):
        threads = tuple(_parse_json(text, name))
    else:
        threads = tuple(_parse_text(text, name))
    if not threads:
        raise UnreadableArtefact(
            f"{name}: no stack in it; save the output of `py-spy dump --pid PID`"
        )
    return threads


def parse_pasted(text: str, name: str) -> tuple[ThreadStack, ...]:
    """Threads of the dumps in a text that holds other output as well; none where there is no stack."""
    return tuple(_parse_text(text, name))


def _parse_text(text: str, name: str) -> Iterator[ThreadStack]:
    nobody = ThreadStack(name, 0, rank_of_file(name), None, None, "", "", "", "", False, ())
    process, thread = nobody, None
    frames: list[StackFrame] = []
    for number, line in enumerate(text.splitlines(), 1):
        frame = _frame(line, number) if thread is not None else None
        if frame is not None:
            if len(frames) < MAX_FRAMES:
                frames.append(frame)
            continue
        begun = _thread(line, number, process)
        if begun is None and not _is_heading(line):
            continue
        if thread is not None:
            yield replace(thread, frames=tuple(frames))
        thread, frames = begun, []
        if begun is None:
            process = _heading(line, process, nobody)
    if thread is not None:
        yield replace(thread, frames=tuple(frames))


def _frame(line: str, number: int) -> StackFrame | None:
    text = line.strip()[:400]
    if found := _FAULT_FRAME.match(line):
        return StackFrame(
            found[3], found[1], int(found[2]) if found[2].isdecimal() else 0, number, text
        )
    if line.startswith("#") and (found := _GDB_FRAME.match(line)):
        return StackFrame(found[1], found[2] or found[4] or "", int(found[3] or 0), number, text)
    if found := _SPY_FRAME.match(line):
        return StackFrame(found[1], found[2], int(found[3] or 0), number, text)
    return None


def _thread(line: str, number: int, process: ThreadStack) -> ThreadStack | None:
    here = replace(process, at=number, heading=line.strip()[:400])
    if found := _SPY_THREAD.match(line):
        return replace(here, state=found[1], thread=found[2] or "")
    if found := _FAULT_THREAD.match(line):
        current = "current" if line.startswith("Current") else ""
        return replace(here, thread=found[1] or "", state=current)
    if found := _GDB_THREAD.match(line):
        return replace(here, pid=process.pid or int(found[1]), thread=found[2] or "", native=True)
    return None


def _is_heading(line: str) -> bool:
    if not line.strip() or line[0] == " ":
        return False
    return bool(
        _PROCESS.match(line)
        or _FATAL.match(line)
        or _RANK_HEADING.search(line)
        or _PID_HEADING.search(line)
        or _HOST_HEADING.search(line)
    )


def _heading(line: str, process: ThreadStack, nobody: ThreadStack) -> ThreadStack:
    if found := _PROCESS.match(line):
        rank = process.rank if process.pid in (None, int(found[1])) else nobody.rank
        noted, host = _find_noted(found[2]), _HOST_HEADING.search(found[2])
        told = process.host if process.pid is None else nobody.host
        return replace(
            process,
            pid=int(found[1]),
            rank=noted if noted is not None and rank is None else rank,
            host=host[1] if host is not None else told,
            fatal="",
        )
    if found := _FATAL.match(line):
        return replace(process, fatal=(found[1] or "")[:200])
    rank_found, host, pid = (p.search(line) for p in (_RANK_HEADING, _HOST_HEADING, _PID_HEADING))
    rank = int(rank_found[1]) if rank_found else process.rank
    return replace(
        nobody if rank_found or pid else process,
        rank=rank if rank_found else nobody.rank,
        host=host[1] if host else process.host,
        pid=int(pid[1]) if pid else None,
    )


def _find_noted(command: str) -> int | None:
    """Rank in the command line of a process or in what stands behind it."""
    found = min(
        _OWN_ARGUMENT.finditer(command), key=lambda m: (m.lastindex or 0, m.start()), default=None
    )
    return int(next(g for g in found.groups() if g)) if found is not None else None


def _parse_json(text: str, name: str) -> Iterator[ThreadStack]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableArtefact(f"{name}: broken JSON ({type(error).__name__})") from error
    threads: list[Any] = content if isinstance(content, list) else [content]
    for raw in threads[:100_000]:
        if not isinstance(raw, dict) or not isinstance(raw.get("frames"), list):
            continue
        frames = tuple(
            StackFrame(_text(f.get("name")), _text(f.get("filename")), _int(f.get("line")))
            for f in raw["frames"][:MAX_FRAMES]
            if isinstance(f, dict)
        )
        states = ["active" if raw.get("active") else "idle"]
        if raw.get("owns_gil"):
            states.append("gil")
        label = _text(raw.get("thread_name"))
        yield ThreadStack(
            file=name,
            at=0,
            rank=rank_of_file(name),
            host=None,
            pid=_int(raw.get("pid")) or None,
            thread=label,
            state="+".join(states),
            heading=f'thread "{label}" of process {_int(raw.get("pid"))}',
            fatal="",
            native=False,
            frames=frames,
        )


def _text(value: object) -> str:
    return value[:1000] if isinstance(value, str) else ""


def _int(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
    return int(value) if whole else 0  # type: ignore[call-overload]
