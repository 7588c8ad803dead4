"""Without an endpoint nothing is loaded and no name is resolved; naming a model is the opt-in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firstfault.agent.endpoint import Hidden, is_configured, read_endpoint
from firstfault.errors import UsageError
from firstfault.settings import Settings

HOOK = """
import socket, sys
def refuse(*a, **k):
    print("RESOLVED", a[0], file=sys.stderr)
    raise OSError("no")
socket.getaddrinfo = socket.gethostbyname = refuse
from firstfault.cli import main
try:
    main()
finally:
    heavy = {"langchain", "langchain_core", "langgraph", "openai", "httpx", "pydantic", "tenacity"}
    print("LOADED", sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


def run(arguments: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("OPENAI", "FIRSTFAULT_MODEL"))
    }
    return subprocess.run(
        [sys.executable, "-c", HOOK, *arguments],
        env=clean | environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    path.write_text(
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    return str(path)


@pytest.mark.parametrize(
    ("environ", "more"),
    [
        ({}, []),
        ({"OPENAI_API_KEY": "sk-x"}, []),
        ({"OPENAI_API_KEY": "sk-x", "FIRSTFAULT_MODEL": "m"}, ["--no-llm"]),
    ],
)
def test_nothing_is_resolved_or_loaded(log: str, environ: dict[str, str], more: list[str]) -> None:
    done = run(["diagnose", log, "--json", *more], environ)
    assert done.returncode == 1
    assert "RESOLVED" not in done.stderr
    assert "LOADED []" in done.stderr


def test_a_dead_endpoint_leaves_the_answer(log: str) -> None:
    done = run(
        ["diagnose", log],
        {"FIRSTFAULT_MODEL": "m", "FIRSTFAULT_MODEL_URL": "http://127.0.0.1:9/v1"},
    )
    assert done.returncode == 1
    assert "deterministic answer only" in done.stdout
    assert "RESOLVED 127.0.0.1" in done.stderr  # the check of the hook itself


def test_the_prompt_is_shown_without_sending(log: str) -> None:
    done = run(
        ["diagnose", log, "--show-prompt"], {"FIRSTFAULT_MODEL": "m", "OPENAI_API_KEY": "sk-abc"}
    )
    assert done.returncode == 0
    assert "OutOfMemoryError" in done.stdout
    assert "sk-abc" not in done.stdout
    assert "RESOLVED" not in done.stderr


def test_the_deterministic_answer_comes_before_a_stalling_model(log: str) -> None:
    """The first line is there at once although the model is silent for seconds."""
    from evals.fakes.fake_endpoint import serve_fake

    with serve_fake() as fake:
        environ = dict(os.environ) | {
            "FIRSTFAULT_MODEL": "stall", "FIRSTFAULT_MODEL_URL": fake.url,
            "FIRSTFAULT_MODEL_SILENCE_S": "4", "FIRSTFAULT_MODEL_TURN_S": "5",
        }  # fmt: skip
        command = [sys.executable, "-c", "from firstfault.cli import main; main()", "diagnose", log]
        begin = time.monotonic()
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            until_first = time.monotonic() - begin
            rest = process.stdout.read()
            until_end = time.monotonic() - begin
    assert first.strip()
    assert "deterministic answer only" in rest
    assert until_end - until_first > 2.0


def test_naming_a_model_is_the_opt_in() -> None:
    assert not is_configured({"OPENAI_API_KEY": "k"})
    assert not is_configured({"FIRSTFAULT_MODEL": "m"})
    assert is_configured({"FIRSTFAULT_MODEL": "m", "OPENAI_API_KEY": "k"})
    assert is_configured({"FIRSTFAULT_MODEL": "m", "FIRSTFAULT_MODEL_URL": "http://127.0.0.1:1/v1"})


def test_settings_of_the_endpoint(tmp_path: Path) -> None:
    base = {"data": tmp_path, "model_name": "m"}
    assert read_endpoint(Settings(data=tmp_path)) is None  # type: ignore[call-arg]
    endpoint = read_endpoint(Settings(**base, model_url="http://127.0.0.1:1/v1", model_hide="ips"))  # type: ignore[arg-type]
    assert endpoint is not None
    assert endpoint.is_local
    assert not endpoint.needs_consent
    assert endpoint.hidden == {Hidden.IPS}
    away = read_endpoint(Settings(**base, model_key="k"))  # type: ignore[arg-type]
    assert away is not None
    assert away.needs_consent
    with pytest.raises(UsageError):
        read_endpoint(Settings(**base, model_url="ftp://x"))  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        read_endpoint(Settings(**base, model_key="k", model_hide="faces"))  # type: ignore[arg-type]
