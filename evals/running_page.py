"""How is the page started as a process of its own, for a browser test, a measurement or a picture?"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHROMIUM = Path("/usr/bin/chromium")
PATIENCE = 60.0


def free_port() -> int:
    """A loopback port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def run_page(folder: Path, port: int, **variables: str) -> Iterator[str]:
    """`firstfault chat` as a process of its own; its address."""
    path = os.pathsep.join([str(ROOT / "app"), str(ROOT / "tools")])
    environment = {**os.environ, "FIRSTFAULT_DATA": str(folder), "PYTHONPATH": path, **variables}
    command = [sys.executable, "-c", "from firstfault.cli import main; main()", "chat"]
    with (folder / "page.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--no-open"], env=environment, stdout=log, stderr=log
        )
        try:
            await_health(f"http://127.0.0.1:{port}/_stcore/health", process, folder / "page.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the page answers; raises AssertionError where it ends or does not within PATIENCE."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise AssertionError(
                f"the page ended with {process.returncode}: {log.read_text()[-2000:]}"
            )
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"the page did not start: {log.read_text()[-2000:]}")
