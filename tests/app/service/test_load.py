"""Is the first verdict quick when twenty people come at once?"""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

from firstfault.incidents.events import EventKind
from firstfault.service import NewIncident, PastedText, Service

PEOPLE, LINES = 20, 500
BOUND_S, ROUNDS = 2.0, 3
PIECE_S = 0.021
"""Seconds that `run_piece` takes on the machine for which the two seconds are meant, idle."""


def make_log(person: int) -> str:
    lines = [
        f"2026-05-0{1 + person % 9} 03:{n // 60 % 60:02d}:{n % 60:02d} [rank{n % 8}] step {n} loss {9 - n / 1000:.4f}"
        for n in range(LINES)
    ]
    lines.append(
        f"[rank{person % 8}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {person + 1}.00 GiB."
    )
    return "\n".join(lines)


def run_piece() -> float:
    """Seconds for a fixed piece of plain Python: how fast this machine is at this moment."""
    begun = time.perf_counter()
    for _ in range(20):
        rows = [{"number": n, "text": str(n)} for n in range(1_000)]
        json.loads(json.dumps(rows))
        sum(len(re.findall(r"\d+", str(row))) for row in rows[:300])
    return time.perf_counter() - begun


def find_bound() -> float:
    """The bound, stretched by how busy and how slow the machine is just now."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return BOUND_S * max(1.0, load, min(run_piece() for _ in range(3)) / PIECE_S)


def report(service: Service, person: int) -> tuple[float, list[int], list[EventKind]]:
    """Seconds to the verdict, and the events as one person saw them."""
    begun = time.monotonic()
    incident = service.start(NewIncident((PastedText(make_log(person)),)))
    seen, kinds, verdict = [], [], 0.0
    for event in service.follow(incident, timeout=60):
        seen.append(event.seq)
        kinds.append(event.kind)
        if event.kind is EventKind.VERDICT:
            verdict = time.monotonic() - begun
    return verdict, seen, kinds


def test_twenty_at_once_get_a_verdict_within_two_seconds(service: Service) -> None:
    service.workspace.diagnose_text("warm.log", make_log(0).encode())
    best = float("inf")  # of the bound
    for _ in range(ROUNDS):
        before = find_bound()
        with ThreadPoolExecutor(PEOPLE) as pool:
            results = list(pool.map(lambda n: report(service, n), range(PEOPLE)))
        for _, seen, kinds in results:
            assert seen == list(range(1, len(seen) + 1))
            assert kinds[-1] is EventKind.DONE
            assert kinds.count(EventKind.VERDICT) == 1
        waits = sorted(wait for wait, _, _ in results)
        p95 = waits[int(0.95 * PEOPLE) - 1]
        bound = max(before, find_bound())
        print(
            f"\nfirst verdict: median {waits[PEOPLE // 2]:.2f} s, p95 {p95:.2f} s, bound {bound:.1f} s"
        )
        best = min(best, p95 / bound)
        if best < 1:
            break
    assert best < 1
