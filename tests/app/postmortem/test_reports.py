"""Are reports of any incident whole, blank where nothing is known, and safe to open?"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from evals.cases import find_case
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault.commands.postmortem import COMMAND
from firstfault.errors import UsageError
from firstfault.postmortem import pdf
from firstfault.postmortem.document import Chart, Grid, Source, lay_out, say_time
from firstfault.postmortem.draft import Draft, draft_report
from firstfault.postmortem.evidence import Artefacts, TimedLine
from firstfault.postmortem.impact import GivenFigures
from firstfault.postmortem.markdown import escape, write_markdown
from firstfault.postmortem.pdf import write_pdf
from firstfault.postmortem.rendering import ReportFormat, format_of
from firstfault.postmortem.report import LossKind, Report
from firstfault.postmortem.summary import write_summary
from firstfault.postmortem.timeline import is_action, is_alert, tell_line
from firstfault.postmortem.web import write_html
from firstfault.postmortem.word import write_docx
from firstfault.workspace import Workspace
from firstfault_tools.knowledge.pack import read_yaml

ROOT = Path(__file__).parents[3]
SECTIONS = (
    "Summary", "Impact", "Timeline", "Detection", "Trigger", "Root cause", "Five whys", "Contributing factors",
    "Resolution", "What went well", "What went badly", "Where luck helped", "Action items", "Prevention checklist",
    "Lessons", "Sources", "What was read",
)  # fmt: skip


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return Workspace()


def make_report(workspace: Workspace, name: str, figures: GivenFigures | None = None) -> Report:
    folder = find_case(name)
    case = read_yaml((folder / "case.yaml").read_text())
    paths = [folder / i for i in case["inputs"]]
    diagnosis = workspace.diagnose_paths(paths)
    names = dict(zip(diagnosis.input.files, paths, strict=False))
    return draft_report(
        Draft(name, "ID", diagnosis, names, workspace.knowledge_path, figures or GivenFigures())
    )


@each_row(
    "name",
    ["comm-ib-port-flap", "lab-oom_one_rank", "healthy-gradscaler-nan-norm", "abstain-segfault-no-core", "sched-node-fail"],
)  # fmt: skip
def test_every_section_is_there_for_every_kind_of_incident(workspace: Workspace, name: str) -> None:
    report = make_report(workspace, name)
    text = write_markdown(report)
    for section in SECTIONS:
        assert f"\n## {section}" in text, section
    known = {c.n for c in report.citations}
    body = text.split("\n## Sources")[0]
    used = set()
    for statement in (*report.summary, *report.detection, *report.resolution):
        used |= set(statement.citations)
    for action in report.actions:
        used |= set(action.citations)
        assert (action.owner, action.due) == ("", "")
    assert used <= known
    assert "________" in body


def test_nothing_is_invented_without_figures(workspace: Workspace) -> None:
    report = make_report(workspace, "lab-oom_one_rank")
    impact = report.impact
    assert impact.price is None
    assert impact.cost is None
    assert impact.missing
    text = write_markdown(report)
    assert "Price of a GPU-hour | ________" in text
    assert "Not known: " in text


def test_a_dead_run_costs_until_it_is_back(workspace: Workspace) -> None:
    figures = GivenFigures(gpus=64, price=2.0, start=1_000_000.0, end=1_000_000.0 + 5_400)
    impact = make_report(workspace, "lab-oom_one_rank", figures).impact
    assert impact.gpu_hours == pytest.approx(96)
    assert impact.cost == pytest.approx(192)
    assert impact.missing == ()


HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) | `rm -rf` ``` ![i](http://h/x.png) <https://h> &amp; # h \u202e\x00\x1b[31m 界"


def hostile(report: Report) -> Report:
    citations = tuple(replace(c, quote=HOSTILE) for c in report.citations)
    timeline = tuple(replace(r, text=HOSTILE) for r in report.timeline)
    return replace(
        report, title=HOSTILE, citations=citations, timeline=timeline, inputs=((HOSTILE, "00"),)
    )


def test_log_text_cannot_become_markup(workspace: Workspace) -> None:
    report = hostile(make_report(workspace, "comm-ib-port-flap"))
    html = write_html(report)
    assert "<script" not in html
    assert "<img" not in html
    links = re.findall(r'href="([^"]*)"', html)
    assert all(link.startswith("http") and "//h" not in link for link in links)
    assert html.count("<table>") == html.count("</table>")
    assert write_pdf(report).startswith(b"%PDF-")
    from docx import Document

    assert Document(io.BytesIO(write_docx(report))).tables


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80) | st.text(alphabet="_*[]()<>`~|\\\\ a1:.#-&;!", max_size=60))
@example("12. step of the list")
@example("- a dash")
def test_escaped_text_shows_as_it_is(text: str) -> None:
    from markdown_it import MarkdownIt

    html = MarkdownIt("commonmark", {"html": False}).enable("table").render("x " + escape(text))
    shown = re.sub(r"<[^>]+>", "", html)
    assert not re.search(r"<(?!/?p>)[a-z]", html)
    for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        shown = shown.replace(entity, char)
    flat = " ".join(("x " + text).split())
    assert " ".join(shown.split()).replace("\ufffd", "") == flat.replace("\0", "").replace("\ufffd", "")  # fmt: skip


@each_row(
    ("name", "form"),
    [("a.md", "md"), ("a.MARKDOWN", "md"), ("b.htm", "html"), ("c.docx", "docx"), ("d.pdf", "pdf")],
)
def test_the_suffix_chooses_the_format(name: str, form: str) -> None:
    assert format_of(Path(name)) is ReportFormat(form)


def test_an_unknown_suffix_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\.docx"):
        format_of(Path("x.odt"))


def test_a_diagnosis_alone_makes_a_report(workspace: Workspace, tmp_path: Path) -> None:
    diagnosis = workspace.diagnose_paths([find_case("comm-ib-port-flap") / "log.txt"])
    for name in ("r.md", "r.html", "r.docx", "r.pdf", "bare"):
        write_summary(diagnosis, tmp_path / name)
    assert diagnosis.root_cause.split(":")[0] in (tmp_path / "r.md").read_text().lower()
    assert (tmp_path / "bare.md").is_file()
    assert "| log.txt |" in (tmp_path / "r.md").read_text().split("## What was read")[1]
    with pytest.raises(UsageError, match="cannot be written"):
        write_summary(diagnosis, tmp_path / "none" / "r.md")


def test_stamps_without_a_year_borrow_it_and_keep_their_order(
    workspace: Workspace, tmp_path: Path
) -> None:
    log = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"
    diagnosis = workspace.diagnose_paths([log])
    for files in ({"log.txt": log}, None):
        write_summary(diagnosis, tmp_path / "r.md", files)
        told = (tmp_path / "r.md").read_text().split("## Timeline")[1]
        assert "All on 2026-06-08." in told
        rows = told.split("\n\n")[1].splitlines()
        times = [row.split(" | ")[0].removeprefix("| ").removeprefix("about ") for row in rows[2:]]
        assert times == sorted(times), "those without a time stand last"
        times = [time for time in times if time != "not printed"]
        assert times[0] == "19:40:06"
        assert all(time.startswith("19:50:") for time in times[1:])


def test_what_stands_beside_a_watchdogs_report_is_as_old_as_its_wait(tmp_path: Path) -> None:
    """The step was logged long before; the report beside the fault says since when the others have waited."""
    log = tmp_path / "log.txt"
    steps = [f"2025-10-20 09:{n:02d}:00 step {n}" for n in range(20)]
    told = "[rank0]:[E1020 10:52:00.000541 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: ran for 1800000 milliseconds before timing out."
    log.write_text(
        "\n".join(
            [*steps, *["reading"] * 12, "[rank11]: OSError: [Errno 116] Stale file handle", told]
        )
    )
    artefacts = Artefacts({"log.txt": log})
    time, about = artefacts.time_at("log.txt", 33)
    assert (say_time(time), about) == ("2025-10-20 10:22:00", True)
    assert say_time(artefacts.begun_at("log.txt", 34)) == "2025-10-20 10:22:00"
    assert say_time(artefacts.time_at("log.txt", 22)[0]) == "2025-10-20 09:19:00"


@each_row(
    ("line", "told"),
    [
        ("[rank3]:[E1020 10:52:00.000261 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank 3] failure detected", "rank 3: failure detected"),
        ("[rank11]: OSError: [Errno 116] Stale file handle", "rank 11: OSError: [Errno 116] Stale file handle"),
        ("[Fri Dec 17 22:55:06 2021] NVRM: Xid (PCI:0000:82:00): 79", "NVRM: Xid (PCI:0000:82:00): 79"),
        ("node-09: busbw = 17.1 GB/s", "node-09: busbw = 17.1 GB/s"),
    ],
)  # fmt: skip
def test_a_row_of_the_timeline_says_who_and_what(line: str, told: str) -> None:
    assert tell_line(line) == told


def test_a_log_that_ends_with_the_fault_does_not_say_what_it_cost(workspace: Workspace) -> None:
    report = make_report(workspace, "b9-comm-05-gpu-lost-xid79")
    assert report.impact.end is None
    assert report.impact.gpu_hours is None
    assert any("costs 4 GPU-hours" in text for text in report.impact.missing)
    assert not report.contributing


def test_every_page_has_its_address_and_tables_have_no_idle_head(workspace: Workspace) -> None:
    blocks = lay_out(make_report(workspace, "b9-comm-05-gpu-lost-xid79"))
    pages = [b for b in blocks if isinstance(b, Source) and b.place.startswith("knowledge page")]
    assert len(pages) > 1
    assert all(b.url.startswith("https://") for b in pages)
    assert [b.header for b in blocks if isinstance(b, Grid)][:2] == [(), ()]


def test_the_rank_at_fault_is_in_the_chart(workspace: Workspace) -> None:
    report = make_report(workspace, "s3-openrlhf-rank-11-dies-others-time-out")
    assert report.ranks is not None
    bars = {row.rank: row.bar for row in report.ranks.rows}
    assert bars[11].startswith("X")
    assert "o" in bars[0]
    writer = pdf._Writer(None)
    writer.pdf.add_page()
    writer._block(next(b for b in lay_out(report) if isinstance(b, Chart)))
    assert writer.pdf.fill_color.colors == (1, 1, 1), (
        "a table below would be drawn in the colour of a lane"
    )


def test_an_advice_is_no_action() -> None:
    advice = "Stack trace not found, potentially because FlightRecorder is disabled."
    assert not is_action(TimedLine("log.txt", 1, advice, None))
    assert is_action(TimedLine("log.txt", 1, "node gx-22 disabled by ops", None))


def test_a_length_is_no_year_and_an_unknown_year_is_not_printed(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("seq_length 2048\n[rank0]:[E608 19:50:07.4 x.cpp:1] stopped\n")
    time, about = Artefacts({"log.txt": log}).time_at("log.txt", 2)
    assert (say_time(time), about) == ("06-08 19:50:07", False)


def test_the_command_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firstfault.service import NamedPath, NewIncident, open_service

    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path / "data"))
    with open_service() as service:
        incident = service.start(
            NewIncident((NamedPath(find_case("comm-ib-port-flap") / "log.txt"),))
        )
        for _ in service.follow(incident):
            pass
    target = tmp_path / "report.html"
    done = CliRunner().invoke(
        COMMAND, [incident, "-o", str(target), "--gpus", "32", "--price", "3"]
    )
    assert done.exit_code == 0, done.output
    assert "$3.00" in target.read_text()
    done = CliRunner().invoke(COMMAND, [incident])
    assert done.output.startswith("# Post-mortem")
    assert CliRunner().invoke(COMMAND, [incident, "--start", "yesterday"]).exit_code == 2


@each_row(
    ("text", "alerted"),
    [
        ("alertmanager: NodeDown firing, paged the on-call", True),
        ("ALERT GPU 3 above 90 C", True),
        ("<script>alert(1)</script>", False),
        ("no alert rules are configured", False),
        ("alert=false alerts: off", False),
    ],
)
def test_an_alert_is_told_from_the_word(text: str, alerted: bool) -> None:
    assert is_alert(TimedLine("a.log", 1, text, None)) is alerted


@each_row(
    ("text", "done"),
    [
        ("network team: switch-04 port 17 disabled, rerouted", True),
        ("docker0: port 2(veth324c6a) entered disabled state", False),
    ],
)
def test_a_state_that_a_kernel_reports_is_nobodys_action(text: str, done: bool) -> None:
    assert is_action(TimedLine("a.log", 1, text, None)) is done


def test_work_is_lost_since_the_run_began_and_not_since_its_host_did(workspace: Workspace) -> None:
    folder = find_case("s3-64-gpu-megatron-job-dies-with-nccl-status-12")
    files = {p.name: p for p in folder.iterdir() if p.name != "case.yaml"}
    diagnosis = workspace.diagnose_paths(list(files.values()))
    made = draft_report(Draft("", "ID", diagnosis, files, workspace.knowledge_path))
    repeated = [x for x in made.impact.losses if x.kind is LossKind.REPEATED]
    sources = {c.n: c.file for c in made.citations}
    assert all(sources[n] == "train.log" for loss in repeated for n in loss.citations)
