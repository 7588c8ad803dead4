"""Do processes of a host fight for memory, CPU cores or a drive? `free`, `uptime` beside `nproc`, `taskset -p`, `iostat -x`.

A host that swaps, more threads than cores, processes that all sit on one core, or a drive at 100 % beside idle
GPUs make a job slow without any error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, keep_near, quote_line
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.hardware.host_sections import map_hosts, split_sections
from firstfault_tools.hardware.pages import attach_pages

LOAD_MARKERS = (
    "load average",
    "nproc",
    "get_num_threads",
    "OMP_NUM_THREADS",
    "CPU(s):",
    "num_threads",
)
_LOAD = expression(r"\bload averages?: *(?P<one>\d{1,6}(?:\.\d+)?),? +(?P<five>\d{1,6}(?:\.\d+)?)")
_CORES = expression(r"^\s*(?:[\w.-]+: )?(?:CPU\(s\):\s+)?(?P<cores>\d{1,4})\s*$")
_THREADS = expression(
    r"(?:get_num_threads\(\)|num_threads|OMP_NUM_THREADS|omp_threads)['\"]?\s*[=:]\s*(?P<count>\d{1,4})\b"
)
_UNSET = expression(r"OMP_NUM_THREADS['\"]?\s*[=:]?\s*(?:<?(?:unset|not set|None)>?|''|\"\")")
_WAITING = expression(r"%?Cpu\(s\).*?(?P<share>\d{1,3}\.\d)[ %]*wa\b")
CROWDED, FAR_ABOVE, LEAST_LOAD = 1.5, 4.0, 16.0
"""Load for each core past which threads wait for cores; load against that of other hosts."""

DRIVE_MARKERS = ("%util",)
_ROW = expression(r"^\s*(?P<device>(?:nvme\d+n\d+|sd[a-z]{1,2}|vd[a-z]|xvd[a-z]|dm-\d+|md\d+))(?P<cells>(?:\s+[\d.]+){6,30})\s*$")  # fmt: skip
_MOVED = (("rMB/s", "read"), ("wMB/s", "written"), ("rkB/s", "read"), ("wkB/s", "written"))
BUSY, IDLE = 95.0, 10.0

MARKERS = ("Mem:", "Swap:", "affinity list:")
_MEM = expression(r"^\s*Mem:\s+(?P<total>\d{1,15})[GMK]?i?\s+(?P<used>\d{1,15})[GMK]?i?\s+\d+\S*\s+\S+\s+\S+\s+(?P<left>\d{1,15})[GMK]?i?\s*$")  # fmt: skip
_SWAP = expression(
    r"^\s*Swap:\s+(?P<total>\d{1,15})[GMK]?i?\s+(?P<used>\d{1,15})[GMK]?i?\s+\d+\S*\s*$"
)
_BOUND = expression(
    r"pid (?P<pid>\d{1,9})'s current affinity list: (?P<cores>\d{1,5})(?:-(?P=cores))?\s*$"
)
LEFT, SWAPPED = 0.03, 0.3
"""Share of memory that is available, and of swap in use, past which a host swaps all the time."""


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Facts that explain a slow run."""
    kept = keep_marked(lines, MARKERS)[:5_000]
    pressed = (*_find_swap(kept, file), *_find_one_core(kept, file)) if kept else ()
    return (*pressed, *_find_load(lines, file), *_find_full_drives(lines, file))


