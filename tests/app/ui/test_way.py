"""What a person sees on the way from a verdict to its reasons, answers, pages, settings and the report."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evals.running_page import free_port
from tests.app.service.stopping import cut_small, start_and_stop, work, write_log
from tests.app.ui.conftest import read_log
from tests.app.ui.menus import open_menu, unfold

from firstfault import reading, worker
from firstfault.incidents.record import open_record
from firstfault.intake.collect import Collection
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.service import open_service
from firstfault.settings import Settings
from firstfault.workspace import Workspace
from firstfault_tools.log.executors import Workers
from firstfault_tools.log.progress import Scanning

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page
    from tests.app.ui.conftest import StartPage

pytestmark = pytest.mark.browser
Open = Callable[..., "Page"]
STEP = "gpu-a16 [default0]:[rank0]: 2026-11-27 03:{minute:02d}:00 INFO step {step} loss {loss:.3f} grad_norm 0.9{digit}\n"
FAULT = "gpu-a17 [default3]:[rank11]: 2026-11-27 03:22:00 ERROR OSError: [Errno 116] Stale file handle: '/mnt/nfs/shard-00918.tar'\n"
TIMED_OUT = (
    "gpu-a1{host} [default{local}]:[rank{rank}]:[E1127 03:32:00.{rank:03d} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum=881, OpType=ALLREDUCE, NumelIn=5, NumelOut=5, Timeout(ms)=600000) "
    "ran for 600044 milliseconds before timing out.\n"
)
LOG = (
    "".join(
        STEP.format(minute=m, step=4100 + m, loss=2.4 - m / 100, digit=m % 9) for m in range(22)
    )
    + FAULT
    + "".join(TIMED_OUT.format(host=6 + r // 8, local=r % 8, rank=r) for r in range(16) if r != 11)
)


@pytest.fixture(scope="module")
def incident(browser: Browser, address: str) -> Iterator[str]:
    """Path of one incident that the tests of this module look at and do not change."""
    yield from read_log(browser, address, LOG)


def open_incident(open_page: Open, path: str, **look: object) -> Page:
    page = open_page(path, **look)
    page.locator(".ff-verdict").wait_for()
    page.get_by_test_id("stChatInputTextArea").wait_for()
    return page


def fold(page: Page, name: str) -> Locator:
    """Open a fold of the incident by its title."""
    found = page.get_by_test_id("stMain").get_by_test_id("stExpander")
    chosen = found.filter(has=page.locator("summary", has_text=re.compile(name))).first
    chosen.locator("summary").first.click()
    return chosen


def test_card_says_place_cause_and_one_thing_to_do(open_page: Open, incident: str) -> None:
    page = open_incident(open_page, incident)
    card = page.locator(".st-key-card-fault")
    headline = card.locator("h2").inner_text()
    assert headline.startswith("Rank 11 on gpu-a17: ")
    assert "tale file handle" in headline
    facts = card.locator(".ff-facts").inner_text()
    for wanted in ("Storage", "rank 11 on gpu-a17", "03:22:00 UTC", "GPU-hours"):
        assert wanted in facts, wanted
    assert card.locator(".ff-action").count() == 1
    card.get_by_test_id("stCode").first.wait_for()
    assert card.get_by_test_id("stCode").count() == 1
    card.get_by_test_id("stCode").hover()
    card.get_by_role("button", name=re.compile("copy", re.I)).wait_for()
    assert "tale file handle" in page.get_by_role("heading", level=1).inner_text()
    assert card.locator(".line code").is_visible(), "the deciding line stands on the card"
    fold(page, "Evidence").locator(".ff-row.cited.fault").first.wait_for()
    row = card.locator(".line code")
    assert "tale file handle" in row.inner_text()
    assert row.evaluate("e => e.scrollWidth <= e.clientWidth"), "and is not cut off"
    place, box = row.bounding_box(), page.locator(".st-key-ask").bounding_box()
    assert place is not None
    assert box is not None
    assert place["y"] + place["height"] <= box["y"], "in sight above the box, without scrolling"


FOLDS = (
    ("Evidence", ".ff-row.cited", "tale file handle"),
    ("Timeline", ".ff-events tr.gap", "of silence"),
    ("Why", "[aria-label='What would prove this wrong']", "this check"),
    ("All fixes", ".ff-title", "Fix for good"),
    ("Sources", ".ff-src", "pasted.txt"),
    ("Phases", ".ff-phase", "Localize"),
)


def test_everything_else_folds(open_page: Open, incident: str) -> None:
    from playwright.sync_api import expect

    page = open_incident(open_page, incident)
    for name, selector, text in FOLDS:
        inside = page.locator(f"{selector}:visible", has_text=text)
        before = inside.count()
        opened = fold(page, name)
        opened.locator(selector, has_text=text).first.wait_for()
        expect(inside, name).not_to_have_count(before, timeout=60_000)
    phase = page.locator(".ff-phase", has_text="Root cause")
    unfold(phase, phase.locator("dt", has_text=re.compile("^Question$")))
    for term in ("Question", "For", "Would change it"):
        phase.locator("dt", has_text=re.compile(f"^{term}$")).wait_for()


def test_one_cursor_crosses_lanes_and_metrics(open_page: Open, incident: str) -> None:
    page = open_incident(open_page, incident)
    chart = fold(page, "Timeline").get_by_test_id("stVegaLiteChart")
    chart.scroll_into_view_if_needed()
    chart.locator("svg, canvas").first.wait_for()
    assert "longest silence is 11 min" in (chart.get_attribute("aria-label") or "")
    box = chart.bounding_box()
    assert box is not None
    empty = chart.screenshot()
    page.mouse.move(box["x"] + 0.35 * box["width"], box["y"] + 0.4 * box["height"])
    page.locator("#vg-tooltip-element.visible", has_text="03:").wait_for()
    assert chart.screenshot() != empty, "a rule and the values under it are drawn"


def test_the_box_is_at_hand_and_answers(open_page: Open, incident: str) -> None:
    page = open_incident(open_page, incident)
    box = page.get_by_test_id("stChatInputTextArea")
    place = box.bounding_box()
    assert place is not None
    assert place["y"] + place["height"] <= 900, "pinned below, without scrolling"
    assert 3 <= page.locator(".st-key-suggestions button").count() <= 4
    page.wait_for_function("window.firstfaultSlash")
    page.keyboard.press("/")
    page.wait_for_function("document.activeElement.dataset.testid === 'stChatInputTextArea'")
    page.keyboard.type("which rank?")
    page.keyboard.press("Enter")
    answer = page.locator(".ff-answer").last
    answer.filter(has_text="11").wait_for()
    page.wait_for_function("document.activeElement.dataset.testid === 'stChatInputTextArea'")


def test_knowledge_is_read_in_place(open_page: Open, incident: str) -> None:
    page = open_incident(open_page, incident)
    page.get_by_role("button", name="Knowledge", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Search the knowledge base").fill("query NCCL RAS")
    page.keyboard.press("Enter")
    dialog.get_by_role("heading", name="NCCL RAS, the built-in status service").wait_for()
    dialog.get_by_test_id("stCode").first.wait_for()
    border = "e => getComputedStyle(e).getPropertyValue('--ff-line').trim()"
    assert dialog.evaluate(border), "dialogs have the colours of the page"
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert incident.split("#")[0] in page.url


def test_settings_of_what_if_come_from_the_address_and_go_there(open_page: Open) -> None:
    page = open_page("/?view=what-if&tool=bubble&stages=16&microbatches=32")
    page.get_by_text("31.9").first.wait_for()
    count = page.get_by_label("Micro-batches a step")
    count.fill("33")
    count.press("Enter")
    page.wait_for_url(re.compile("microbatches=33"))
    page.get_by_role("tab", name="Checkpoint interval").click()
    page.get_by_test_id("stVegaLiteChart").and_(
        page.locator("[aria-label*='wasted over intervals']")
    ).wait_for()
    page.get_by_role("tab", name="GPU memory").click()
    page.get_by_role("combobox", name="GPU", exact=False).last.click()
    options = page.get_by_role("option").all_inner_texts()
    assert len(options) == len(set(options)) > 5, "every card once"


def test_report_is_filled_in_from_the_evidence(open_page: Open, incident: str) -> None:
    page = open_incident(open_page, incident)
    page.get_by_role("button", name="Post-mortem").click()
    report = page.locator(".ff-report")
    report.get_by_text("Ranks over time").wait_for()
    assert page.get_by_label("GPUs", exact=True).input_value() == "16"
    said = report.inner_text()
    for wanted in ("2.7 GPU-hours", "From the evidence, correct it if needed: 16 GPUs", "Five whys"):  # fmt: skip
        assert wanted in said, wanted
    title = report.locator("h1").inner_text()
    assert title.startswith("Post-mortem: Rank 11 on gpu-a17")
    page.get_by_text("Edit the five whys").click()
    page.get_by_test_id("stDataFrame").wait_for()


def test_reading_again_says_what_changed_and_removal_can_be_undone(open_page: Open) -> None:
    from playwright.sync_api import expect

    page = open_page()
    page.get_by_text("Or open an example incident").wait_for()
    assert page.title() == "Firstfault"
    page.get_by_test_id("stChatInputTextArea").fill(LOG)
    page.keyboard.press("Enter")
    page.locator(".st-key-incident").wait_for()
    expect(
        page.get_by_text("Or open an example incident"), "nothing old stays below"
    ).to_have_count(0)
    page.locator(".ff-verdict").wait_for()
    page.wait_for_function("/tale file handle.* · Firstfault$/.test(document.title)")
    again = page.get_by_role("button", name="Diagnose again")
    open_menu(page, "More", again)
    again.click()
    again.wait_for(state="hidden")  # a menu that did what it was asked closes
    toast = page.get_by_test_id("stToast").filter(has_text="The same verdict as before.")
    toast.wait_for()
    page.locator(".ff-change", has_text="The same verdict as before.").wait_for()
    row = page.get_by_test_id("stSidebar").locator("[class*='st-key-open-current-fault']")
    row.wait_for()
    assert page.get_by_test_id("stSidebar").get_by_text("Today").count() == 1
    archive = page.get_by_role("button", name="Archive")
    open_menu(page, "More", archive)
    archive.click()
    archive.wait_for(state="hidden")
    row.wait_for(state="detached")
    page.get_by_role("button", name="Undo").click()
    row.wait_for()
    open_menu(page, "More", archive)
    page.get_by_text("I want to delete this incident").click()
    delete = page.get_by_role("button", name="Delete for good")
    delete.wait_for()
    red = delete.evaluate("e => getComputedStyle(e).backgroundColor")
    assert red == "rgb(179, 38, 30)", "delete looks like delete"
    delete.click()
    page.get_by_text("What broke first?").wait_for()


def test_an_open_draft_and_open_folds_stay_when_something_arrives(
    open_page: Open, incident: str
) -> None:
    page, other = open_incident(open_page, incident), open_incident(open_page, incident)
    fold = page.get_by_test_id("stMain").locator("summary", has_text="Timeline").first
    fold.click()
    opened = page.get_by_test_id("stExpander").filter(has_text="Timeline").first.locator("details")
    assert opened.get_attribute("open") is not None
    page.get_by_role("button", name="Post-mortem").click()
    page.locator(".ff-report h1").wait_for()
    turns = page.locator(".ff-turn").count()
    box = other.get_by_role("textbox", name=re.compile("^Ask, or add"))
    box.fill("what do I run next?")
    box.press("Enter")
    page.wait_for_function(f"document.querySelectorAll('.ff-turn').length > {turns}")
    page.wait_for_timeout(1500)
    assert page.locator(".ff-report h1").is_visible()
    page.keyboard.press("Escape")
    page.locator(".ff-report h1").wait_for(state="hidden")
    assert opened.get_attribute("open") is not None


class Paused(Workspace):
    """A worker's tools that tell how far they are and go on when they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def diagnose_collection(
        self, collection: Collection, question: str = "", workers: Workers | None = None
    ) -> Diagnosis:
        assert workers is not None
        assert workers.tell is not None
        workers.tell(Scanning(30_000_000, 90_000_000, 300_000, (("stale handle", 2),)))
        assert self.goes_on.wait(90)
        return super().diagnose_collection(collection, question, workers)


