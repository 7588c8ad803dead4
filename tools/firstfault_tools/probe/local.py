"""How is the kit run on this machine: shown, with a time limit, stoppable, its records read back?"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.probe.build import write_kit
from firstfault_tools.probe.records import ProbeRecord, parse_line

# What the kit needs to end its workers after its own limit.
GRACE_S = 20.0


@dataclass(frozen=True, slots=True)
class LocalRun:
    """Records of one run; stopped: it was cut short by its limit or by a person."""

    records: tuple[ProbeRecord, ...]
    exit_code: int
    stopped: bool


def run_here(
    arguments: Sequence[str],
    limit_s: float,
    *,
    python: str = sys.executable,
    show: Callable[[str], None] = lambda _text: None,
    stop: threading.Event | None = None,
) -> LocalRun:
    """Build the kit into a temporary folder and run it. Nothing is installed, nothing stays.

    python: interpreter of the node that has torch. show: gets the command and the kit's progress lines.
    """
    ended = stop or threading.Event()
    records: list[ProbeRecord] = []
    with tempfile.TemporaryDirectory(prefix="firstfault-probe-") as folder:
        kit = write_kit(Path(folder))
        argv = [python, str(kit), "--limit-s", f"{limit_s:g}", *arguments]
        show("+ " + " ".join(argv))
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process:
            watch = threading.Thread(
                target=_watch, args=(process, ended, limit_s + GRACE_S), daemon=True
            )
            echo = threading.Thread(target=_echo, args=(process, show), daemon=True)
            watch.start()
            echo.start()
            assert process.stdout is not None
            try:
                for number, line in enumerate(process.stdout, start=1):
                    record = parse_line(line.rstrip("\n"), number, "probe")
                    if record is not None:
                        records.append(record)
            except KeyboardInterrupt:
                ended.set()
                process.terminate()
            code = process.wait()
            stopped = ended.is_set()
            ended.set()
            echo.join(timeout=5)
    return LocalRun(tuple(records), code, stopped or code == 130)


def _watch(process: subprocess.Popen[str], ended: threading.Event, limit_s: float) -> None:
    waited = 0.0
    while process.poll() is None:
        if ended.wait(timeout=0.2) or waited > limit_s:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            if process.poll() is None:
                process.kill()
            ended.set()
            return
        waited += 0.2


def _echo(process: subprocess.Popen[str], show: Callable[[str], None]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        show(line.rstrip("\n"))
