"""Borders, sizes, differences, and the error rates that are promised."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row
from tests.tools.experiments.simulation import Chance, drive

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.experiments.differences import apply_differences, compare_texts
from firstfault_tools.experiments.experiment import Design
from firstfault_tools.experiments.host_list import expand_hosts
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.sequential import (
    StoppingRule,
    capacity,
    decide,
    expect_trials,
    least_trials,
)
from firstfault_tools.experiments.sizes import Layout, describe_change, list_sizes, list_values

ALWAYS, UNKNOWN = StoppingRule(1, 0), StoppingRule()


def design(kind: Kind, subjects: tuple[str, ...], rule: StoppingRule) -> Design:
    return Design(kind, "", "", ("run", "{value}"), subjects, rule=rule)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 300), st.data())
def test_every_border_is_found_in_logarithmic_time(count: int, data: st.DataObject) -> None:
    values = tuple(map(str, range(count)))
    border = data.draw(st.integers(1, count - 1))
    result, trials = drive(design(Kind.SIZES, values, ALWAYS), lambda s: float(int(s[0]) >= border))
    assert result.culprits == (str(border - 1), str(border))
    assert len(trials) <= 2 + count.bit_length()


@each_row(
    ("chance", "form"),
    [
        (lambda s: 0.3 * (int(s[0]) > 20), "border"),
        (lambda _s: 0.0, "bad works"),
        (lambda _s: 1.0, "good fails"),
    ],
)
def test_a_border_that_shows_at_times(chance: Chance, form: str) -> None:
    values = tuple(map(str, range(4, 40, 4)))
    result, _ = drive(design(Kind.SIZES, values, UNKNOWN), chance, seed=1)
    assert result.form == form
    assert result.culprits == (("20", "24") if form == "border" else ())


@each_row("rate", [0.3, 1.0])
def test_the_error_rates_are_kept(rate: float) -> None:
    rule, world = StoppingRule(rate, 0.02, 0.05, 0.05), random.Random(0)

    def share(chance: float, wrong: bool) -> tuple[float, float]:
        ended, used = 0, 0
        for _ in range(400):
            failed = passed = 0
            while (told := decide(failed, passed, rule)) is None:
                used += 1
                fails = world.random() < chance
                failed, passed = failed + fails, passed + (not fails)
            ended += told is wrong
        return ended / 400, used / 400

    there, gone = expect_trials(rule)
    missed, used = share(rate, False)
    assert missed <= 0.07
    assert used == pytest.approx(there, rel=0.6, abs=2)
    false, used = share(0.02, True)
    assert false <= 0.07
    assert used == pytest.approx(gone, rel=0.6, abs=2)


def test_the_least_is_the_binary_logarithm_for_a_clean_fault() -> None:
    assert capacity(1, 0) == pytest.approx(1, abs=1e-3)
    assert capacity(0.5, 0) == pytest.approx(0.3219, abs=1e-3)  # Z channel, log2(5/4)
    assert least_trials(64, StoppingRule(1, 0)) == pytest.approx(0.99 * 6 - 0.081, abs=0.02)


@each_row(
    ("rate", "noise", "alarm"),
    [(0, 0, 0.01), (0.3, 0.3, 0.01), (0.3, 0.01, 0.5), (None, 0.2, 0.01)],
)
def test_stopping_rules_that_make_no_sense(rate: float | None, noise: float, alarm: float) -> None:
    with pytest.raises(InvalidParameter):
        StoppingRule(rate, noise, alarm)


NAMES = tuple(f"k{i}" for i in range(20))


@each_row(
    ("rule", "chance", "needed"),
    [
        (ALWAYS, lambda s: float({"k3", "k11"} <= set(s)), ("k3", "k11")),
        (StoppingRule(0.5), lambda s: 0.5 * ("k3" in s), ("k3",)),
        (ALWAYS, lambda s: 0.0, ()),
        (ALWAYS, lambda s: 1.0, ()),
    ],
    ids=["two together", "one at times", "not reproduced", "none of them"],
)
def test_delta_debugging(rule: StoppingRule, chance: Chance, needed: tuple[str, ...]) -> None:
    result, _ = drive(design(Kind.SETTINGS, NAMES, rule), chance)
    assert result.culprits == needed
    assert result.verdict is (Verdict.SUPPORTED if needed else Verdict.REFUTED)


@each_row(
    ("name", "good", "bad", "count"),
    [
        ("c.json", '{"a": {"b": 1, "c": [1]}, "d": 2}', '{"a": {"b": 2, "c": [1]}, "e": null}', 3),
        ("c.yaml", "a: {b: 1}\nd: 2\n", "a: {b: '1'}\nd: 2\n", 1),
        ("c.toml", "[train]\nlr = 1e-3\nseed = 1\n", "[train]\nlr = 3e-3\nseed = 1\nfp8 = true\n", 2),
        ("run.sh", "export A=1\nexport B=2\n", "export A=1\nexport B=3\n", 1),
    ],
)  # fmt: skip
def test_differences_are_found_and_applied(name: str, good: str, bad: str, count: int) -> None:
    from firstfault_tools.knowledge.pack import read_yaml

    found = compare_texts(good, bad, name)
    assert len(found.differences) == count
    names = [d.name for d in found.differences]
    read = read_yaml if found.form != "text" else str
    assert read(apply_differences(found, names)) == read(bad)
    assert read(apply_differences(found, ())) == read(good)


def test_only_sizes_that_can_start_are_tried() -> None:
    layout = Layout(tensor=4, pipeline=2, per_node=8, batch=48, micro=1)
    assert list_sizes(8, 48, layout) == (8, 16, 24, 32, 48)
    assert list_values(64, 16, 16) == (64, 48, 32, 16)
    changes = describe_change(8, 16, layout)
    assert any("leave the node" in c for c in changes)
    assert any("data parallel 1 becomes 2" in c for c in changes)
    assert any("bubble: 2% becomes 4%" in c for c in changes)
    for bad in (12, 8):
        with pytest.raises(InvalidParameter):
            list_sizes(8, bad, layout)
    with pytest.raises(InvalidParameter, match="step"):
        list_values(1, 8, 2)


def test_host_lists() -> None:
    assert expand_hosts("gpu-[08-10,12],x\ny") == ("gpu-08", "gpu-09", "gpu-10", "gpu-12", "x", "y")
    for text in ("", "gpu-[10-08]", "-o ProxyCommand=x", "a;b"):
        with pytest.raises(InvalidParameter):
            expand_hosts(text)
