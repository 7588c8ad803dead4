"""Does a share of the fuzz find nothing, and is an input made of its seed and number alone?"""

from __future__ import annotations

import pytest
from evals.fuzz import fuzz, make_inputs


@pytest.mark.slow
def test_a_share_of_the_fuzz_finds_nothing() -> None:
    found = [f"{f.number} {f.seed}: {f.what}" for f in fuzz(seed=7, count=300)]
    assert not found, "\n".join(found)


def test_an_input_depends_on_seed_and_number_alone() -> None:
    (_, name, data), *_ = make_inputs(seed=3, count=1, start=5)
    (_, other, same), *_ = (row for row in make_inputs(seed=3, count=3, start=4) if row[0] == 5)
    assert (name, data) == (other, same)
    assert next(make_inputs(seed=4, count=1, start=5))[2] != data
