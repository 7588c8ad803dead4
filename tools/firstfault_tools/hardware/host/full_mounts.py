"""Which file system is full in a listing that was handed in (`df`, `df -i`)?

A full one is a fact of its own; whether it is why something failed is told beside what was written there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line
from firstfault_tools.hardware.host.tables import Record, read_tables

GATE = ("Mounted on",)
KIND = "storage.mount_full"
FULL = 99
"""Percent in use from which a file system takes no further checkpoint, image or archive."""

MOST_ROWS = 400
_BUILT_FULL = expression(
    r"^/snap/|^/dev/loop|^(?:squashfs|iso9660|erofs)|^/boot\b|^/media/|\[(?:OST|MDT):"
)
"""Images that are written once and always full, and what the job cannot write to."""


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """One finding for each full file system of each host."""
    near = keep_near(lines, GATE, before=2, after=MOST_ROWS)
    rows = read_tables(near, file, "file_systems")
    mounts: dict[str | None, list[Record]] = defaultdict(list)
    for row in rows:
        mounts[row.host].append(row)
    found: dict[tuple[str | None, str], Finding] = {}
    for row in rows:
        share, inodes = row.amount("share"), row.amount("inode_share")
        if max(share or 0, inodes or 0) < FULL or _is_built_full(row):
            continue
        others = [r["mount"] for r in mounts[row.host]]
        found.setdefault((row.host, row["mount"]), _tell(row, others, file))
    return tuple(found.values())


def _is_built_full(row: Record) -> bool:
    return any(_BUILT_FULL.search(row[role]) for role in ("mount", "device", "type"))


def _tell(row: Record, mounts: Sequence[str], file: str) -> Finding:
    on = f" on {row.host}" if row.host else ""
    if row.amount("inode_share") is not None:
        words = f"the inodes of the file system {row['mount']}{on} are used up ({row['inode_share']} of {row['inodes']}, df -i): it takes no further file, whatever its bytes"
    else:
        size = f", {_say(row, 'free')} left of {_say(row, 'size')}" if row["size"] else ""
        words = f"the file system {row['mount']}{on} is {row['share']} full (df{size})"
    return Finding(
        kind=KIND,
        title=words,
        level=Level.FAILURE,
        category=Category.ENVIRONMENT,
        evidence=(quote_line(file, *row.place, host=row.host),),
        host=row.host,
        page="disk-full-or-quota",
        facts={"path": row["mount"], "mounts": list(dict.fromkeys(mounts))},
    )


def _say(row: Record, role: str) -> str:
    """A size as it was printed, blocks as GiB."""
    amount = row.amount(role)
    if not row[role].isdecimal() or amount is None:
        return row[role]
    return f"{amount / (1 << 30):.0f} GiB"
