"""Which rank does a line name, on which host, and what does a table with a column of ranks hold?

One reading for all that compare ranks by what they print: `rank 13 gx-22 gpu 5: ...`, `[rank3] ...`,
`global_rank=7 host=node-2 ...`, or a heading `rank | host | compute | wait` with a row a rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.prefix import read_prefix

RANK = expression(
    r"(?i)(?<![a-z])(?:global[-_ ]?)?rank[ \t]{0,9}[-_=:#]?[ \t]{0,9}(?P<rank>\d{1,6})(?!\d|\.\d)"
)
_HOST_TOLD = expression(
    r"(?i)(?<![a-z])(?:host(?:name)?|node)(?:[ \t]*[=:][ \t]*([a-z0-9][\w.-]{0,62})|[ ]{1,2}([a-z][\w.-]*\d[\w.-]*))"
)
_HOST_BEHIND = expression(r"\]?[ \t,|:(@]*(?:on[ \t]+|of[ \t]+)?([A-Za-z][\w-]*\d[\w.-]*)")
_NOT_HOST = expression(r"(?i)gpu|rank|cuda|device|step|iter|local|h2d|d2h|bf16|fp\d")
_HEADING = expression(r"(?i)(?<!\w)(?:global_)?rank(?:[|,;\s]+[a-z]|[|,;\s]*$)")
_UNIT = expression(r"(?i)[(\[](?:ms|s|us|sec|seconds)[)\]]")
_CELLS = expression(r"[|,;\s]+")
_THOUSANDS = expression(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_NUMBER = expression(r"\d{1,14}(?:\.\d{1,15})?(?:[eE][-+]?\d{1,2})?")
_RULED = " |+-=:\t\r"
_RANKS, _HOSTS = ("rank", "global_rank"), ("node", "host", "hostname")


_VALUE = expression(
    r"(?P<name>[A-Za-z][A-Za-z0-9_+/ -]{0,40}?)[ \t]{0,9}(?:\((?:ms|s|us)\)|\[(?:ms|s|us)\])?[ \t]{0,9}[:=]?[ \t]{0,9}"
    r"(?<![\w.-])(?P<value>\d{1,12}(?:\.\d{1,9})?)(?![\w.-]*[\d:])"
)


def read_values(text: str, named: re.Match[str]) -> list[tuple[str, float]]:
    """(name in small letters, value) of what stands behind the name of a rank or host."""
    found = _VALUE.finditer(text, named.end())
    return [
        (" ".join(m["name"].replace("_", " ").lower().split()), float(m["value"])) for m in found
    ]


def find_host(text: str, named: re.Match[str]) -> str | None:
    """Host that a line tells, or that stands right behind its rank. named: where RANK was found."""
    if told := _HOST_TOLD.search(text):
        return told[1] or told[2]
    behind = _HOST_BEHIND.match(text, named.end())
    return behind[1] if behind and not _NOT_HOST.match(behind[1]) else None


@dataclass(frozen=True, slots=True)
class RankRow:
    """One row. numbers: by column, None for what is no number."""

    rank: int
    host: str | None
    numbers: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class RankTable:
    """The columns of a table, one of which is the rank."""

    names: tuple[str, ...]
    rank: int
    host: int | None

    def columns(self, wanted: Callable[[str], object]) -> tuple[int, ...]:
        """Columns whose name, with spaces for underscores, is wanted."""
        return tuple(i for i, n in enumerate(self.names) if wanted(n.replace("_", " ")))

    def read_row(self, text: str) -> RankRow | None:
        """A row of the table, or None for any other line."""
        size = len(self.names)
        cells = _split(text)
        if len(cells) > size:
            # commas within numbers are thousands separators where the number of cells needs that
            cells = _split(_THOUSANDS.sub(lambda number: number[0].replace(",", ""), text))
        cells = cells[-size:] if len(cells) == size + 1 else cells
        if len(cells) != size or not cells[self.rank].isdecimal() or len(cells[self.rank]) > 6:
            return None
        numbers = tuple(float(c) if _NUMBER.fullmatch(c) else None for c in cells)
        host = cells[self.host] if self.host is not None else None
        return RankRow(int(cells[self.rank]), host, numbers)


def is_ruled(text: str) -> bool:
    """An empty line, or one that only rules off a table."""
    return not text.strip(_RULED)


def read_heading(text: str) -> RankTable | None:
    """The table whose heading this line is; units are no columns."""
    if _HEADING.search(text) is None:
        return None
    body = text[read_prefix(text)[1] :] if text[:1] in "[(0123456789" else text
    names = tuple(name.lower() for name in _split(_UNIT.sub(" ", body)))
    ranks = [i for i, name in enumerate(names) if name in _RANKS]
    if len(ranks) != 1 or any(name.replace(".", "").isdecimal() for name in names):
        return None
    return RankTable(names, ranks[0], next((i for i, n in enumerate(names) if n in _HOSTS), None))


def read_seats(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(rank, host) of the rows below each heading with a column of both, up to the first line that is no row."""
    table: RankTable | None = None
    for text in lines:
        row = table.read_row(text) if table is not None and table.host is not None else None
        if row is not None and row.host and any(map(str.isalpha, row.host)):
            yield row.rank, row.host
        elif table is None or not is_ruled(text):
            table = read_heading(text) if "ank" in text or "RANK" in text else None


def _split(text: str) -> list[str]:
    return [cell for cell in _CELLS.split(text.strip(" |#\t\r")) if cell]
