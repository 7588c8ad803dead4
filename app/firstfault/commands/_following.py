"""What was written to logs that grow? Whole lines of one file, or of all files of a job as they come and go."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from firstfault.errors import InputUnreadable

MAX_LINE = 64 * 1024
MOST_LOGS = 4096
LOOK_AGAIN_S = 5.0
"""Between two looks for new files in a folder: a launcher opens them within the first minute."""


def read_lines(stream: IO[bytes]) -> Iterator[str]:
    """Lines of any bytes, without their ends; of an overlong one the first MAX_LINE bytes."""
    while line := stream.readline(MAX_LINE):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE)
        yield line.rstrip(b"\r\n").decode("utf-8", errors="replace")


def open_log(path: str) -> IO[bytes]:
    """A log file, or standard input for '-'. Raises InputUnreadable."""
    if path == "-":
        return sys.stdin.buffer
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputUnreadable(f"{path}: not a regular file; name a log file, or pipe it to '-'")
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise InputUnreadable(f"{path}: cannot be read ({reason}); name a log file") from error


class Follower:
    """Lines of a file that grows, is truncated or replaced. Holds one partial line at most."""

    def __init__(self, path: str, from_start: bool) -> None:
        self.path = path
        self.stream: IO[bytes] | None = None
        self.inode = -1
        self.rest = b""
        self._open(0 if from_start else None)

    def _open(self, position: int | None) -> None:
        try:
            self.stream = open(self.path, "rb")  # noqa: SIM115 (closed on rotation)
        except FileNotFoundError:
            self.stream = None
            return
        self.inode = os.fstat(self.stream.fileno()).st_ino
        self.stream.seek(0, os.SEEK_END if position is None else os.SEEK_SET)
        self.rest = b""

    def _rotated(self) -> bool:
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return False  # between rename and re-creation: the old file may still be written to
        if self.stream is None:
            return True
        return now.st_ino != self.inode or now.st_size < self.stream.tell()

    def read(self) -> Iterator[str]:
        """All whole lines that are there now."""
        while True:
            data = self.stream.read(1 << 20) if self.stream is not None else b""
            if not data:
                if not self._rotated():
                    return
                if self.stream is not None:
                    self.stream.close()
                self._open(0)
                if self.stream is None:
                    return
                continue
            *lines, self.rest = (self.rest + data).replace(b"\r\n", b"\n").split(b"\n")
            if len(self.rest) > MAX_LINE:
                self.rest = self.rest[:MAX_LINE]
            for line in lines:
                yield line[:MAX_LINE].decode("utf-8", errors="replace")

    def close(self) -> None:
        """Close the file."""
        if self.stream is not None:
            self.stream.close()


class JobLogs:
    """The logs of one job: files, and all files of folders, those that come later too."""

    def __init__(self, paths: Sequence[str], from_start: bool) -> None:
        """Raises InputUnreadable."""
        _allow_many_files()
        self.paths, self.from_start = tuple(Path(p) for p in paths), from_start
        self.followers: dict[str, Follower] = {}
        self.looked = float("-inf")
        for path in self.paths:
            if not path.is_dir():
                open_log(str(path)).close()
        self.look(time.monotonic())
        self.from_start = True  # a file that comes later is new as a whole

    def look(self, now: float) -> None:
        """Take up files that came since."""
        if now - self.looked < LOOK_AGAIN_S:
            return
        self.looked = now
        for path in self.paths:
            for file in _files(path):
                if str(file) not in self.followers:
                    if len(self.followers) >= MOST_LOGS:
                        raise InputUnreadable(f"{path}: more than {MOST_LOGS} files; name those of some ranks")  # fmt: skip
                    self.followers[str(file)] = Follower(str(file), self.from_start)

    def read(self, name: str) -> Iterator[str]:
        """Whole lines that one of them got."""
        return self.followers[name].read()

    def close(self) -> None:
        """Close all files."""
        for follower in self.followers.values():
            follower.close()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.is_file() and not hidden:
            yield file


def _allow_many_files() -> None:
    """As many open files as the system lets this process have; a job has one a rank."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * MOST_LOGS) if hard > 0 else soft, hard))  # fmt: skip
    except (ImportError, ValueError, OSError):
        return
