"""Tomography: the host, group, switch or port behind slow pairs, from figures with noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

import pytest
from tests.rows import each_row
from tests.tools.experiments.fabric import HOSTS, PORT, leaf_of, routes
from tests.tools.experiments.simulation import drive

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.experiments.experiment import Design, Result, next_step
from firstfault_tools.experiments.kinds import Kind, Verdict
from firstfault_tools.experiments.pairs import (
    NOISE,
    Figure,
    Routes,
    mark_slow,
    plan_rounds,
    read_figures,
    read_routes,
)
from firstfault_tools.experiments.sequential import StoppingRule

ROUTES = routes()


def judge(slow: Callable[[str, str], bool], known: Routes = Routes(), scatter: float = 0.05) -> Result:  # noqa: B008  # fmt: skip
    world = random.Random(1)
    figures = [
        Figure(a, b, (17.1 if slow(a, b) else 42.3) * world.gauss(1, scatter))
        for a, b in combinations(HOSTS, 2)
    ]
    rule = StoppingRule(None, NOISE)
    design = Design(Kind.PAIRS, "", "", (), HOSTS, rule=rule, routes=known)
    step = next_step(design, mark_slow(figures, known))
    assert isinstance(step, Result)
    return step


def test_a_slow_switch_port_is_found_from_the_figures_of_32_nodes() -> None:
    result = judge(lambda a, b: PORT in ROUTES.between(a, b), ROUTES)
    assert (result.verdict, result.culprits) == (Verdict.SUPPORTED, (PORT,))
    assert "48 of 48 pairs across it are slow, 0 of 448 others" in result.says


def test_measuring_in_turns_finds_it_with_a_fraction_of_the_pairs() -> None:
    design = Design(Kind.PAIRS, "", "", ("run", "{a}", "{b}"), HOSTS, routes=ROUTES, rule=StoppingRule(0.95, NOISE))  # fmt: skip
    result, trials = drive(design, lambda p: 0.95 if PORT in ROUTES.between(*p) else NOISE)
    assert result.culprits == (PORT,)
    assert len(trials) < 40
    print(f"{len(trials)} of 496 pairs measured, least {result.least:g}")


@each_row(
    ("slow", "form", "culprits"),
    [
        (lambda a, b: "node-09" in (a, b), "host", ("node-09",)),
        (lambda a, b: (leaf_of(a) == "leaf-2") != (leaf_of(b) == "leaf-2"), "group", HOSTS[8:16]),
        (lambda a, b: False, "none", ()),
        (lambda a, b: hash((a < b, int(a[5:]) * 7 + int(b[5:]))) % 3 == 0, "all", ()),
    ],
    ids=["host", "uplink", "none", "all over"],
)
def test_without_routes(
    slow: Callable[[str, str], bool], form: str, culprits: tuple[str, ...]
) -> None:
    result = judge(slow)
    assert (result.form, result.culprits) == (form, culprits)


def test_every_pair_meets_once_and_no_host_twice_in_a_round() -> None:
    for count in (3, 4, 7, 32):
        rounds = plan_rounds(HOSTS[:count])
        pairs = [pair for one in rounds for pair in one]
        assert sorted(pairs) == sorted(combinations(HOSTS[:count], 2))
        assert all(len({h for p in one for h in p}) == 2 * len(one) for one in rounds)


@each_row(
    "text",
    [
        "node-00 node-01 42.3\nnode-00 node-02 17.1",
        "src,dst,busbw_gbs\nnode-00,node-01,42.3\nnode-00,node-02,17.1",
        "# GB/s\nnode-00 -> node-01: 42.3 GB/s\nnode-00 -> node-02: busbw=17.1",
        "| node-00 | node-01 | 42.3 |\n| node-00 | node-02 | 17.1 |",
        "host node-01 node-02\nnode-00 42.3 17.1",
    ],
)
def test_forms_of_a_table(text: str) -> None:
    assert [(f.pair, f.rate) for f in read_figures(text, "t")] == [
        (("node-00", "node-01"), 42.3),
        (("node-00", "node-02"), 17.1),
    ]


def test_what_is_no_table_is_refused_by_name() -> None:
    with pytest.raises(UnreadableArtefact, match=r"t\.txt"):
        read_figures("hello world\n", "t.txt")
    with pytest.raises(UnreadableArtefact, match="two hosts"):
        read_routes("routes: {node-00: [switch-01]}", "r.yaml")
    with pytest.raises(UnreadableArtefact, match="hosts"):
        read_routes("[1, 2]", "r.yaml")


def test_a_port_stands_for_its_switch_as_well() -> None:
    known = read_routes("routes: {node-00 node-09: [switch-04 port 17]}", "r")
    assert known.between("node-09", "node-00") == {"switch-04 port 17", "switch-04"}
