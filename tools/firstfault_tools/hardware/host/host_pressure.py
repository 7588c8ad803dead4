"""Do processes of a host fight for memory, CPU cores or a drive? `free`, `uptime` beside `nproc`, `taskset -p`, `iostat -x`.

A host that swaps, more threads than cores, processes that all sit on one core, or a drive at 100 % beside idle
GPUs make a job slow without any error.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import NumberedLine, keep_marked, keep_near, quote_line
from firstfault_tools.hardware.host_name import name_host
from firstfault_tools.hardware.host_sections import map_hosts, split_sections

LOAD_MARKERS = (
    "load average",
    "nproc",
    "get_num_threads",
    "OMP_NUM_THREADS",
    "CPU(s):",
    "num_threads",
    "SLURM_CPUS_",
    "_CPUS_PER_",
    "cpu_count",
)
_LOAD = expression(r"\bload averages?: *(?P<one>\d{1,6}(?:\.\d+)?),? +(?P<five>\d{1,6}(?:\.\d+)?)")
_CORES = expression(r"^\s*(?:[\w.-]+: )?(?:CPU\(s\):\s+)?(?P<cores>\d{1,4})\s*$")
_GRANTED = expression(
    r"(?:SLURM_CPUS_ON_NODE|SLURM_JOB_CPUS_PER_NODE|SLURM_CPUS_PER_TASK|cpu_count(?:\(\))?)['\"]?\s*(?:->|[=:])\s*(?P<cores>\d{1,4})\b"
)
_BUSY = expression(
    r"%?Cpu\(s\):\s*(?P<user>\d{1,3}\.\d)[ %]*us,\s*(?P<system>\d{1,3}\.\d)[ %]*sy,.*?(?P<idle>\d{1,3}\.\d)[ %]*id"
)
_WORKERS = expression(r"\bnum_?workers['\"]?\s*[=:]?\s*(?P<count>\d{1,3})\b")
_THREADS = expression(
    r"(?:get_num_threads\(\)|num_threads|OMP_NUM_THREADS|omp_threads)['\"]?\s*[=:]\s*(?P<count>\d{1,4})\b"
)
_UNSET = expression(r"OMP_NUM_THREADS['\"]?\s*[=:]?\s*(?:<?(?:unset|not set|None)>?|''|\"\")")
_WAITING = expression(r"%?Cpu\(s\).*?(?P<share>\d{1,3}\.\d)[ %]*wa\b")
_VMSTAT = expression(
    r"^\s*\d{1,5}\s+(?P<blocked>\d{1,5})(?:\s+\d{1,15}){10,12}\s+\d{1,3}\s+(?P<wait>\d{1,3})\s+\d{1,3}(?:\s+\d{1,3})?\s*$"
)
_NFS = expression(
    r"^\s+(?P<ops>\d+\.\d+)\s+\d+\.\d+\s+(?P<each>\d+\.\d+)\s+\d+ \([\d.]+%\)\s+\d+\.\d+\s+(?P<exe>\d+\.\d+)\b"
)
_TASK = expression(
    r"^\s*(?P<pid>\d{2,8})\s+(?P<user>[a-z_][\w+-]*)\s+\S+\s+-?\d+\s+\S+\s+\S+\s+\S+\s+[RSDZTI]\s+(?P<cpu>\d{1,6}(?:\.\d)?)\s+\d[\d.]*\s+\S+\s+(?P<command>\S.*)$"
)
_ARRAY = expression(r"\[\d+/\d+\] \[(?P<state>[U_]{2,32})\]")
_ON_ALL = expression(r"\$ (?P<command>(?:pdsh|clush|parallel-ssh)\s.*)$")
_CELL = expression(r"^(?P<host>[A-Za-z][\w.-]{0,62}):\s+(?P<value>\S.*)$")
_PER_SECOND = expression(r"(?P<n>\d+(?:\.\d+)?) ?(?P<unit>[KMGTkmgt])i?[Bb](?:/s|ps|it/s)")
_MEANINGS = {
    "numa_balancing": "automatic NUMA balancing moves memory pages between sockets while the ranks run",
    "scaling_governor": "the governor keeps the clock of the CPU down",
    "transparent_hugepage": "memory pages of another size cost time",
    "driver_version": "another GPU driver runs there",
    "dd if=": "reading from storage is slow there",
    "fio": "storage is slow there",
    "iperf": "its network is slow",
}
_PAGES = {
    "host_swaps": "throughput-drop",
    "disk_wait": "data-slow",
    "host_unlike": "straggler-domination",
}
FOREIGN = 800.0
"""Percent of one core from which a process of another user matters."""
CROWDED, FAR_ABOVE, LEAST_LOAD = 1.5, 4.0, 16.0
"""Load for each core past which threads wait for cores; load against that of other hosts."""

DRIVE_MARKERS = ("%util",)
_ROW = expression(r"^\s*(?P<device>(?:nvme\d+n\d+|sd[a-z]{1,2}|vd[a-z]|xvd[a-z]|dm-\d+|md\d+))(?P<cells>(?:\s+[\d.]+){6,30})\s*$")  # fmt: skip
_MOVED = (("rMB/s", "read"), ("wMB/s", "written"), ("rkB/s", "read"), ("wkB/s", "written"))
BUSY, IDLE = 95.0, 10.0

MARKERS = ("Mem:", "Swap:", "affinity list:")
_SIZE = r"\d{1,15}(?:[.,]\d{1,3})?[KMGTP]?i?B?"
_MEM = expression(
    rf"^\s*Mem:\s+(?P<total>{_SIZE})\s+(?P<used>{_SIZE})\s+{_SIZE}\s+\S+\s+\S+\s+(?P<left>{_SIZE})\s*$"
)
_SWAP = expression(rf"^\s*Swap:\s+(?P<total>{_SIZE})\s+(?P<used>{_SIZE})\s+\S+\s*$")
_BOUND = expression(
    r"pid (?P<pid>\d{1,9})'s current affinity list: (?P<cores>\d{1,5})(?:-(?P=cores))?\s*$"
)
LEFT, SWAPPED = 0.03, 0.3
"""Share of memory that is available, and of swap in use, past which a host swaps all the time."""


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Facts that explain a slow run."""
    kept = keep_marked(lines, MARKERS)[:5_000]
    pressed = (*_find_swap(kept, file), *_find_one_core(kept, file)) if kept else ()
    return (
        *pressed,
        *_find_load(lines, file),
        *_find_full_drives(lines, file),
        *_find_waiting(lines, file),
    )


