"""Which line finders does a log need? Of thousands of short logs many are asked at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.kept import NumberedLines
from firstfault_tools.registry import LineFinder, line_finders

SMALL_LINES, TOGETHER = 200, 64
"""Kept lines of a log up to which it is short, and short logs that are asked together."""

Asked = tuple[FileDigest, Mapping[str, LineFinder]]


def choose_finders(digests: Sequence[FileDigest]) -> Iterator[Asked]:
    """Each log, in order, with the finders whose words it may hold."""
    short: list[FileDigest] = []
    for digest in digests:
        if len(digest.kept) > SMALL_LINES:
            yield from _ask_together(short)
            short = []
            yield digest, line_finders()
            continue
        short.append(digest)
        if len(short) == TOGETHER:
            yield from _ask_together(short)
            short = []
    yield from _ask_together(short)


def _ask_together(digests: Sequence[FileDigest]) -> Iterator[Asked]:
    lines = NumberedLines(line for digest in digests for line in digest.kept)
    finders = {name: find for name, find in line_finders().items() if find.may_find(lines)}
    for digest in digests:
        yield digest, finders
