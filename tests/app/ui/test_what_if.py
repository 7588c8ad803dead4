"""Do the calculators open from an answer, and show what the address says or say what they cannot?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
Open = Callable[..., "Page"]


def test_an_answer_with_a_calculation_opens_it(open_page: Open) -> None:
    page = open_page()
    box = page.get_by_test_id("stChatInputTextArea")
    box.fill("16 stages, 32 micro-batches: how large is the bubble?")
    box.press("Enter")
    answer = page.locator(".ff-answer")
    answer.get_by_text("31.9 %").first.wait_for()
    assert "](" not in answer.first.inner_text()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Open in What if").click()
    opened.value.get_by_text("31.9").first.wait_for(timeout=60_000)
    assert "stages=16" in opened.value.url
    assert "microbatches=32" in opened.value.url
