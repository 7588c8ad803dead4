"""The page without a browser: first load, paste, example, question, resume by address, gone."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from evals.cases import find_case
from streamlit.testing.v1 import AppTest

from firstfault.incidents.events import Event, EventKind
from firstfault.incidents.records import Incident, IncidentState
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.service import Service

ROOT = Path(__file__).parent.parent.parent.parent
SCRIPT = ROOT / "app" / "streamlit_app.py"
LOG = find_case("lab-oom_one_rank") / "log.txt"


@pytest.fixture
def page() -> AppTest:
    return AppTest.from_file(str(SCRIPT), default_timeout=60)


def html_of(page: AppTest) -> str:
    """All HTML the page drew."""
    return "\n".join(element.proto.body for element in page.get("html"))


def run_until(
    page: AppTest, reached: Callable[[AppTest], bool], patience: float = 150.0
) -> AppTest:
    """Run the page, as its watcher would, until something is there."""
    limit = time.monotonic() + patience
    while not reached(page):
        assert time.monotonic() < limit, html_of(page)[-2000:]
        time.sleep(0.1)
        page.run()
    assert not page.exception
    return page


def has_verdict(page: AppTest) -> bool:
    return 'aria-label="Verdict"' in html_of(page)


def test_first_load_offers_box_and_examples(page: AppTest) -> None:
    page.run()
    assert not page.exception
    assert "What broke first?" in html_of(page)
    assert page.chat_input(key="new-incident") is not None
    assert sum(1 for b in page.button if (b.key or "").startswith("example-")) >= 5


def test_paste_reaches_a_verdict_and_the_address_brings_it_back(page: AppTest) -> None:
    page.run()
    page.chat_input(key="new-incident").set_value(LOG.read_text()).run()
    identity = page.query_params["incident"]
    run_until(page, has_verdict)
    assert "Out of memory" in html_of(page)
    assert 'class="ff-row cited' in html_of(page)
    again = AppTest.from_file(str(SCRIPT), default_timeout=60)
    again.query_params["incident"] = identity
    again.run()
    assert has_verdict(again)
    kept = repr(again.session_state) + repr(page.session_state)
    assert "OutOfMemoryError" not in kept, "raw logs are never in the session's state"


def test_example_opens_by_a_click(page: AppTest) -> None:
    page.run()
    page.button(key="example-hw-xid79-off-bus").click().run()
    run_until(page, has_verdict)
    assert "Xid 79" in html_of(page)


def test_question_is_answered_below_the_verdict(page: AppTest) -> None:
    page.run()
    page.button(key="example-hw-xid79-off-bus").click().run()
    run_until(page, has_verdict)
    page.chat_input(key="follow-up").set_value("how do I fix it?").run()
    run_until(page, lambda p: 'class="ff ff-prose ff-answer"' in html_of(p))
    assert "how do I fix it?" in html_of(page)


def test_question_without_a_log_is_answered_from_the_knowledge_base(page: AppTest) -> None:
    page.run()
    page.chat_input(key="new-incident").set_value("What does Xid 79 mean?").run()
    run_until(page, lambda p: 'class="ff ff-prose ff-answer"' in html_of(p))
    assert not has_verdict(page)
    assert "not reached" not in html_of(page), "nothing was to be diagnosed"


def test_a_verdict_that_arrives_while_the_page_is_drawn(
    page: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of a page agree on what there is, or two of them offer to end the same reading."""
    page.run()
    page.button(key="example-hw-xid79-off-bus").click().run()
    run_until(page, has_verdict)
    incident, events, diagnosis = Service.incident, Service.events, Service.diagnosis
    turn = itertools.count()

    def running(service: Service, identity: str) -> Incident:
        return replace(incident(service, identity), state=IncidentState.RUNNING)

    def unjudged(service: Service, identity: str) -> tuple[Event, ...]:
        told = events(service, identity)
        return tuple(e for e in told if e.kind is not EventKind.VERDICT and not e.is_closing)

    def arriving(service: Service, identity: str) -> Diagnosis | None:
        return diagnosis(service, identity) if next(turn) % 2 else None

    monkeypatch.setattr(Service, "incident", running)
    monkeypatch.setattr(Service, "events", unjudged)
    monkeypatch.setattr(Service, "diagnosis", arriving)
    for _ in range(2):
        page.run()
        assert not page.exception
        assert sum(1 for b in page.button if b.key == "stop") == 1


def test_one_pasted_message_is_diagnosed(page: AppTest) -> None:
    page.run()
    box = page.chat_input(key="new-incident")
    box.set_value("CUDA out of memory. Tried to allocate 2.00 GiB").run()
    run_until(page, has_verdict)
    assert "Out of memory" in html_of(page)


def test_incidents_of_one_name_are_told_apart_by_their_time(page: AppTest) -> None:
    for _ in range(2):
        page.query_params.clear()
        page.run()
        box = page.chat_input(key="new-incident")
        box.set_value("NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.").run()
        run_until(page, has_verdict)

    def alike(drawn: AppTest) -> list[str]:
        # as they are read: the label escapes what Markdown would take for its own
        buttons = [b for b in drawn.button if (b.key or "").startswith("open-")]
        labels = [b.label.replace("\\", "") for b in buttons]
        return [
            label
            for label in labels
            if "Xid 79 (GPU has fallen off the bus) on PCI 0000:41" in label
        ]

    # the list is drawn before the verdict of the second incident is there
    run_until(page, lambda p: len(alike(p)) >= 2)
    same = alike(page)
    assert all(re.search(r" \*\d\d:\d\d\*$", label) for label in same), same


def test_archive_and_delete_for_good(page: AppTest) -> None:
    page.run()
    page.button(key="example-lab-healthy").click().run()
    run_until(page, has_verdict)
    identity = page.query_params["incident"]
    page.button(key="archive").click().run()
    assert f"open-current-{identity}" not in {b.key for b in page.button}
    page.checkbox(key="delete-sure").check().run()
    page.button(key="delete").click().run()
    assert "What broke first?" in html_of(page)
    page.query_params["incident"] = identity
    page.run()
    assert any("no such incident" in w.value for w in page.warning)


@pytest.mark.parametrize(
    "query", [{"incident": "x" * 500}, {"share": "<b>"}, {"view": "elsewhere"}]
)
def test_strange_addresses_end_in_words(page: AppTest, query: dict[str, str]) -> None:
    for name, value in query.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception


def test_what_if_computes(page: AppTest) -> None:
    page.query_params["view"] = "what-if"
    page.run()
    assert not page.exception
    before = html_of(page)
    page.number_input(key="memory-seq").set_value(32768).run()
    assert not page.exception
    assert html_of(page) != before
