"""What did it cost, where nothing measures it, where the run went on, and what was assumed for it?"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from evals.cases import find_case
from tests.rows import each_row

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.postmortem.draft import Draft, draft_report, name_report
from firstfault.postmortem.evidence import TimedLine
from firstfault.postmortem.impact import GivenFigures
from firstfault.postmortem.lost_share import read_lost_share
from firstfault.postmortem.markdown import write_markdown
from firstfault.postmortem.report import LossKind, Report
from firstfault.postmortem.whys import GivenWhy
from firstfault.workspace import Workspace
from firstfault_tools.log.clock import read_time

WORKSPACE = Workspace()
EIGHT = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"
SEED = {
    "triage.txt": (
        "[02:52] Loss at step 48,201: 2.134 (still decreasing)\n"
        "[02:52] Throughput: 89,412 tokens/s (was 142,000)\n"
        "[02:52] Per-step time: 11.2s (was 7.0s)\n"
        "[02:52] No OOM errors in any rank's stderr\n"
    ),
    "ranks.txt": (
        "Rank Node Compute (ms) AllReduce (ms) Total (ms)\n0 node-00 4,100 2,900 7,000\n"
        "8 node-01 4,100 2,900 7,000\n72 node-09 4,100 7,100 11,200\n200 node-25 4,100 7,100 11,200\n"
    ),
    "nccl-good.txt": "# Unaffected nodes (node-00 to node-07):\nall_reduce_perf -b 1G -e 1G -g 8: busbw = 42.3 GB/s\n",
    "nccl-bad.txt": "# Affected nodes (node-09, node-25, others):\nall_reduce_perf -b 1G -e 1G -g 8: busbw = 17.1 GB/s\n",
    "switch.txt": (
        "switch-04 port 17: CRC errors 14,302 (rising)\nswitch-04 port 17: link flaps: 3 in last hour\n"
        "switch-04 temperature: 72°C (normal)\n"
    ),
}
PASSING = (
    "# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 1073741824 step: 1048576(bytes) warmup iters: 5 iters: 20\n"
    "#  Rank  0 Group  0 Pid  12044 on    node-00 device  0 [0x1b] NVIDIA H100 80GB HBM3\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "  1073741824     268435456     float     sum      -1    44413   24.18   42.31      0    44391   24.19   42.33      0\n"
    "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 42.32\n"
)


def seconds(text: str) -> float:
    at = read_time(text, 2026)
    assert at is not None
    return at


def write(folder: Path, files: dict[str, str]) -> dict[str, Path]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: folder / name for name in files}


def report(
    diagnosis: Diagnosis,
    files: dict[str, Path],
    figures: GivenFigures | None = None,
    title: str = "",
) -> Report:
    return draft_report(
        Draft(title, "ID", diagnosis, files, WORKSPACE.knowledge_path, figures or GivenFigures())
    )


@pytest.mark.parametrize("beside", [{}, {"nccl-pass.txt": PASSING}], ids=["alone", "beside a passing test"])  # fmt: skip
@pytest.mark.parametrize("question", ["", "Throughput fell from 142K to 89K tokens/s. Why?"])
def test_the_seeds_own_files_reach_the_switch_port(
    tmp_path: Path, beside: dict[str, str], question: str
) -> None:
    files = write(tmp_path, SEED | beside)
    diagnosis = WORKSPACE.diagnose_paths(list(files.values()), question)
    assert "switch-04 port 17" in diagnosis.root_cause
    span = GivenFigures(gpus=256, price=4, start=seconds("2026-03-10T02:47:00Z"), end=seconds("2026-03-10T04:07:00Z"))  # fmt: skip
    made = report(diagnosis, files, span)
    assert [x.kind for x in made.impact.losses] == [LossKind.SLOW]
    # 80 min on 256 GPUs are 341 GPU-hours; the run went on at 63 %
    assert made.impact.gpu_hours == pytest.approx(126.4, abs=1.5)
    assert "as stated in the evidence" in write_markdown(made)


@pytest.mark.parametrize("given", [False, True], ids=["from the log", "start and end by a person"])
def test_a_run_that_went_on_slowly_costs_its_lost_share(tmp_path: Path, given: bool) -> None:
    """80 minutes at 11.19 s a step instead of 7.0 s on 256 GPUs: 127.8 GPU-hours, not 341."""
    begin, slow, end = (seconds(f"2026-03-10T0{at}:00Z") for at in ("1:47", "2:47", "4:07"))
    rows, at, step = ["using world size: 256, data-parallel size: 32"], begin, 47_000
    while at < end:
        took = 7.0 if at < slow else 11.19
        at, step = at + 10 * took, step + 10
        stamp = datetime.fromtimestamp(at, UTC)
        rows.append(
            f" [{stamp:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/  500000 | consumed samples: {step * 1024:12d} | "
            f"elapsed time per iteration (ms): {took * 1000:.1f} | global batch size:  1024 | lm loss: 2.134000E+00 |"
        )
    files = write(tmp_path, {"train.log": "\n".join(rows) + "\n"})
    diagnosis = WORKSPACE.diagnose_paths(list(files.values()), "Throughput fell at 02:47. Why?")
    figures = GivenFigures(start=slow, end=end) if given else GivenFigures()
    made = report(diagnosis, files, figures)
    assert made.impact.gpu_hours == pytest.approx(127.8, abs=0.6)
    assert [x.kind for x in made.impact.losses] == [LossKind.SLOW]


@each_row(
    ("line", "share"),
    [
        ("[02:52] Throughput: 89,412 tokens/s (was 142,000)", 0.370),
        ("[02:52] Per-step time: 11.2s (was 7.0s)", 0.375),
        ("alertmanager: MFU 26 %, baseline 41 %", 0.366),
        ("it is a 37% regression", 0.37),
        ("the run went on at 63 % of its speed", 0.37),
        ("tokens/s 138k, before 142k", 0.028),
        ("step 7010 loss 2.1 (was 2.3)", None),
        ("throughput 142000 tokens/s", None),
    ],
)
def test_a_share_is_read_only_where_it_is_stated(line: str, share: float | None) -> None:
    found = read_lost_share([TimedLine("a", 1, line, None)])
    assert (found.share if found else None) == (share if share is None else pytest.approx(share, abs=0.002))  # fmt: skip


def test_a_log_of_rates_alone_gives_the_share(tmp_path: Path) -> None:
    rows = [
        f"[rank0]:[titan] 2026-03-10 02:{10 + n // 2:02d}:{30 * (n % 2):02d},000 - root - INFO - step: {n}  loss:  4.2  "
        f"memory: 40.10GiB(50.70%)  tps: {7_000 if n < 30 else 3_500}  tflops: 100.0  mfu: 40.00%"
        for n in range(60)
    ]
    files = write(tmp_path, {"train.log": "\n".join(rows)})
    made = report(WORKSPACE.diagnose_paths(list(files.values())), files, GivenFigures(gpus=8))
    assert [round(x.share or 0, 2) for x in made.impact.losses] == [0.5]
    assert "by the logged tokens per second" in write_markdown(made)


def test_what_the_evidence_tells_is_filled_in_and_marked() -> None:
    diagnosis = WORKSPACE.diagnose_paths([EIGHT])
    made = report(diagnosis, {"log.txt": EIGHT})
    assert made.impact.gpus == 8
    assert made.impact.gpu_hours == pytest.approx(8 * 606 / 3600, rel=0.02)
    text = write_markdown(made)
    assert "8 GPUs: one for each rank that wrote" in text
    assert "it lasted until the last line, 19:50:12 UTC" in text
    assert "10 min after the start; no alert is in what was read" in text
    chart = text.split("### Ranks over time")[1].split("```")[1]
    assert "rank 5" in chart
    assert "X" in next(row for row in chart.splitlines() if row.startswith("rank 5"))
    assert len({row.split(" | ")[-1][:60] for row in text.split("## Timeline")[1].split("###")[0].splitlines() if "follows" in row}) >= 1  # fmt: skip


def test_the_whys_are_a_chain_and_a_persons_own_win() -> None:
    diagnosis = WORKSPACE.diagnose_paths([EIGHT])
    files = {"log.txt": EIGHT}
    drafted = report(diagnosis, files).whys
    said = [w.because.text for w in drafted if w.because is not None]
    assert len(said) == len(set(said)) >= 3
    assert said.index("The job was shut down after a failure.") == 0
    assert "Rank 5 (local 5" in said[2] or "Rank 5 had the first fault" in said[2]
    assert "skipped a batch" not in " ".join(said), "the headline has said it"
    mine = (GivenWhy("the batch was empty", "log.txt:3"), GivenWhy("nobody filters", "ticket 12"))
    own = report(diagnosis, files, GivenFigures(whys=mine))
    first, second = (w.because for w in own.whys)
    assert first is not None
    assert second is not None
    assert first.text == "The batch was empty."
    assert any(c.line == 3 for c in own.citations if c.n in first.citations)
    assert second.text == "Nobody filters. (ticket 12)"


def test_a_title_is_whole_and_a_persons_own_stays() -> None:
    diagnosis = WORKSPACE.diagnose_paths([EIGHT])
    long = replace(diagnosis, root_cause="rank 5 " + "says something very long " * 20)
    for title in ("", "log.txt", "a.log, b.log and 3 more", diagnosis.root_cause[:120]):
        named = name_report(title, diagnosis)
        assert named.startswith("Rank 5 skipped a batch")
    assert not name_report("", long).rstrip(" …")[-1].isspace()
    assert set(name_report("", long).rstrip(" …").split()) <= set(
        ("R" + long.root_cause[1:]).split()
    )
    assert name_report("The night of the empty batch", diagnosis) == "The night of the empty batch"
