"""What does a table beside the log show: one subject that differs, all alike that should not be, a copy that stays behind?

People hand in what they measured as comma-separated rows with a heading. An engineer looks down its columns: where
all ranks, ports or devices agree and one does not, where every rank read the same documents, and where one version
counts up while another never follows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice, pairwise

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level, Strength, Together
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.place import name_ranks

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
_AMOUNT = expression(
    r"(?i)(?:(?:num|n|total|local|my)_)*(?:batch|sample|row|shard|record|example|doc|file|step)(?:e?s)?(?!\w*(?:seen|done|id|size|time|read))(?:_\w+)?"
)
_PATH = expression(r"(?i)(?:file_?)?path|file(?:name)?|shard|object|key")
_BYTES = expression(r"(?i)(?:size_?)?bytes|size|length")
_PEER = expression(r"(?i)(?:dst|dest|peer|target|remote)?_?(?:host(?:name)?|node|peer|target)")
_SIZE = expression(r"(?i)(?:packet_?|payload_?|msg_?)?(?:size|bytes)(?:_?bytes)?")
_LOSS = expression(r"(?i)(?:packet_?)?loss(?:_?(?:pct|percent|%))?")
_NUMBER = expression(r"\d+(?:\.\d+)?")
LEAST_COPIES = 3
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
            finders = (_find_odd, _find_same_data, _find_behind, _find_cut_copy, _find_size_limit)
            out += [f for find in finders if (f := find(table)) is not None]
            out += [f] if _waited(findings) and (f := _find_uneven(table)) is not None else []
    return out


def _read_table(digest: FileDigest) -> _Table | None:
    names: tuple[str, ...] = ()
    rows = []
    for number, text in islice(digest.kept, MOST_ROWS):
        cells = tuple(cell.strip() for cell in _split(text))
        if not text.strip() or text.startswith("#"):
            continue
        if not names:
            few = len(cells) < LEAST_COLUMNS and not (len(cells) == 2 and _RANK.fullmatch(cells[0]))
            if few or not all(c[:1].isalpha() for c in cells):
                return None
            names = cells
        elif len(cells) != len(names):
            return None
        else:
            rows.append(_Row(number, text, cells))
    return _Table(digest.file, names, tuple(rows)) if len(rows) >= LEAST_ROWS else None


def _split(text: str) -> list[str]:
    return text.split("," if "," in text else "\t" if "\t" in text else None)


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


def _waited(findings: Sequence[Finding]) -> bool:
    """Ranks waited for each other in vain."""
    return any(
        not f.survived
        and (f.kind.startswith(("collective.", "ranks.")) or f.has(FindingRole.WAITING))
        for f in findings
    )


def _find_uneven(table: _Table) -> Finding | None:
    """Ranks that hold fewer batches, samples or shards than others: they run out first, and the others wait."""
    column = _uneven_column(table)
    amounts = _amounts_by_rank(table, column) if column is not None else {}
    if column is None or len(amounts) < max(LEAST_SUBJECTS, len(table.rows)):
        return None
    least, most = min(amounts.values()), max(amounts.values())
    few = [r for r, n in amounts.items() if n == least]
    others = sorted(n for n in amounts.values() if n != least)
    span = f"{others[0]}" if others[0] == others[-1] else f"{others[0]} to {others[-1]}"
    words = (
        f"the data is uneven across ranks: {table.names[column]} is {least} on {name_ranks(few)} and {span} on the others: with fewer they run "
        "out first, and the others wait for them in the next collective"
    )
    own = next(r for r in table.rows if r.cells[column] == str(least))
    rest = next(r for r in table.rows if r.cells[column] == str(most))
    return Finding(
        kind="table.uneven_data",
        title=words,
        level=Level.CAUSE,
        category=Category.DATA,
        evidence=tuple(quote_line(table.file, r.number, r.text) for r in (own, rest)),
        rank=few[0] if len(few) == 1 else None,
        facts={"survived": False},
        strength=Strength(Together.RANKS),
    )


def _uneven_column(table: _Table) -> int | None:
    """The last column of amounts in which the rows differ."""
    amounts = [
        column
        for column in table.columns(_AMOUNT)
        if len(cells := {r.cells[column] for r in table.rows}) > 1
        and all(cell.isdecimal() for cell in cells)
    ]
    return amounts[-1] if amounts else None


def _amounts_by_rank(table: _Table, column: int) -> dict[int, int]:
    ranks = table.columns(_RANK)
    if not ranks:
        return {}
    rank = ranks[0]
    return {
        int(r.cells[rank]): int(r.cells[column]) for r in table.rows if r.cells[rank].isdecimal()
    }


def _find_cut_copy(table: _Table) -> Finding | None:
    """One host's copy of a file that is smaller than all others."""
    hosts, paths, sizes = (table.columns(p) for p in (_HOST, _PATH, _BYTES))
    if not hosts or not paths or not sizes:
        return None
    copies: dict[str, list[_Row]] = defaultdict(list)
    for row in table.rows:
        copies[row.cells[paths[0]]].append(row)
    for path, rows in copies.items():
        if len(rows) < LEAST_COPIES or not all(r.cells[sizes[0]].isdecimal() for r in rows):
            continue
        odd = _odd_row(rows, sizes[0])
        if odd is None or int(odd[0].cells[sizes[0]]) > int(odd[1]):
            continue
        row, usual = odd
        host = row.cells[hosts[0]]
        return Finding(
            kind="table.cut_copy",
            title=(
                f"the copy of {path.rsplit('/', 1)[-1]} on {host} is truncated: {row.cells[sizes[0]]} bytes, {usual} on the other "
                f"{len(rows) - 1} hosts: what is read past its end fails there alone"
            ),
            level=Level.CAUSE,
            category=Category.DATA,
            evidence=tuple(
                quote_line(table.file, r.number, r.text)
                for r in (row, next(r for r in rows if r is not row))
            ),
            host=host,
            strength=Strength(Together.RANKS),
        )
    return None


