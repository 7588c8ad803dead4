"""Which rank computes longer than the others, and which ranks communicate longer? From times by rank.

Reads what people print to find a straggler: one line a rank (`rank 13 gx-22 gpu 5: compute 1655.8
allreduce wait 3.1`, `[rank3] fwd_bwd_ms=120 comm_ms=40`) or a table with a heading. In a synchronous
step the late rank computes long and waits for nobody, while everyone else waits for it; behind a slow
link the ranks compute alike and their communication takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level
from firstfault_tools.hardware.excerpt import keep_marked
from firstfault_tools.metrics.pace.slow_since import tell_onset
from firstfault_tools.placement.rank_table import (
    RANK,
    RankTable,
    find_host,
    is_ruled,
    read_heading,
    read_values,
)

GATE = (
    "ompute", "omputation", "fwd", "FWD", "bwd", "BWD", "orward", "ackward", "gemm", "GEMM", "ernel",
)  # fmt: skip
MAX_RANKS = 65_536
MAX_LINE = 1_000
QUOTES = 6
SLOW, WAITS_LITTLE = 1.12, 0.6
"""A straggler computes this much longer than the median and waits less than this share of it."""
LINK_GAP, ALIKE = 1.25, 1.08
"""Communication of a slow group against the rest; computation counts as equal below `ALIKE`."""

_COMPUTE = expression(
    r"(?i)(?<![a-z])(?:compute|computation|fwd|bwd|forward|backward|gemm|kernel)(?![a-z])"
)
_WAIT = expression(
    r"(?i)(?<![a-z])(?:all[-_ ]?reduce|reduce[-_ ]?scatter|all[-_ ]?gather|comm|communication|nccl|"
    r"wait|waiting|waited|sync|barrier|collective)(?![a-z])"
)
_GPU = expression(r"(?i)(?<![a-z])(?:gpu|device|cuda)[ \t]{0,9}[-_=:#]?[ \t]{0,9}(\d{1,3})(?!\d)")
_OWN_HOST = expression(r"\[?(?P<host>[A-Za-z][\w.-]{0,60}\d)(?:\]:?|:| \|)\s")
OF_HOSTS = 1 << 30
"""Numbers from which on a row is that of a host, which tells no rank."""
_GPUS = frozenset({"gpu", "local rank", "device"})


@dataclass(slots=True)
class RankTimes:
    """Times of one rank, in the unit of the log; one entry for each time it was printed."""

    rank: int
    host: str | None = None
    gpu: int | None = None
    compute: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)
    line: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Columns:
    """What a table holds where."""

    table: RankTable
    gpu: tuple[int, ...]
    compute: tuple[int, ...]
    wait: tuple[int, ...]


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The straggler or the slow group of every file that holds times by rank."""
    marked = keep_marked(lines, GATE)
    if sum(_may_hold(text) for _, text in marked) == 0:
        return ()
    times = read_rank_times(lines, frozenset(n for n, text in marked if _may_hold(text)))
    found = judge_rank_times(times, file) if len(times) >= 3 else ()
    own = {n for n, text in marked if _may_hold(text)}
    return tuple(_tell(f, lines, own, file) for f in found)


def _tell(finding: Finding, lines: Sequence[tuple[int, str]], own: set[int], file: str) -> Finding:
    """A straggler with what it printed when it became slow. own: numbers of the rows of times."""
    if finding.rank is None or finding.kind != "metrics.rank_straggler":
        return finding

    def read(number: int, text: str) -> float | None:
        return _compute_of(number, text, finding.rank) if number in own else None

    return tell_onset(finding, lines, file, read)


def _compute_of(number: int, text: str, rank: int | None) -> float | None:
    """Compute time of a line that is a row of `rank`."""
    row: dict[int, RankTimes] = {}
    _read_line(number, text, row)
    return row[rank].compute[0] if rank is not None and rank in row else None


def _may_hold(text: str) -> bool:
    if len(text) > MAX_LINE:
        return False
    if "ank" not in text and "RANK" not in text and _OWN_HOST.match(text) is None:
        return False
    return _COMPUTE.search(text) is not None and _WAIT.search(text) is not None


