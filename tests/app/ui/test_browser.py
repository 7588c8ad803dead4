"""The way of an engineer through the page, in a real browser."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evals.cases import find_case
from evals.running_page import free_port
from tests.app.ui.menus import open_menu

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SKIPPED_BATCH = find_case("public-comm-27-per-rank-continue-skips-backward") / "log.txt"
pytestmark = pytest.mark.browser
Open = Callable[..., "Page"]
StartPage = Callable[..., AbstractContextManager[str]]


def paste(page: Page, text: str) -> None:
    page.get_by_test_id("stChatInputTextArea").fill(text)
    page.keyboard.press("Enter")


def paste_case(page: Page) -> None:
    paste(page, SKIPPED_BATCH.read_text())
    page.locator(".ff-verdict").wait_for()


@pytest.fixture(scope="module")
def incident(browser: Browser, address: str) -> Iterator[str]:
    """Path of one incident for the tests that need one and not its arrival."""
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    paste_case(page)
    yield page.url.removeprefix(address)
    page.close()


def open_incident(open_page: Open, path: str) -> Page:
    page = open_page(path)
    page.locator(".ff-verdict").wait_for()
    return page


def test_pasted_log_to_verdict_citation_what_if_and_back(open_page: Open) -> None:
    page = open_page()
    paste_case(page)
    page.wait_for_timeout(1500)
    verdict = page.locator(".ff-verdict")
    assert verdict.bounding_box()["y"] < 400, "it stands at the top when it comes"  # type: ignore[index]
    assert "Fault" in verdict.inner_text()
    assert "ank 5" in verdict.locator("h2").inner_text()
    page.locator("summary", has_text="Evidence").first.click()
    assert page.locator(".ff-row.cited.fault .no").first.inner_text() == "3"
    where = page.url
    assert re.search(r"\?incident=[\w-]{16,}", where)

    mark = page.locator(".ff-action a.ff-mark-page").first
    number = mark.inner_text()
    mark.focus()
    page.keyboard.press("Enter")
    source = page.locator(f"#src-{number}")
    source.wait_for(state="visible")
    assert source.locator("mark").count() == 1, "the quoted words are marked in the passage"

    page.get_by_role("button", name="What if").click()
    page.locator(".ff-figures dd").first.wait_for()
    before = page.locator(".ff-figures dd").first.inner_text()
    page.get_by_text("full", exact=True).click()
    page.wait_for_function(
        "before => document.querySelector('.ff-figures dd').innerText !== before", arg=before
    )
    page.get_by_role("tab", name="Pipeline bubble").click()
    page.get_by_text("Bubble, of the whole step").wait_for()

    page.goto(where)
    page.locator(".ff-verdict").wait_for()
    assert "ank 5" in page.locator(".ff-verdict h2").inner_text()


@pytest.mark.slow
@pytest.mark.postgres
def test_on_postgresql_an_incident_outlives_the_page(
    open_page: Open, start_page: StartPage, postgres_url: str
) -> None:
    port = free_port()
    with start_page(port, FIRSTFAULT_DATABASE_URL=postgres_url) as address:
        page = open_page(at=address)
        paste_case(page)
        where = page.url
    with start_page(port, FIRSTFAULT_DATABASE_URL=postgres_url) as address:
        again = open_page(where.removeprefix(address), at=address)
        again.locator(".ff-verdict").wait_for()
        assert "ank 5" in again.locator(".ff-verdict h2").inner_text()
        paste(again, "How do I fix it?")
        again.locator(".ff-answer").first.wait_for()


def test_second_tab_follows_and_asks_from_the_same_evidence(open_page: Open) -> None:
    page = open_page()
    paste_case(page)
    other = open_incident(open_page, page.url[page.url.index("/?") :])
    paste(other, "Which rank should I look at?")
    other.locator(".ff-answer").first.wait_for()
    page.locator(".ff-answer").first.wait_for()
    assert "Which rank should I look at?" in page.locator(".ff-turn").inner_text()
    assert other.locator(".ff-answer a.ff-mark").count() > 0


def test_the_next_action_says_where_it_is_done_and_how_its_output_is_read(
    open_page: Open,
) -> None:
    page = open_page()
    case = find_case("b12-comm-03-timeout-after-checkpoint-rank0-silent")
    paste(page, (case / "log.txt").read_text())
    page.locator(".ff-verdict").wait_for()
    action = page.locator(".ff-action")
    assert action.locator("b").inner_text() == "In the job script, for the next start:"
    assert "settings to change" in action.inner_text()
    command = page.locator(".st-key-action-command")
    command.get_by_text("TORCH_FR_BUFFER_SIZE").first.wait_for()
    rows = page.locator(".ff-then p")
    rows.nth(1).wait_for()
    assert rows.first.inner_text().startswith("If it shows one rank whose last entry")
    # on a phone the whole command stands on the first screen
    page.set_viewport_size({"width": 450, "height": 900})
    page.wait_for_function(
        "() => { const box = document.querySelector('.st-key-action-command').getBoundingClientRect();"
        " return box.right <= 450 && box.bottom <= 900; }"
    )


def test_uploaded_files_are_one_incident(open_page: Open) -> None:
    page = open_page()
    case = find_case("lab-missing_collective")
    files = [str(case / name) for name in ("log.txt", "fr_rank_0", "fr_rank_1")]
    sent: list[str] = []
    page.on("requestfinished", lambda r: sent.append(r.url) if "upload_file" in r.url else None)
    page.locator("[data-testid=stChatInput] input[type=file]").set_input_files(files)
    page.get_by_text("fr_rank_1").first.wait_for()
    # while a file is on its way Enter does nothing
    for _ in range(300):
        if len(sent) >= len(files):
            break
        page.wait_for_timeout(100)
    page.get_by_test_id("stChatInputSubmitButton").click()
    page.locator(".ff-verdict").wait_for()
    assert "3 files" in page.locator(".ff-receipt").inner_text()
    assert "never entered" in page.locator(".ff-verdict").inner_text()


def test_example_opens_and_a_healthy_run_is_called_healthy(open_page: Open) -> None:
    page = open_page()
    page.get_by_test_id("stMain").get_by_role(
        "button", name=re.compile("Alarming, yet healthy")
    ).click()
    page.locator(".ff-verdict.ok").wait_for()
    assert "Healthy" in page.locator(".ff-verdict .word").inner_text()


def test_share_link_reads_and_cannot_change(open_page: Open, incident: str) -> None:
    page = open_incident(open_page, incident)
    make = page.get_by_role("button", name="Make a read-only link")
    open_menu(page, "Share", make)
    make.click()
    link = page.get_by_test_id("stPopoverBody").locator("code").first.inner_text()
    identity = page.url.split("incident=")[1].split("&")[0].split("#")[0]
    assert identity not in link
    other = open_page("/" + link.split("/", 3)[3])
    other.locator(".ff-verdict").wait_for()
    assert other.get_by_test_id("stChatInputTextArea").count() == 0
    assert other.get_by_role("button", name="Archive").count() == 0
    assert other.get_by_test_id("stSidebar").count() == 0


def test_feedback_is_kept(open_page: Open, incident: str) -> None:
    page = open_incident(open_page, incident)
    really = page.get_by_label("What was it really?")
    open_menu(page, "No, it was something else", really)
    really.fill("a corrupt shard on node 3")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Keep it").click()
    page.get_by_text("You told us").wait_for()
    page.reload()
    page.get_by_text("You told us").wait_for()


def test_post_mortem_downloads(open_page: Open, incident: str, tmp_path: Path) -> None:
    page = open_incident(open_page, incident)
    page.get_by_role("button", name="Post-mortem").click()
    found: dict[str, bytes] = {}
    for name in ("Markdown", "HTML", "Word", "PDF"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name, exact=True).click()
        target = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(target)
        found[target.suffix] = target.read_bytes()
    assert sorted(found) == [".docx", ".html", ".md", ".pdf"]
    assert found[".pdf"].startswith(b"%PDF")
    assert "word/document.xml" in zipfile.ZipFile(BytesIO(found[".docx"])).namelist()
    assert b"rank 5" in found[".md"].lower()
    assert b"rank 5" in found[".html"].lower()


def test_unknown_address_says_so(open_page: Open) -> None:
    page = open_page("/?incident=nothing-like-this")
    page.get_by_text("There is no such incident").wait_for()


def test_log_cannot_inject_markup(open_page: Open) -> None:
    page = open_page()
    hostile = (
        "[rank1] <img src=x onerror=\"document.title='owned'\"> :material/bolt: $x$\n"
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. <script>document.title='owned'</script>\n"
    ) * 3
    paste(page, hostile)
    page.locator(".ff-verdict").wait_for()
    page.wait_for_timeout(500)
    assert page.title().endswith(" · Firstfault")
    assert page.locator(".ff-window img, .ff-window script").count() == 0
    page.locator("summary", has_text="Evidence").first.click()
    assert "<img src=x" in page.locator(".ff-log").first.inner_text()


def test_on_a_phone_the_list_does_not_cover_the_answer(open_page: Open) -> None:
    wide = open_page()
    wide.get_by_role("button", name="New incident").wait_for(state="visible")
    phone = open_page(width=390)
    phone.get_by_test_id("stChatInputTextArea").wait_for()
    phone.wait_for_timeout(1000)
    phone.get_by_test_id("stChatInputTextArea").click(timeout=5000)
    closed = phone.get_by_role("button", name="New incident").bounding_box()
    assert closed is None or closed["x"] + closed["width"] <= 0
