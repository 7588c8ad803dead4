"""Testing an explanation from the page: the plan first, the command to copy, the result entered; nothing is run."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest
from tests.app.ui.test_page import SCRIPT, has_verdict, html_of, run_until

from firstfault.experiments import driver

HANG = (
    "[rank3]:[E1129 10:12:44.602118299 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600021 milliseconds before "
    "timing out.\n"
)
COMMAND = "env NCCL_P2P_DISABLE=1 ./run.sh --steps 20"
CLAIM = "direct copies are at fault"


def codes(page: AppTest) -> list[str]:
    return [str(code.value) for code in page.code]


def test_from_the_plan_to_the_weighed_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_a: object, **_k: object) -> None:
        raise AssertionError("a command was run")

    monkeypatch.setattr(driver, "run_trial", refuse)
    page = AppTest.from_file(str(SCRIPT), default_timeout=60)
    page.run()
    page.chat_input(key="new-incident").set_value(HANG).run()
    run_until(page, has_verdict)
    page.text_input(key="experiment-claim").set_value(CLAIM)
    page.text_input(key="experiment-command").set_value(COMMAND)
    page.radio(key="experiment-expected").set_value("works")
    page.selectbox(key="experiment-rate").set_value("about half")
    next(b for b in page.button if b.label == "Show the plan").click().run()
    assert not page.exception
    assert any("trials on average" in text and CLAIM in text for text in codes(page))
    page.button(key="experiment-store").click().run()
    assert not page.exception
    assert COMMAND in codes(page)
    worked = next(b for b in page.button if b.label == "It worked")
    times = next(n for n in page.number_input if str(n.key).startswith("times-"))
    times.set_value(100)
    worked.click().run()
    assert not page.exception
    assert "supported" in html_of(page)
    # the result is evidence now, and the explanations are weighed again
    run_until(
        page, lambda p: has_verdict(p) and CLAIM in html_of(p).split('aria-label="Experiment')[0]
    )


def test_a_claim_without_a_command_is_refused_in_words() -> None:
    page = AppTest.from_file(str(SCRIPT), default_timeout=60)
    page.run()
    page.chat_input(key="new-incident").set_value(HANG).run()
    run_until(page, has_verdict)
    next(b for b in page.button if b.label == "Show the plan").click().run()
    assert any("command" in str(e.value) for e in page.error)
