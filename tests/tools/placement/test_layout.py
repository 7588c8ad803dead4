"""What is said of the layout of ranks over hosts, and which rank a host and a GPU then stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.rows import each_row

from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.log.place import Place
from firstfault_tools.placement.layout import number_from, read_layout
from firstfault_tools.placement.table import PlacementTable

SAID = read_yaml(Path(__file__).with_name("layouts.yaml").read_text(encoding="utf-8"))


@each_row("said", SAID, ids=lambda s: s["text"][:40])
def test_layouts_in_words(said: dict[str, Any]) -> None:
    found = read_layout(said["text"])
    assert found.per_node == said.get("each")
    assert dict(found.order) == said.get("order", {})
    assert {h: list(s) for h, s in found.spans.items()} == said.get("spans", {})


@each_row(
    ("said", "host", "gpu", "rank"),
    [
        ("ranks 0-7 on a05, 8-15 on a06", "a06", 6, 14),
        ("8 ranks per node, a04 is node 0, a05 is node 1", "a05", 5, 13),
        ("8 ranks per node", "a05", 5, None),
        ("a04 is node 0, a05 is node 1", "a05", 5, None),
        ("4 ranks per node, a04 is node 0, a05 is node 1", "a05", 5, None),
    ],
)
def test_host_and_gpu_by_what_was_said(said: str, host: str, gpu: int, rank: int | None) -> None:
    plain = PlacementTable()
    told = plain.with_layout(read_layout(said))
    assert told.ranks_of(Place(host=host, gpu=gpu)).only == rank
    assert plain.ranks_of(Place(host=host, gpu=gpu)).only is None


def test_numbered_hosts_count_on_only_where_their_ranks_agree() -> None:
    table = PlacementTable()
    table.ranks_on["a13"] |= {25, 27}
    table.ranks_on["a15"] |= {3}
    told = table.with_layout(read_layout("8 ranks per node, a10 is node 0"))
    assert told.by_gpu("a13", 3, None) == 27
    assert told.by_gpu("a15", 3, None) is None
    assert number_from("b13", {"a10": 0}) is None
    assert number_from("a09", {"a10": 0}) is None
