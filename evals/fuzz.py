"""Does any input hang, break or garble a diagnosis? Mutates dev cases and real captures, seeded.

    python -m evals.fuzz --count 20000 --seed 7 [--from N]

Every input is diagnosed in this process. A finding is an exception, a tool that failed, more than 5 CPU
seconds, or JSON that cannot be read back. Ends with 1 where there is one; prints seed and count.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from evals.cases import SHARED, load_cases

from firstfault.errors import FirstfaultError
from firstfault.workspace import Workspace
from firstfault_tools.errors import ToolError

CPU_SECONDS = 5.0
LARGEST, MADE = 8_000, 64_000
"""Bytes of a seed that are used, and of an input that is made: what a mutation breaks shows in little."""

PROGRESS = 500
"""Inputs after which a long run says how far it is."""

_PIECES = (" ", "7", "a_", ".", "=", "'", '"', "[", "{", "(", "\\", "\t", "|", "\x1b[31m", "é", "NaN ", "rank ", "\0", ":", "x.", "-", "%|", "\r")  # fmt: skip
_NUMBERS = (b"-1", b"0", b"99999999999999999999", b"1e999", b"nan", b"0x7f", b"\xd9\xa3")
_CODECS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "utf-8-sig")


@dataclass(frozen=True, slots=True)
class Finding:
    """One input that went wrong, by its number."""

    number: int
    seed: str
    what: str
    data: bytes


class _Late(BaseException):
    """Over the CPU seconds."""


class _Complaints(logging.Handler):
    """Collects what the tool runner logs about tools that failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message and its exception."""
        error = record.exc_info[1] if record.exc_info else None
        self.said.append(f"{record.getMessage()}: {error!r}")


def read_seeds() -> list[tuple[str, bytes]]:
    """(name, head) of the inputs of every dev case, and of the captures where they lie."""
    paths = [p for c in load_cases() for p in c.inputs if p.is_file()]
    captures = SHARED / "cases" / "captures"
    if captures.is_dir():
        paths += sorted(p for p in captures.rglob("*") if p.is_file())
    return [(p.name, p.read_bytes()[:LARGEST]) for p in paths]


def mutate(dice: random.Random, data: bytes, seeds: Sequence[tuple[str, bytes]]) -> bytes:
    """One to four mutations of `data`."""
    for _ in range(dice.randint(1, 4)):
        data = dice.choice(_MUTATIONS)(dice, data, seeds)
    return data[:MADE]


def _flip(dice: random.Random, data: bytes, _: Sequence[tuple[str, bytes]]) -> bytes:
    found = bytearray(data)
    for _n in range(dice.choice((1, 4, 64))):
        if found:
            found[dice.randrange(len(found))] = dice.randrange(256)
    return bytes(found)


def _cut(dice: random.Random, data: bytes, _: Sequence[tuple[str, bytes]]) -> bytes:
    begin = dice.randrange(len(data) + 1)
    return data[begin:] if dice.random() < 0.3 else data[:begin]


def _rows(dice: random.Random, data: bytes, _: Sequence[tuple[str, bytes]]) -> bytes:
    lines = data.split(b"\n")
    how = dice.randrange(4)
    if how == 0:
        dice.shuffle(lines)
    elif how == 1:
        at = dice.randrange(len(lines))
        lines[at:at] = [lines[at]] * dice.choice((2, 50, 2_000))
    elif how == 2:
        lines = [line for line in lines if dice.random() < 0.5]
    else:
        lines = [b"".join(lines)]
    return b"\n".join(lines)


def _pump(dice: random.Random, data: bytes, _: Sequence[tuple[str, bytes]]) -> bytes:
    at = dice.randrange(len(data) + 1)
    piece = "".join(dice.choices(_PIECES, k=dice.choice((1, 1, 2)))).encode()
    return data[:at] + piece * dice.choice((40, 255, 4_000, 60_000)) + data[at:]


def _number(dice: random.Random, data: bytes, _: Sequence[tuple[str, bytes]]) -> bytes:
    places = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return data
    at = dice.choice(places)
    return data[:at] + dice.choice(_NUMBERS) + data[at + 1 :]


def _recode(dice: random.Random, data: bytes, _: Sequence[tuple[str, bytes]]) -> bytes:
    codec = dice.choice(_CODECS)
    begin = dice.choice((0, dice.randrange(len(data) + 1)))
    return data[:begin] + data[begin:].decode("utf-8", "replace").encode(codec, "replace")


def _splice(dice: random.Random, data: bytes, seeds: Sequence[tuple[str, bytes]]) -> bytes:
    other = dice.choice(seeds)[1]
    return data[: dice.randrange(len(data) + 1)] + other[dice.randrange(len(other) + 1) :]


_MUTATIONS = (_flip, _cut, _rows, _pump, _number, _recode, _splice)


def make_inputs(seed: int, count: int, start: int = 0) -> Iterator[tuple[int, str, bytes]]:
    """(number, name, data) of `count` inputs; each depends on seed and number alone."""
    seeds = read_seeds()
    for number in range(start, start + count):
        dice = random.Random(f"{seed}/{number}")
        name, data = dice.choice(seeds)
        yield number, name, mutate(dice, data, seeds)


def fuzz(seed: int, count: int, start: int = 0) -> Iterator[Finding]:
    """What went wrong, as it is found. Only in a process's main thread."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Late

    heard = _Complaints()
    root = logging.getLogger("firstfault")
    root.addHandler(heard)
    before = signal.signal(signal.SIGPROF, stop)
    try:
        with tempfile.TemporaryDirectory() as folder:
            workspace = Workspace(spool=Path(folder) / "spool")
            # what is loaded once is not the input's
            workspace.diagnose_text("warm.log", b"loss 1\n")
            for number, name, data in make_inputs(seed, count, start):
                if number % PROGRESS == 0 and number > start:
                    print(f"{number - start} done", file=sys.stderr, flush=True)
                heard.said.clear()
                what = _try(workspace, Path(folder), name, data) or "; ".join(heard.said)
                if what:
                    yield Finding(number, name, what, data)
    finally:
        signal.signal(signal.SIGPROF, before)
        root.removeHandler(heard)


def _try(workspace: Workspace, folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    used = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        row = workspace.diagnose_paths([path], "why did it stop?").to_json()
        json.loads(json.dumps(row, allow_nan=False).encode())
    except (FirstfaultError, ToolError):
        return ""
    except _Late:
        return f"more than {CPU_SECONDS:g} CPU seconds"
    except Exception as error:  # noqa: BLE001 (any exception is what is looked for)
        return repr(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        path.unlink()
    spent = time.process_time() - used
    return f"{spent:.1f} CPU seconds" if spent > CPU_SECONDS else ""


def main() -> None:
    """Parse arguments, fuzz, print, keep what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--from", dest="start", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the inputs that went wrong")
    arguments = parser.parse_args()
    begin, found = time.process_time(), 0
    logging.getLogger("firstfault").propagate = False
    for finding in fuzz(arguments.seed, arguments.count, arguments.start):
        found += 1
        print(f"{finding.number} {finding.seed}: {finding.what[:400]}", flush=True)
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / f"{finding.number}-{finding.seed}").write_bytes(finding.data)
    spent = time.process_time() - begin
    print(
        f"seed {arguments.seed}, {arguments.count} inputs from {arguments.start}: {found} findings, {spent:.0f} CPU s"
    )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
