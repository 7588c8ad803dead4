"""Opening a menu or a fold of the page as a person does: again, where it was drawn anew and closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TRIES = 6
TRY_MS = 15_000


def open_menu(page: Page, name: str, wanted: Locator) -> None:
    """Click the menu `name` until `wanted`, something in it, is on the screen."""
    _click_until(page.get_by_role("button", name=name), wanted)


def unfold(details: Locator, wanted: Locator) -> None:
    """Click the summary of a <details> until `wanted`, something in it, is on the screen."""
    _click_until(details.locator("summary"), wanted)


def _click_until(handle: Locator, wanted: Locator) -> None:
    from playwright.sync_api import TimeoutError as TooLate

    for _ in range(TRIES):
        if not wanted.is_visible():
            handle.click()
        try:
            wanted.wait_for(timeout=TRY_MS)
        except TooLate:
            continue
        return
    wanted.wait_for(timeout=TRY_MS)
