"""The odd one out: values that differ on one rank, on one host, and what may differ without harm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.odd_ranks.declared import find_in_incident as find_declared
from firstfault_tools.causality.odd_ranks.odd_rank import find_in_incident
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.scan import build_set, scan_file


def incident(tmp_path: Path, *lines: str) -> LogIncident:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    return LogIncident((scan_file(path, "log.txt", signatures),), signatures)


def files(tmp_path: Path, *logs: Sequence[str]) -> LogIncident:
    signatures = build_set(())
    digests = []
    for rank, lines in enumerate(logs):
        path = tmp_path / f"rank{rank}.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        digests.append(scan_file(path, path.name, signatures))
    return LogIncident(tuple(digests), signatures)


def trouble(category: Category, level: Level = Level.SYMPTOM, rank: int | None = None) -> Finding:
    place = Evidence("log.txt", 99, "the failure")
    return Finding("test", "a failure", level, category, evidence=(place,), rank=rank)


HANG = trouble(Category.COMMUNICATION)


@pytest.mark.parametrize(
    ("line", "odd", "kind", "category"),
    [
        ("model has {} params", (412, 416), "model", Category.CODE_BUG),
        ("vocab size: {}", (32001, 32000), "model", Category.CODE_BUG),
        ("dataset length: {} samples", (1249, 1250), "data", Category.DATA),
        ("found {} shards in /data", (63, 64), "data", Category.DATA),
        ("world_size={} backend=nccl", (4, 8), "world", Category.COMMUNICATION),
        ("rdzv_endpoint=10.0.0.{}:29500", (7, 9), "address", Category.COMMUNICATION),
        ("torch version 2.{}.0", (3, 4), "version", Category.ENVIRONMENT),
        ("resuming from iteration {}", (12000, 12500), "checkpoint", Category.CHECKPOINT),
        ("env NCCL_IB_GID_INDEX={}", (0, 3), "setting", Category.COMMUNICATION),
        ("weight hash after load: 0x{}ab", (77, 99), "hash", Category.HARDWARE),
    ],
)
def test_a_value_that_differs_on_one_rank(
    tmp_path: Path, line: str, odd: tuple[int, int], kind: str, category: Category
) -> None:
    lines = [f"[rank{r}]: {line.format(odd[0] if r == 5 else odd[1])}" for r in range(8)]
    blame = Category.NUMERICAL if kind == "hash" else Category.COMMUNICATION
    (found,) = find_in_incident(incident(tmp_path, *lines), (trouble(blame),))
    assert (found.kind, found.rank, found.level) == (f"ranks.odd_{kind}", 5, Level.CAUSE)
    assert found.category is category
    assert str(odd[0]) in found.title
    assert str(odd[1]) in found.title
    assert found.evidence[0].line == 6


def test_without_a_failure_a_difference_is_only_worth_a_quote(tmp_path: Path) -> None:
    lines = [f"[rank{r}]: dataset length: {9 if r == 2 else 10}" for r in range(4)]
    (found,) = find_in_incident(incident(tmp_path, *lines), ())
    assert found.level is Level.CONTEXT


@pytest.mark.parametrize(
    "other",
    [
        trouble(Category.OOM, Level.CAUSE, 3),
        trouble(Category.HARDWARE, Level.CAUSE),
        trouble(Category.DATA, Level.CAUSE, 7),
    ],
)
def test_a_failure_that_it_does_not_explain_keeps_its_cause(tmp_path: Path, other: Finding) -> None:
    lines = [f"[rank{r}]: dataset length: {9 if r == 2 else 10}" for r in range(4)]
    (found,) = find_in_incident(incident(tmp_path, *lines), (HANG, other))
    assert found.level is Level.CONTEXT


def test_the_reason_is_what_that_rank_alone_said_before(tmp_path: Path) -> None:
    lines = [f"[rank{r}]: building the model" for r in range(4)]
    lines.append("[rank1]: WARNING cfg: /local/head.yaml not found, using the default head")
    lines += [f"[rank{r}]: model has {80 if r == 1 else 84} params" for r in range(4)]
    (found,) = find_in_incident(incident(tmp_path, *lines), (HANG,))
    assert "head.yaml not found" in found.title


def test_ranks_in_files_of_their_own(tmp_path: Path) -> None:
    logs = [
        [f"2026-01-01 10:00:0{r} env MASTER_ADDR=10.0.0.{12 if r == 3 else 21} host=c-{r}", "go"]
        for r in range(4)
    ]
    (found,) = find_in_incident(files(tmp_path, *logs), (HANG,))
    assert (found.rank, found.host, found.level) == (3, "c-3", Level.CAUSE)


def test_all_ranks_of_one_host_differ(tmp_path: Path) -> None:
    lines = [
        f"[rank{r}]: host=n{r // 4} cuda driver version {535 if r // 4 == 2 else 550}"
        for r in range(16)
    ]
    (found,) = find_in_incident(incident(tmp_path, *lines), (HANG,))
    assert (found.rank, found.host) == (None, "n2")
    assert "ranks 8-11" in found.title


def test_rows_that_one_rank_prints_about_all(tmp_path: Path) -> None:
    lines = ["0: parameter checksum by rank", *(
        f"0:   rank {r:2d} (n{r // 4} gpu {r % 4}): {'0e77ab' if r == 6 else '91c0ff'}"
        + ("   <-- differs" if r == 6 else "")
        for r in range(8)
    )]  # fmt: skip
    (found,) = find_in_incident(incident(tmp_path, *lines), (trouble(Category.NUMERICAL),))
    assert (found.kind, found.rank, found.host, found.gpu) == ("ranks.odd_hash", 6, "n1", "GPU 2")


def test_the_first_step_at_which_a_hash_differs(tmp_path: Path) -> None:
    lines = [
        f"[rank{r}]: step {s} param hash {'bad0' if (r, s) == (2, 300) else f'{s}aa'}"
        for s in (100, 200, 300)
        for r in range(4)
    ]
    (found,) = find_in_incident(incident(tmp_path, *lines), (trouble(Category.NUMERICAL),))
    assert found.rank == 2
    assert "step 300" in found.evidence[0].text


@pytest.mark.parametrize(
    "line",
    [
        "[rank{r}]: pid {p} on cuda:{r} seed {s}",
        "[rank{r}]: step 10 loss 2.{r}1 tokens/s 41{r}0",
        "[rank{r}]: step 10 data_time {d} mem 61.{r}",
        "[rank{r}]: took {d} s to build the dataset",
        "[rank{r}]: allocated {d} GiB of samples",
        "[rank{r}]: listening on port {p}",
        "[rank{r}]: local dataset shard {r} of 8",
    ],
)
def test_numbers_that_always_differ_say_nothing(tmp_path: Path, line: str) -> None:
    lines = [
        line.format(r=r, p=4000 + r, s=100 + r, d="9.1" if r == 5 else "0.5") for r in range(8)
    ]
    assert find_in_incident(incident(tmp_path, *lines), (HANG,)) == []


def test_two_halves_and_two_ranks_blame_nobody(tmp_path: Path) -> None:
    halves = [f"[rank{r}]: dataset length: {9 + r % 2}" for r in range(8)]
    assert find_in_incident(incident(tmp_path, *halves), (HANG,)) == []
    pair = [f"[rank{r}]: dataset length: {9 + r}" for r in range(2)]
    assert find_in_incident(incident(tmp_path, *pair), (HANG,)) == []


def test_one_node_reads_another_tracker(tmp_path: Path) -> None:
    lines = [
        f"{r}: WARNING: on rank {r} found iteration 100 in the metadata while max iteration across "
        "the ranks is 150, replacing it with max iteration."
        for r in (9, 8, 11, 10, 13, 12, 15, 14)
    ]
    lines.append("srun: error: n-2: tasks 8-15: Exited with exit code 1")
    lines.append("31: [rank31]: waiting")
    (found,) = find_declared(incident(tmp_path, *lines), ())
    assert (found.rank, found.host) == (None, "n-2")
    assert "ranks 8-15" in found.title


def test_collectives_that_one_rank_runs_alone(tmp_path: Path) -> None:
    def line(rank: int, mine: str, other: int, theirs: str) -> str:
        tail = "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float, device=cuda))"
        return (
            f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is "
            f"running collective: CollectiveFingerPrint(SequenceNumber=12, OpType={mine}, TensorShape=[4], "
            f"{tail}, but Rank {other} is running collective: CollectiveFingerPrint(SequenceNumber=12, "
            f"OpType={theirs}, TensorShape=[4], {tail}."
        )

    lines = [
        line(0, "ALLREDUCE", 2, "BROADCAST"),
        line(1, "ALLREDUCE", 2, "BROADCAST"),
        line(2, "BROADCAST", 0, "ALLREDUCE"),
    ]
    (found,) = find_declared(incident(tmp_path, *lines), ())
    assert (found.kind, found.rank) == ("ranks.odd_collectives", 2)
    assert "BROADCAST" in found.title


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(
        st.one_of(
            st.text(max_size=80),
            st.builds(lambda r, v: f"[rank{r}]: dataset length: {v}", st.integers(0, 9), st.text()),
            st.builds(lambda r, v: f"rank {r}: hash {v}", st.integers(), st.integers()),
            st.builds(
                lambda r, v: (
                    f"Mismatched NCCL version detected : rank {r} version {v} rank {v} version {r}"
                ),
                st.integers(),
                st.integers(),
            ),
        ),
        max_size=30,
    )
)
def test_damage_raises_nothing(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder = tmp_path_factory.mktemp("odd")
    made = incident(folder, *[" ".join(line.split("\n")) for line in lines])
    find_declared(made, ())
    find_in_incident(made, (HANG,))
