"""What does axe-core find on the page, in both themes?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
Open = Callable[..., "Page"]
_SETTLED = """async ([theme, width]) => {
  await new Promise(r => setTimeout(r, 400));
  const back = getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor;
  const [r, g, b] = back.match(/[0-9]+/g).map(Number);
  return innerWidth === width && (r + g + b < 384) === (theme === 'dark');
}"""
"""The theme and the width are drawn; the transitions of colours have ended."""

RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


def serious_of(page: Page) -> list[str]:
    """Serious and critical findings, each with the elements."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found: dict[str, Any] = axe.Axe().run(page, options=RULES).response
    return [
        f"{v['id']}: {n['target']} {n['html'][:160]} {n.get('failureSummary', '')[:240]}"
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
        for n in v["nodes"]
    ]


def check(page: Page, *widths: int) -> None:
    """Nothing serious in either theme, at each of the widths; the page follows the theme of the system."""
    for theme in ("dark", "light"):
        page.emulate_media(color_scheme=theme)
        for width in widths or (1280,):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(_SETTLED, arg=[theme, width])
            assert serious_of(page) == [], (theme, width)


def test_first_screen(open_page: Open) -> None:
    page = open_page()
    page.get_by_test_id("stMain").get_by_role("button", name=re.compile("Eight ranks")).wait_for()
    check(page)


@pytest.mark.slow
def test_verdict_with_everything_open(open_page: Open) -> None:
    page = open_page()
    page.get_by_test_id("stMain").get_by_role("button", name=re.compile("Eight ranks")).click()
    page.locator(".ff-action a.ff-mark-page").first.click()
    for name in ("Timeline", "Why", "Phases"):
        page.get_by_test_id("stMain").locator("summary", has_text=name).first.click()
    page.get_by_test_id("stVegaLiteChart").first.wait_for()
    page.wait_for_timeout(1500)
    check(page, 1280, 390)


def test_what_if(open_page: Open) -> None:
    page = open_page("/?view=what-if")
    page.locator(".ff-figures dd").first.wait_for()
    page.wait_for_timeout(1000)
    check(page)


@pytest.mark.slow
def test_report_and_conversation(open_page: Open) -> None:
    page = open_page()
    page.get_by_test_id("stMain").get_by_role("button", name=re.compile("Out of memory")).click()
    page.locator(".ff-verdict").wait_for()
    page.get_by_role("textbox", name=re.compile("^Ask, or add")).fill("How do I fix it?")
    page.keyboard.press("Enter")
    page.locator(".ff-answer").first.wait_for()
    page.wait_for_timeout(1500)
    check(page)
    page.get_by_role("button", name="Post-mortem").click()
    page.locator(".ff-report h1").wait_for()
    page.wait_for_timeout(500)
    check(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Knowledge", exact=True).click()
    page.get_by_label("Search the knowledge base").wait_for()
    page.wait_for_timeout(500)
    check(page)