def read_rank_times(
    lines: Iterable[tuple[int, str]], candidates: frozenset[int]
) -> list[RankTimes]:
    """Times of each rank in order of rank; ranks without a compute or a wait time are left out.

    candidates: numbers of the lines that may be a rank's own or a heading.
    """
    found: dict[int, RankTimes] = {}
    columns: _Columns | None = None
    for number, text in lines:
        if columns is not None:
            if _read_row(columns, number, text, found):
                continue
            if not is_ruled(text):
                columns = None
        if number not in candidates:
            continue
        heading = _read_columns(text)
        if heading is not None:
            columns = heading
        else:
            _read_line(number, text, found)
    whole = [t for t in found.values() if t.compute and t.wait]
    return sorted(whole, key=lambda t: t.rank)


def _read_columns(text: str) -> _Columns | None:
    """Columns of a table with both kinds of times, if this is its heading."""
    table = read_heading(text)
    if table is None:
        return None
    wait = table.columns(_WAIT.search)
    compute = tuple(i for i in table.columns(_COMPUTE.search) if i not in wait)
    gpu = table.columns(_GPUS.__contains__)
    return _Columns(table, gpu, compute, wait) if wait and compute else None


def _read_row(columns: _Columns, number: int, text: str, found: dict[int, RankTimes]) -> bool:
    row = columns.table.read_row(text)
    if row is None:
        return False
    times = [
        [value for i in kind if (value := row.numbers[i]) is not None]
        for kind in (columns.compute, columns.wait)
    ]
    if len(times[0]) < len(columns.compute) or len(times[1]) < len(columns.wait):
        return False
    gpu = row.numbers[columns.gpu[0]] if columns.gpu else None
    _add(
        found,
        row.rank,
        number,
        text,
        sum(times[0]),
        sum(times[1]),
        row.host,
        None if gpu is None else int(gpu),
    )
    return True


def _read_line(number: int, text: str, found: dict[int, RankTimes]) -> None:
    named = RANK.search(text) or _OWN_HOST.match(text)
    if named is None:
        return
    place = named.groupdict().get("host")
    if place is not None:
        known = {t.host: t.rank for t in found.values()}
        rank = known.get(place, OF_HOSTS + len(found))
    else:
        rank = int(named[1])
    # "loss", "tokens/s" and the like carry numbers of their own between the times
    values = read_values(text, named)
    wait = [v for name, v in values if _WAIT.search(name)]
    compute = [v for name, v in values if _COMPUTE.search(name) and not _WAIT.search(name)]
    if not wait or not compute:
        return
    host = place or find_host(text, named)
    gpu = _GPU.search(text)
    _add(found, rank, number, text, sum(compute), sum(wait), host, int(gpu[1]) if gpu else None)


def _add(
    found: dict[int, RankTimes],
    rank: int,
    number: int,
    text: str,
    compute: float,
    wait: float,
    host: str | None,
    gpu: int | None,
) -> None:
    if not (0 <= compute < 1e15 and 0 <= wait < 1e15) or rank < 0:
        return
    if rank not in found and len(found) >= MAX_RANKS:
        return
    mine = found.setdefault(rank, RankTimes(rank))
    mine.compute.append(compute)
    mine.wait.append(wait)
    mine.host, mine.gpu = mine.host or host, gpu if mine.gpu is None else mine.gpu
    mine.line, mine.text = number, text.strip()[:400]


def judge_rank_times(times: Sequence[RankTimes], file: str) -> tuple[Finding, ...]:
    """The late ranks, else the ranks behind slow links, else nothing."""
    compute = {t.rank: median(t.compute) for t in times}
    wait = {t.rank: median(t.wait) for t in times}
    usual, usual_wait = median(compute.values()), median(wait.values())
    if usual <= 0:
        return ()
    late = [t for t in times if compute[t.rank] >= SLOW * usual]
    # Half of the ranks cannot be stragglers of the other half.
    if late and len(late) * 2 < len(times):
        late.sort(key=lambda t: -compute[t.rank])
        return (_describe_late(late, times, compute, wait, file),)
    if usual_wait > 0 and max(compute.values()) <= ALIKE * min(compute.values()):
        group = _split_high(wait)
        if group:
            return (_describe_group([t for t in times if t.rank in group], times, wait, file),)
    return ()


def _split_high(wait: dict[int, float]) -> frozenset[int]:
    """The ranks above the widest gap, if it is wide and they are at most half of all."""
    order = sorted(wait, key=lambda rank: wait[rank])
    best, at = LINK_GAP, 0
    for place in range(1, len(order)):
        low, high = wait[order[place - 1]], wait[order[place]]
        if low > 0 and high / low > best:
            best, at = high / low, place
    return frozenset(order[at:]) if at and len(order) - at <= len(order) / 2 else frozenset()


