"""Which pictures of the page stand in docs/images? Made from the examples and the dev cases, one a state.

    python -m evals.screens [--only NAME]

Starts the page over an empty folder, goes through it in Chromium and writes docs/images/NAME.png, each below LARGEST
bytes.
"""

from __future__ import annotations

import argparse
import io
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evals.cases import find_case
from evals.running_page import CHROMIUM, ROOT, free_port, run_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

IMAGES = ROOT / "docs" / "images"
LARGEST = 150_000
PATIENCE_MS = 180_000
SETTLE_MS = 2_500
"""Time after which charts have drawn themselves."""

UNKNOWN = "abstain-sigkill-no-host-log"


@dataclass(frozen=True, slots=True)
class Screen:
    """One picture: its name, the way to it from an open page, theme and size."""

    name: str
    go: Callable[[Page, str], None]
    theme: str = "light"
    width: int = 1440
    height: int = 900


def example(title: str) -> Callable[[Page, str], None]:
    """Open an example of the first screen."""

    def go(page: Page, address: str) -> None:
        page.goto(address)
        page.get_by_test_id("stMain").get_by_role("button", name=re.compile(title)).click()
        page.locator(".ff-verdict").wait_for()

    return go


def case(name: str) -> Callable[[Page, str], None]:
    """Paste the log of a dev case."""

    def go(page: Page, address: str) -> None:
        text = next(f for f in sorted(find_case(name).iterdir()) if f.suffix in (".txt", ".log"))
        page.goto(address)
        page.get_by_test_id("stChatInputTextArea").fill(text.read_text(encoding="utf-8"))
        page.keyboard.press("Enter")
        page.locator(".ff-verdict").wait_for()

    return go


def unfold(first: Callable[[Page, str], None], name: str) -> Callable[[Page, str], None]:
    """Open a fold and bring it to the top, its first part open where it has parts."""

    def go(page: Page, address: str) -> None:
        first(page, address)
        summary = page.get_by_test_id("stMain").locator("summary", has_text=re.compile(name)).first
        summary.click()
        page.wait_for_timeout(SETTLE_MS)
        parts = page.locator(".ff-phase, .ff-src").and_(page.locator(":visible"))
        if parts.count():
            parts.nth(3 if parts.count() > 3 else 0).locator("summary").click()
        summary.evaluate("e => e.scrollIntoView({block: 'start'})")
        chart = page.get_by_test_id("stVegaLiteChart").and_(page.locator(":visible"))
        if name == "Timeline" and chart.count():
            box = chart.first.bounding_box()
            if box is not None:
                page.mouse.move(box["x"] + 0.45 * box["width"], box["y"] + 0.45 * box["height"])

    return go


def ask(page: Page, address: str) -> None:
    """A question below a verdict."""
    example("Eight ranks")(page, address)
    page.get_by_role("textbox", name=re.compile("^Ask, or add")).fill("why not rank 0?")
    page.keyboard.press("Enter")
    page.locator(".ff-answer").last.wait_for()


def read_knowledge(page: Page, address: str) -> None:
    """A page found and read in the dialog."""
    page.goto(address)
    page.get_by_role("button", name="Knowledge", exact=True).click()
    page.get_by_label("Search the knowledge base").fill("query NCCL RAS")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_test_id("stCode").first.wait_for()


def report(page: Page, address: str) -> None:
    """The draft of a post-mortem."""
    example("Eight ranks")(page, address)
    page.get_by_role("button", name="Post-mortem").click()
    page.locator(".ff-report h1").wait_for()


def what_if(query: str) -> Callable[[Page, str], None]:
    """A calculator with settings from the address."""

    def go(page: Page, address: str) -> None:
        page.goto(f"{address}/?view=what-if&{query}")
        page.locator(".ff-figures dd:visible").first.wait_for()

    return go


def first_screen(page: Page, address: str) -> None:
    """Nothing asked yet."""
    page.goto(address)
    page.get_by_test_id("stMain").get_by_role("button", name=re.compile("Eight ranks")).wait_for()


SCREENS = (
    Screen("first-screen-light", first_screen),
    Screen("verdict-light", example("Eight ranks")),
    Screen("verdict-dark", example("off the bus"), theme="dark"),
    Screen("healthy-light", example("Alarming, yet healthy")),
    Screen("unknown-light", case(UNKNOWN)),
    Screen("timeline-light", unfold(example("Eight ranks"), "Timeline")),
    Screen("phases-dark", unfold(example("off the bus"), "Phases"), theme="dark"),
    Screen("answer-light", ask),
    Screen("knowledge-light", read_knowledge),
    Screen("what-if-dark", what_if("tool=checkpoint_interval&gpus=4096"), theme="dark"),
    Screen("post-mortem-light", report),
    Screen("verdict-phone-dark", example("Eight ranks"), theme="dark", width=390, height=844),
)


def shrink(picture: bytes) -> bytes:
    """The picture in all its colours where that is small enough, else with a palette; raises ValueError where
    that is still too large."""
    from PIL import Image

    whole, out = Image.open(io.BytesIO(picture)).convert("RGB"), io.BytesIO()
    whole.save(out, "PNG", optimize=True)
    if out.tell() > LARGEST:
        out = io.BytesIO()
        whole.quantize(256, Image.Quantize.MAXCOVERAGE).save(out, "PNG", optimize=True)
    if out.tell() > LARGEST:
        raise ValueError(f"{out.tell()} bytes, more than {LARGEST}")
    return out.getvalue()


def main() -> None:
    """Parse arguments, go through the page, write the pictures."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    wanted = [s for s in SCREENS if parser.parse_args().only in s.name]
    with (
        tempfile.TemporaryDirectory(prefix="screens-") as folder,
        run_page(Path(folder), free_port()) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])  # fmt: skip
        for screen in wanted:
            page = browser.new_page(
                viewport={"width": screen.width, "height": screen.height},
                color_scheme="dark" if screen.theme == "dark" else "light",
            )
            page.set_default_timeout(PATIENCE_MS)
            screen.go(page, address)
            page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')")
            page.wait_for_timeout(SETTLE_MS)
            (IMAGES / f"{screen.name}.png").write_bytes(shrink(page.screenshot()))
            print(screen.name, flush=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
