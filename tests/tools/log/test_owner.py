"""Whose log is it: by what its process says of itself, else by its name."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.log.owner import name_owner
from firstfault_tools.log.place import NOWHERE, Place

SAYS = {
    "System: process index 3 of 8, local devices 4": 3,
    "I0101 distributed.py:1] connecting to host-0:1234, process 5/8": 5,
    "jax distributed initialised, process_id=6, num_processes=16": 6,
    "initialized! process_index=2 process_count=4": 2,
    "RANK=6 WORLD_SIZE=8 MASTER_ADDR=head": 6,
    "env: RANK=1 LOCAL_RANK=1 WORLD_SIZE=2": 1,
}
SILENT = (
    "processed 5/8 shards",
    "process 8/8",
    "LOCAL_RANK=3 WORLD_SIZE=8",
    "process 3 finished",
    "Grain worker process 2: no element for 30 s",
)


@each_row(("text", "rank"), SAYS.items(), ids=lambda v: str(v)[:40])
def test_a_process_that_introduces_itself(text: str, rank: int) -> None:
    assert name_owner(NOWHERE, [(1, text)], ()).rank == rank
    assert name_owner(Place(rank=rank - 1), [(1, text)], ()).rank == rank  # worker-5 is rank 6
    assert name_owner(NOWHERE, [(1, text)], (rank + 1,)) is NOWHERE  # others speak in it
    assert name_owner(NOWHERE, [(1, text), (2, "process 7/9")], ()) is NOWHERE
    assert name_owner(NOWHERE, [(900, text)], ()) is NOWHERE


@each_row("text", SILENT)
def test_other_numbers_are_no_rank(text: str) -> None:
    assert name_owner(NOWHERE, [(1, text)], ()) is NOWHERE
