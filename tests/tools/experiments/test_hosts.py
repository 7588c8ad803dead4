"""Group testing: the right host, or that it is none, whatever the fault's rate."""

from __future__ import annotations

import random
from statistics import mean

import pytest
from tests.rows import each_row
from tests.tools.experiments.simulation import Chance, drive

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.experiments.experiment import Design
from firstfault_tools.experiments.hosts import check_hosts
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.sequential import StoppingRule, least_trials

HOSTS = tuple(f"node-{i:02}" for i in range(32))
SEEDS = 40
TWO = {"node-07", "node-20"}


def design(hosts: tuple[str, ...] = HOSTS, **more: object) -> Design:
    return Design(Kind.HOSTS, "one host is bad", "", ("run",), hosts, **more)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("known", [True, False], ids=["rate told", "rate not told"])
def test_a_fault_that_shows_in_three_of_ten_trials_is_found_among_64_hosts(known: bool) -> None:
    rule = StoppingRule(0.3 if known else None)
    hosts = tuple(f"node-{i:02}" for i in range(64))
    right, used = 0, []
    for seed in range(SEEDS):
        bad = random.Random(seed).choice(hosts)
        result, trials = drive(
            design(hosts, rule=rule), lambda group, bad=bad: 0.3 if bad in group else 0.01, seed
        )
        right += result.culprits == (bad,)
        used.append(len(trials))
    least = least_trials(64, rule, 0.3)
    told = "told" if known else "not told"
    print(
        f"rate {told}: {right} of {SEEDS} right, {mean(used):.1f} trials on average, least {least:.1f}"
    )
    assert right >= 0.95 * SEEDS
    # within twice what no procedure can go below
    assert least <= mean(used) + 5
    assert mean(used) < 2 * least


ALWAYS, HALF = StoppingRule(1, 0), StoppingRule(0.5)
WORLDS: list[tuple[str, dict[str, object], Chance, str, tuple[str, ...]]] = [
    ("always", {"rule": ALWAYS}, lambda g: float("node-07" in g), "host", ("node-07",)),
    ("at times", {"rule": HALF}, lambda g: 0.5 if "node-07" in g else 0.01, "host", ("node-07",)),
    ("groups of 16", {"rule": HALF, "group_sizes": (16,)}, lambda g: 0.5 if "node-07" in g else 0.01, "host", ("node-07",)),
    ("together", {"rule": HALF, "pairs": True}, lambda g: 0.5 if set(g) >= TWO else 0.01, "together", ("node-07", "node-20")),
    ("two", {"rule": HALF, "pairs": True}, lambda g: 0.5 if set(g) & TWO else 0.01, "either", ("node-07", "node-20")),
    ("size", {"rule": HALF}, lambda g: 0.5 if len(g) >= 8 else 0.01, "size", ()),
    ("everywhere", {"rule": HALF}, lambda _g: 0.5, "size", ()),
    ("gone", {"rule": HALF}, lambda _g: 0.005, "nothing", ()),
]  # fmt: skip


@each_row(
    ("settings", "chance", "form", "culprits"), [w[1:] for w in WORLDS], ids=[w[0] for w in WORLDS]
)
def test_what_carries_the_fault(
    settings: dict[str, object], chance: Chance, form: str, culprits: tuple[str, ...]
) -> None:
    result, trials = drive(design(**settings), chance, seed=3)
    assert (result.form, tuple(sorted(result.culprits))) == (form, culprits)
    assert result.verdict is (Verdict.SUPPORTED if culprits else Verdict.REFUTED)
    sizes = settings.get("group_sizes")
    assert not sizes or {len(t.subject) for t in trials} == {16}


def test_a_fault_that_always_shows_needs_about_the_binary_logarithm() -> None:
    for bad in HOSTS[::5]:
        result, trials = drive(design(rule=ALWAYS), lambda g, bad=bad: float(bad in g))
        assert result.culprits == (bad,)
        assert len(trials) <= 8


@each_row(
    ("hosts", "sizes", "pairs"),
    [(("a", "a"), (), False), (("a",), (), False), (("a", "b"), (3,), False), (("a", "b"), (2,), False),
     (tuple(map(str, range(200))), (), True)],
)  # fmt: skip
def test_rules(hosts: tuple[str, ...], sizes: tuple[int, ...], pairs: bool) -> None:
    with pytest.raises(InvalidParameter):
        check_hosts(hosts, sizes, pairs)
