"""Is the file that could not be read shorter than its copies or its neighbours? By listings (`ls -l`) handed in beside a log.

A reader tells an end too early, an offset beyond the buffer, a header too large. The listing tells why: the copy on one
host is shorter than on the others, or one shard of a numbered row is far below the rest. Only a file that the failure
names, by its name or its size in bytes, or of which the rank that failed complained, explains it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from firstfault_tools.averages import median
from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.host_sections import split_sections
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.log.scan import make_line

CUT = Rule("file-shorter-than-its-copies", Relation.EXPLAINS, "a listing shows that the file is shorter than its copies or its neighbours")  # fmt: skip

_ROW = expression(
    r"^\s*-[rwxsStT-]{9}[.+@]?\s+\d{1,6}\s+\S{1,40}\s+\S{1,40}\s+(?P<size>\d{1,16})\s+(?:\S{1,12}\s+){2}\S{1,18}\s+(?P<path>/?\S.{0,400}?)\s*$"
)
_DIGITS = expression(r"\d+")
LEAST_LIKE = 3
"""Copies or neighbours that are alike before another is odd."""

SHORTER, ALIKE = 0.8, 0.05
"""Share of the median below which a shard of a row is cut off; spread of the others up to which they are alike."""

_COMPLAINS = expression(r"(?i)error|warn|unexpected|truncat|corrupt|fail|end of (?:data|file)")
"""What a rank says of a file that it could not read to its end."""

LONGEST = 600
MOST_ROWS = 5_000
KIND = "data.file_cut_off"

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Listed:
    path: str
    size: int
    host: str | None
    place: Evidence

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class _Short:
    """A file beside what it should be like. others: in words."""

    file: _Listed
    usual: _Listed
    others: str


def join_cut_files(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail
) -> list[Finding]:
    """Failures to read a file, with the listing that shows it to be cut off."""
    if not any(map(_may_read, findings)):
        return list(findings)
    short = list(_find_short(_read_listings(incident)))
    if not short:
        return list(findings)
    out = []
    told: dict[str, Place] = {}
    for finding in findings:
        cut = (
            next(
                (
                    s
                    for s in short
                    if _names(finding, s.file) or _complained(incident, finding, s.file)
                ),
                None,
            )
            if _may_read(finding)
            else None
        )
        # one failure meets the file, told by several rules of one line; the others follow from it
        if cut is None or told.setdefault(cut.file.path, _place(finding)) != _place(finding):
            out.append(finding)
            continue
        out.append(_tell(finding, cut))
        trail.note(CUT, finding, out[-1])
    return out


def _place(finding: Finding) -> Place:
    return (finding.evidence[0].file, finding.evidence[0].line) if finding.evidence else ("", 0)


def _may_read(finding: Finding) -> bool:
    live = finding.level in (Level.CAUSE, Level.FAILURE) and not finding.survived
    return live and finding.category in (
        Category.DATA,
        Category.CHECKPOINT,
        Category.CODE_BUG,
        None,
    )


def _read_listings(incident: LogIncident) -> list[_Listed]:
    files = {digest.file: digest for digest, _, _ in incident.lines_with(("-rw", "-r-"))}
    rows: list[_Listed] = []
    for file, digest in files.items():
        for section in split_sections(list(digest.kept[:MOST_ROWS])):
            for number, line in section.lines:
                if (row := _ROW.match(line[:600])) is not None:
                    place = Evidence(file, number, line)
                    rows.append(_Listed(row["path"], int(row["size"]), section.host, place))
    return rows


def _find_short(rows: Sequence[_Listed]) -> Iterator[_Short]:
    """Copies on one host that are shorter than those of the others; shards far below their row."""
    copies: dict[str, list[_Listed]] = defaultdict(list)
    shards: dict[tuple[str | None, str], list[_Listed]] = defaultdict(list)
    for row in rows:
        copies[row.path].append(row)
        shards[row.host, _DIGITS.sub("#", row.path)].append(row)
    for group in copies.values():
        if len({row.host for row in group}) >= LEAST_LIKE:
            yield from _odd_copies(group)
    for group in shards.values():
        if len(group) > LEAST_LIKE:
            yield from _odd_shards(group)


def _odd_copies(group: Sequence[_Listed]) -> Iterator[_Short]:
    usual = max(group, key=lambda row: sum(row.size == other.size for other in group))
    like = sum(row.size == usual.size for row in group)
    odd = [row for row in group if row.size < usual.size]
    if like >= LEAST_LIKE - 1 and like > len(odd):
        for row in odd:
            yield _Short(row, usual, f"{usual.size} bytes on the {like} other hosts listed")


def _odd_shards(group: Sequence[_Listed]) -> Iterator[_Short]:
    middle = median(row.size for row in group)
    odd = [row for row in group if row.size < SHORTER * middle]
    rest = [row for row in group if row not in odd]
    if (
        len(rest) < LEAST_LIKE
        or max(r.size for r in rest) - min(r.size for r in rest) > ALIKE * middle
    ):
        return
    for row in odd:
        yield _Short(row, rest[0], f"its {len(rest)} neighbours about {round(middle)}")


def _names(finding: Finding, file: _Listed) -> bool:
    """The failure speaks of the file: by its name, or by the very number of its bytes."""
    texts = _texts(finding)
    size = re.compile(rf"(?<!\d){file.size}(?!\d)")
    return any(file.name in text or size.search(text) is not None for text in texts)


def _complained(incident: LogIncident, finding: Finding, file: _Listed) -> bool:
    """The rank that failed complained of the file before: a warning it went on after, and came to its end too early."""
    if finding.rank is None or finding.category is not Category.DATA:
        return False
    return next(find_complaints(incident, finding.rank, (file.name,)), None) is not None


def find_complaints(incident: LogIncident, rank: int, holding: Sequence[str]) -> Iterator[str]:
    """Lines of the rank with one of these words that complain of something, as of a file that it could not read."""
    for digest, number, text in incident.lines_with(tuple(holding)):
        if len(text) > LONGEST or not _COMPLAINS.search(text):
            continue
        if rank_of(incident, make_line(digest.file, number, text, digest.year)) == rank:
            yield text


def _texts(finding: Finding) -> Iterable[str]:
    yield finding.title
    for evidence in finding.evidence:
        yield evidence.text


def _tell(finding: Finding, cut: _Short) -> Finding:
    where = f" on {cut.file.host}" if cut.file.host else ""
    words = (
        f"{cut.file.path} is cut off{where}: truncated at {cut.file.size} bytes, {cut.others}; "
        f"together with it: {finding.title}"
    )
    return replace(
        finding,
        kind=KIND,
        level=Level.CAUSE,
        title=words,
        category=finding.category or Category.DATA,
        evidence=(*finding.evidence[:2], cut.file.place, cut.usual.place, *finding.evidence[2:]),
        host=finding.host or cut.file.host,
        page=page_of_kind(KIND),
    )
