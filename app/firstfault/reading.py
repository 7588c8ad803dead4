"""How is the evidence of an incident read? Which files, how far it is, and from where it goes on after a stop.

What a reading finished is kept until a verdict on all of it stands (`firstfault_tools/log/finished.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from firstfault.errors import InputUnreadable
from firstfault.incidents.events import Progress
from firstfault.incidents.records import EvidenceFile, Origin
from firstfault.intake.collect import Skipped
from firstfault_tools.dataclass import dataclass
from firstfault_tools.log.finished import WORTH_KEEPING, Finished, FinishedBatches, mark_reading
from firstfault_tools.log.progress import Scanning
from firstfault_tools.log.signature import SignatureSet

SCAN_SECONDS, SCAN_SHARE = 0.4, 0.005
"""Between two words on how far the reading is: seconds, and the share of the time it has taken, whichever is more."""

NOTHING_READ = (
    "nothing was read to an end before the reading was stopped, or a file has changed since: "
    "go on instead"
)


@dataclass
class ScanTeller:
    """Tells how far the reading is: bytes, lines, logs, what was found, time left; of long readings more seldom, as
    all is kept."""

    tell: Callable[[str, Progress], None]
    started: float
    told: float = 0.0

    def say(self, at: Scanning) -> None:
        """Tell it, unless it was told a moment ago."""
        now = time.monotonic()
        seconds = now - self.started
        if now - self.told < max(SCAN_SECONDS, SCAN_SHARE * seconds) or at.done >= at.total:
            return
        self.told = now
        rate = at.done / max(seconds, 0.1)
        text = f"{at.done / 1e6:.1f} of {at.total / 1e6:.1f} MB, {at.lines:,} lines"
        if at.files_total > 1:
            text += f", {at.files:,} of {at.files_total:,} logs to their ends"
        pace = f"{rate / 1e6:.1f} MB/s, about {(at.total - at.done) / max(rate, 1):.0f} s left"
        found = tuple(f"{title} ({count:,} line{'s' if count > 1 else ''})" for title, count in at.found)  # fmt: skip
        self.tell(f"scan-{at.done}", Progress("scan", text, at.done / at.total, pace, found))


def open_finished(
    folder: Path, files: Sequence[EvidenceFile], signatures: SignatureSet
) -> FinishedBatches:
    """What readings of these very files finished. A file that changed since is another reading."""
    inputs = []
    for file in files:
        with suppress(OSError):
            told = file.path.stat()
            inputs.append((file.name, str(file.path), told.st_size, told.st_mtime_ns))
    return FinishedBatches(folder, mark_reading(inputs, signatures), WORTH_KEEPING)


def count_finished(
    folder: Path, files: Sequence[EvidenceFile], signatures: SignatureSet
) -> Finished:
    """How much readings of these very files finished."""
    if not folder.is_dir():
        return Finished()
    present = [file for file in files if file.path.is_file()]
    return open_finished(folder, present, signatures).count()


def count_things(many: int, what: str) -> str:
    """`3 files`."""
    return f"{many:,} {what}{'' if many == 1 else 's'}"


def split_readable(
    files: Sequence[EvidenceFile],
) -> tuple[list[EvidenceFile], list[Skipped]]:
    """Files that are still what was given, and those that are not, with the reason."""
    present: list[EvidenceFile] = []
    gone: list[Skipped] = []
    for file in files:
        try:
            size = file.path.stat().st_size
        except OSError as error:
            gone.append(Skipped(file.name, f"{file.path} is gone ({error.strerror}); add it again"))
            continue
        if file.origin is Origin.REFERENCE and size < file.size:
            gone.append(Skipped(file.name, f"{file.path} shrank since it was named; add it again"))
            continue
        present.append(file)
    if files and not present:
        raise InputUnreadable("; ".join(f"{g.what}: {g.why}" for g in gone[:5]))
    return present, gone
