from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.collectives.parallel_mesh import (
    CALCULATOR,
    Mesh,
    coordinates,
    groups,
    locate,
    mesh_of_text,
)
from firstfault_tools.errors import InvalidParameter

SIZE = st.sampled_from([1, 2, 4])


def test_documented_example_of_sixteen_gpus() -> None:
    """The example in the docstring of megatron.core's initialize_model_parallel: TP 2, PP 4."""
    mesh = Mesh(world=16, tp=2, pp=4)
    assert groups(mesh, ["dp"]) == [
        [0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15],
    ]  # fmt: skip
    assert groups(mesh, ["tp"]) == [[n, n + 1] for n in range(0, 16, 2)]
    assert groups(mesh, ["pp"]) == [
        [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
    ]  # fmt: skip


def test_documented_example_of_another_order() -> None:
    """The example in RankGenerator.get_ranks's kind: N=16, tp-pp-dp counts pipeline before data."""
    mesh = Mesh(world=16, tp=2, pp=4, order="tp-pp-dp")
    assert groups(mesh, ["pp"])[:2] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert groups(mesh, ["dp"])[:2] == [[0, 8], [1, 9]]


def test_context_parallel_lies_between_tensor_and_data() -> None:
    mesh = Mesh(world=16, tp=2, cp=2, pp=2)
    assert groups(mesh, ["cp"])[:2] == [[0, 2], [1, 3]]
    assert groups(mesh, ["dp"])[:2] == [[0, 4], [1, 5]]
    assert groups(mesh, ["pp"])[0] == [0, 8]


def test_expert_mesh_replaces_context_by_expert() -> None:
    mesh = Mesh(world=16, tp=2, ep=4, expert_tp=1, pp=2)
    assert groups(mesh, ["ep"], expert=True)[:2] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(mesh, ["dp"], expert=True)[0] == [0, 4]
    place = locate(6, mesh)
    assert place.expert == {"ep": 2, "dp": 1, "pp": 0}
    assert str(place) == "rank 6 (TP0 DP3 PP0) on host 0, GPU 6"


@settings(deadline=None)
@given(SIZE, SIZE, SIZE, SIZE, st.permutations(["tp", "cp", "ep", "dp", "pp"]))
def test_groups_partition_the_world_and_coordinates_are_unique(
    tp: int, cp: int, pp: int, dp: int, order: list[str]
) -> None:
    mesh = Mesh(world=tp * cp * pp * dp, tp=tp, cp=cp, pp=pp, order="-".join(order))
    assert mesh.dp == dp
    places = {
        tuple(coordinates(r, mesh.dense_sizes(), mesh.order).items()) for r in range(mesh.world)
    }
    assert len(places) == mesh.world
    for name, size in mesh.dense_sizes().items():
        found = groups(mesh, [name])
        assert sorted(r for g in found for r in g) == list(range(mesh.world))
        assert {len(g) for g in found} == {size}


@each_row(
    ("arguments", "field"),
    [
        ({"world": 10, "tp": 4}, "world"),
        ({"world": 0}, "world"),
        ({"world": 8, "tp": 2, "order": "pp-dp"}, "order"),
        ({"world": 8, "order": "tp-tp-dp"}, "order"),
        ({"world": 8, "ep": 3}, "world"),
    ],
)
def test_impossible_meshes_are_refused(arguments: dict[str, int | str], field: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        Mesh(**arguments)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_rank_outside_the_world() -> None:
    with pytest.raises(InvalidParameter, match="rank"):
        locate(16, Mesh(world=16))


@each_row(
    "text",
    [
        "using world size: 64, data-parallel size: 4, context-parallel size: 1, "
        "hierarchical context-parallel sizes: None, tensor-model-parallel size: 4, "
        "pipeline-model-parallel size: 4",
        "  world_size ...................................... 64\n"
        "  tensor_model_parallel_size ...................... 4\n"
        "  pipeline_model_parallel_size .................... 4\n",
        "torchrun --nnodes 8 pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size=4 --world-size 64",
    ],
)
def test_mesh_of_text(text: str) -> None:
    assert mesh_of_text(text.splitlines()) == Mesh(world=64, tp=4, pp=4)


def test_mesh_of_text_does_not_guess() -> None:
    assert mesh_of_text(["world size 64"]) is None
    assert mesh_of_text(["--tensor-model-parallel-size 4"]) is None
    assert mesh_of_text(["--tensor-model-parallel-size 3"], world=64) is None


@settings(deadline=None)
@given(st.lists(st.text(), max_size=5), st.integers(1, 100))
def test_any_text_is_survived(lines: list[str], world: int) -> None:
    mesh_of_text(lines, world)


@settings(deadline=None)
@given(st.integers(0, 63), SIZE, SIZE)
def test_calculator_names_groups_of_the_rank(rank: int, tp: int, pp: int) -> None:
    result = CALCULATOR.run(rank=rank, world=64, tp=tp, pp=pp)
    json.dumps(result)
    found = result["groups"]
    assert isinstance(found, dict)
    assume(found)
    assert all(rank in group for group in found.values())
