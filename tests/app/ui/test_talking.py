"""Do conversations go in a real browser as they go in the service? Three of the dialogues, typed and clicked.

Between them they begin with a question and with a log, add a log, open phases again and walk through them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from firstfault_tools.knowledge.pack import read_yaml

if TYPE_CHECKING:
    from playwright.sync_api import Page

TABLE = read_yaml(
    (Path(__file__).parents[1] / "conversation" / "dialogues.yaml").read_text(encoding="utf-8")
)
NAMES = ("likely-oom-stands", "still-running-slurm", "rolled-back-twice")
DIALOGUES: Mapping[str, Any] = {d["id"]: d for d in TABLE["dialogues"]}
pytestmark = pytest.mark.browser
Open = Callable[..., "Page"]


def send(page: Page, text: str) -> None:
    """Type into the one box of the page and send."""
    page.wait_for_function(
        "document.querySelectorAll('[data-testid=stChatInputTextArea]').length === 1"
    )
    box = page.get_by_test_id("stChatInputTextArea")
    box.fill(text)
    box.press("Enter")


def wait_for_one(page: Page, selector: str) -> None:
    """Wait for one such element to stand: a row that moves stands twice until what was before it goes."""
    page.wait_for_function(
        "selector => document.querySelectorAll(selector).length === 1", arg=selector
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_in_the_page(open_page: Open, name: str) -> None:
    dialogue = DIALOGUES[name]
    page = open_page()
    send(page, dialogue.get("open") or TABLE["texts"][dialogue["paste"]])
    page.wait_for_url(re.compile(r"\?incident="))
    page.locator("[class*=st-key-suggestions] button").first.wait_for()
    for number, turn in enumerate(dialogue["turns"], 2):
        send(page, TABLE["texts"][turn["add"]] if "add" in turn else turn["say"])
        wait_for_one(page, f"#turn-{number}")
        for wanted in turn.get("want", ()):
            page.wait_for_function(
                "([n, re]) => { const turn = document.getElementById('turn-' + n);"
                " const main = document.querySelector('[data-testid=stMain]');"
                " if (!turn || !main) return false;"
                " const after = document.createRange();"
                " after.setStartAfter(turn); after.setEndAfter(main);"
                " return new RegExp(re).test(after.toString()) }",
                arg=[number, wanted.lstrip("^").replace("```bash", "").replace("(?i)", "")],
            )
            wait_for_one(page, f"#turn-{number}")
        for phase, status in turn.get("phase", {}).items():
            assert status == "open"
            row = page.locator(".ff-phase", has_text=phase.split("_")[0].capitalize()).first
            row.get_by_text("open").first.wait_for(state="attached")


def test_answers_stand_beside_the_question_that_they_answer(open_page: Open) -> None:
    page = open_page()
    send(page, f"why did it die?\n\n{TABLE['texts']['oom']}")
    page.get_by_role("button", name="What do I run next?").wait_for()
    assert not page.get_by_role("button", name="The code", exact=True).count()
    ask = page.get_by_role("textbox", name=re.compile("^Ask, or add"))
    ask.fill("we checked the network, it is fine")
    ask.press("Enter")
    asked = page.get_by_text("What changed since the last good run").last
    answer = page.get_by_role("button", name="The code", exact=True)
    answer.wait_for()
    over, under = asked.bounding_box(), answer.bounding_box()
    assert over is not None
    assert under is not None
    assert 0 <= under["y"] - over["y"] < 90


def test_a_suggested_answer_is_a_button(open_page: Open) -> None:
    page = open_page()
    send(page, TABLE["texts"]["oom"])
    page.get_by_role("button", name="What do I run next?").click()
    wait_for_one(page, "#turn-2")
    assert "What do I run next?" in page.locator("#turn-2").inner_text()
