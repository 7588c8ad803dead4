"""Over the wire: who is let in, with which headers, whichever way the page was started."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from evals.running_page import ROOT, await_health, free_port, run_page
from tests.app.ui.wire import draw, request
from websockets.exceptions import InvalidStatus

from firstfault.settings import Settings
from firstfault.ui.gate import BELIEF, Gate

PROXY = {"FIRSTFAULT_PROXY_USER_HEADER": "X-Forwarded-User", "FIRSTFAULT_PROXY_ROLE_HEADER": "X-Role"}  # fmt: skip
ADA = [("X-Forwarded-User", "ada"), ("X-Role", "approve")]
INSIDE, OUTSIDE = "What broke first?", "have to come through the proxy"


@contextmanager
def run_by_streamlit(folder: Path, port: int, **variables: str) -> Iterator[str]:
    """The page as `streamlit run app/streamlit_app.py` starts it."""
    path = os.pathsep.join([str(ROOT / "app"), str(ROOT / "tools")])
    environment = {**os.environ, "FIRSTFAULT_DATA": str(folder), "PYTHONPATH": path, **variables}
    if variables.get(BELIEF) is None:
        environment.pop(BELIEF, None)
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "app" / "streamlit_app.py")]
    flags = ["--server.address", "127.0.0.1", "--server.port", str(port), "--server.headless", "true"]  # fmt: skip
    with (folder / "page.log").open("ab") as log:
        process = subprocess.Popen([*command, *flags], env=environment, stdout=log, stderr=log)
        try:
            await_health(f"http://127.0.0.1:{port}/_stcore/health", process, folder / "page.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=15)


def test_the_proxy_login_cannot_be_forged_by_a_header(tmp_path: Path) -> None:
    with run_page(tmp_path, free_port(), FIRSTFAULT_TRUSTED_PROXIES="10.0.0.5", **PROXY) as page:
        for forged in ([], [("X-Forwarded-For", "10.0.0.5")], [("Forwarded", "for=10.0.0.5")], [("X-Real-IP", "10.0.0.5")]):  # fmt: skip
            said = draw(page, [*ADA, *forged])
            assert OUTSIDE in said
            assert INSIDE not in said


def test_an_honest_proxy_on_this_host_works(tmp_path: Path) -> None:
    with run_page(tmp_path, free_port(), **PROXY) as page:
        said = draw(page, [*ADA, ("X-Forwarded-For", "203.0.113.7"), ("X-Forwarded-Proto", "https")])  # fmt: skip
        assert INSIDE in said
        assert "ada" in said
        twice = draw(page, [*ADA, ("X-Role", "approve")])
        assert INSIDE not in twice
        assert "the proxy has to replace it" in twice
        nobody = draw(page, [("X-Role", "approve")])
        assert "did not say who you are" in nobody


def test_started_by_streamlit_a_forged_address_is_refused(tmp_path: Path) -> None:
    with run_by_streamlit(tmp_path, free_port(), FIRSTFAULT_TRUSTED_PROXIES="10.0.0.5", **PROXY) as page:  # fmt: skip
        assert OUTSIDE in draw(page, ADA)
        with pytest.raises(InvalidStatus):
            draw(page, [*ADA, ("X-Forwarded-For", "10.0.0.5")])
        status, said = request(page, headers=[("X-Forwarded-For", "10.0.0.5")])
        assert status == 403
        assert BELIEF in said


def test_started_by_streamlit_without_belief_proxies_work_too(tmp_path: Path) -> None:
    with run_by_streamlit(tmp_path, free_port(), **{BELIEF: ""}, **PROXY) as page:
        assert INSIDE in draw(page, [*ADA, ("X-Forwarded-For", "203.0.113.7")])


def test_every_answer_forbids_what_is_outside(tmp_path: Path) -> None:
    with run_page(tmp_path, free_port()) as page:
        for path in ("/", "/_stcore/health", "/_stcore/host-config", "/nothing-here"):
            _, said = request(page, path)
            head = said.split("\r\n\r\n")[0].lower()
            assert "content-security-policy: default-src 'self'" in head, path
            assert "referrer-policy: no-referrer" in head
        assert request(page, "/_stcore/agent/openapi.json")[0] == 403


@pytest.mark.parametrize(
    ("peer", "kind", "passes"),
    [
        ("127.0.0.1", "http", True),
        ("::1", "websocket", True),
        ("::ffff:127.0.0.1", "http", True),
        ("8.8.8.8", "http", False),
        ("10.0.0.4", "websocket", False),
        ("fe80::1%eth0", "http", False),
    ],
)
def test_without_a_login_other_machines_are_refused(
    peer: str, kind: str, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BELIEF, "")
    reached: list[str] = []
    sent: list[dict[str, Any]] = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "path": "/", "headers": [], "client": (peer, 1234)}
    with ThreadPoolExecutor(1) as beside:  # the browser's tests leave a loop in this thread
        beside.submit(asyncio.run, Gate(page, Settings())(scope, receive, send)).result()  # type: ignore[call-arg]
    assert bool(reached) is passes
    if not passes:
        assert sent[0].get("status", 403) == 403
        assert sent[0]["type"] in ("http.response.start", "websocket.close")
