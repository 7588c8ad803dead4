"""How does the parent drive one process for each GPU, with time limits, and stop them all?"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import zipfile
from typing import Any


def find_port() -> int:
    """A free TCP port on this host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Member:
    """One worker process. `ask` sends an order, `hear` waits for its answer."""

    def __init__(self, gpu_index: int, argv: list[str]) -> None:
        self.gpu_index = gpu_index
        self.dead: str | None = None
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()
        threading.Thread(target=self._drain, daemon=True).start()

    def _pump(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if len(self._errors) < 200:
                self._errors.append(line.rstrip()[:300])

    def ask(self, order: str, arguments: dict[str, Any]) -> None:
        """Send one order; a dead process is noticed by `hear`."""
        if self.dead:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"order": order, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            self.dead = self._last_words()

    def hear(self, deadline: float) -> dict[str, Any]:
        """The answer, or a `timeout`; a process that missed its deadline is ended and stays dead."""
        if self.dead:
            return {"status": "failed", "reason": self.dead}
        try:
            line = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self.stop()
            self.dead = "ended after it missed its time limit in an earlier test"
            return {"status": "timeout", "reason": "no answer within the time limit"}
        if line is None:
            self.dead = self._last_words()
            return {"status": "failed", "reason": self.dead}
        try:
            answer = json.loads(line)
        except ValueError:
            return {"status": "failed", "reason": f"unreadable answer: {line[:200]}"}
        return answer if isinstance(answer, dict) else {"status": "failed", "reason": line[:200]}

    def _last_words(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        told = [line for line in self._errors if line.strip()]
        return f"the process ended with code {code}" + (f": {told[-1]}" if told else "")

    def close(self) -> None:
        """Let the process end by itself."""
        if self._process.poll() is None and self._process.stdin is not None:
            try:
                self._process.stdin.close()
                self._process.wait(timeout=5)
            except (OSError, subprocess.TimeoutExpired):
                self.stop()

    def stop(self) -> None:
        """End the process now."""
        if self._process.poll() is None:
            self._process.kill()


class Crew:
    """All workers of this host."""

    def __init__(self, gpus: list[tuple[int, int]]) -> None:
        """gpus: pairs of nvidia-smi's index and torch's index."""
        script = os.path.abspath(sys.argv[0])
        if os.path.isfile(script) and zipfile.is_zipfile(script):
            base = [sys.executable, script]
        else:
            # Inside the source tree the kit is a package, not one file.
            base = [sys.executable, "-m", f"{__package__}.main"]
        # torch may order cards by speed, nvidia-smi orders them by bus.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        self.members = [Member(gpu, [*base, "--worker", str(device)]) for gpu, device in gpus]

    def order(
        self,
        order: str,
        limit_s: float,
        arguments: list[dict[str, Any]] | dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """The same order to all at once; answers in the order of the GPUs."""
        each = arguments if isinstance(arguments, list) else [arguments or {}] * len(self.members)
        for member, own in zip(self.members, each):  # noqa: B905 - Python 3.9 has no strict
            member.ask(order, own)
        deadline = time.monotonic() + limit_s
        return [member.hear(deadline) for member in self.members]

    def order_one(
        self, place: int, order: str, limit_s: float, arguments: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """An order to one worker while the others wait."""
        self.members[place].ask(order, arguments or {})
        return self.members[place].hear(time.monotonic() + limit_s)

    def close(self) -> None:
        """Let all end."""
        for member in self.members:
            member.close()

    def stop(self) -> None:
        """End all now."""
        for member in self.members:
            member.stop()
