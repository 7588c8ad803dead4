"""How fast is it, and how does it grow? Prints every figure with machine, medians and ratios.

    python -m evals.bench [--folder SCRATCH] [--runs 3] [--large FOLDER] [--index] [--no-write]

Every system runs as its own process, start-up included, on the same files in the same session. CPU
seconds (user and system, children included) stand beside the clock: on a shared machine they are the
steadier figure. --large adds 4,096 logs of 2.5 MB; they are made in FOLDER (10 GB) where it is empty.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evals.log_generator import write_incident, write_rank

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
MB = 1_000_000
SIZES = (10, 100, 1_000)
PROFILE_HEAD = "| function | calls | own s | share |\n| --- | ---: | ---: | ---: |"
COLD_HEAD = (
    "| what | first byte s | wall s | CPU s | times numpy, first byte | times numpy, CPU |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: |"
)
ANALYZER_LIMIT_MB = 100
"""Beyond this the five-pattern analyzer holds the whole text twice and runs for minutes."""

_COMMAND = "from firstfault.cli import main; main()"
_ANALYZER = (
    "import sys; from pathlib import Path; from evals.baselines.crash_analyzer import answer; "
    "p = Path(sys.argv[1]); files = sorted(p.rglob('*.log')) if p.is_dir() else [p]; "
    "print(answer('\\n'.join(f.read_bytes().decode('utf-8', 'replace') for f in files)).category)"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One process: clock and CPU seconds, peak memory in MB (of its largest process).

    first: clock seconds to the first byte of its output, to its end where it prints nothing.
    """

    wall: float
    cpu: float
    peak_mb: float
    first: float


def measure(command: Sequence[str], runs: int) -> Run:
    """Medians over `runs` runs of one command. Output is thrown away."""
    found = [_run_once(command) for _ in range(runs)]
    return Run(
        statistics.median(r.wall for r in found),
        statistics.median(r.cpu for r in found),
        max(r.peak_mb for r in found),
        statistics.median(r.first for r in found),
    )


