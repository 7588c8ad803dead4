"""Do the calculators open from an answer, and show what the address says or say what they cannot?"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.rows import each_row

from firstfault.ui.charts import draw_phases, draw_shares, write_spec
from firstfault.ui.what_if_address import OTHER, read_settings

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]
READ = [
    ("bubble", {"stages": "32", "microbatches": "128"}, {"pipe-stages": 32, "pipe-micro": 128}, {}, 0),
    ("bubble", {"stages": "4096", "microbatches": "7"}, {"pipe-stages": 128, "pipe-micro": 7}, {}, 1),
    ("bubble", {"stages": "many", "schedule": "zigzag"}, {}, {}, 2),
    ("memory", {"card": "h100", "sharding": "none", "sequence": "6000"}, {"memory-card": "H100-80GB", "memory-shard": "none", "memory-seq": 6000}, {}, 0),
    ("memory", {"model": "no-such-model", "card": "abacus"}, {}, {}, 2),
    ("memory", {"billions": "70.0", "tensor": "8", "lora_rank": "16", "offload_optimizer": "True"},
     {"memory-model": OTHER, "memory-billions": 70.0}, {"tensor": 8, "lora_rank": 16, "offload_optimizer": True}, 0),
    ("memory", {"tensor": "wide", "colour": "red"}, {}, {}, 2),
    ("checkpoint_interval", {"save_seconds": "60", "gpus": "1024", "restart_seconds": "600", "mtbf_hours": "8"},
     {"save-seconds": 60, "save-gpus": 1024, "save-restart": 10, "save-rate": 12.207}, {}, 0),
    ("checkpoint_interval", {"interval_seconds": "1800", "failures_per_gpu_hour": "2e-05"}, {"save-interval": 30, "save-rate": 2.0}, {}, 0),
]  # fmt: skip
"""Calculator, what the address says, what widgets show, what is counted besides, and how many notes say what is not as asked."""


@each_row(("tool", "query", "values", "more", "notes"), READ)
def test_what_an_address_gives(
    tool: str, query: dict[str, str], values: dict[str, object], more: dict[str, object], notes: int
) -> None:
    taken = read_settings(tool, {"view": "what-if", "tool": tool, **query})
    assert {k: pytest.approx(v, abs=1e-3) if isinstance(v, float) else v for k, v in values.items()} == taken.values  # fmt: skip
    assert taken.more == more
    assert len(taken.notes) == notes, taken.notes


@pytest.mark.browser
def test_an_answer_with_a_calculation_opens_it(open_page: Open) -> None:
    page = open_page()
    box = page.get_by_test_id("stChatInputTextArea")
    box.fill("32 stages, 128 micro-batches: how large is the bubble?")
    box.press("Enter")
    answer = page.locator(".ff-answer")
    answer.get_by_text("19.5 %").first.wait_for()
    assert "](" not in answer.first.inner_text()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Open in What if").click()
    opened.value.get_by_text("19.5").first.wait_for(timeout=60_000)
    assert "stages=32" in opened.value.url
    assert "microbatches=128" in opened.value.url


@pytest.mark.browser
def test_what_cannot_be_shown_is_said_and_the_address_says_what_is(open_page: Open) -> None:
    page = open_page("/?view=what-if&tool=bubble&stages=4096&microbatches=128")
    page.get_by_text("beyond what this page counts; shown is 128").wait_for()
    page.wait_for_url(re.compile(r"stages=128&microbatches=128"))
    stages = page.get_by_label("Pipeline stages")
    page.wait_for_function("field => field.value === '128'", arg=stages.element_handle())
    stages.fill("64")
    stages.press("Enter")
    page.wait_for_url(re.compile(r"stages=64"))
    page.get_by_text("beyond what this page counts").wait_for(state="detached")


@pytest.mark.browser
def test_what_no_widget_shows_is_counted_and_can_be_left_out(open_page: Open) -> None:
    page = open_page(
        "/?view=what-if&tool=memory&billions=70&world=64&tensor=8&sharding=ddp&recompute=full"
    )
    page.get_by_text("Counted, too, as the address says: tensor 8").wait_for()
    whole = page.locator(".ff-figures dd").first
    divided = float(whole.inner_text().split()[0])
    page.get_by_role("button", name="Leave out").click()
    page.get_by_text("Counted, too").wait_for(state="detached")
    page.wait_for_function(
        "before => parseFloat(document.querySelector('.ff-figures dd').innerText) > 2 * before",
        arg=divided,
    )
    assert "tensor" not in page.url


def test_both_charts_of_memory_share_one_scale() -> None:
    phases = [{"phase": "forward", "terms_gib": {"weights": 10.0, "activations": 60.0}}]
    shares = write_spec(draw_shares([("weights", 10.0)], 79.0, 90.0))
    split = write_spec(draw_phases(phases, 79.0, 90.0))
    axes = [spec["layer"][0]["encoding"]["x"] for spec in (shares, split)]
    assert axes[0]["scale"] == axes[1]["scale"]
    assert axes[0]["axis"] == axes[1]["axis"]


@pytest.mark.browser
def test_names_of_parts_are_whole_on_a_phone(open_page: Open) -> None:
    page = open_page("/?view=what-if", width=390)
    legend = page.locator(".ff-legend").first
    legend.get_by_text("activations").first.wait_for()
    names = page.locator(".ff-legend li")
    assert names.count() > 4
    cut = names.evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth).length"
    )
    assert cut == 0
