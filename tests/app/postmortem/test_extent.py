"""Do card, page and report say the same times, hours and numbers of ranks?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from evals.cases import find_case
from tests.app.ui.test_way import LOG

from firstfault.investigation.diagnosis import ChainRole, Diagnosis
from firstfault.postmortem.draft import Draft, draft_report
from firstfault.postmortem.extent import MOST_BYTES, add_extent
from firstfault.postmortem.markdown import write_markdown
from firstfault.postmortem.report import Report
from firstfault.postmortem.web import write_html
from firstfault.ui.card import make_card
from firstfault.ui.details import write_chain
from firstfault.ui.lanes import read_lanes
from firstfault.workspace import Workspace

WORKSPACE = Workspace()
SLOW = find_case("seed-002-throughput-collapse")
CASES = ("seed-002-throughput-collapse", "b9-comm-05-gpu-lost-xid79", "s3-openrlhf-rank-11-dies-others-time-out",
         "s4-openrlhf-weight-broadcast-timeout-and-dead-policymodelactor", "public-comm-27-per-rank-continue-skips-backward")  # fmt: skip


def both(paths: Sequence[Path], question: str = "") -> tuple[Diagnosis, Report]:
    diagnosis = WORKSPACE.diagnose_paths(paths, question)
    files = {p.name: p for p in paths}
    return diagnosis, draft_report(Draft("", "", diagnosis, files, WORKSPACE.knowledge_path))


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> tuple[Diagnosis, Report, Path]:
    path = tmp_path_factory.mktemp("nfs") / "pasted.txt"
    path.write_text(LOG, encoding="utf-8")
    return *both([path]), path


@pytest.mark.parametrize("case", CASES)
def test_card_and_report_say_the_same_times_and_hours(case: str) -> None:
    folder = find_case(case)
    paths = sorted(p for p in folder.iterdir() if p.suffix in (".log", ".txt", ".out"))
    diagnosis, report = both(paths)
    facts = dict(make_card(diagnosis).facts)
    if report.impact.start is not None:
        assert f"{datetime.fromtimestamp(report.impact.start, UTC):%H:%M:%S}" in facts["Since"]
    hours = report.impact.gpu_hours
    if hours is not None:
        told = facts["Lost so far"].split(" GPU-hours")[0].replace(",", "")
        assert float(told) == pytest.approx(hours, abs=0.5)


def test_the_deciding_lines_own_stamp_is_since_when() -> None:
    path = find_case("s4-openrlhf-weight-broadcast-timeout-and-dead-policymodelactor") / "job.log"
    diagnosis, _ = both([path])
    assert diagnosis.first_line is not None
    assert "10:12:44" in diagnosis.first_line.text
    assert "10:12:44" in dict(make_card(diagnosis).facts)["Since"]


def test_the_page_and_the_report_time_the_same_lines_alike() -> None:
    paths = [SLOW / n for n in ("train.log", "rank_times.txt", "nccl_tests.txt", "switch.txt", "channel.txt")]  # fmt: skip
    diagnosis, report = both(paths, "Throughput fell from 142K to 89K tokens/s. Why?")
    shown = write_chain(diagnosis)
    for at in ("~03:01:00", "~03:18:00", "~03:31:00"):
        assert at in shown
        assert any(f"{datetime.fromtimestamp(r.time, UTC):%H:%M:%S}" == at[1:] for r in report.timeline if r.time)  # fmt: skip
    assert "of silence" not in shown, "step lines run on"
    facts = dict(make_card(diagnosis).facts)
    assert "02:46:12" in facts["Since"]
    assert "GPU-hours" in facts["Lost so far"]


def test_rows_to_compare_with_follow_from_nothing() -> None:
    paths = [SLOW / n for n in ("train.log", "rank_times.txt", "nccl_tests.txt", "switch.txt")]
    diagnosis, _ = both(paths, "Throughput fell from 142K to 89K tokens/s. Why?")
    texts = [link.text for link in diagnosis.cascade]
    assert not any("step_time_ms 69" in t or "step_time_ms 70" in t for t in texts)
    assert not any("node-00" in t for t in texts)
    assert diagnosis.followers == (72, 200)


def test_all_ranks_that_followed_are_counted_and_drawn(
    stale: tuple[Diagnosis, Report, Path],
) -> None:
    diagnosis, report, path = stale
    others = tuple(r for r in range(16) if r != 11)
    assert diagnosis.followers == others
    assert "15 of 16 ranks timed out" in diagnosis.explanation
    assert "the first of 15 ranks" in write_chain(diagnosis)
    text = write_markdown(report)
    assert "the first of 15 ranks" in text.split("## Timeline")[1].split("###")[0]
    assert "15 ranks reported this failure" in text
    lanes = read_lanes(diagnosis, {path.name: path})
    assert lanes is not None
    drawn = {s.lane for s in lanes.stops if s.role is ChainRole.CASCADE}
    assert drawn == set(map(str, others))
    assert report.ranks is not None
    assert all(row.bar.rstrip(".").endswith("o") for row in report.ranks.rows if row.rank != 11)


def test_who_noticed_is_who_was_told(stale: tuple[Diagnosis, Report, Path]) -> None:
    _, report, _ = stale
    assert "10 min after the start" in report.detection[0].text
    assert report.impact.start == datetime(2026, 11, 27, 3, 22, tzinfo=UTC).timestamp()


def test_five_whys_of_a_stalled_job_each_answer_the_one_before(
    stale: tuple[Diagnosis, Report, Path],
) -> None:
    _, report, _ = stale
    said = [why.because.text for why in report.whys if why.because is not None]
    assert len(said) == len(set(said)) == 5
    assert "tale file handle" not in " ".join(said), "said once, in the headline"


def test_a_report_in_html_has_boxes_code_and_links(stale: tuple[Diagnosis, Report, Path]) -> None:
    _, report, _ = stale
    shown = write_html(report)
    assert shown.count('type="checkbox"') == len(report.prevention)
    prose = re.sub(r"<(pre|code)[ >].*?</\1>", "", shown, flags=re.DOTALL)
    assert "`" not in prose
    assert "[ ]" not in prose
    pages = [c for c in report.citations if c.url]
    assert shown.count('<a href="https://') == len(pages) > 3


def test_what_is_too_long_to_read_twice_is_not_measured(
    stale: tuple[Diagnosis, Report, Path], tmp_path: Path
) -> None:
    diagnosis, _, _ = stale
    long = tmp_path / "long.log"
    long.write_bytes(b"x\n" * (MOST_BYTES // 2 + 1))
    assert add_extent(diagnosis, {"long.log": long}) is diagnosis
