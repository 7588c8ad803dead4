"""What bandwidth did nccl-tests measure, by size and by node, and which node is the odd one out?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Json, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, quote_line, read_lines
from firstfault_tools.hardware.outliers import find_low
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.roles import Role

_HOST = expression(r"(?<![\w.-])[A-Za-z][\w-]*\d[\w.-]*(?![\w-])")
_NOT_HOST = expression(r"(?i)^(?:a100|h[12]00|b[23]00|v100|mlx\d|gpu\d|all|nccl|step|run)\w*")
LOW = 0.8

GATE = ("_perf", "# Avg bus bandwidth", "busbw", "Out of bounds values")
MARKERS = GATE

_RANK = expression(
    r"^#\s+Rank\s+(?P<rank>\d{1,6})\s+(?:Group\s+\d{1,6}\s+)?Pid\s+\d{1,9} on\s+(?P<host>\S{1,255}) device"
    r"(?:\s+\d{1,3}\s+\[[\w:.]{1,20}\]\s+(?P<card>\S[^\n]{0,60}?)\s*$)?"
)
_ROW = expression(
    r"^\s*(?P<size>\d{1,15})\s+(?P<count>\d{1,15})\s+(?P<type>\w{2,12})\s+(?P<op>\w{2,10})\s+(?:(?P<root>-?\d{1,6})\s+)?"
    r"(?P<time>[\d.]{1,14})\s+(?P<alg>[\d.]{1,12})\s+(?P<bus>[\d.]{1,12})\s+(?P<wrong>\de[-+]\d\d|\d{1,15}|N/A)"
    r"(?:\s+(?P<time2>[\d.]{1,14})\s+(?P<alg2>[\d.]{1,12})\s+(?P<bus2>[\d.]{1,12})\s+(?P<wrong2>\de[-+]\d\d|\d{1,15}|N/A))?"
)
_AVERAGE = expression(r"#\s*Avg bus bandwidth\s*:\s*(?P<bus>[\d.]{1,12})")
_WRONG = expression(r"#\s*Out of bounds values\s*:\s*(?P<count>\d{1,15})\s+(?P<word>OK|FAILED)")
# A person's own line: "node-09: all_reduce_perf -b 1G ...: busbw = 17.1 GB/s".
_SHORT = expression(
    r"(?P<what>\w{1,40}_perf)\b(?P<options>[^:\n]{0,120}):\s*busbw\s*[=:]\s*(?P<bus>[\d.]{1,12})\s*GB/s"
)
# mpirun --tag-output puts `[1,0]<stdout>:` before each line.
_MPI_PREFIX = expression(r"^\s*\[\d{1,6},\d{1,6}\]<std(?:out|err)>:\s?")
_LEAST = 0.20
ROUNDING = 1e-3
"""Relative errors below are those of rounding, half precision included."""


@dataclass(slots=True)
class NcclRun:
    """One run: its hosts, the bus bandwidth by size, wrong values."""

    file: str
    label: str = ""
    hosts: set[str] = field(default_factory=set)
    cards: set[str] = field(default_factory=set)
    by_size: dict[int, float] = field(default_factory=dict)
    average_gbs: float | None = None
    wrong: int = 0
    checked: NumberedLine | None = None
    """The line that says that all values were right."""
    rounding: str = ""
    """Largest error that an old version prints where results differ in the last bits."""
    place: NumberedLine = (0, "")

    def add_row(self, number: int, line: str, row: re.Match[str]) -> None:
        """Take a row of the table: bandwidth of one size, and its wrong values."""
        bus = max(_number(row["bus"]), _number(row["bus2"] or "0"))
        self.by_size[int(row["size"])] = bus
        self.place = (number, line)
        for wrong in (row["wrong"], row["wrong2"]):
            self.wrong += int(wrong) if wrong and wrong.isdecimal() else 0
            if wrong and "e-" in wrong and _number(wrong) > _number(self.rounding):
                self.rounding = wrong

    @property
    def setting(self) -> tuple[frozenset[str], bool]:
        """Which cards, and whether within a host or between hosts: only runs that are alike in it are compared."""
        return frozenset(self.cards), len(self.hosts) > 1

    @property
    def best_gbs(self) -> float | None:
        """Bandwidth at the largest size, else the average."""
        if self.by_size:
            return self.by_size[max(self.by_size)]
        return self.average_gbs


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


class _RunReader:
    """Reads runs line by line. current: the one whose table is read; heading: what stands above it."""

    def __init__(self, file: str) -> None:
        self.file, self.heading = file, ""
        self.runs: list[NcclRun] = []
        self.current: NcclRun | None = None

    def _open(self, label: str = "") -> NcclRun:
        self.current = NcclRun(self.file, label)
        self.runs.append(self.current)
        return self.current

    def read(self, number: int, line: str) -> None:
        current = self.current
        if rank := _RANK.match(line):
            run = self._open() if current is None or current.by_size else current
            run.hosts.add(rank["host"])
            run.cards |= {rank["card"]} if rank["card"] else set()
        elif row := _ROW.match(line):
            (current or self._open(self.heading)).add_row(number, line, row)
        elif average := _AVERAGE.search(line):
            if current is not None:
                current.average_gbs = _number(average["bus"])
                if not current.by_size:
                    current.place = (number, line)
                self.current = None
        elif current is not None and (wrong := _WRONG.search(line)):
            if wrong["word"] == "FAILED":
                current.wrong = max(current.wrong, int(wrong["count"]))
            else:
                current.checked = (number, line)
        else:
            self._read_own_words(number, line)

    def _read_own_words(self, number: int, line: str) -> None:
        """What a person wrote: a result in one line, or a heading."""
        if short := _SHORT.search(line):
            before = line[: short.start()].strip(" :$#>-")
            label = before or self.heading or f"line {number}"
            bus = _number(short["bus"])
            self.runs.append(NcclRun(self.file, label, average_gbs=bus, place=(number, line)))
        elif (head := line.strip()).startswith("#") and (head.endswith(":") or head[:2] == "##"):
            self.heading, self.current = head.strip(" #:"), None


def read_runs(lines: Sequence[NumberedLine], file: str) -> list[NcclRun]:
    """Runs in printed order; short `busbw = ...` lines are runs of their own, named by what is before."""
    reader = _RunReader(file)
    for number, printed in lines:
        reader.read(number, _MPI_PREFIX.sub("", printed))
    for run in reader.runs:
        if run.hosts:
            more = "" if len(run.hosts) <= 4 else " and more"
            run.label = ", ".join(sorted(run.hosts)[:4]) + more
        run.label = run.label or file
    return [run for run in reader.runs if run.best_gbs]


def check_runs(runs: Sequence[NcclRun]) -> tuple[Finding, ...]:
    """Wrong results, the odd node out among runs of the same kind, and a summary."""
    found: list[Finding] = []
    for run in runs:
        if run.wrong:
            found.append(
                _make(
                    run,
                    "nccl_wrong",
                    f"{run.label}: {run.wrong} wrong values in an nccl-tests run: data was damaged",
                    Level.CAUSE,
                    Category.HARDWARE,
                )
            )
    for alike in _group_by_setting(runs):
        found += _find_slow(alike)
    if runs:
        best = [run.best_gbs for run in runs if run.best_gbs]
        found.append(
            _make(
                runs[0],
                "nccl_tests",
                f"{len(runs)} nccl-tests run(s): bus bandwidth {min(best):g} to {max(best):g} GB/s, "
                f"median {median(best):g}",
                Level.CONTEXT,
                None,
            )
        )
        found += _find_passed(runs)
    return tuple(found)


def _group_by_setting(runs: Sequence[NcclRun]) -> list[list[NcclRun]]:
    """Runs that may be compared: a pair of workstations says nothing of a node with NVSwitch."""
    groups: dict[tuple[frozenset[str], bool], list[NcclRun]] = {}
    for run in runs:
        groups.setdefault(run.setting, []).append(run)
    return list(groups.values())


def _find_slow(runs: Sequence[NcclRun]) -> list[Finding]:
    """The host that all slow runs share, else each run far below the others."""
    found: list[Finding] = []
    rates = {place: run.best_gbs for place, run in enumerate(runs) if run.best_gbs}
    common = find_common_host(rates, {place: runs[place].label for place in rates})
    if common is not None:
        host, slow = common
        rest = [rate for place, rate in rates.items() if place not in slow]
        worst = min(slow, key=lambda place: rates[place])
        words = (
            f"every nccl-tests run with host {host} is slow: bus bandwidth {rates[worst]:g} GB/s against "
            f"{median(rest):g} GB/s between the other hosts: the fault is on {host} (its NIC, PCIe path or port)"
        )
        finding = _make(
            runs[worst],
            "nccl_slow_node",
            words,
            Level.FAILURE,
            Category.PERFORMANCE,
            reference_gbs=median(rest),
        )
        found.append(replace(finding, host=host))
    for odd in () if common is not None else find_low(rates, _LEAST):
        run = runs[odd.key]
        others = "median" if odd.z is not None else "best"
        found.append(
            _make(
                run,
                "nccl_slow_node",
                f"{run.label}: all-reduce bus bandwidth {odd.value:g} GB/s, {100 * odd.below:.0f} % below "
                f"the {others} of {len(rates)} runs ({odd.reference:g} GB/s)",
                Level.FAILURE,
                Category.COMMUNICATION,
                below_percent=round(100 * odd.below, 1),
                reference_gbs=odd.reference,
            )
        )
    return found


def _find_passed(runs: Sequence[NcclRun]) -> list[Finding]:
    """All runs were checked and had no wrong value: what they print besides is notices."""
    if any(run.wrong or run.checked is None or not run.by_size for run in runs):
        return []
    run = runs[0]
    errors = next((r.rounding for r in runs if r.rounding), "")
    rounding = (
        f"; the error column shows at most {errors}, which is rounding of floating-point sums"
        if errors and _number(errors) < ROUNDING
        else ""
    )
    if errors and not rounding:
        return []
    words = (
        f"nccl-tests passed: {len(run.by_size)} sizes up to {max(run.by_size)} bytes, "
        f"'Out of bounds values : 0 OK'{rounding}; notices about plugins or adapters that are not there do no harm"
    )
    found = _make(run, "nccl_passed", words, Level.BENIGN, Category.COMMUNICATION)
    checked = run.checked or run.place
    return [replace(found, evidence=(quote_line(run.file, *checked), *found.evidence))]


def _make(
    run: NcclRun,
    kind: str,
    title: str,
    level: Level,
    category: Category | None,
    **facts: Json,
) -> Finding:
    return Finding(
        kind=f"network.{kind}",
        title=title,
        level=level,
        category=category,
        evidence=(quote_line(run.file, *run.place),),
        host=next(iter(run.hosts)) if len(run.hosts) == 1 else None,
        facts={
            "busbw_gbs": run.best_gbs,
            "hosts": sorted(run.hosts)[:64],
            "by_size_gbs": {str(size): rate for size, rate in sorted(run.by_size.items())},
            **facts,
        },
    )


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of nccl-tests output pasted into any text."""
    return check_runs(read_runs(lines, file)) if keep_marked(lines, MARKERS) else ()


