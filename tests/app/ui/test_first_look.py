"""What does a tired reader see without opening, scrolling or reckoning? What comparable pages show at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from evals.cases import find_case
from tests.app.ui.conftest import read_log
from tests.app.ui.menus import unfold
from tests.app.ui.test_way import LOG, open_incident
from tests.rows import each_row

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.age import DAY_S, describe_age, say_age
from firstfault.ui.card import make_card
from firstfault.ui.folds import name_fold, say_evidence, say_rivals, say_timeline
from firstfault.ui.phases import write_opened
from firstfault.ui.verdict_card import write_facts, write_verdict
from firstfault.workspace import Workspace
from firstfault_tools.findings import Verdict

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]
EIGHT = "public-comm-27-per-rank-continue-skips-backward"
NIGHT = 1_780_947_606.0
"""The fault of that case, 08 Jun 2026, 19:40:06 UTC."""


@pytest.fixture(scope="module")
def eight() -> Diagnosis:
    return Workspace().diagnose_paths([find_case(EIGHT) / "log.txt"])


@pytest.fixture(scope="module")
def incident(browser: Browser, address: str) -> Iterator[str]:
    yield from read_log(browser, address, LOG)


@each_row(
    ("days", "told"),
    [(-1, ""), (0, ""), (1.9, ""), (2, "2 days ago"), (13.4, "13 days ago"), (21, "3 weeks ago"), (175, "6 months ago"),
     (1000, "3 years ago")],
)  # fmt: skip
def test_an_age_is_said_where_a_wrong_zone_would_not_change_it(days: float, told: str) -> None:
    assert say_age(days * DAY_S) == told


def test_how_long_it_lasted_and_how_old_it_is_stand_below_the_time(eight: Diagnosis) -> None:
    assert describe_age(eight, NIGHT + 7 * DAY_S) == "10 min 6 s before the last line; 7 days ago"
    assert describe_age(eight, NIGHT + 3600) == "10 min 6 s before the last line"
    card = make_card(eight)
    assert "7 days ago" in write_verdict(eight, card, now=NIGHT + 7 * DAY_S)
    assert "before the last line" not in write_verdict(eight, card), "only where the time is known"
    assert "a; <b" not in write_facts((("Since", "now (a)"),), {"Since": "<b"})


def test_a_fold_says_what_is_in_it(eight: Diagnosis) -> None:
    assert re.fullmatch(r"log\.txt:3 and \d+ more quoted lines", say_evidence(eight))
    assert re.fullmatch(r"\d+ events, 10 min 1 s of silence", say_timeline(eight))
    assert say_rivals(eight) == "1 other explanation weighed"
    assert say_rivals(replace(eight, verdict=Verdict.HEALTHY)) == ""
    bare = replace(eight, citations=(), cascade=(), hypotheses=())
    assert (say_evidence(bare), say_timeline(bare), say_rivals(bare)) == ("", "", "")
    assert name_fold("Why") == "Why"
    assert name_fold("Evidence", "rank_*_[0].log:3") == r"Evidence *rank\_\*\_\[0\].log\:3*"


def test_a_closed_phase_tells_its_answer_without_numbers_that_open_nothing(
    eight: Diagnosis,
) -> None:
    told = replace(eight.phases[0], summary="it hangs [1][12] since <b>19:40</b> [3].")
    shown = write_opened((told,), eight)
    assert '<span class="sum">It hangs since &lt;b&gt;19:40&lt;/b&gt;.</span>' in shown


@pytest.mark.browser
def test_folds_and_phases_are_read_before_they_are_opened(open_page: Open, incident: str) -> None:
    page = open_incident(open_page, incident)
    folds = page.locator(".st-key-folds summary").and_(page.locator(":not(.ff summary)"))
    said = " | ".join(folds.all_inner_texts())
    for wanted in ("answered", "pasted.txt:23", "of silence"):
        assert wanted in said, said
    places = [b for f in folds.all() if (b := f.bounding_box()) is not None]
    gaps = [b["y"] - a["y"] - a["height"] for a, b in pairwise(places)]
    assert max(gaps[:3]) <= 12, "folds stand close together"
    page.get_by_test_id("stMain").locator("summary", has_text="Phases").first.click()
    phase = page.locator(".ff-phase", has_text="Localize")
    answer = phase.locator(".sum")
    answer.wait_for()
    assert "11" in answer.inner_text()
    unfold(phase, phase.locator("dt", has_text=re.compile("^Answer$")))
    assert not answer.is_visible(), "the answer is not said twice"


@pytest.mark.browser
def test_how_sure_stands_out_and_the_deciding_line_can_be_read(
    open_page: Open, incident: str
) -> None:
    page = open_incident(open_page, incident)
    look = page.evaluate("""() => {
      const style = s => getComputedStyle(document.querySelector('.ff-verdict ' + s));
      const parts = [...document.querySelector('.ff-verdict .top').children].map(e => e.className);
      return {sure: +style('.cat').fontWeight, why: +style('.conf').fontWeight, same: style('.cat').color === style('h2').color,
              line: parseFloat(style('.line code').fontSize), parts};
    }""")
    assert look["sure"] >= 600 > look["why"]
    assert look["same"], "in the colour of the sentence"
    assert look["parts"][:4] == ["word", "cat", "conf", "lead"]
    assert look["line"] >= 12
    since = page.locator(".ff-facts div", has_text="Since")
    assert "10 min 0 s before the last line" in since.inner_text()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "height"), [(390, 844), (640, 400)])
def test_on_a_phone_and_at_200_percent_the_first_look_costs_no_more_room(
    open_page: Open, incident: str, width: int, height: int
) -> None:
    page = open_incident(open_page, incident, width=width, height=height)
    top = page.locator(".ff-verdict .top").bounding_box()
    assert top is not None
    assert top["height"] < 40, "one row"
    assert not page.locator(".ff-facts .noted").is_visible()
    rows = [b["height"] for f in page.locator(".ff-facts div").all() if (b := f.bounding_box())]
    assert min(rows) > 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_test_id("stMain").locator("summary", has_text="Phases").first.click()
    answer = page.locator(".ff-phase .sum").first
    answer.wait_for()
    box, room = answer.bounding_box(), page.locator(".ff-phase").first.bounding_box()
    assert box is not None
    assert room is not None
    assert box["x"] + box["width"] <= room["x"] + room["width"] + 1


@pytest.mark.browser
def test_the_list_tells_incidents_apart_and_marks_where_one_is(
    open_page: Open, incident: str
) -> None:
    from playwright.sync_api import expect

    page = open_incident(open_page, incident)
    row = page.get_by_test_id("stSidebar").locator("[class*='st-key-open-current-'] button:visible")
    expect(row, "of the two that Streamlit draws, for pointers and for fingers").to_have_count(1)
    name, when = row.locator("strong").bounding_box(), row.locator("em").bounding_box()
    line = row.locator("strong").evaluate("e => parseFloat(getComputedStyle(e).lineHeight)")
    assert re.fullmatch(r"\d\d:\d\d", row.locator("em").inner_text())
    assert name is not None
    assert when is not None
    assert name["x"] + name["width"] <= when["x"], "the time stands at the end of the row"
    assert 1.5 * line < name["height"] < 2.5 * line, "two lines of the fault"
    ground = "e => getComputedStyle(e).backgroundColor"
    current = row.evaluate(ground)
    new = page.get_by_test_id("stSidebar").get_by_role("button", name="New incident")
    assert new.evaluate(ground) != current
    new.click()
    page.get_by_text("What broke first?").wait_for()
    page.wait_for_function(
        "told => getComputedStyle(document.querySelector('.st-key-new button')).backgroundColor === told",
        arg=current,
    )
