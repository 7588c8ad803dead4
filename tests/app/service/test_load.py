"""Is the first verdict quick when twenty people come at once?"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from firstfault.incidents.events import EventKind
from firstfault.service import NewIncident, PastedText, Service

PEOPLE, LINES = 20, 500
BOUND_S = 2.0


def make_log(person: int) -> str:
    lines = [
        f"2026-05-0{1 + person % 9} 03:{n // 60 % 60:02d}:{n % 60:02d} [rank{n % 8}] step {n} loss {9 - n / 1000:.4f}"
        for n in range(LINES)
    ]
    lines.append(
        f"[rank{person % 8}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {person + 1}.00 GiB."
    )
    return "\n".join(lines)


def test_twenty_at_once_get_a_verdict_within_two_seconds(service: Service) -> None:
    service.workspace.diagnose_text("warm.log", make_log(0).encode())

    def report(person: int) -> tuple[float, list[int], list[EventKind]]:
        begun = time.monotonic()
        incident = service.start(NewIncident((PastedText(make_log(person)),)))
        seen, kinds, verdict = [], [], 0.0
        for event in service.follow(incident, timeout=60):
            seen.append(event.seq)
            kinds.append(event.kind)
            if event.kind is EventKind.VERDICT:
                verdict = time.monotonic() - begun
        return verdict, seen, kinds

    with ThreadPoolExecutor(PEOPLE) as pool:
        results = list(pool.map(report, range(PEOPLE)))
    for _, seen, kinds in results:
        assert seen == list(range(1, len(seen) + 1))
        assert kinds[-1] is EventKind.DONE
        assert kinds.count(EventKind.VERDICT) == 1
    waits = sorted(wait for wait, _, _ in results)
    p95 = waits[int(0.95 * PEOPLE) - 1]
    print(
        f"\nfirst verdict: median {waits[PEOPLE // 2]:.2f} s, p95 {p95:.2f} s, worst {waits[-1]:.2f} s"
    )
    assert p95 < BOUND_S
