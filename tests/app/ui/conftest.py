"""A running page for browser tests: one process on a free loopback port, its own data folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evals.running_page import CHROMIUM, free_port, run_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

StartPage = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a freshly started page on SQLite."""
    with run_page(tmp_path_factory.mktemp("page"), free_port()) as found:
        yield found


@pytest.fixture
def start_page(tmp_path: Path) -> StartPage:
    """Starts further pages over one data folder: start_page(port, VARIABLE=value)."""

    def start(port: int, **variables: str) -> AbstractContextManager[str]:
        return run_page(tmp_path, port, **variables)

    return start


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The distribution's Chromium."""
    if not CHROMIUM.is_file():
        pytest.skip(f"{CHROMIUM} is not installed (apt install chromium)")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )


def read_log(browser: Browser, address: str, log: str) -> Iterator[str]:
    """Path of an incident made of a pasted log, whose tab stays open as long as it is looked at."""
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    page.get_by_test_id("stChatInputTextArea").fill(log)
    page.keyboard.press("Enter")
    page.locator(".ff-verdict").wait_for()
    yield page.url.removeprefix(address)
    page.close()


@pytest.fixture
def open_page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Page]]:
    """Opens a tab: open_page(path, theme=, width=, at=, height=, touch=). Asking another host fails the test."""
    contexts, outside = [], []

    def open_one(
        path: str = "/", theme: str = "light", width: int = 1280, at: str = "", height: int = 900, touch: bool = False,
    ) -> Page:  # fmt: skip
        address = at or request.getfixturevalue("address")
        context = browser.new_context(
            viewport={"width": width, "height": height},
            has_touch=touch,
            is_mobile=touch,
            color_scheme="dark" if theme == "dark" else "light",
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(90_000)
        page.on("request", lambda r: outside.append(r.url) if _leaves(r.url, address) else None)
        page.goto(address + path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not outside, f"the page asked other hosts: {outside[:3]}"


def _leaves(url: str, address: str) -> bool:
    host = address.removeprefix("http://")
    return not url.startswith((address, f"ws://{host}", "data:", "blob:", "about:"))
