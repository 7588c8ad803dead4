"""Are precursors, rhythms and bursts of failures found, and chance left alone?"""

import random

import pytest

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.metrics.correlation import (
    TimedEvent,
    describe_precursor,
    find_clustering,
    find_precursors,
    find_rhythm,
)

DAY = 86400.0


def simulated(seed: int, linked: bool) -> tuple[list[TimedEvent], list[float]]:
    rng = random.Random(seed)
    events = [TimedEvent("checkpoint", rng.uniform(0, 30 * DAY)) for _ in range(200)]
    events += [TimedEvent("evaluation", rng.uniform(0, 30 * DAY)) for _ in range(200)]
    failures = [rng.uniform(0, 30 * DAY) for _ in range(12)]
    if linked:
        failures += [e.time + rng.uniform(10, 250) for e in events[:200] if rng.random() < 0.1]
    return events, failures


def test_a_linked_event_raises_the_risk_and_the_other_does_not() -> None:
    hits, false = 0, 0
    for seed in range(40):
        found = {p.kind: p for p in find_precursors(*simulated(seed, True), span=(0, 30 * DAY))}
        hits += found["checkpoint"].raises_risk
        false += found["evaluation"].raises_risk
    assert hits >= 38
    assert false <= 4


def test_risk_ratio_against_a_hand_count() -> None:
    # 10 windows of 100 s; windows 0, 2, 4 exposed, of which 0 and 2 end in a failure; 7 others, one hit
    events = [TimedEvent("save", t) for t in (10.0, 210.0, 410.0)]
    failures = [50.0, 250.0, 750.0]
    found = find_precursors(events, failures, window=100.0, span=(0.0, 1000.0))[0]
    assert (found.windows_with_failure, found.windows) == (2, 3)
    assert (found.other_with_failure, found.other_windows) == (1, 7)
    assert found.ratio == pytest.approx((2 / 3) / (1 / 7))
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.ratio < found.high
    assert not found.enough
    assert "too few" in describe_precursor(found)


def test_nothing_to_relate() -> None:
    assert find_precursors([], [1.0, 2.0]) == []
    assert find_precursors([TimedEvent("a", 1.0)], []) == []
    with pytest.raises(InvalidParameter, match="window"):
        find_precursors([TimedEvent("a", 1.0)], [1.0], window=0)


def test_daily_rhythm_is_found_and_chance_is_not() -> None:
    rng = random.Random(3)
    nightly = [day * DAY + 3 * 3600 + rng.gauss(0, 1200) for day in range(12)]
    found = find_rhythm(nightly)
    assert found[0].name == "day"
    assert found[0].phase == pytest.approx(3 * 3600, abs=1800)
    false = sum(
        bool(find_rhythm([random.Random(s * 31 + i).uniform(0, 30 * DAY) for i in range(15)]))
        for s in range(200)
    )
    assert false <= 20


def test_bursts() -> None:
    rng = random.Random(5)
    burst = [1000 * DAY + i * 60 for i in range(10)]
    spread = [rng.uniform(900, 1100) * DAY for _ in range(10)]
    found = find_clustering(burst + spread)
    assert found is not None
    assert found.clustered
    assert any(count >= 10 for _, _, count in found.bursts)
    false = 0
    for seed in range(200):
        rng = random.Random(seed)
        even = find_clustering([rng.uniform(0, 100) for _ in range(30)])
        assert even is not None
        false += even.clustered
    assert false <= 8
    assert find_clustering([1.0, 2.0]) is None
