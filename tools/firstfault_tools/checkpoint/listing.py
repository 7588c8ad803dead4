"""Which files does this folder listing name, and how large are they?

Understands `ls -laR`, `find` with or without sizes, `du -ab`, `tree`-free plain paths, `aws s3 ls
--recursive` and a JSON list. Text only: no path is ever opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.expressions import expression

MAX_ENTRIES = 2_000_000
MAX_TEXT = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. size in bytes, None where the listing gives none."""

    path: str
    size: int | None = None


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    long_line = expression(
        r"^([-dlspbc])[-rwxsStTlL+.@]{9,11}\s+\d+\s+\S+\s+(?:\S+\s+)?(\d+)\s+"
        r"(?:[A-Z][a-z]{2}\s+\d{1,2}\s+(?:\d{1,2}:\d{2}|\d{4})|\d{4}-\d{2}-\d{2}\s+\S+(?:\s+[+-]\d{4})?)"
        r"\s+(.+)$"
    )
    sized = expression(r"^(\d{1,18})\s+(\S.*)$")
    bucket = expression(r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\s+(\d{1,18}) (\S.*)$")
    return long_line, sized, bucket


def read_listing(text: str) -> tuple[Entry, ...]:
    """Entries of a listing. Raises UnreadableArtefact where no line names a file."""
    if len(text) > MAX_TEXT:
        raise UnreadableArtefact("the listing is larger than 256 MiB; list one iteration folder")
    if text.lstrip()[:1] == "[":
        entries = _read_json(text)
    else:
        entries = _read_lines(text.splitlines())
    if not entries:
        raise UnreadableArtefact(
            "no file in this listing; run: find CHECKPOINT_DIR -type f -printf '%s %p\\n'"
        )
    return tuple(entries)


def _read_json(text: str) -> list[Entry]:
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UnreadableArtefact(f"the listing is not valid JSON ({error})") from None
    found = []
    for item in data[:MAX_ENTRIES]:
        if isinstance(item, str):
            found.append(Entry(_clean(item)))
        elif isinstance(item, dict) and isinstance(item.get("path"), str):
            size = item.get("size")
            whole = isinstance(size, int) and not isinstance(size, bool) and size >= 0
            found.append(Entry(_clean(item["path"]), size if whole else None))
    return found


def _read_lines(lines: Iterable[str]) -> list[Entry]:
    long_line, sized, bucket = _patterns()
    folder = ""
    found: list[Entry] = []
    for raw in lines:
        line = raw.rstrip()
        if not line or line.startswith("total ") or len(line) > 4096:
            continue
        if len(found) >= MAX_ENTRIES:
            raise UnreadableArtefact(f"more than {MAX_ENTRIES} files; list one iteration folder")
        match = long_line.match(line)
        if match:
            name = match[3].split(" -> ")[0]
            if match[1] in "-l" and name not in (".", ".."):
                found.append(Entry(_clean(f"{folder}/{name}"), int(match[2])))
            continue
        if line.endswith(":") and not line.startswith(" "):
            folder = line[:-1]
            continue
        match = bucket.match(line) or sized.match(line)
        if match:
            found.append(Entry(_clean(match[2]), int(match[1])))
        elif " " not in line.strip() and ("/" in line or "." in line or line.strip() == "latest"):
            found.append(Entry(_clean(line)))
    return found


def _clean(path: str) -> str:
    parts = [part for part in path.strip().replace("\\", "/").split("/") if part not in ("", ".")]
    return "/".join(parts)
