"""How does a large incident look? Seeded logs: realistic INFO noise, one first fault, a cascade on all ranks.

python -m evals.log_generator FOLDER --ranks 4096 --megabytes 2.5 [--storm]
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

_NOISE = (
    "INFO trainer: iteration {i}/90000000 | consumed samples: {s:12d} | elapsed time per iteration (ms): {ms:.1f} | learning rate: 2.999E-04 | "
    "global batch size:  4096 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} |",
    "INFO data: shard {i} of part-{s:09d}.arrow opened, {norm:.3f} s, queue depth 7/8",
    "DEBUG allocator: reserved {ms:.1f} MiB, active {norm:.3f} GiB, {i} segments",
    "INFO checkpoint: async writer idle, {i} items flushed, {ms:.1f} ms",
    "INFO comm: all-reduce bucket {s} of 37 took {norm:.3f} ms on stream 7",
)
_STORM = "WARNING loader: retrying read of part-{s:09d}.arrow after ConnectionResetError: [Errno 104] Connection reset by peer (attempt {i})"
_CAUSE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.31 GiB. GPU 3 has a total capacity of 79.11 GiB of which 6.02 GiB is free."
_TIMEOUT = (
    "[rank{r}]:[E608 19:50:07.429541462 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=29488, OpType=ALLREDUCE, NumelIn=52428800, NumelOut=52428800, Timeout(ms)=600000) ran for 600082 milliseconds before timing out."
)


PAGE_LINES = 2_000
LINES_PER_SECOND = 10


def write_rank(
    path: Path, rank: int, size: int, culprit: int, seed: int, storm: bool = False
) -> None:
    """One rank's log of about `size` bytes; the culprit's ends in the cause, the others in a timeout.

    Iterations and clock advance from line to line; the other figures repeat from page to page.
    """
    dice = random.Random(seed)
    page = "".join(_line(dice, rank, storm) for _ in range(PAGE_LINES))
    counters = page.count("%8d")
    cause = f"[rank{rank}]: {_CAUSE}\n" if rank == culprit else _TIMEOUT.format(r=rank) + "\n"
    with path.open("wb") as stream:
        written = number = 0
        while written < size:
            text = _fill(page, number, counters)
            number += 1
            part = text[: size - written]
            part = part[: part.rfind(b"\n") + 1] or text
            stream.write(part)
            written += len(part)
        stream.write(cause.encode())


def _line(dice: random.Random, rank: int, storm: bool) -> str:
    """One line with a place for the clock and, on step lines, for the iteration."""
    template = _STORM if storm else _NOISE[dice.randrange(len(_NOISE))]
    text = template.format(
        i="%8d",
        s=dice.randrange(10**8),
        ms=3900 + dice.random() * 99,
        loss=2 + dice.random() / 50,
        norm=dice.random(),
    )
    return f"[rank{rank}]: 2026-06-%s,{dice.randrange(1000):03d} {text}\n"


def _fill(page: str, number: int, counters: int) -> bytes:
    """Page `number` with its clock and iterations filled in."""
    values: list[object] = []
    iteration = number * counters
    second = number * PAGE_LINES // LINES_PER_SECOND
    for index, line in enumerate(page.splitlines()):
        if index % LINES_PER_SECOND == 0:
            minute, s = divmod(second + index // LINES_PER_SECOND, 60)
            hour, minute = divmod(minute, 60)
            clock = f"{1 + hour // 24 % 28:02d} {hour % 24:02d}:{minute:02d}:{s:02d}"
        values.append(clock)
        if "%8d" in line:
            values.append(iteration)
            iteration += 1
    return (page % tuple(values)).encode()


def write_incident(folder: Path, ranks: int, size: int, seed: int = 7, storm: bool = False) -> int:
    """Logs of all ranks below `folder`; returns the culprit's rank."""
    folder.mkdir(parents=True, exist_ok=True)
    culprit = random.Random(seed).randrange(ranks)
    for rank in range(ranks):
        write_rank(folder / f"rank_{rank}.log", rank, size, culprit, seed * 100_003 + rank, storm)
    return culprit


def main() -> None:
    """Parse arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--megabytes", type=float, default=2.5)
    parser.add_argument("--storm", action="store_true")
    arguments = parser.parse_args()
    culprit = write_incident(
        arguments.folder, arguments.ranks, int(arguments.megabytes * 1e6), storm=arguments.storm
    )
    print(f"culprit: rank {culprit}")


if __name__ == "__main__":
    main()
