"""What may one run cost? Seconds of CPU and clock, and memory; where it stood when they were spent.

The limits are those of the operating system. Timers end a run in Python; a run that never comes back to
Python is ended with its process a little later, and the note on disk says where it stood.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from firstfault.settings import Settings
from firstfault_tools.whereabouts import last_place, listen

NOTE_BYTES = 512
_PROCESS_CPUCLOCK_PROF = -8
"""This process's clock of user and system ticks: (~0 << 3) | CPUCLOCK_PROF, as include/linux/posix-timers.h makes it."""

GRACE_SECONDS = 10
"""CPU seconds after the limit at which a process that does not come back to Python is ended."""

_LINE_NAMES = ("number", "at", "line")


class OverLimit(BaseException):
    """A run has spent what it may cost. No Exception: a tool's border must not take it for its own."""


@contextmanager
def bound_run(settings: Settings, note: Path) -> Iterator[None]:
    """Ends what runs inside with OverLimit when it costs too much; only in a process's main thread.

    note: file that holds where the run is, for when the whole process dies.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        # once more if a `finally` or a callback of C swallows it
        what = "CPU" if number == signal.SIGPROF else "the clock"
        seconds = settings.run_cpu_s if number == signal.SIGPROF else settings.run_wall_s
        raise OverLimit(f"the limit of {seconds:g} s of {what} was reached{say_place(frame)}")

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, settings.run_cpu_s),
        (signal.SIGALRM, signal.ITIMER_REAL, settings.run_wall_s),
    )
    before = [signal.signal(number, stop) for number, _, _ in timers]
    with _write_places(note), _bound_cpu(settings.run_cpu_s + GRACE_SECONDS):
        try:
            for _, timer, seconds in timers:
                signal.setitimer(timer, seconds, 1.0)
            yield
        except MemoryError as error:
            # said here: the note goes with the run
            raise OverLimit(
                f"the limit of {settings.run_memory_mib} MiB of memory was reached"
                f"{say_place(_innermost(error))}"
            ) from error
        finally:
            for _, timer, _ in timers:
                signal.setitimer(timer, 0)
            for (number, _, _), handler in zip(timers, before, strict=True):
                signal.signal(number, handler)


def bound_memory(mebibytes: int) -> None:
    """Ask the system to refuse this process more address space; what it refuses is a MemoryError."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, hard))


def say_place(frame: FrameType | None = None) -> str:
    """` in <tool>, at <file>, line <n>`, as far as known; the line is that of the frames' own loops."""
    tool, file = last_place()
    line = _line_of(frame)
    parts = [f"in {tool}"] if tool else []
    parts += [f"at {file}"] if file else []
    parts += [f"line {line}"] if line is not None and file else []
    return " " + ", ".join(parts) if parts else ""


def read_note(note: Path) -> str:
    """What `say_place` would have said when the process died; empty where nothing was noted."""
    try:
        return note.read_bytes()[:NOTE_BYTES].rstrip(b"\0 ").decode("utf-8", "replace")
    except OSError:
        return ""


def _innermost(error: BaseException) -> FrameType | None:
    """The frame in which an exception arose."""
    frame, trace = None, error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
    return frame


def _line_of(frame: FrameType | None) -> int | None:
    while frame is not None:
        if "firstfault_tools" in frame.f_code.co_filename:
            for name in _LINE_NAMES:
                value = frame.f_locals.get(name)
                if type(value) is int and value > 0:
                    return value
        frame = frame.f_back
    return None


@contextmanager
def _write_places(note: Path) -> Iterator[None]:
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def write(_tool: str, _file: str) -> None:
        text = say_place().encode("utf-8", "replace")[:NOTE_BYTES]
        os.pwrite(handle, text.ljust(NOTE_BYTES), 0)

    listen(write)
    try:
        yield
    finally:
        listen(None)
        os.close(handle)
        note.unlink(missing_ok=True)


def read_cpu_time() -> float:
    """CPU seconds of this process by the clock that RLIMIT_CPU is compared with.

    The kernel counts them in ticks; getrusage scales them to what the scheduler measured. On a busy machine the two were
    1.6 % apart, so that a process of ten minutes was past its limit, and killed, before its run began.
    """
    try:
        return time.clock_gettime(_PROCESS_CPUCLOCK_PROF)
    except OSError:  # another system than Linux
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime


@contextmanager
def _bound_cpu(seconds: float) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(read_cpu_time() + seconds) + 1
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