def _find_load(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Hosts with more runnable threads than cores: by the load average, or by thread pools times processes."""
    near = keep_near(lines, LOAD_MARKERS, before=1, after=2)[:5_000]
    if not near:
        return ()
    loads: dict[str, tuple[float, NumberedLine]] = {}
    cores: dict[str, tuple[int, NumberedLine]] = {}
    pools: dict[str, list[NumberedLine]] = defaultdict(list)
    unset: NumberedLine | None = None
    granted: tuple[int, NumberedLine] | None = None
    for section in split_sections(near):
        host = section.host or ""
        for number, text in section.lines:
            place = (number, text)
            if granted is None and (given := _GRANTED.search(text[:600])):
                granted = int(given["cores"]), place
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
    if granted is not None and len(loads) <= 1:
        # what the job may use counts for as much as what the host has, where one host was looked at
        cores.setdefault(next(iter(loads), ""), granted)
    near = [*near, *keep_marked(lines, ("num_workers", "num workers"))[:20]]
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
    pool = _find_largest(pools, near)
    busy = _find_first(_BUSY, near)
    for host, (have, place) in cores.items():
        load = loads.get(host)
        crowded = load is not None and load[0] >= CROWDED * have
        if not crowded and not pool.crowds(have):
            continue
        what = pool.say(have, unset is not None) if pool.crowds(have) else _say_waiting(near)
        if busy is not None and float(busy["system"]) >= 30:
            what += f"; {busy['system']}% of CPU time goes to the kernel (sy), which switches between threads"
        said = f"{have} CPU cores" + (f" of {host}" if host else "")
        quoted = [place]
        if load is not None:
            said = f"load average {load[0]:g} on the {said}"
            quoted.append(load[1])
        quoted += [*pool.users[:1], *([unset] if unset else [])]
        return replace(
            _make("cpu_crowded", f"{said}: {what}", list(dict.fromkeys(quoted)), file, 0.9),
            host=host or None,
        )
    return None if cores or busy is None else _describe_busy(busy, loads, near, file)


@dataclass(frozen=True, slots=True)
class _Pool:
    """A pool of so many threads in each of so many processes. loading: these are loader workers."""

    threads: int
    processes: int
    loading: bool
    users: Sequence[NumberedLine]

    def crowds(self, cores: int) -> bool:
        """Whether the pools of several processes have more threads than cores can run."""
        several = self.processes > 1 and self.threads > 1
        return several and self.threads * self.processes >= CROWDED * cores

    def say(self, cores: int, unset: bool) -> str:
        why = "OMP_NUM_THREADS is not set, so " if unset else ""
        who = "loader workers (num_workers)" if self.loading else "processes"
        return (
            f"CPU oversubscription: {why}each of {self.processes} {who} opens a pool of {self.threads} threads (OpenMP/BLAS), "
            f"{self.threads * self.processes} threads in all: they thrash and starve the processes that feed the GPUs "
            f"({cores} cores, so {max(1, cores // max(self.processes, 1))} for each)"
        )


def _find_largest(
    pools: Mapping[str, Sequence[NumberedLine]], near: Sequence[NumberedLine]
) -> _Pool:
    """The size of pool with the most threads in all; loader workers that each print theirs are often shown in part."""
    count, users = max(pools.items(), key=lambda p: int(p[0]) * len(p[1]), default=("0", ()))
    loading = bool(users) and all("worker" in text.lower() for _, text in users)
    forks = _find_first(_WORKERS, near) if loading else None
    sharing = max(len(users), int(forks["count"]) if forks is not None else 0)
    return _Pool(int(count), sharing, loading, users)


def _find_first(pattern: re.Pattern[str], lines: Sequence[NumberedLine]) -> re.Match[str] | None:
    return next((found for _, text in lines if (found := pattern.search(text))), None)


def _say_waiting(near: Sequence[NumberedLine]) -> str:
    """What a load above the cores means where no pool of threads explains it."""
    waiting = _find_first(_WAITING, near)
    if waiting is not None and float(waiting["share"]) >= 20:
        return f"the load average counts processes that wait for disk or network files (I/O wait {float(waiting['share']):g}%)"
    return (
        "CPU oversubscription: more threads want to run than there are cores (loader workers, OpenMP/BLAS pools "
        "with OMP_NUM_THREADS unset, or another job), so the processes that feed the GPUs wait for CPU time"
    )


def _describe_busy(
    busy: re.Match[str],
    loads: Mapping[str, tuple[float, NumberedLine]],
    near: Sequence[NumberedLine],
    file: str,
) -> Finding | None:
    """No idle CPU time in `top`, where nothing says how many cores there are."""
    if float(busy["idle"]) >= 5 or float(busy["user"]) + float(busy["system"]) < 85:
        return None
    place = next(place for place in near if busy.string in place[1])
    load = next(iter(loads.values()), None)
    kernel = float(busy["system"])
    switching = f", {kernel:g}% of it in the kernel (sy), which switches between too many threads" if kernel >= 30 else ""  # fmt: skip
    title = (
        f"the CPUs have no idle time left ({busy['idle']}% id{switching}"
        + (f", load average {load[0]:g}" if load is not None else "")
        + "): the input pipeline (loader workers, decoding) or thread pools are bound by the CPU cores, and the GPUs wait for them"
    )
    places = [place, *([load[1]] if load is not None else [])]
    return _make("cpu_crowded", title, places, file, 0.7)


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


def _size(text: str) -> float:
    """Bytes of `994Gi`, `2.1G` or a bare number, which all cells of one table share."""
    number = text.rstrip("KMGTPiB").replace(",", ".")
    unit = text[len(number) :][:1]
    return float(number) * 1024.0 ** ("KMGTP".index(unit) + 1 if unit and unit in "KMGTP" else 0)


def _find_waiting(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Processes that wait for disk (`vmstat`), a foreign process on most cores (`top`), a host unlike its peers."""
    found = []
    rows = keep_near(lines, ("swpd", "TIME+", "pdsh ", "clush ", "parallel-ssh ", "/proc/mdstat"), before=0, after=40)[:5_000]  # fmt: skip
    waits = [
        (int(m["blocked"]), int(m["wait"]), row) for row in rows if (m := _VMSTAT.match(row[1]))
    ]
    if waits and median(w for _, w, _ in waits) >= 30 and median(b for b, _, _ in waits) >= 4:
        blocked, wait, row = max(waits)
        title = (
            f"{blocked} processes are blocked in I/O and the CPUs wait {wait}% of the time for the disk (vmstat): reading or "
            "writing files is the bottleneck, not the GPUs or the network"
        )
        found.append(_make("disk_wait", title, [row], file, 0.7))
    found += _find_file_waits(lines, file) if not found else ()
    tasks = [(m, row) for row in rows if (m := _TASK.match(row[1]))]
    own = {
        m["user"] for m, _ in tasks if m["command"].startswith(("python", "pt_main", "torchrun"))
    }
    for task, row in tasks:
        if own and task["user"] not in own and float(task["cpu"]) >= FOREIGN:
            title = (
                f"another process takes the CPU: {task['command'].strip()[:40]} (pid {task['pid']}) of user {task['user']} uses "
                f"{float(task['cpu']) / 100:.0f} cores, so loader workers and the processes that feed the GPUs wait for CPU time"
            )
            found.append(_make("cpu_crowded", title, [row], file, 0.95))
            break
    for row in rows:
        if (array := _ARRAY.search(row[1])) and "_" in array["state"]:
            title = f"the disk array (md RAID) runs degraded ([{array['state']}], a drive failed or rebuilds): reads are slow until it is rebuilt"
            found.append(_make("disk_wait", title, [row], file, 0.75))
            break
    return (*found, *_compare_checks(rows, file))


def _find_file_waits(lines: Sequence[NumberedLine], file: str) -> Iterator[Finding]:
    """I/O wait in the head of `top`; milliseconds a read of a network file system takes (`nfsiostat`)."""
    heads = keep_marked(lines, ("Cpu(s)",))[:50]
    waits = [(float(w["share"]), row) for row in heads if (w := _WAITING.search(row[1]))]
    share, place = max(waits, default=(0.0, (0, "")))
    reads = [
        (float(m["exe"]), float(m["each"]), row)
        for row in keep_near(lines, ("avg exe (ms)",), before=0, after=1)[:200]
        if (m := _NFS.match(row[1])) is not None and float(m["ops"]) >= 50
    ]
    slow = max(reads, default=None)
    if slow is not None and slow[0] >= 15:
        title = (
            f"every read from the network file system takes {slow[0]:.0f} ms (nfsiostat) for {slow[1]:.0f} KiB"
            + (f", and the CPUs wait {share:g}% of the time for it" if share >= 20 else "")
            + ": loading many small files over NFS is the bottleneck, the GPUs wait for data"
        )
        yield _make("disk_wait", title, [slow[2], *([place] if share >= 20 else [])], file, 0.85)
    elif share >= 30:
        title = (
            f"the CPUs wait {share:g}% of the time for disk or network files (wa in top): reading the data from storage is the bottleneck, "
            "not computing; more loader workers only queue up"
        )
        yield _make("disk_wait", title, [place], file, 0.6)


def _compare_checks(rows: Sequence[NumberedLine], file: str) -> Iterator[Finding]:
    """A command run on several hosts at once (pdsh, clush): one host whose output differs from all others."""
    command, cells = "", dict[str, tuple[str, NumberedLine]]()
    for row in (*rows, (0, "$ pdsh end")):
        if (asked := _ON_ALL.search(row[1])) is None:
            if command and (cell := _CELL.match(row[1])):
                cells.setdefault(cell["host"], (" ".join(cell["value"].split()), row))
            continue
        if (
            len(cells) >= 3
            and (odd := _odd_cell({h: v for h, (v, _) in cells.items()})) is not None
        ):
            usual = next(h for h in cells if h != odd)
            meaning = next(
                (m for w, m in _MEANINGS.items() if w in command),
                "that host differs from its peers",
            )
            title = (
                f"host {odd} is unlike the other {len(cells) - 1} hosts in the pasted check `{command.strip()[:100]}`: "
                f"{cells[odd][0][:80]} there, {cells[usual][0][:80]} on the others: {meaning}, and all ranks wait for it"
            )
            yield replace(
                _make("host_unlike", title, [cells[odd][1], cells[usual][1]], file, 0.65), host=odd
            )
        command, cells = asked["command"], {}


def _odd_cell(values: Mapping[str, str]) -> str | None:
    """The one host with another value than all the rest, or with a rate of less than a third of theirs."""
    rates = {h: _rate(v) for h, v in values.items()}
    if all(rates.values()):
        worst = min(rates, key=lambda h: rates[h])
        return worst if rates[worst] * 3 < min(r for h, r in rates.items() if h != worst) else None
    counts = Counter(values.values())
    usual, count = counts.most_common(1)[0]
    if count != len(values) - 1:
        return None
    return next(h for h, v in values.items() if v != usual)


def _rate(value: str) -> float:
    found = _PER_SECOND.search(value)
    return (
        float(found["n"]) * {"K": 1, "M": 1e3, "G": 1e6, "T": 1e9}[found["unit"].upper()]
        if found
        else 0.0
    )


def _find_swap(kept: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    memory: tuple[int, str] | None = None
    for number, text in kept:
        if found := _MEM.match(text):
            short = _size(found["left"]) < LEFT * _size(found["total"])
            memory = (number, text) if short else None
        elif memory is not None and (swap := _SWAP.match(text)):
            total, used = _size(swap["total"]), _size(swap["used"])
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
    return Finding.of_slowness(
        kind=f"hardware.{name}",
        title=title,
        evidence=tuple(quote_line(file, n, t) for n, t in places),
        page=_PAGES.get(name, "dataloader-cpu-cores"),
        weight=weight,
    )


def _find_full_drives(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Drives that are full in most reports; a context fact that explains slowness."""
    near = keep_near(lines, DRIVE_MARKERS, before=0, after=60)
    reports = _read_drives(near)
    load = {d: median(table["%util"] for table, _ in own) for d, own in reports.items()}
    full = [d for d, v in load.items() if v >= BUSY]
    if not full:
        return ()
    drive = full[0]
    idle = [d for d, v in load.items() if v <= IDLE and d[:2] == drive[:2]]
    last, place = reports[drive][-1]
    host = map_hosts(split_sections(near)).get(place[0]) or name_host(file)
    moved = [f"{last[c]:g} {c[1:]} {what}" for c, what in _MOVED if last.get(c)]
    beside = f", while {', '.join(idle[:3])} is idle" if idle else ""
    return (
        Finding.of_slowness(
            kind="hardware.disk_saturated",
            title=f"drive {', '.join(full[:3])}{f' of {host}' if host else ''} is at {load[drive]:.0f} % utilisation"
            f" ({', '.join(moved)}){beside}: disk I/O is the bottleneck, whatever reads or writes there waits for its bandwidth",
            evidence=tuple(quote_line(file, *reports[d][-1][1]) for d in (drive, *idle[:1])),
            host=host,
            weight=0.5,
            facts={"drives": full, "idle": idle},
        ),
    )


def _read_drives(
    near: Sequence[NumberedLine],
) -> dict[str, list[tuple[dict[str, float], NumberedLine]]]:
    """Rows of iostat by device, in order."""
    columns: list[str] = []
    reports: dict[str, list[tuple[dict[str, float], NumberedLine]]] = defaultdict(list)
    for number, line in near:
        if "%util" in line:
            columns = line.split()[1:]
        elif (row := _ROW.match(line)) and columns:
            cells = [float(c) for c in row["cells"].split() if c.count(".") <= 1]
            if len(cells) == len(columns):
                table = dict(zip(columns, cells, strict=True))
                reports[row["device"]].append((table, (number, line)))
    return reports
