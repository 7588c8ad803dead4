"""Are reports of any incident whole, blank where nothing is known, and safe to open?"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from evals.cases import find_case
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firstfault.commands.postmortem import COMMAND
from firstfault.errors import UsageError
from firstfault.postmortem.document import say_time
from firstfault.postmortem.draft import Draft, draft_report
from firstfault.postmortem.evidence import Artefacts, TimedLine
from firstfault.postmortem.impact import GivenFigures
from firstfault.postmortem.markdown import escape, write_markdown
from firstfault.postmortem.pdf import write_pdf
from firstfault.postmortem.rendering import ReportFormat, format_of
from firstfault.postmortem.report import LossKind, Report
from firstfault.postmortem.summary import write_summary
from firstfault.postmortem.timeline import is_action, is_alert
from firstfault.postmortem.web import write_html
from firstfault.postmortem.word import write_docx
from firstfault.workspace import Workspace

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
    case = yaml.safe_load((folder / "case.yaml").read_text())
    paths = [folder / i for i in case["inputs"]]
    diagnosis = workspace.diagnose_paths(paths)
    names = dict(zip(diagnosis.input.files, paths, strict=False))
    return draft_report(
        Draft(name, "ID", diagnosis, names, workspace.knowledge_path, figures or GivenFigures())
    )


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
        rows = (tmp_path / "r.md").read_text().split("## Timeline")[1].split("\n\n")[1].splitlines()
        times = [row.split(" | ")[0].removeprefix("| ").removeprefix("about ") for row in rows[2:]]
        assert times == sorted(times), "those without a time stand last"
        times = [time for time in times if time != "no time printed"]
        assert times[0] == "2026-06-08 19:40:06"
        assert all(time.startswith("2026-06-08 19:50:") for time in times[1:])


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
