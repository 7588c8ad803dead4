"""What became of the file that could not be read, by the log of another program? It expired, was deleted, was not written to its end.

The reader names a file and tells that it is missing or ends too early. A copy job, a cleaner or the rules of a store
tell why, of the same name, in a log of their own. The name links both: that of the failure, or the one of which the rank
that failed complained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from firstfault_tools.causality.cut_files import LONGEST, find_complaints
from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.kind_pages import page_of_kind
from firstfault_tools.log.scan import make_line

LOST = Rule("file-lost-by-another-program", Relation.EXPLAINS, "a log of another program tells what became of the file that the failure names")  # fmt: skip
KIND, OF_CHECKPOINT = "data.file_lost", "checkpoint.file_lost"


class Fate(StrEnum):
    """What became of a file, in the words of the verdict."""

    EXPIRED = "was expired by a lifecycle rule of its store"
    DELETED = "was deleted"
    UNWRITTEN = "was not written to its end"


_WORDS = (
    "xpir", "EXPIRE", "elet", "nlink", "emov", "urg", "rm -", "rror", "EFBIG", "ENOSPC", "EDQUOT", "o space left", "runcat",
    "ncomplete", "hort write", "uota", "nterrupted", "ismatch", "imed out",
)  # fmt: skip
_UNWRITTEN = expression(
    r"(?i)\b(?:cp|mv|dd|tar|copy|copied|copying|rsync|writ(?:e|ing|ten)|upload\w*|download\w*|sync|put|save|saving|extract\w*|fetch\w*)\b"
    r".{0,300}?(?:write error|short write|file too large|\b(?:EFBIG|ENOSPC|EDQUOT)\b|no space left|quota exceeded|"
    r"input/output error|truncated|incomplete|interrupted|timed out|mismatch|\berror\b)"
)
_FATES = (
    (Fate.EXPIRED, expression(r"(?i)\bexpir(?:e|ed|es|y|ing|ation)\b")),
    (Fate.DELETED, expression(r"(?i)\b(?:delet(?:e|ed|es|ing)|deleteobjects?|unlink(?:ed|ing)?|remov(?:ed|ing)|purg(?:ed|ing))\b|\brm -\w+ ")),
    (Fate.UNWRITTEN, _UNWRITTEN),
)  # fmt: skip
_NOT_DONE = expression(r"(?i)\b(?:not|never|dry[- ]?run|would|skip\w*|retry\w*|keep\w*)\b")
_FILE = expression(r"(?<![\w.-])(?=[\w.-]{0,200}\d)(?P<name>\w[\w-]{1,120}(?:\.\w[\w-]{0,40}){1,4})(?![\w-])")  # fmt: skip
_NO_DATA = expression(r"\.(?:py|pyc|so|sh|cpp|cu|h|log|txt|yaml|yml|json|local|com|internal|org|net)(?:\.\d+)*$|^[\d.:_-]+$")  # fmt: skip

MOST_NAMES = 5_000
_MAY_READ = (None, Category.DATA, Category.CHECKPOINT, Category.ENVIRONMENT, Category.CODE_BUG)


@dataclass(frozen=True, slots=True)
class _Lost:
    """What one line of another program says of a file."""

    name: str
    fate: Fate
    place: Evidence


def join_file_fates(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail
) -> list[Finding]:
    """Failures to read a file, with what another log tells of that file."""
    if len(incident.digests) < 2 or not any(map(_may_read, findings)):
        return list(findings)
    lost = _read_fates(incident)
    if not lost:
        return list(findings)
    out = []
    told: set[str] = set()
    for finding in findings:
        own = {e.file for e in finding.evidence if not _is_listing(e)}
        names = _names_of(incident, finding) if _may_read(finding) else iter(())
        found = next((f for n in names for f in lost.get(n, ()) if _fits(finding, f, own)), None)
        if found is None or found.name in told:
            out.append(finding)
            continue
        told.add(found.name)
        out.append(_tell(finding, found, _count_alike(lost, found)))
        trail.note(LOST, finding, out[-1])
    return out


def _may_read(finding: Finding) -> bool:
    live = finding.level in (Level.CAUSE, Level.FAILURE) and not finding.survived
    return live and finding.category in _MAY_READ


def _is_listing(evidence: Evidence) -> bool:
    return evidence.text.lstrip().startswith("-r")


def _read_fates(incident: LogIncident) -> Mapping[str, Sequence[_Lost]]:
    """By the name of a file: lines that tell that it went, or was not written to its end."""
    lost: dict[str, list[_Lost]] = defaultdict(list)
    for digest, number, text in incident.lines_with(_WORDS):
        if len(text) > LONGEST or _NOT_DONE.search(text):
            continue
        fate = next((fate for fate, words in _FATES if words.search(text)), None)
        if fate is None:
            continue
        place = make_line(digest.file, number, text, digest.year).evidence()
        if place.rank is not None or incident.progress[digest.file].trained():
            continue  # another rank that met the same
        for name in _read_names(text):
            if len(lost) < MOST_NAMES:
                lost[name].append(_Lost(name, fate, place))
    return lost


def _read_names(text: str) -> Iterator[str]:
    """Names of files of data that a line tells, without their folders."""
    if 'File "' not in text:
        names = (m["name"] for m in _FILE.finditer(text[:LONGEST]))
        yield from (name for name in names if not _NO_DATA.search(name))


def _names_of(incident: LogIncident, finding: Finding) -> Iterator[str]:
    """Files that the failure names, then those of which its rank complained."""
    for evidence in finding.evidence:
        yield from _read_names(evidence.text)
    if finding.rank is None:
        return
    stems = ("rror", "arn", "nexpected", "runcat", "orrupt", "ail", "end of")
    for text in find_complaints(incident, finding.rank, stems):
        yield from _read_names(text)


def _fits(finding: Finding, lost: _Lost, own: set[str]) -> bool:
    """Another program tells it, and no clock says that it did so later."""
    later = finding.time is not None and lost.place.time is not None and lost.place.time > finding.time  # fmt: skip
    return lost.place.file not in own and not later


def _count_alike(lost: Mapping[str, Sequence[_Lost]], found: _Lost) -> int:
    """Other files of which the same log tells the same."""
    alike = {n for n, rows in lost.items() if any(r.fate is found.fate and r.place.file == found.place.file for r in rows)}  # fmt: skip
    return len(alike - {found.name})


def _tell(finding: Finding, lost: _Lost, others: int) -> Finding:
    beside = f", {others} other file{'s' if others > 1 else ''} too" if others else ""
    words = f"{lost.name} {lost.fate} ({lost.place.file.rsplit('/', 1)[-1]}{beside})"
    kind = OF_CHECKPOINT if finding.category is Category.CHECKPOINT else KIND
    # who meets first that several files are gone is chance
    rank = None if others else finding.rank
    return replace(
        finding,
        kind=kind,
        level=Level.CAUSE,
        title=f"{words}: {finding.title}",
        category=finding.category or Category.DATA,
        rank=rank,
        evidence=(*finding.evidence[:1], lost.place, *finding.evidence[1:]),
        page=page_of_kind(kind),
    )
