"""On a phone, a touch screen, or at 200 % zoom: is the one thing to do seen whole, and can its command be copied?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.app.ui.conftest import read_log
from tests.app.ui.test_way import LOG

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
Open = Callable[..., "Page"]
SIZES = ((390, 844, True), (640, 400, False))
"""A phone, and a notebook's window at 200 %."""


@pytest.fixture(scope="module")
def incident(browser: Browser, address: str) -> Iterator[str]:
    yield from read_log(browser, address, LOG)


@pytest.mark.parametrize(("width", "height", "touch"), SIZES)
def test_the_action_can_be_seen_whole_above_the_box(
    open_page: Open, incident: str, width: int, height: int, touch: bool
) -> None:
    page = open_page(incident, width=width, height=height, touch=touch)
    command = page.locator(".st-key-action-command [data-testid='stCode']")
    command.wait_for()
    page.get_by_test_id("stChatInputTextArea").wait_for()
    page.locator(".st-key-suggestions").wait_for(state="attached")
    page.wait_for_timeout(500)
    room = page.evaluate("""() => {
      const action = document.querySelector('.ff-action'), code = document.querySelector('.st-key-action-command');
      code.scrollIntoView({block: 'end'});
      let top = action; while (top && getComputedStyle(top).overflowY !== 'auto') top = top.parentElement;
      const pinned = document.querySelector('.st-key-ask').getBoundingClientRect();
      top.scrollTop += code.getBoundingClientRect().bottom - pinned.top + 4;
      return {top: action.getBoundingClientRect().top, bottom: code.getBoundingClientRect().bottom, pinned: pinned.top};
    }""")
    assert room["top"] >= 0, f"the action is higher than the window leaves room for: {room}"
    assert room["bottom"] <= room["pinned"], f"the pinned box covers the command: {room}"


def test_suggestions_come_when_the_box_is_entered(open_page: Open, incident: str) -> None:
    page = open_page(incident, width=390, height=844, touch=True)
    chip = page.locator(".st-key-suggestions button").first
    chip.wait_for(state="attached")
    assert not chip.is_visible()
    page.get_by_test_id("stChatInputTextArea").tap()
    chip.wait_for()
    chip.tap()
    page.locator(".ff-answer").first.wait_for()


@pytest.mark.parametrize("touch", [False, True])
def test_commands_can_be_copied_without_a_pointer_over_them(
    open_page: Open, incident: str, touch: bool
) -> None:
    page = open_page(incident, width=390 if touch else 1280, touch=touch)
    command = page.locator(".st-key-action-command [data-testid='stCode']")
    copy = command.get_by_role("button", name=re.compile("copy", re.I))
    copy.wait_for()
    shown = copy.evaluate("""e => { for (; e.dataset.testid !== 'stCode'; e = e.parentElement) {
      const s = getComputedStyle(e); if (s.opacity !== '1' || s.visibility !== 'visible') return false } return true }""")
    assert shown
    place, text = copy.bounding_box(), command.locator("code").bounding_box()
    assert place is not None
    assert text is not None
    assert text["x"] + text["width"] <= place["x"] + 1, "the button stands beside the words"