def _name(one: RankTimes) -> str:
    if one.rank >= OF_HOSTS:
        return str(one.host)
    place = ", ".join(
        part for part in (one.host or "", f"GPU {one.gpu}" if one.gpu is not None else "") if part
    )
    return f"rank {one.rank}" + (f" ({place})" if place else "")


def _quote(
    odd: Sequence[RankTimes], file: str, usual: Sequence[RankTimes] = ()
) -> tuple[Evidence, ...]:
    """Rows of the ranks that stand out, and of some that do not, to compare with."""
    rows = [*((t, False) for t in odd), *((t, True) for t in usual)][:QUOTES]
    return tuple(
        Evidence(file, t.line, t.text, rank=_rank(t), host=t.host, usual=well) for t, well in rows
    )


def _rank(one: RankTimes) -> int | None:
    return one.rank if one.rank < OF_HOSTS else None


def _describe_late(
    late: Sequence[RankTimes],
    times: Sequence[RankTimes],
    compute: dict[int, float],
    wait: dict[int, float],
    file: str,
) -> Finding:
    worst = late[0]
    rest = [t for t in times if t not in late]
    usual = median(compute[t.rank] for t in rest)
    waited = median(wait[t.rank] for t in rest)
    own = wait[worst.rank]
    waits_little = own <= WAITS_LITTLE * waited
    peers = "hosts" if _rank(worst) is None else "ranks"
    title = (
        f"{_name_late(late)} slow: computes "
        f"{compute[worst.rank]:g} against {usual:g} on the median of the other {len(rest)} {peers} "
        f"({compute[worst.rank] / usual:.2f}x)"
    )
    if waits_little:
        title += f" and waits {own:g} where they wait {waited:g} for it"
    facts: dict[str, Json] = {
        "ranks": [t.rank for t in late if t.rank < OF_HOSTS],
        "compute": compute[worst.rank],
        "others_compute": usual,
        "ratio": round(compute[worst.rank] / usual, 3),
        "wait": own,
        "others_wait": waited,
        "gpu_index": worst.gpu,
    }
    hosts = {t.host for t in late}
    one_host = hosts.pop() if len(hosts) == 1 else None
    alone = any(t.host == one_host for t in rest)
    return Finding(
        kind="metrics.rank_straggler",
        title=title,
        level=Level.FAILURE,
        category=Category.PERFORMANCE,
        confidence=Confidence.CONFIRMED if waits_little else Confidence.LIKELY,
        evidence=_quote(late[:4], file, rest[:2]),
        # a whole host that is slow has a reason that is none of its ranks' own
        rank=_rank(worst) if len(late) == 1 or one_host is None or alone else None,
        host=one_host or worst.host,
        gpu=f"GPU {worst.gpu}" if worst.gpu is not None and len(late) == 1 else None,
        facts=facts,
    )


def _name_late(late: Sequence[RankTimes]) -> str:
    """The late ranks or hosts and their verb; a host's name keeps its first letter."""
    names = ", ".join(map(_name, late[:4])) + (", ..." if len(late) > 4 else "")
    if _rank(late[0]) is not None:
        names = names[0].upper() + names[1:]
    return f"{names} {'is' if len(late) == 1 else 'are'}"


def _describe_group(
    slow: Sequence[RankTimes], times: Sequence[RankTimes], wait: dict[int, float], file: str
) -> Finding:
    rest = [t for t in times if t not in slow]
    high, low = median(wait[t.rank] for t in slow), median(wait[t.rank] for t in rest)
    hosts = sorted({t.host for t in slow if t.host})
    where = f" on {', '.join(hosts[:6])}" if hosts else ""
    names = ", ".join(str(t.rank if t.rank < OF_HOSTS else t.host) for t in slow[:8])
    facts: dict[str, Json] = {
        "slow_ranks": [t.rank for t in slow if t.rank < OF_HOSTS],
        "hosts": list(hosts),
        "communication": high,
        "others_communication": low,
        "ratio": round(high / low, 3) if low else None,
    }
    return Finding(
        kind="metrics.slow_links",
        title=(
            f"Rank{'s' if len(slow) > 1 else ''} {names}{where}: communication takes {high:g} against {low:g} elsewhere while all "
            "ranks compute alike: the links of these ranks are slow, not their GPUs"
        ),
        level=Level.FAILURE,
        category=Category.COMMUNICATION,
        evidence=_quote(slow[:4], file, rest[:2]),
        host=hosts[0] if len(hosts) == 1 else None,
        facts=facts,
    )