WATCH_STOP = """() => {
  window.besideVerdict = 0;
  const look = () => {
    const stop = [...document.querySelectorAll('.st-key-stop button')].some(b => b.checkVisibility());
    if (stop && document.querySelector('.ff-verdict')) window.besideVerdict += 1;
    requestAnimationFrame(look);
  };
  look();
}"""
"""Counts the pictures in which a Stop is seen beside a verdict."""


def test_work_is_shown_stops_and_goes_on(
    open_page: Open, start_page: StartPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_page(free_port(), FIRSTFAULT_WORKER="external") as address:
        page = open_page(at=address)
        page.get_by_test_id("stChatInputTextArea").fill(LOG)
        page.keyboard.press("Enter")
        work = page.get_by_test_id("stExpander").filter(has_text=re.compile("kB in all"))
        work.filter(has_text="Waiting for a worker").first.wait_for()
        assert not work.first.get_by_test_id("stExpanderIconCheck").count()
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Stopped.").wait_for()
        page.get_by_text("Nothing was read to an end yet").wait_for()
        assert page.get_by_role("button", name="Diagnose what was read").is_disabled()
        page.get_by_role("button", name="Go on").click()
        work.filter(has_text="Waiting for a worker").first.wait_for()

        monkeypatch.setattr(reading, "SCAN_SECONDS", 0.0)
        paused, over = Paused(), threading.Event()
        record = open_record(Settings(data=tmp_path))
        executor = worker.Worker(record, paused)
        thread = threading.Thread(target=executor.work, args=(over,))
        thread.start()
        try:
            # a bar with the rate and the time left, and what was found
            work.get_by_text(re.compile(r"\d MB/s, about \d+ s left")).first.wait_for()
            work.get_by_role("progressbar").first.wait_for()
            work.get_by_text("Found so far: stale handle (2 lines)").first.wait_for()
            page.evaluate(WATCH_STOP)
            paused.goes_on.set()
            page.locator(".ff-verdict").wait_for()
            page.wait_for_timeout(1000)
            assert page.evaluate("window.besideVerdict") == 0, "Stop stands beside no verdict"
        finally:
            paused.goes_on.set()
            over.set()
            thread.join()
            record.database.close()


def test_after_a_stop_a_part_is_diagnosed_and_the_rest_read(
    open_page: Open, start_page: StartPage, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cut_small(monkeypatch)
    given = tmp_path_factory.mktemp("given")
    logs = [write_log(given, 0, fault_at=3000), write_log(given, 1)]
    with (
        start_page(free_port(), FIRSTFAULT_WORKER="external") as address,
        open_service(Settings(data=tmp_path), workers=False) as service,
    ):
        identity = start_and_stop(service, *logs, at=0.7)
        page = open_page(f"/?incident={identity}", at=address)
        page.get_by_text(
            re.compile(r"Stopped\. .* MB.* Kept are .*, 1 log of it to the end")
        ).wait_for()
        read = page.get_by_role("button", name="Diagnose what was read")
        page.get_by_role("button", name="Go on").wait_for()
        read.click()
        read.wait_for(state="hidden")
        work(service)
        page.locator(".ff-verdict").wait_for()
        part = page.locator(
            ".ff-note", has_text=re.compile("on a part: .* rank_1.log was not read to the end")
        )
        part.wait_for()
        page.get_by_text("Not read: 1").click()
        page.get_by_role("cell", name=re.compile("^the reading was stopped within it")).wait_for()
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("had the reading go on from where it was stopped").wait_for()
        work(service)
        part.wait_for(state="hidden")
        page.locator(".ff-verdict").wait_for()
        assert not page.get_by_role("button", name="Go on").count()


def test_a_cause_that_a_check_rules_out_leaves_title_and_card(
    browser: Browser, address: str, open_page: Open
) -> None:
    for path in read_log(browser, address, LOG.replace("shard-00918", "shard-00919")):
        page = open_incident(open_page, path)
        action = page.locator(".st-key-card-fault .ff-action")
        first = action.inner_text()
        box = page.get_by_role("textbox", name=re.compile("^Ask, or add"))
        box.fill("What do I run next?")
        box.press("Enter")
        page.get_by_role("button", name="It does not").click()
        page.locator(".ff-verdict", has_text="Ruled out by you").wait_for()
        title = page.locator(
            "h1.ff-name", has_text=re.compile("^Ruled out: .*tale file handle.*; open$")
        )
        title.wait_for()
        page.get_by_test_id("stSidebar").get_by_role(
            "button", name=re.compile("Ruled out: ")
        ).first.wait_for()
        action.filter(has_text="Check next").wait_for()
        assert action.inner_text() != first, "what was done is not asked again"


def test_a_phone_and_200_percent_show_card_and_box(open_page: Open, incident: str) -> None:
    for width in (390, 720):
        page = open_incident(open_page, incident, width=width)
        wide = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
        assert wide <= width, "nothing scrolls sideways"
        assert page.locator(".ff-verdict h2").bounding_box()["y"] < 400  # type: ignore[index]
        assert page.get_by_test_id("stChatInputTextArea").is_visible()
