"""How does a page keep worker processes of its own? Started with it, replaced when they die.

A child ends when its standard input closes, so that even a page killed by SIGKILL leaves none behind;
what it was working on is finished or taken over by its lease.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from pydantic import SecretStr

from firstfault.settings import Settings
from firstfault_tools.dataclass import dataclass

log = logging.getLogger(__name__)
PAUSE_SECONDS, GRACE_SECONDS = 1.0, 20.0
_START = "from firstfault.cli import main; main()"


@dataclass
class Crew:
    """Worker processes of one page."""

    settings: Settings
    _over: threading.Event = field(default_factory=threading.Event)
    _children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _keepers: list[threading.Thread] = field(default_factory=list)

    def start(self, count: int) -> None:
        """Keep `count` workers alive until `stop`."""
        for number in range(count):
            keeper = threading.Thread(target=self._keep, args=(number,), daemon=True)
            keeper.start()
            self._keepers.append(keeper)

    def wake(self) -> None:
        """There may be a new run: none waits for the next look at the database."""
        for child in list(self._children.values()):
            if child.stdin is not None:
                with contextlib.suppress(OSError, ValueError):
                    child.stdin.write(b"\n")
                    child.stdin.flush()

    def renew(self, settings: Settings) -> None:
        """Let every worker finish its run; those that follow have these settings."""
        self.settings = settings
        for child in list(self._children.values()):
            _close_input(child)

    def stop(self) -> None:
        """Let every worker finish its run and end."""
        self._over.set()
        for child in list(self._children.values()):
            _close_input(child)
        for keeper in self._keepers:
            keeper.join(timeout=GRACE_SECONDS)
        for child in list(self._children.values()):
            child.kill()

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Ids of the workers that run now."""
        return tuple(c.pid for c in list(self._children.values()) if c.poll() is None)

    def _keep(self, number: int) -> None:
        while not self._over.is_set():
            child = subprocess.Popen(
                [sys.executable, "-c", _START, "worker", "--threads", "1", "--until-eof"],
                stdin=subprocess.PIPE,
                env=environment_of(self.settings),
            )
            self._children[number] = child
            if self._over.is_set():
                _close_input(child)
            code = child.wait()
            if not self._over.is_set():
                log.warning("worker %s ended with %s; starting another", child.pid, code)
                self._over.wait(PAUSE_SECONDS)


def environment_of(settings: Settings) -> dict[str, str]:
    """Environment in which a child reads the same settings."""
    values = dict(os.environ)
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        elif isinstance(value, StrEnum):
            value = value.value
        values[f"FIRSTFAULT_{name.upper()}"] = str(value)
    # the child serves nobody: neither the page's health port nor another crew
    values["FIRSTFAULT_HEALTH_PORT"] = "0"
    here = str(Path(__file__).parent.parent)
    values["PYTHONPATH"] = os.pathsep.join(p for p in (here, *sys.path) if p)
    return values


def _close_input(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