def _find_load(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Hosts with more runnable threads than cores: by the load average, or by thread pools times processes."""
    near = keep_near(lines, LOAD_MARKERS, before=1, after=2)[:5_000]
    if not near:
        return ()
    loads: dict[str, tuple[float, NumberedLine]] = {}
    cores: dict[str, tuple[int, NumberedLine]] = {}
    pools: dict[str, list[NumberedLine]] = defaultdict(list)
    unset: NumberedLine | None = None
    for section in split_sections(near):
        host = section.host or ""
        for number, text in section.lines:
            place = (number, text)
            if load := _LOAD.search(text[:400]):
                loads.setdefault(host, (float(load["one"]), place))
            elif ("nproc" in section.command or "CPU(s):" in text) and (
                found := _CORES.match(text)
            ):
                cores.setdefault(host, (int(found["cores"]), place))
            elif pool := _THREADS.search(text[:600]):
                pools[pool["count"]].append(place)
            if unset is None and _UNSET.search(text[:600]):
                unset = place
    crowded = _describe_crowd(loads, cores, pools, unset, near, file)
    return (crowded,) if crowded is not None else _compare_loads(loads, file)


def _describe_crowd(
    loads: Mapping[str, tuple[float, NumberedLine]],
    cores: Mapping[str, tuple[int, NumberedLine]],
    pools: Mapping[str, Sequence[NumberedLine]],
    unset: NumberedLine | None,
    near: Sequence[NumberedLine],
    file: str,
) -> Finding | None:
    count, users = max(pools.items(), key=lambda p: int(p[0]) * len(p[1]), default=("0", ()))
    threads = int(count) * len(users)
    for host, (have, place) in cores.items():
        load = loads.get(host)
        crowded = load is not None and load[0] >= CROWDED * have
        pooled = len(users) > 1 and int(count) > 1 and threads >= CROWDED * have
        if not crowded and not pooled:
            continue
        waiting = next((float(w["share"]) for _, t in near if (w := _WAITING.search(t))), 0.0)
        if crowded and waiting >= 20 and not pooled:
            what = f"the load average counts processes that wait for disk or network files (I/O wait {waiting:g}%)"
        elif pooled:
            why = "OMP_NUM_THREADS is not set, so " if unset is not None else ""
            what = (
                f"CPU oversubscription: {why}each of {len(users)} processes opens a pool of {count} threads (OpenMP/BLAS), "
                f"{threads} threads in all: they thrash and starve the processes that feed the GPUs; set OMP_NUM_THREADS to "
                f"at most {max(1, have // max(len(users), 1))} (cores by processes)"
            )
        else:
            what = (
                "CPU oversubscription: more threads want to run than there are cores (loader workers, OpenMP/BLAS pools "
                "with OMP_NUM_THREADS unset, or another job), so the processes that feed the GPUs wait for CPU time"
            )
        on = f" of {host}" if host else ""
        said = f"load average {load[0]:g} on the {have} CPU cores{on}" if load is not None else f"{have} CPU cores{on}"  # fmt: skip
        quoted = [place, *([load[1]] if load is not None else []), *users[:1], *([unset] if unset else [])]  # fmt: skip
        return replace(
            _make("cpu_crowded", f"{said}: {what}", list(dict.fromkeys(quoted)), file, 0.9),
            host=host or None,
        )
    return None


def _compare_loads(
    loads: Mapping[str, tuple[float, NumberedLine]], file: str
) -> tuple[Finding, ...]:
    """One host whose load is far above that of its peers."""
    named = {h: v for h, v in loads.items() if h}
    if len(named) < 3:
        return ()
    worst = max(named, key=lambda h: named[h][0])
    rest = [v for h, (v, _) in named.items() if h != worst]
    load, place = named[worst]
    if load < LEAST_LOAD or load < FAR_ABOVE * median(rest) or load < 2 * max(rest):
        return ()
    title = (
        f"host {worst} has a load average of {load:g}, the other {len(rest)} hosts {median(rest):g}: something else runs "
        "there or its processes wait for CPU or disk, and all ranks wait for that host"
    )
    return (replace(_make("cpu_crowded", title, [place], file, 0.7), host=worst),)


def _find_swap(kept: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    memory: tuple[int, str] | None = None
    for number, text in kept:
        if found := _MEM.match(text):
            short = int(found["left"]) < LEFT * int(found["total"])
            memory = (number, text) if short else None
        elif memory is not None and (swap := _SWAP.match(text)):
            total, used = int(swap["total"]), int(swap["used"])
            if total and used >= SWAPPED * total:
                title = (
                    f"the memory of the host is used up and {used / total:.0%} of its swap is in use: processes wait "
                    "for pages from disk (swapping), and all ranks wait for that host"
                )
                return (_make("host_swaps", title, [memory, (number, text)], file, 0.85),)
            memory = None
    return ()


def _find_one_core(kept: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    by_core: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for number, text in kept:
        if found := _BOUND.search(text):
            by_core[found["cores"]].append((number, text))
    core = max(by_core, key=lambda c: len(by_core[c]), default=None)
    if core is None or len(by_core[core]) < 2:
        return ()
    title = (
        f"{len(by_core[core])} processes are bound to CPU core {core} alone (affinity): ranks and their loader "
        "workers share one core, whatever the machine has"
    )
    return (_make("one_core", title, by_core[core][:4], file, 0.9),)


def _make(
    name: str, title: str, places: Sequence[tuple[int, str]], file: str, weight: float
) -> Finding:
    return Finding(
        kind=f"hardware.{name}",
        title=title,
        level=Level.CONTEXT,
        category=Category.PERFORMANCE,
        confidence=Confidence.LIKELY,
        evidence=tuple(Evidence(file, n, t.strip()[:400]) for n, t in places),
        page="throughput-drop" if name == "host_swaps" else "dataloader-cpu-cores",
        facts={"explains": "slow", "weight": weight},
    )


def _find_full_drives(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Drives that are full in most reports; a context fact that explains slowness."""
    near = keep_near(lines, DRIVE_MARKERS, before=0, after=60)
    if not near:
        return ()
    columns: list[str] = []
    load: dict[str, list[float]] = defaultdict(list)
    rates: dict[str, dict[str, float]] = {}
    places: dict[str, NumberedLine] = {}
    for number, line in near:
        if "%util" in line:
            columns = line.split()[1:]
        elif (row := _ROW.match(line)) and columns:
            cells = [float(c) for c in row["cells"].split() if c.count(".") <= 1]
            if len(cells) != len(columns):
                continue
            table = dict(zip(columns, cells, strict=True))
            load[row["device"]].append(table["%util"])
            rates[row["device"]] = table
            places[row["device"]] = (number, line)
    full = [d for d, v in load.items() if median(v) >= BUSY]
    idle = [d for d, v in load.items() if median(v) <= IDLE and d[:2] == (full[0][:2] if full else "")]  # fmt: skip
    if not full:
        return ()
    drive = full[0]
    host = map_hosts(split_sections(near)).get(places[drive][0]) or name_host(file)
    moved = [
        f"{rates[drive][column]:g} {column[1:]} {what}"
        for column, what in _MOVED
        if rates[drive].get(column)
    ]
    beside = f", while {', '.join(idle[:3])} is idle" if idle else ""
    return attach_pages(
        [
            Finding(
                kind="hardware.disk_saturated",
                title=f"drive {', '.join(full[:3])}{f' of {host}' if host else ''} is at {median(load[drive]):.0f} % utilisation"
                f" ({', '.join(moved)}){beside}: disk I/O is the bottleneck, whatever reads or writes there waits for its bandwidth",
                level=Level.CONTEXT,
                category=Category.PERFORMANCE,
                confidence=Confidence.LIKELY,
                evidence=(
                    quote_line(file, *places[drive]),
                    *(quote_line(file, *places[d]) for d in idle[:1]),
                ),
                host=host,
                facts={"drives": full, "idle": idle, "explains": "slow", "weight": 0.5},
            )
        ]
    )