def _run_once(command: Sequence[str]) -> Run:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # an installation keeps its bytecode; the first run writes it
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as complaints:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=complaints, env=environment
        )
        assert process.stdout is not None
        with process.stdout as output:
            output.read(1)
            first = time.perf_counter() - begin
            while output.read(MB):
                pass
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        # ripgrep: 0 found, 1 nothing; the command: 0 healthy, 1 fault, 4 undecided. Else nothing was measured
        if process.returncode not in (0, 1, 4):
            complaints.seek(0)
            said = complaints.read()[-2_000:].decode("utf-8", errors="replace")
            raise RuntimeError(f"{command} ended with {process.returncode}: no figure. {said}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, first)


def ours(path: Path, jobs: int) -> list[str]:
    """The command as users call it."""
    return [
        sys.executable, "-c", _COMMAND, "diagnose", str(path), "--json", "--no-llm",
        "--jobs", str(jobs),
    ]  # fmt: skip


def ripgrep(path: Path, patterns: Path) -> list[str]:
    """Count of lines that match any of our patterns, one thread."""
    # at its default limits ripgrep refuses so many patterns
    limits = ["--regex-size-limit", "2G", "--dfa-size-limit", "1G"]
    return ["rg", "-j1", "-c", *limits, "-f", str(patterns), str(path)]


def analyzer(path: Path) -> list[str]:
    """The five-pattern baseline over the whole text."""
    return [sys.executable, "-c", _ANALYZER, str(path)]


def write_patterns(target: Path) -> int:
    """All signature patterns in ripgrep's spelling, one a line; their number."""
    from firstfault.workspace import Workspace

    signatures = Workspace().knowledge.signatures.signatures
    patterns = [_spell_for_ripgrep(p) for s in signatures for p in s.patterns]
    target.write_text("\n".join(patterns) + "\n", encoding="utf-8")
    return len(patterns)


def _spell_for_ripgrep(pattern: str) -> str:
    """No named groups, and no escapes of characters that need none."""
    plain = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    return re.sub(r"\\(.)", lambda m: m[1] if m[1] in "'\"`/@%,:;=<>! " else m[0], plain)


def fit(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Least squares y = a + b x: (a, b, largest relative error)."""
    slope, offset = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    worst = max(abs(offset + slope * x - y) / y for x, y in points)
    return offset, slope, worst


def name_machine() -> str:
    """Processor, cores, load and versions."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    model = re.search(r"model name\s*: (.+)", text)
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    rg = subprocess.run(["rg", "--version"], capture_output=True, text=True, check=False).stdout
    return (
        f"{model[1] if model else platform.processor()}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{rg.splitlines()[0] if rg else 'no ripgrep'}; load average at the start {load}"
    )


def compare(
    title: str, path: Path, size_mb: float, patterns: Path, runs: int, with_analyzer: bool
) -> list[str]:
    """Rows of the comparison table for one input."""
    arms: list[tuple[str, list[str]]] = [
        ("ripgrep -j1, same patterns", ripgrep(path, patterns)),
        ("firstfault diagnose, 1 process", ours(path, 1)),
        ("firstfault diagnose, 2 processes", ours(path, 2)),
    ]
    if with_analyzer:
        arms.append(("five-pattern crash analyzer", analyzer(path)))
    rows: list[str] = []
    base: Run | None = None
    for name, command in arms:
        run = measure(command, 1 if "analyzer" in name else runs)
        base = base or run
        rows.append(
            f"| {title} | {name} | {run.wall:.2f} | {run.cpu:.2f} | {size_mb / run.wall:.0f} "
            f"| {base.wall / run.wall:.2f} | {base.cpu / run.cpu:.2f} | {run.peak_mb:.0f} |"
        )
        print(rows[-1], flush=True)
    if not with_analyzer:
        rows.append(
            f"| {title} | five-pattern crash analyzer | not run: over {ANALYZER_LIMIT_MB} MB | | | | | |"
        )
    return rows


def growth(scratch: Path, runs: int) -> list[str]:
    """Fits of CPU seconds against bytes, ranks and findings, three sizes each."""
    series: list[tuple[str, str, list[tuple[float, float]]]] = []
    points = []
    for size in (50, 100, 200):
        path = scratch / f"bytes-{size}.log"
        write_rank(path, 0, size * MB, 0, 7)
        points.append((float(size), measure(ours(path, 1), runs).cpu))
        path.unlink()
    series.append(("bytes", "MB", points))
    points = []
    for ranks in (128, 256, 512):
        folder = scratch / f"ranks-{ranks}"
        write_incident(folder, ranks, 200_000)
        points.append((float(ranks), measure(ours(folder, 1), runs).cpu))
        shutil.rmtree(folder)
    series.append(("ranks", "logs of 0.2 MB", points))
    points = []
    for count in (2_000, 4_000, 8_000):
        path = scratch / "findings.log"
        _write_findings(path, count)
        points.append((float(count), measure(ours(path, 1), runs).cpu))
    series.append(("findings", "matching lines in 40 MB", points))
    rows = []
    for name, unit, found in series:
        offset, slope, worst = fit(found)
        measured = ", ".join(f"{x:.0f}: {y:.2f} s" for x, y in found)
        rows.append(
            f"| {name} | {unit} | {measured} | {offset:.2f} + {slope:.2e} x | {worst:.0%} |"
        )
        print(rows[-1], flush=True)
    return rows


def _write_findings(path: Path, count: int) -> None:
    """40 MB of ordinary lines with `count` lines of forty kinds of failures between them."""
    from firstfault_tools.knowledge.pack import read_yaml

    samples: list[str] = []
    for file in sorted((ROOT / "knowledge" / "signatures").rglob("*.yaml"))[::11]:
        row = read_yaml(file.read_text(encoding="utf-8"))
        found = [s for s in row["samples"]["match"] if isinstance(s, str) and "\n" not in s]
        samples += found[:1]
    plain = path.with_suffix(".plain")
    write_rank(plain, 0, 40 * MB, 1, 7)
    lines = plain.read_bytes().splitlines(keepends=True)
    plain.unlink()
    step = max(1, len(lines) // count)
    with path.open("wb") as stream:
        for index, line in enumerate(lines):
            stream.write(line)
            if index % step == 0:
                stream.write(samples[index // step % len(samples)].encode() + b"\n")


def small_log(scratch: Path, runs: int) -> list[str]:
    """Cold command and warm call on a 1 MB log."""
    from firstfault.workspace import Workspace

    path = scratch / "small.log"
    write_rank(path, 0, MB, 0, 7)
    cold = measure(ours(path, 1), max(runs, 5))
    workspace = Workspace()
    workspace.diagnose_paths([path])
    walls, cpus = [], []
    for _ in range(7):
        begin, used = time.perf_counter(), time.process_time()
        workspace.diagnose_paths([path])
        walls.append(time.perf_counter() - begin)
        cpus.append(time.process_time() - used)
    return [
        f"| cold command | {cold.wall:.2f} | {cold.cpu:.2f} | {cold.peak_mb:.0f} |",
        f"| warm call | {statistics.median(walls):.3f} | {statistics.median(cpus):.3f} | |",
        answers_when_warm(),
    ]


def answers_when_warm() -> str:
    """First byte of an answer in a warm process: questions of knowledge, with vectors. To be at most 0.3 s."""
    from evals.questions.__main__ import DEV, ask

    from firstfault.knowledge_base.warm import WarmSearch
    from firstfault_tools.knowledge.pack import read_yaml

    search = WarmSearch()
    search.load()
    rows = read_yaml(DEV.read_text(encoding="utf-8"))["knowledge"]
    ask(rows[0], search)
    walls, cpus = [], []
    for row in rows[1:41]:
        begin, used = time.perf_counter(), time.process_time()
        ask(row, search)
        walls.append(time.perf_counter() - begin)
        cpus.append(time.process_time() - used)
    return f"| first byte of an answer, warm | {statistics.median(walls):.3f} | {statistics.median(cpus):.3f} | |"


COLD = "[rank0]: step 1 loss 2.31\n[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def cold_start(scratch: Path, runs: int) -> list[str]:
    """A two-line log against what Python needs to import numpy; bytecode and knowledge packs are warm.

    The runs take turns, so that what else the machine does meets them alike.
    """
    path = scratch / "two-lines.log"
    path.write_text(COLD, encoding="utf-8")
    commands = {
        "import numpy": [sys.executable, "-c", "import numpy"],
        "diagnose --json": ours(path, 1),
        "diagnose": [a for a in ours(path, 1) if a != "--json"],
    }
    found: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(max(runs, 15) + 1):
        for name, command in commands.items():
            run = _run_once(command)
            if turn:  # the first one warms what is kept
                found[name].append(run)
    middle = {
        name: [
            statistics.median(getattr(r, part) for r in some) for part in ("first", "wall", "cpu")
        ]
        for name, some in found.items()
    }
    floor = middle["import numpy"]
    return [
        f"| {name} | {first:.3f} | {wall:.3f} | {cpu:.3f} | {first / floor[0]:.1f} | {cpu / floor[2]:.1f} |"
        for name, (first, wall, cpu) in middle.items()
    ]


def storms(scratch: Path, runs: int) -> list[str]:
    """An ordinary log against logs of which every line matches."""
    rows = []
    base: Run | None = None
    for name, storm in (("ordinary lines", False), ("every line matches", True)):
        path = scratch / "storm.log"
        write_rank(path, 3, 100 * MB, 3, 7, storm)
        run = measure(ours(path, 1), runs)
        base = base or run
        rows.append(
            f"| {name}, 100 MB | {run.wall:.2f} | {run.cpu:.2f} | {run.cpu / base.cpu:.2f} | {run.peak_mb:.0f} |"
        )
        path.unlink()
    path = scratch / "line.log"
    with path.open("wb") as stream:
        for _ in range(1_000):
            stream.write(b"x loss 3.2 " * 90_909)
        stream.write(b"\n[rank0]: CUDA out of memory. Tried to allocate 3.00 GiB\n")
    run = measure(ours(path, 1), 1)
    rows.append(f"| one line of 1 GB | {run.wall:.2f} | {run.cpu:.2f} | | {run.peak_mb:.0f} |")
    path.unlink()
    return rows


def profile(scratch: Path) -> list[str]:
    """The five functions that take most time of a whole diagnosis of one 200 MB log."""
    import cProfile
    import pstats

    from firstfault.workspace import Workspace
    from firstfault_tools.log.executors import Workers

    path = scratch / "profile.log"
    write_rank(path, 0, 200 * MB, 0, 7)
    workspace = Workspace()
    workspace.diagnose_paths([path], "", Workers(1))
    profiler = cProfile.Profile(time.process_time)
    profiler.runcall(workspace.diagnose_paths, [path], "", Workers(1))
    path.unlink()
    stats = pstats.Stats(profiler)
    total = stats.total_tt  # type: ignore[attr-defined]
    found = sorted(stats.stats.items(), key=lambda kv: -kv[1][2])[:5]  # type: ignore[attr-defined]
    return [
        f"| {Path(file).name}:{name} | {row[0]:,} | {row[2]:.2f} | {row[2] / total:.0%} |"
        for (file, _, name), row in found
    ]


def main() -> None:
    """Parse arguments, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="scratch space; a temporary folder otherwise")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", type=Path, metavar="FOLDER")
    parser.add_argument("--index", action="store_true")
    parser.add_argument("--no-write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        text = write_report(Path(name), arguments.runs, arguments.large, arguments.index)
    print(text)
    if not arguments.no_write:
        RESULTS.mkdir(exist_ok=True)
        target = RESULTS / f"bench-{datetime.now(UTC).date()}.md"
        target.write_text(text, encoding="utf-8")


def write_report(scratch: Path, runs: int, large: Path | None, index: bool) -> str:
    """All sections as Markdown."""
    patterns = scratch / "patterns.txt"
    count = write_patterns(patterns)
    machine = name_machine()
    rows: list[str] = []
    for size in SIZES:
        path = scratch / f"one-{size}.log"
        write_rank(path, 0, size * MB, 0, 7)
        few = runs if size < 1_000 else 1
        rows += compare(f"one log, {size} MB", path, size, patterns, few, size <= ANALYZER_LIMIT_MB)
        path.unlink()
    folder = scratch / "run"
    write_incident(folder, 256, MB // 2)
    rows += compare("256 logs of 0.5 MB", folder, 128, patterns, runs, True)
    shutil.rmtree(folder)
    if large is not None:
        if not large.is_dir() or not any(large.iterdir()):
            write_incident(large, 4096, 2_500_000)
        rows += compare("4,096 logs of 2.5 MB", large, 10_240, patterns, 1, False)
    sections: list[tuple[str, str, Callable[[], list[str]]]] = [
        ("Growth", "| against | unit | CPU s at three sizes | fit | largest error |\n| --- | --- | --- | --- | ---: |", lambda: growth(scratch, runs)),
        ("A log of 1 MB", "| what | wall s | CPU s | peak MB |\n| --- | ---: | ---: | ---: |", lambda: small_log(scratch, runs)),
        ("Cold start: two lines", COLD_HEAD, lambda: cold_start(scratch, runs)),
        ("Storms and endless lines, one process", "| what | wall s | CPU s | times as much CPU | peak MB |\n| --- | ---: | ---: | ---: | ---: |", lambda: storms(scratch, runs)),
    ]  # fmt: skip
    sections.append(
        (
            "Profile: one log of 200 MB, one process, CPU seconds",
            PROFILE_HEAD,
            lambda: profile(scratch),
        )
    )
    from evals.bench_parts import HEAD, part_rows

    sections.append(("Parts", HEAD, lambda: part_rows(scratch)))
    if index:
        from evals.bench_index import index_rows

        sections.append(("Index of 100,000 passages", "| what | p50 ms | p95 ms | built in s |\n| --- | ---: | ---: | ---: |", lambda: index_rows(scratch)))  # fmt: skip
    lines = [
        f"# Scale and speed ({datetime.now(UTC).date()})",
        "",
        f"Machine: {machine}. {count:,} patterns. Medians of {runs} runs (1 from 1 GB on), start-up "
        "included; the files lie in the page cache.",
        "",
        "| input | system | wall s | CPU s | MB/s (wall) | times ripgrep (wall) | times ripgrep (CPU) | peak MB |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *rows,
    ]
    for title, head, make in sections:
        lines += ["", f"## {title}", "", head, *make()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