@dataclass(frozen=True, slots=True)
class _Ping:
    """Packets of one size that were sent to one peer."""

    size: int
    loss_percent: float
    row: _Row

    @property
    def lost(self) -> bool:
        return self.loss_percent >= 50


def _find_size_limit(table: _Table) -> Finding | None:
    """One peer that loses every packet above a size, where the others lose none: the MTU of the path to it."""
    pings = _read_pings(table)
    hit = [peer for peer, sent in pings.items() if any(ping.lost for ping in sent)]
    if len(hit) != 1 or len(pings) < 2:
        return None
    peer = hit[0]
    first = min((p for p in pings[peer] if p.lost), key=lambda p: (p.size, p.loss_percent))
    best = max((p for p in pings[peer] if not p.lost), key=lambda p: p.size, default=None)
    if best is None or best.size > first.size:
        return None
    return Finding(
        kind="table.size_limit",
        title=(
            f"packets above {best.size} bytes do not reach {peer} ({first.loss_percent:g}% lost at {first.size} bytes), and reach the other "
            f"{len(pings) - 1}: the MTU of the path or switch port to it is smaller than that of the hosts, so large packets (jumbo frames) are dropped"
        ),
        level=Level.CAUSE,
        category=Category.COMMUNICATION,
        evidence=tuple(quote_line(table.file, p.row.number, p.row.text) for p in (first, best)),
        host=peer,
        facts={"survived": False},
        strength=Strength(Together.RANKS),
    )


def _read_pings(table: _Table) -> dict[str, list[_Ping]]:
    """What was sent to each peer."""
    peers, sizes, losses = (table.columns(p) for p in (_PEER, _SIZE, _LOSS))
    if not peers or not sizes or not losses:
        return {}
    pings: dict[str, list[_Ping]] = defaultdict(list)
    for row in table.rows:
        size, loss = row.cells[sizes[0]], row.cells[losses[0]].rstrip("%")
        if size.isdecimal() and _NUMBER.fullmatch(loss):
            pings[row.cells[peers[0]]].append(_Ping(int(size), float(loss), row))
    return pings


def _counts_up(table: _Table, column: int) -> bool:
    values = [row.cells[column] for row in table.rows]
    if not all(v.isdecimal() for v in values):
        return False
    return all(int(b) > int(a) for a, b in pairwise(values))
