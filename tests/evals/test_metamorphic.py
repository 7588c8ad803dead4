"""Other evidence of the same incident: the variants are what they say, and no fault turns healthy."""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.cases import Case, Expectation, Split, load_cases
from evals.metamorphic import choose_pairs, try_pairs
from evals.variants.making import MAKERS, make_variant

_LOG = """\
2026-05-04 08:00:02 node-03: [rank3] step 1 loss 2.0
May  4 08:00:03 node-04 kernel: fine
[I0504 08:00:04 x.cpp:1] nodes node-[03-05], rank 3
ValueError: rank 3 met an empty sample
"""
PAIRS = 40


def make_case(folder: Path, **files: str) -> Case:
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text)
    inputs = tuple(folder / f"{name}.log" for name in files)
    expect = Expectation("data", ("data",), "x", 3, (), (), "critical")
    return Case("one", "x", "x", "why did rank 3 die?", inputs, Split.DEV, (), expect)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("the last tenth cut off", ["empty sample"]),
        ("other host names", ["node-03", "node-[03", "node-04"]),
        ("ranks eight higher", ["[rank3]", "rank 3 "]),
        ("dates a week later", ["2026-05-04", "May  4", "I0504"]),
    ],
)
def test_variant_leaves_nothing_as_it_was(tmp_path: Path, name: str, texts: list[str]) -> None:
    (tmp_path / "new").mkdir()
    variant = make_variant(name, make_case(tmp_path, a=_LOG), tmp_path / "new", 1)
    assert variant is not None
    made = variant.inputs[0].read_text()
    assert [t for t in texts if t in made] == []
    assert len(made) > 100


@pytest.mark.parametrize("name", MAKERS)
def test_variant_needs_something_to_vary(tmp_path: Path, name: str) -> None:
    (tmp_path / "new").mkdir()
    variant = make_variant(name, make_case(tmp_path, a="nothing\n"), tmp_path / "new", 1)
    bare = {"files in another order", "the last tenth cut off", "other host names"}
    bare |= {"ranks eight higher", "dates a week later"}
    assert (variant is None) is (name in bare)


def test_no_fault_turns_healthy() -> None:
    outcomes = list(try_pairs(choose_pairs(load_cases(), sample=PAIRS), processes=1))
    assert len(outcomes) > PAIRS / 2
    assert [f"{o.variant}: {o.case}" for o in outcomes if o.hidden] == []
