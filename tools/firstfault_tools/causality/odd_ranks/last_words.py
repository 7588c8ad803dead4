"""What was a rank doing when it fell silent? Its last telling line, and what kind of work that is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

LOOKED_AT = 12
"""Lines of the rank, nearest first, among which the telling one is chosen."""

SEARCHED = 4_000
CONTINUATION = 6
NOISE = expression(
    r"ProcessGroupNCCL|closing signal|NCCL INFO|TCPStore|^\s*$|Traceback|frame #|OMP_NUM_THREADS|FutureWarning|DeprecationWarning"
)
_SETTING = expression(r"\b\w+=\S+")
"""A setting printed at the start names trouble ("timeout=600s") and tells of none."""

NEARBY_S = 600.0
"""Seconds before the last line within which a warning still tells what the rank was doing: the default NCCL timeout."""

_TELLING = expression(
    r"(?i)\bwarn|\berror\b|skip|exception|nan\b|fail|retry|retries|timed? ?out|give up|giving up"
)


@dataclass(frozen=True, slots=True)
class Doing:
    """A kind of work that keeps a rank from its peers. trouble: the line must tell of trouble as well."""

    name: str
    words: re.Pattern[str]
    trouble: bool
    category: Category
    page: str
    means: str
    fix: str
    """How the fix of the page begins that mends it; '' where the page's order tells."""


@cache
def _load() -> tuple[tuple[Doing, ...], re.Pattern[str]]:
    raw = json.loads((Path(__file__).parent / "doing.json").read_text(encoding="utf-8"))
    rows = tuple(
        Doing(
            name=row["name"],
            words=expression(row["words"], re.IGNORECASE),
            trouble=row.get("trouble", False),
            category=Category(row["category"]),
            page=row["page"],
            means=row["means"],
            fix=row.get("fix", ""),
        )
        for row in raw["rows"]
    )
    return rows, expression(raw["trouble"], re.IGNORECASE)


def read_doing(words: Sequence[Line]) -> Doing | None:
    """The kind of work that the last words tell of, None where they are ordinary."""
    return read_doing_in(x.message if x.message.strip() else x.text for x in words)


def read_doing_in(texts: Iterable[str]) -> Doing | None:
    """The kind of work that the first telling one of some texts tells of."""
    rows, trouble = _load()
    for text in texts:
        for row in rows:
            if row.words.search(text) and (not row.trouble or trouble.search(text)):
                return row
    return None


def last_words(incident: LogIncident, rank: int, before: Line) -> list[Line]:
    """The last telling line of `rank` before line `before`: a warning if there is one nearby.

    Looked for in the log that holds `before`, else in the rank's own log. A debugger's prompt after its
    last line has no label and belongs to it.
    """
    own = list(_spoken_in(incident.digest_of(before.file), rank, before))
    if not own:
        for digest in incident.digests:
            if digest.name_rank == rank or (digest.file != before.file and rank in digest.ranks):
                own = list(_spoken_in(digest, rank, before))
                if own:
                    break
    if not own:
        return []
    prompt = _prompt_after(incident, own[0])
    if prompt is not None:
        return [prompt, own[0]]
    return [next((line for line in own if _tells(line, own[0])), own[0])]


def _tells(line: Line, last: Line) -> bool:
    """The line tells of trouble, not long before the last one."""
    if line.time is not None and last.time is not None and last.time - line.time > NEARBY_S:
        return False
    if _TELLING.search(_SETTING.sub("", line.message)) is not None:
        return True
    doing = read_doing((line,))
    return doing is not None and doing.name == "ended"


def _spoken_in(digest: FileDigest, rank: int, before: Line) -> Iterator[Line]:
    same = digest.file == before.file
    end = digest.position(before.number - 1) + 1 if same else len(digest.kept)
    found = 0
    for number, text in reversed(digest.kept[max(0, end - SEARCHED) : end]):
        if NOISE.search(text):
            continue
        line = make_line(digest.file, number, text, digest.year)
        speaker = line.place.rank
        if speaker != rank and not (speaker is None and digest.name_rank == rank):
            continue
        if (
            not same
            and before.time is not None
            and line.time is not None
            and line.time > before.time
        ):
            continue
        yield line
        found += 1
        if found > LOOKED_AT:
            return


def _prompt_after(incident: LogIncident, line: Line) -> Line | None:
    """A debugger's prompt among the unlabelled lines right after `line`."""
    debugger = next(row for row in _load()[0] if row.name == "debugger")
    digest = incident.digest_of(line.file)
    for number, text in digest.lines_after(line.number, CONTINUATION):
        follower = make_line(digest.file, number, text, digest.year)
        if follower.place.rank is not None:
            return None
        if debugger.words.search(text):
            return follower
    return None