def recognise_nccl_tests(_name: str, head: bytes) -> bool:
    """Saved nccl-tests output: its own comment lines at the top."""
    return b"# Using devices" in head and b"busbw" in head and b"# nThread" in head


def read_nccl_tests(artefacts: tuple[Artefact, ...]) -> Reading:
    """All runs of all files compared with each other."""
    runs = [run for artefact in artefacts for run in read_runs(read_lines(artefact), artefact.name)]
    rows: dict[str, Json] = {
        f"{run.file}: {run.label}": {str(size): rate for size, rate in sorted(run.by_size.items())}
        for run in runs
    }
    return Reading(check_runs(runs), {"busbw_gbs": rows})


SIGNS = ("# nThread",)

READER = Reader(
    name="nccl_tests",
    summary="nccl-tests: bus bandwidth by size and node, the odd node out, wrong values",
    recognise=recognise_nccl_tests,
    read=read_nccl_tests,
    # saved output often goes on with a log or another command
    owns=False,
    role=Role.EXPERIMENT,
)


def hosts_of(label: str) -> tuple[str, ...]:
    """Names in a heading that look like hosts."""
    found = [name for name in _HOST.findall(label) if not _NOT_HOST.match(name)]
    return tuple(dict.fromkeys(found))


def find_common_host(rates: Mapping[int, float], labels: Mapping[int, str]) -> tuple[str, list[int]] | None:  # fmt: skip
    """(host, slow runs) where every slow run of two or more hosts holds one host that no good run holds."""
    hosts = {run: hosts_of(labels[run]) for run in rates}
    if len(rates) < 3 or any(len(names) < 2 for names in hosts.values()):
        return None
    best = max(rates.values())
    slow = [run for run, rate in rates.items() if rate < LOW * best]
    good = {name for run, names in hosts.items() if run not in slow for name in names}
    shared = set.intersection(*(set(hosts[run]) for run in slow)) - good if slow else set()
    return (shared.pop(), slow) if len(shared) == 1 and len(slow) < len(rates) else None
