"""What once was judged useful stays useful: the rows of the opened questions hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from evals.questions.__main__ import DEV, run

from firstfault.knowledge_base.warm import WarmSearch


@pytest.fixture(scope="module")
def search() -> WarmSearch:
    warm = WarmSearch()
    warm.load()
    return warm


@pytest.mark.parametrize("name", ["dev4.yaml", "dev5.yaml", "dev6.yaml", "dev7.yaml", "dev8.yaml"])
def test_every_row_holds(search: WarmSearch, name: str) -> None:
    file: Path = DEV.with_name(name)
    lacking = {o.row["ask"]: o.lacks for o in run(file, search) if o.lacks}
    assert lacking == {}
