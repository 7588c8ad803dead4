"""Every prefix is read for what it is, and one table joins what the prefixes of a job tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.log import prefix
from firstfault_tools.log.place import NOWHERE, Place
from firstfault_tools.log.prefix import read_file_name, read_forms, read_prefix
from firstfault_tools.log.scan import build_set, scan_file
from firstfault_tools.placement.table import PlacementTable

TABLE = read_yaml(Path(__file__).with_name("placements.yaml").read_text(encoding="utf-8"))


def told(place: Place) -> dict[str, Any]:
    return {
        name: value
        for name in place.__slots__
        if (value := getattr(place, name)) != getattr(NOWHERE, name)
    }


@each_row("row", TABLE["prefixes"], ids=lambda row: row["text"])
def test_prefix(row: dict[str, Any]) -> None:
    place, body = read_prefix(row["text"])
    assert told(place) == row["place"]
    if "body" in row:
        assert row["text"][body:] == row["body"]


def test_one_automaton_of_all_forms_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked once many lines were read; what it leaves out would not have matched."""
    texts = [row["text"] for row in TABLE["prefixes"]]
    alone = [prefix._read_head.__wrapped__(text) for text in texts]
    monkeypatch.setattr(prefix, "WORTH_A_SET", 0)
    assert [prefix._read_head.__wrapped__(text) for text in texts] == alone


@each_row("row", TABLE["files"], ids=lambda row: row["text"])
def test_file_name(row: dict[str, Any]) -> None:
    assert told(read_file_name(row["text"])) == row["place"]


def read_job(log: str, folder: Path) -> PlacementTable:
    path = folder / "train.log"
    path.write_text(log, encoding="utf-8")
    signatures = build_set(())
    return LogIncident((scan_file(path, "train.log", signatures),), signatures).placement


def test_a_log_of_one_rank_tells_its_place_behind_many_like_lines(tmp_path: Path) -> None:
    steps = "".join(f"[rank5]: step {n} loss 2.{n}\n" for n in range(50))
    table = read_job(f"{steps}[rank5]: starts, host=node-07\n{steps}", tmp_path)
    assert table.ranks_on["node-07"] == {5}


@pytest.mark.parametrize("row", TABLE["jobs"], ids=lambda row: row["name"])
def test_job(row: dict[str, Any], tmp_path: Path) -> None:
    found = read_job(row["log"], tmp_path).ranks_of(Place(**row["ask"]), "train.log")
    assert sorted(found.candidates) == row["ranks"]
    assert found.only == (row["ranks"][0] if len(row["ranks"]) == 1 else None)
    assert bool(found.reason) == bool(row["ranks"])


SAMPLED = {"prefixes": "prefixes", "bodies": "prefixes", "files": "files"}


@each_row("group", SAMPLED)
def test_every_form_has_a_source_and_a_sample(group: str) -> None:
    texts = [row["text"] for row in TABLE[SAMPLED[group]]]
    for form in read_forms(group):
        assert form.source.startswith("https://"), form.name
        assert any(form.pattern.search(text) for text in texts), form.name


def test_the_table_holds_many_forms() -> None:
    assert len(TABLE["prefixes"]) >= 60


@given(
    node=st.integers(0, 511),
    local=st.integers(0, 7),
    told_local=st.integers(0, 7),
    host=st.sampled_from([None, "gpu-a17"]),
)
def test_ranks_shift_with_their_node(
    node: int, local: int, told_local: int, host: str | None
) -> None:
    """Wherever the node stands in the job, one process that gives both ranks tells those of its neighbours."""
    table = PlacementTable(world=4096, nodes=512, per_node=8)
    table.add(Place(rank=8 * node + told_local, local_rank=told_local, host=host), "node.log")
    found = table.ranks_of(Place(local_rank=local, host=host), "node.log")
    assert found.only == 8 * node + local
    assert table.ranks_of(Place(local_rank=local, node_rank=node)).only == 8 * node + local


@given(rank=st.integers(0, 99_999), local=st.integers(0, 15))
def test_a_printed_rank_always_wins(rank: int, local: int) -> None:
    place, body = read_prefix(f"[default{local}]:[rank{rank}]: boom")
    assert (place.rank, place.local_rank, body) == (
        rank,
        local,
        len(f"[default{local}]:[rank{rank}]: "),
    )
    assert PlacementTable().ranks_of(place).only == rank


@each_row(
    ("place", "words"),
    [
        (Place(rank=11, local_rank=3, host="gpu-a17"), "rank 11 (local 3, gpu-a17)"),
        (Place(rank=11, host="gpu-a17"), "rank 11 (gpu-a17)"),
        (Place(rank=11), "rank 11"),
        (Place(local_rank=3), "local rank 3"),
        (Place(local_rank=3, node_rank=2), "local rank 3 (node 2)"),
        (Place(task=36), "task 36"),
        (Place(replica=36, pod="worker-36"), "replica 36 (worker-36)"),
        (Place(host="gpu-a17"), "gpu-a17"),
        (NOWHERE, ""),
    ],
)
def test_words(place: Place, words: str) -> None:
    assert place.describe() == words
