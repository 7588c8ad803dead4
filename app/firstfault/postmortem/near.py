"""Since when does it last, where the logs are too large to be measured before the first answer?

By the lines that the scan has kept, and those round the deciding line, which are read from their place as its quote
is. What needs every line (hours lost, silences, the newest checkpoint) is left to the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from firstfault.investigation.diagnosis import ChainLink, Diagnosis, Extent, FirstLine
from firstfault.postmortem.evidence import NEAR_AFTER, NEAR_BEFORE, Artefacts
from firstfault.postmortem.since import find_since
from firstfault_tools.findings import Verdict
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.window import read_window

HEAD_LINES = 200
"""First lines of a log, in which most name their year."""


def add_since(
    diagnosis: Diagnosis, files: Mapping[str, Path], digests: Sequence[FileDigest]
) -> Diagnosis:
    """The diagnosis with the times of its chain and since when it lasts; itself where nothing failed."""
    first = diagnosis.first_line
    digest = next((d for d in digests if first is not None and d.file == first.file), None)
    if first is None or digest is None or diagnosis.verdict is Verdict.HEALTHY:
        return diagnosis
    if first.line and first.file not in files:
        return diagnosis
    near = Artefacts(files, given=tuple(_read_near(first, files[first.file], digest)))
    since, about = find_since(diagnosis, near, ())
    kept = {d.file: d for d in digests}
    chain = tuple(_time_link(link, near, kept) for link in diagnosis.cascade)
    extent = Extent((first.file, first.line), since, about, whole=False)
    return replace(diagnosis, cascade=chain, extent=extent)


def _read_near(first: FirstLine, path: Path, digest: FileDigest) -> Iterator[tuple[str, int, str]]:
    """The head of the deciding line's log, and what stands round that line."""
    low, high = max(1, first.line - NEAR_BEFORE), first.line + NEAR_AFTER
    for number, text in digest.kept[:HEAD_LINES]:
        if number < low:
            yield digest.file, number, text
    try:
        window = read_window(path, low, high, digest.offsets)
    except OSError:  # gone by now, which the receipt says
        return
    for number, text in window:
        yield digest.file, number, text


def _time_link(link: ChainLink, near: Artefacts, kept: Mapping[str, FileDigest]) -> ChainLink:
    """A link with its own time; one without a stamp has that of the last line before it where all between are known."""
    at, about = near.time_at(link.file or "", link.line, link.text)
    digest = kept.get(link.file or "")
    if at is not None or digest is None or not link.line:
        return replace(link, at=at, about=about)
    expected, position = link.line, digest.position(link.line)
    while position >= 0 and expected > link.line - NEAR_BEFORE:
        number, text = digest.kept[position]
        if number != expected:
            break  # lines were passed over: a nearer time may stand in them
        at, _ = near.time_at(digest.file, number, text)
        if at is not None:
            return replace(link, at=at, about=True)
        expected, position = expected - 1, position - 1
    return link
