"""Connecting a model on the page: listed by its server, connected, tested, examined; the key is kept nowhere."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from evals.fakes.fake_endpoint import FakeEndpoint, serve_fake
from streamlit.testing.v1 import AppTest

from firstfault.agent.connecting import put_in_environment, with_model
from firstfault.crew import environment_of
from firstfault.errors import UsageError
from firstfault.service import open_service
from firstfault.settings import Settings, WorkerMode
from firstfault.ui.door import service

SCRIPT = Path(__file__).parent.parent.parent.parent / "app" / "streamlit_app.py"
KEY = "sk-page-key-0123456789abcdef"
VARIABLES = ("FIRSTFAULT_MODEL", "FIRSTFAULT_MODEL_URL", "FIRSTFAULT_MODEL_KEY")


@pytest.fixture
def fake() -> Iterator[FakeEndpoint]:
    with serve_fake() as endpoint:
        yield endpoint


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AppTest]:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path))
    monkeypatch.setenv("FIRSTFAULT_WORKER", "thread")
    st.cache_resource.clear()
    yield AppTest.from_file(str(SCRIPT), default_timeout=90)
    service().close()
    st.cache_resource.clear()


def said(page: AppTest) -> str:
    return "\n".join(str(m.value) for m in (*page.markdown, *page.error, *page.caption))


def connect(page: AppTest, fake: FakeEndpoint, key: str = KEY) -> None:
    page.run()
    page.button(key="model").click().run()
    page.text_input(key="model-url").set_value(fake.url)
    page.text_input(key="model-key").set_value(key).run()
    page.button(key="model-list").click().run()
    page.selectbox(key="model-name").select("good").run()
    page.button(key="model-connect").click().run()
    assert not page.exception, page.exception


def test_a_model_is_chosen_from_the_servers_own_list(
    page: AppTest, fake: FakeEndpoint, tmp_path: Path
) -> None:
    page.run()
    page.button(key="model").click().run()
    assert "needs none" in said(page)
    connect(page, fake)
    assert list(page.selectbox(key="model-name").options) == ["good", "lies", "tools"]
    assert "good at http" in said(page)
    assert "has not sat the exam" in said(page)
    assert [os.environ[v] for v in VARIABLES] == ["good", fake.url, KEY]
    assert service().answerer.explains
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert files
    assert not [p for p in files if KEY.encode() in p.read_bytes()]


def test_the_test_button_says_what_the_server_can(page: AppTest, fake: FakeEndpoint) -> None:
    connect(page, fake)
    page.button(key="model-test").click().run()
    assert "tool calling" in said(page)
    assert "key and address" in said(page)
    assert fake.keys[-1] == f"Bearer {KEY}"


def test_the_exam_goes_on_beside_and_a_model_that_says_nothing_fails_it(
    page: AppTest, fake: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firstfault.agent.exam import running, sitting

    few = sitting.load_incidents()[:3]
    monkeypatch.setattr(sitting, "load_incidents", lambda: few)
    monkeypatch.setattr(running, "load_incidents", lambda: few)
    connect(page, fake)
    page.button(key="model-exam").click().run()
    limit = time.monotonic() + 90
    while "did not pass" not in said(page):
        assert time.monotonic() < limit, said(page)
        time.sleep(0.5)
        page.run()
    assert "It may not lead" in said(page)


def test_a_server_that_is_away_is_named(page: AppTest) -> None:
    page.run()
    page.button(key="model").click().run()
    page.text_input(key="model-url").set_value("http://127.0.0.1:9/v1").run()
    page.button(key="model-list").click().run()
    assert "cannot be reached" in said(page).replace("\\", "")


@pytest.mark.parametrize(
    ("url", "given", "key"),
    [
        ("https://one.example/v1", "", KEY),
        ("https://one.example/v1/", "", KEY),
        ("https://two.example/v1", "", ""),
        ("https://two.example/v1", "other", "other"),
    ],
)
def test_a_key_follows_its_own_address_only(url: str, given: str, key: str, tmp_path: Path) -> None:
    settings = with_model(Settings(data=tmp_path), "https://one.example/v1", "m", KEY)  # type: ignore[call-arg]
    assert with_model(settings, url, "m", given).model_key.get_secret_value() == key


def test_worker_processes_that_start_later_read_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "before")
    settings = with_model(Settings(data=tmp_path), "https://one.example/v1", "m", KEY)  # type: ignore[call-arg]
    put_in_environment(settings)
    child = environment_of(settings)
    assert [child[v] for v in VARIABLES] == ["m", "https://one.example/v1", KEY]


def test_workers_elsewhere_are_not_told_from_here(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, worker=WorkerMode.EXTERNAL)  # type: ignore[call-arg]
    with (
        open_service(settings) as opened,
        pytest.raises(UsageError, match="workers run elsewhere"),
    ):
        opened.connect_model(with_model(settings, "https://one.example/v1", "m", KEY))
