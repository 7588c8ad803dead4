"""What every test stands on: own folders, no network beyond loopback, skips that are failures in CI."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from evals.diagnosed import Diagnoses
from hypothesis import HealthCheck, settings

# how fast a machine is decides no test; a landing is judged on the same examples each time
_SLOW = [HealthCheck.too_slow]
settings.register_profile("here", deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.load_profile("ci" if os.environ.get("FIRSTFAULT_CI") else "here")

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
_LOOPBACK = ("127.", "::1", "localhost", "0.0.0.0")
_REAL_CONNECT = socket.socket.connect
_REAL_RESOLVE = socket.getaddrinfo


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Data and caches of the tests never touch the user's; the pack cache is shared by all processes of the run."""
    base = tmp_path_factory.mktemp("firstfault")
    run = tmp_path_factory.getbasetemp()
    cache = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "cache"
    before = dict(os.environ)
    os.environ["FIRSTFAULT_DATA"] = str(base / "data")
    # a worker of its own costs a test seconds; test_crew.py and test_limits.py start some
    os.environ["FIRSTFAULT_WORKER"] = "thread"
    os.environ.setdefault("FIRSTFAULT_CACHE", str(cache))
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("OPENAI_"):
            del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def diagnoses(own_folders: None) -> Diagnoses:
    """Every case is diagnosed once for all tests that look at its diagnosis."""
    return Diagnoses()


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections leave the machine only by mistake: they raise."""

    def connect(self: socket.socket, address: object) -> object:
        if isinstance(address, tuple) and not str(address[0]).startswith(_LOOPBACK):
            raise OSError(f"a test tried to reach {address[0]}")
        return _REAL_CONNECT(self, address)  # type: ignore[arg-type]

    def resolve(host: object, *args: object, **kwargs: object) -> object:
        if host is not None and not str(host).startswith(_LOOPBACK):
            raise OSError(f"a test tried to resolve {host}")
        return _REAL_RESOLVE(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)


_TOGETHER = ("browser", "postgres", "model")
_LONGEST_FIRST = ("cases", *_TOGETHER)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests run in several processes, those that share a page, a database or a model stay together.

    What takes longest begins first, so that no process is left alone with it at the end.
    """
    for item in items:
        shared = next((name for name in _TOGETHER if item.get_closest_marker(name)), None)
        if shared is not None:
            item.add_marker(pytest.mark.xdist_group(shared))
    if hasattr(config, "workerinput"):
        items.sort(key=_tell_turn)


def pytest_collection_finish(session: pytest.Session) -> None:
    """A pytest-xdist that puts no group together says nothing: each process then makes everything itself."""
    if getattr(session.config.option, "loadgroup", False):
        alone = [
            i.nodeid
            for i in session.items
            if i.get_closest_marker("xdist_group") and "@" not in i.nodeid
        ]
        assert not alone, f"the groups of {len(alone)} tests are ignored, of {alone[0]} for one"


def _tell_turn(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    if group is not None:
        return _LONGEST_FIRST.index(group.args[0])
    return len(_LONGEST_FIRST) + (item.get_closest_marker("slow") is None)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """In CI a missing browser or database is a failure, not a skip."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    needs = {"browser", "postgres", "model"} & {mark.name for mark in item.iter_markers()}
    if report.skipped and needs and os.environ.get("FIRSTFAULT_CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI although {sorted(needs)} must be there: {report.longrepr}"
