"""Pods that run no trainer are not waited for: only where they make up exactly those who never joined."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace

STORE = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. {}/{} clients joined.\n"


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def list_pods(*groups: tuple[str, int]) -> str:
    rows = [f"{name}-{i}   1/1   Running   0   12m" for name, count in groups for i in range(count)]
    return "\n".join(["$ kubectl get pods", *rows, ""])


@pytest.mark.parametrize(
    ("groups", "joined", "world", "found"),
    [
        ([("job-master", 1), ("job-worker", 3), ("job-cache", 4)], 4, 8, True),
        ([("job-worker", 2), ("job-server", 2)], 2, 4, True),
        ([("job-worker", 4), ("job-cache", 4)], 3, 8, False),
        ([("job-worker", 4)], 4, 8, False),
        ([("job-worker", 8)], 4, 8, False),
    ],
)
def test_pods(
    groups: list[tuple[str, int]],
    joined: int,
    world: int,
    found: bool,
    workspace: Workspace,
    tmp_path: Path,
) -> None:
    path = tmp_path / "job.log"
    path.write_text(list_pods(*groups) + STORE.format(joined, world), encoding="utf-8")
    told = workspace.diagnose_paths([path])
    assert (told.signature == "launch.extra_pods") is found
    assert told.first_failing_rank is None
