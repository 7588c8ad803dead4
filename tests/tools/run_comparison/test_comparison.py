"""Does the difference that explains what is worse come first, and is nothing told where nothing differs?"""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.workspace import Workspace
from firstfault_tools.registry import Artefact
from firstfault_tools.run_comparison.comparison import Comparison, compare_runs, pages_named
from firstfault_tools.run_comparison.effects import Effect


def steps(ms: float, loss: float = 8.0, count: int = 30, memory: float = 40.0) -> str:
    return "".join(
        f" iteration {i}/ 100 | elapsed time per iteration (ms): {ms + i % 3:.1f} | learning rate: 1.0E-04 | "
        f"lm loss: {loss - 0.01 * i:.6E} | grad norm: 1.0 | peak memory: {memory} GiB\n"
        for i in range(1, count + 1)
    )


def compare(
    tmp_path: Path, good: dict[str, str], bad: dict[str, str], **given: object
) -> Comparison:
    runs = []
    for side, files in (("good", good), ("bad", bad)):
        made = []
        for name, text in files.items():
            path = tmp_path / f"{side}-{name}"
            path.write_text(text)
            made.append(Artefact(name, path))
        runs.append(made)
    return compare_runs(runs[0], runs[1], **given)  # type: ignore[arg-type]


# what both runs print, good's own lines, bad's own lines, bad's steps, the difference that must come first
RANKED = [
    ("NCCL_IB_DISABLE=0\nnum_workers ..... 8\nseed ..... 1\n", "NCCL_IB_DISABLE=1\nnum_workers ..... 8\nseed ..... 2\n", steps(900), "NCCL_IB_DISABLE"),
    ("lr_warmup_iters ..... 2000\nlog_interval ..... 1\n", "lr_warmup_iters ..... 0\nlog_interval ..... 10\n", steps(500, loss=11.0), "lr_warmup_iters"),
    ("gradient_checkpointing ..... True\nseed ..... 1\n", "gradient_checkpointing ..... False\nseed ..... 7\n", steps(500, memory=70.0), "gradient_checkpointing"),
    ("transformers==4.51.3\ntqdm==4.1\n", "transformers==4.52.0\ntqdm==4.2\n", steps(800), "transformers"),
    ("output_dir ..... /a\nwandb_run_id ..... x\nomp_num_threads ..... 8\n", "output_dir ..... /b\nwandb_run_id ..... y\nomp_num_threads ..... 1\n", steps(800), "omp_num_threads"),
]  # fmt: skip


@pytest.mark.parametrize(("good", "bad", "bad_steps", "first"), RANKED)
def test_what_explains_it_comes_first(
    tmp_path: Path, good: str, bad: str, bad_steps: str, first: str
) -> None:
    found = compare(tmp_path, {"t.log": good + steps(500)}, {"t.log": bad + bad_steps})
    assert found.differences[0].name == first
    assert found.differences[0].explains
    assert first in found.sentence


def test_alike_runs_differ_in_nothing(tmp_path: Path) -> None:
    text = "seed ..... 1\n" + steps(500)
    found = compare(tmp_path, {"t.log": text}, {"t.log": text})
    assert not found.differences
    assert not found.effects
    assert not any(c.worse for c in found.changes)
    assert "No measured column" in found.sentence


def test_spread_within_a_twentieth_is_alike(tmp_path: Path) -> None:
    found = compare(tmp_path, {"t.log": steps(500)}, {"t.log": steps(515)})
    assert not any(c.worse for c in found.changes)


def test_what_the_person_says_counts_without_columns(tmp_path: Path) -> None:
    good, bad = (
        {"c.yaml": "optim:\n  lr: 1e-5\nseed: 1\n"},
        {"c.yaml": "optim:\n  lr: 1e-3\nseed: 2\n"},
    )
    found = compare(tmp_path, good, bad, complaint=(Effect.DIVERGED,))
    assert [d.name for d in found.differences] == ["optim.lr", "seed"]
    assert found.differences[0].page == "loss-divergence"


def test_two_nccl_tests_tables(tmp_path: Path) -> None:
    head = "# nThread 1 nGpus 8 minBytes 1 maxBytes 1\n#  Rank  0 Group  0 Pid 12 on {host} device  0 [0x0f] H100\n"
    row = "  1073741824     268435456     float     sum      -1   {time}   {bus}   {bus}      0   {time}   {bus}   {bus}      0\n"
    good = head.format(host="node-1") + row.format(time="6400.0", bus="371.1")
    bad = head.format(host="node-9") + row.format(time="28000.0", bus="84.2")
    found = compare(tmp_path, {"a.txt": good}, {"b.txt": bad}, hosts=({"node-1"}, {"node-9"}))
    assert found.changes[0].worse
    assert found.changes[0].effect is Effect.SLOW
    assert found.nodes.only_bad == ("node-9",)
    assert "own" in found.sentence


def test_one_silent_run_is_said(tmp_path: Path) -> None:
    found = compare(tmp_path, {"t.log": steps(500)}, {"t.log": "seed ..... 1\n" + steps(500)})
    assert found.stated_good == 0
    assert found.differences[0].good is None


def test_pages_exist() -> None:
    assert pages_named() <= Workspace().knowledge.pages.keys()


TABLE = """-------------------------------  ------------  ------------  ------------  ------------
                           Name    Self CPU %      Self CPU     Self CUDA   Self CUDA %
-------------------------------  ------------  ------------  ------------  ------------
                      aten::mm         5.10%       1.200ms     {0}ms        62.40%
          nccl:all_reduce          2.10%     900.000us     {1}ms        15.60%
-------------------------------  ------------  ------------  ------------  ------------
"""
SUMMARY = "| Category | Time (s) | % |\n|---|---:|---:|\n| MatMul/GEMM | 1.245 | 62.4 |\n| Communication (NCCL) | {0} | 15.6 |\n"


@pytest.mark.parametrize(
    ("good", "bad", "row", "times"),
    [
        (TABLE.format("124.500", "31.200"), TABLE.format("124.600", "231.200"), "nccl:all_reduce", (31.2, 231.2)),
        (SUMMARY.format("0.312"), SUMMARY.format("2.312"), "Communication (NCCL)", (312.0, 2312.0)),
    ],
    ids=["operations", "kinds"],
)  # fmt: skip
def test_profiler_tables(good: str, bad: str, row: str, times: tuple[float, float], tmp_path: Path) -> None:  # fmt: skip
    paths = []
    for name, text in (("good.txt", good), ("bad.txt", bad)):
        (tmp_path / name).write_text(text)
        paths.append(Artefact(name, tmp_path / name))
    found = compare_runs(paths[:1], paths[1:])
    worse = [c for c in found.changes if c.worse]
    assert [c.what for c in worse] == [f"profile row {row}"]
    assert (worse[0].good, worse[0].bad) == pytest.approx(times)
