"""What does a table beside the log show: one subject that differs, all alike that should not be, a copy that stays behind?

People hand in what they measured as comma-separated rows with a heading. An engineer looks down its columns: where
all ranks, ports or devices agree and one does not, where every rank read the same documents, and where one version
counts up while another never follows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level, Strength, Together
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.digest import FileDigest

MOST_ROWS, LEAST_ROWS, LEAST_COLUMNS = 5_000, 4, 3
LEAST_SUBJECTS = 4
"""Subjects from which on one that differs is the odd one."""

LEAST_BEHIND = 5
"""Rows in which one version stays while another counts up."""

_SUBJECT = expression(r"(?i)(?:global_)?rank|host(?:name)?|node|gpu|device|dev|nic|hca|port")
_WHEN = expression(r"(?i)time(?:stamp)?|date|step|iter(?:ation)?|replay|round|run|try|size\w*")
_COMPUTED = expression(r"(?i)loss|grad|norm|crc|hash|checksum|sum\b|logit")
_LINK = expression(r"(?i)lnk|link|width|speed|rate|pcie|state|gen\b|mtu")
_DATA = expression(r"(?i)(?:\w+_)?(?:doc|sample|batch|example|record|shard|data|index)\w*_?ids?|(?:doc|sample|batch|data)_(?:hash|index|key)")  # fmt: skip
_VERSION = expression(r"(?i)\w*version\w*")
_RANK = expression(r"(?i)(?:global_)?rank")
_HOST = expression(r"(?i)host(?:name)?|node")


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    text: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """Columns and rows of one file."""

    file: str
    names: tuple[str, ...]
    rows: tuple[_Row, ...]

    def columns(self, wanted: re.Pattern[str]) -> tuple[int, ...]:
        """Columns whose whole name matches."""
        return tuple(i for i, n in enumerate(self.names) if wanted.fullmatch(n))

    def at(self, row: _Row, columns: Sequence[int]) -> tuple[str, ...]:
        """Cells of some columns."""
        return tuple(row.cells[i] for i in columns)


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """What the tables that were handed in show."""
    out = []
    for digest in incident.digests:
        table = _read_table(digest)
        if table is not None:
            out += [f for f in (_find_odd(table), _find_same_data(table), _find_behind(table)) if f]
    return out


def _read_table(digest: FileDigest) -> _Table | None:
    names: tuple[str, ...] = ()
    rows = []
    for number, text in islice(digest.kept, MOST_ROWS):
        cells = tuple(cell.strip() for cell in text.split(","))
        if not text.strip() or text.startswith("#"):
            continue
        if not names:
            if len(cells) < LEAST_COLUMNS or not all(c[:1].isalpha() for c in cells):
                return None
            names = cells
        elif len(cells) != len(names):
            return None
        else:
            rows.append(_Row(number, text, cells))
    return _Table(digest.file, names, tuple(rows)) if len(rows) >= LEAST_ROWS else None


def _groups(table: _Table) -> dict[tuple[str, ...], list[_Row]]:
    """Rows of one moment each: of all, where no column tells one."""
    when = table.columns(_WHEN)
    groups: dict[tuple[str, ...], list[_Row]] = defaultdict(list)
    for row in table.rows:
        groups[table.at(row, when)].append(row)
    return groups


def _find_odd(table: _Table) -> Finding | None:
    """One subject whose value differs in every moment, where all others agree."""
    subjects, when = table.columns(_SUBJECT), table.columns(_WHEN)
    groups = [rows for rows in _groups(table).values() if len(rows) >= LEAST_SUBJECTS]
    if not subjects or not groups:
        return None
    for column, name in enumerate(table.names):
        if column in (*subjects, *when) or not (_COMPUTED.search(name) or _LINK.search(name)):
            continue
        odd = [found for rows in groups if (found := _odd_row(rows, column)) is not None]
        who = {table.at(row, subjects) for row, _ in odd}
        if len(odd) == len(groups) and len(who) == 1:
            return _tell_odd(table, column, odd, len(groups[0]) - 1)
    return None


def _odd_row(rows: Sequence[_Row], column: int) -> tuple[_Row, str] | None:
    """The only row with another value than all others, and theirs."""
    counts = Counter(row.cells[column] for row in rows)
    usual, often = counts.most_common(1)[0]
    if often != len(rows) - 1:
        return None
    return next(row for row in rows if row.cells[column] != usual), usual


def _tell_odd(table: _Table, column: int, odd: Sequence[tuple[_Row, str]], others: int) -> Finding:
    row, usual = odd[0]
    name = table.names[column]
    rank, host = _cell(table, row, _RANK), _cell(table, row, _HOST)
    who = ", ".join(f"{table.names[i]} {row.cells[i]}" for i in table.columns(_SUBJECT))
    values = ", ".join(dict.fromkeys(r.cells[column] for r, _ in odd[:3]))
    computed = _COMPUTED.search(name) is not None
    if computed:
        each = f"in each of {len(odd)} comparisons " if len(odd) > 1 else ""
        means = "it computes something else from the same input: silent data corruption of that GPU is suspected"
        words = f"{who} alone differs {each}in {name} ({values}), where all {others} others agree on {usual}: {means}"
    else:
        words = f"{who} alone has {name} {values}, where all {others} others have {usual}: what runs over it goes at its pace"
        if "pci" in name.lower() or "lnk" in name.lower():
            words += "; the PCIe link is degraded (seating, riser, slot or BIOS)"
    return Finding(
        kind="table.odd_computation" if computed else "table.odd_link",
        title=words,
        level=Level.CAUSE,
        category=Category.HARDWARE,
        evidence=tuple(quote_line(table.file, r.number, r.text) for r, _ in odd[:3]),
        rank=int(rank) if rank and rank.isdecimal() else None,
        host=host,
        strength=Strength(Together.RANKS),
    )


def _cell(table: _Table, row: _Row, wanted: re.Pattern[str]) -> str | None:
    columns = table.columns(wanted)
    return row.cells[columns[0]] if columns else None


def _find_same_data(table: _Table) -> Finding | None:
    """Every rank read the same, in each step something else: the data set is not split over the ranks."""
    if not table.columns(_RANK):
        return None
    groups = [rows for rows in _groups(table).values() if len(rows) >= LEAST_SUBJECTS]
    for column in table.columns(_DATA):
        values = [{row.cells[column] for row in rows} for rows in groups]
        if len(values) < 2 or any(len(v) != 1 for v in values) or len(set.union(*values)) < 2:
            continue
        first = groups[0]
        words = (
            f"all {len(first)} ranks read the same data in every step ({table.names[column]} {first[0].cells[column]}, then "
            f"{groups[1][0].cells[column]}): the data set is not split by rank, so the batch is that of one rank, many times over"
        )
        return Finding(
            kind="table.same_data",
            title=words,
            level=Level.CAUSE,
            category=Category.DATA,
            evidence=tuple(quote_line(table.file, r.number, r.text) for r in (*first[:2], groups[1][0])),
            strength=Strength(Together.RANKS),
            facts={"explains": {"unlearned": 0.9}},
        )  # fmt: skip
    return None


def _find_behind(table: _Table) -> Finding | None:
    """One version counts up while the others stay at their first."""
    columns = table.columns(_VERSION)
    rises = [c for c in columns if _counts_up(table, c)]
    stays = [c for c in columns if len({row.cells[c] for row in table.rows[1:]}) == 1]
    if not rises or not stays or len(table.rows) < LEAST_BEHIND:
        return None
    last = table.rows[-1]
    own, copy = rises[0], stays[0]
    words = (
        f"{table.names[copy]} stays at {last.cells[copy]} while {table.names[own]} counts up to {last.cells[own]}: the weight sync never "
        "takes effect, so what is generated comes from stale weights"
    )
    return Finding(
        kind="table.stale_version",
        title=words,
        level=Level.CAUSE,
        category=Category.CODE_BUG,
        evidence=tuple(quote_line(table.file, r.number, r.text) for r in (table.rows[0], last)),
        strength=Strength(Together.SERIES),
    )


def _counts_up(table: _Table, column: int) -> bool:
    values = [row.cells[column] for row in table.rows]
    if not all(v.isdecimal() for v in values):
        return False
    return all(int(b) > int(a) for a, b in pairwise(values))
