"""Nothing that a log, a name, a person or a model wrote makes the browser ask another host."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.ui.marks import plain, render_markdown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]
PICTURE = "![a](http://127.0.0.1:18777/p.png)"
LINK = "[l](http://127.0.0.1:18777/link) http://127.0.0.1:18777/bare www.evil.example.org a@evil.example.org <http://127.0.0.1:18777/auto>"
ATTACK = f"{PICTURE} {LINK} <img src=http://127.0.0.1:18777/i.png> ![r][1] :material/bolt: $x$"
LOG = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 1, in <module>\n    foo()\n'
    f"__main__.Weird: {ATTACK}\n"
)


def check(page: Page) -> None:
    """No picture and no link of the attacker's stands in the page."""
    bad = page.evaluate(
        """() => [...document.querySelectorAll('img, a, iframe, object, embed, video, audio, link')]
        .map(e => e.src || e.href || e.data || '')
        .filter(u => /18777|evil|^mailto/.test(u))"""
    )
    assert not bad, bad


@pytest.mark.browser
def test_no_sink_of_the_page_draws_pictures_or_links(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    page.set_default_timeout(60_000)
    refused: list[str] = []
    page.on("console", lambda m: refused.append(m.text) if "Content Security Policy" in m.text else None)  # fmt: skip
    upload = tmp_path / "![a](http:__127.0.0.1:18777_f.png).log"
    upload.write_text(LOG)
    sent: list[str] = []
    page.on("requestfinished", lambda r: sent.append(r.url) if "upload_file" in r.url else None)
    page.locator("[data-testid=stChatInput] input[type=file]").set_input_files(str(upload))
    for _ in range(200):
        if sent:
            break
        page.wait_for_timeout(100)
    page.get_by_test_id("stChatInputTextArea").fill(f"what is {ATTACK}?")
    page.wait_for_timeout(1_500)
    page.get_by_test_id("stChatInputSubmitButton").click()
    page.locator(".ff-verdict").wait_for()
    check(page)
    row = page.get_by_test_id("stSidebar").locator("[class*='st-key-open-'] button").first
    row.hover()
    page.wait_for_timeout(1_200)
    check(page)
    assert "127.0.0.1" in page.get_by_test_id("stTooltipContent").first.inner_text()
    page.get_by_role("button", name="No, it was something else").click()
    page.get_by_label("What was it really?").fill(ATTACK)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Keep it").click()
    page.get_by_text("You told us").wait_for()
    check(page)
    page.get_by_test_id("stChatInputTextArea").fill(f"why {ATTACK}?")
    page.keyboard.press("Enter")
    page.locator(".ff-answer").first.wait_for()
    check(page)
    page.get_by_role("button", name="Post-mortem").click()
    page.locator(".ff-report").wait_for()
    check(page)
    assert not refused, "the page itself keeps within its policy"


@pytest.mark.browser
def test_the_browser_refuses_what_would_slip_through(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    page.get_by_test_id("stChatInputTextArea").wait_for()
    blocked = page.evaluate(
        """async () => {
          const seen = [];
          document.addEventListener('securitypolicyviolation', e => seen.push(e.effectiveDirective));
          const img = new Image(); img.src = 'https://outside.example.org/p.png';
          document.body.append(img);
          await fetch('https://outside.example.org/x').catch(() => 0);
          await new Promise(r => setTimeout(r, 500));
          return seen;
        }"""
    )
    page.close()
    assert {"img-src", "connect-src"} <= set(blocked)


def test_markdown_of_models_makes_neither_pictures_nor_links() -> None:
    shown = render_markdown(f"rank 5 skipped {ATTACK}\n\n[1]: http://127.0.0.1:18777/ref", {})
    assert "<img" not in shown
    assert "<a " not in shown


def test_only_marks_lead_anywhere() -> None:
    cited = {1: Citation(1, CitationKind.LOG, "boom", file="a.log", line=3)}
    shown = render_markdown(f"it broke [1] {LINK}", cited)
    assert re.findall(r'href="([^"]*)"', shown) == ["#src-1"]


def test_plain_text_stays_in_its_line() -> None:
    assert "\n" not in plain("a\n\n# b\n- c")
