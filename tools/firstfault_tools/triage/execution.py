"""What did one command say, and did it end in time? No shell, a hard limit, a bounded answer."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from enum import StrEnum

from firstfault_tools.dataclass import dataclass

MOST_BYTES = 16 << 20
"""Bytes kept of one answer: a flight-recorder dump of 2,000 entries is below 10 MB."""
MOST_ERRORS = 64 << 10
POLL_S = 0.1
LINGER_S = 1.0
"""Seconds that a pipe may stay open after its process ended (a child that went on holds it)."""


class State(StrEnum):
    """How a command ended."""

    OK = "ok"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    CUT = "cut"
    STOPPED = "stopped"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command gave. reason: why it is not whole, in one line; empty where it is."""

    state: State
    output: bytes = b""
    errors: bytes = b""
    exit_code: int | None = None
    elapsed_s: float = 0.0
    reason: str = ""


def run_command(
    argv: Sequence[str], limit_s: float, stop: threading.Event, most_bytes: int | None = None
) -> Answer:
    """Run one command to its end, its limit or `stop`, whichever is first; its whole group ends with it."""
    if stop.is_set():
        return Answer(State.NOT_RUN, reason="the capture was stopped")
    if limit_s <= 0:
        return Answer(State.NOT_RUN, reason="the time for the whole capture was over")
    most_bytes = most_bytes or MOST_BYTES
    begun = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        said = (isinstance(error, OSError) and error.strerror) or error
        return Answer(State.UNAVAILABLE, reason=f"{argv[0]}: {said}")
    output, errors = bytearray(), bytearray()
    try:
        ended = _read(process, output, errors, begun + limit_s, stop, most_bytes)
    finally:
        _end(process)
    elapsed = time.monotonic() - begun
    state, reason = _judge(ended, process.returncode, limit_s, most_bytes, errors)
    return Answer(state, bytes(output), bytes(errors), process.returncode, elapsed, reason)


def _read(
    process: subprocess.Popen[bytes], output: bytearray, errors: bytearray, deadline: float,
    stop: threading.Event, most_bytes: int,
) -> State:  # fmt: skip
    """Fill both buffers; OK where the process ended by itself."""
    assert process.stdout is not None
    assert process.stderr is not None
    ended_at: float | None = None
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ, (output, most_bytes))
        ready.register(process.stderr, selectors.EVENT_READ, (errors, MOST_ERRORS))
        while True:
            now = time.monotonic()
            if stop.is_set():
                return State.STOPPED
            if now >= deadline:
                return State.TIMED_OUT
            if ended_at is None and process.poll() is not None:
                ended_at = now
            if ended_at is not None and (not ready.get_map() or now > ended_at + LINGER_S):
                return State.OK
            if not ready.get_map():
                time.sleep(min(POLL_S, deadline - now))
            for key, _ in ready.select(min(POLL_S, deadline - now)) if ready.get_map() else ():
                buffer, most = key.data
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    ready.unregister(key.fileobj)
                buffer += piece[: most - len(buffer)]
                if buffer is output and len(output) >= most:
                    return State.CUT


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the command's own group, and take in its exit code."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2)  # a process in an uninterruptible wait is left to the kernel
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _judge(
    ended: State, code: int | None, limit_s: float, most_bytes: int, errors: bytearray
) -> tuple[State, str]:
    said = bytes(errors).decode("utf-8", errors="replace").strip().splitlines()
    last = said[-1][:300] if said else ""
    if ended is State.TIMED_OUT or (ended is State.OK and code in (124, 137)):
        return State.TIMED_OUT, f"no end within {limit_s:.0f} s"
    if ended is State.CUT:
        return State.CUT, f"more than {most_bytes >> 20} MiB; what follows was left out"
    if ended is State.STOPPED:
        return State.STOPPED, "the capture was stopped"
    if code == 0:
        return State.OK, ""
    if code in (126, 127):
        return State.UNAVAILABLE, last or "the command is not there"
    return State.FAILED, f"exit code {code}" + (f": {last}" if last else "")
