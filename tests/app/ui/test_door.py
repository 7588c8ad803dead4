"""Does what stands below a card wait for the cards of others, and never for long?"""

from __future__ import annotations

import threading
import time

import pytest

from firstfault.ui import door


def test_one_at_a_time_and_never_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "PATIENCE", 5.0)
    inside: list[str] = []

    def draw(name: str) -> None:
        with door.one_at_a_time():
            inside.append(name)
            time.sleep(0.05)
            inside.append(name)

    drawers = [threading.Thread(target=draw, args=(name,)) for name in "abc"]
    for drawer in drawers:
        drawer.start()
    for drawer in drawers:
        drawer.join()
    assert inside[::2] == inside[1::2]
    monkeypatch.setattr(door, "PATIENCE", 0.05)
    with door.one_at_a_time():
        begin = time.monotonic()
        draw("late")
    assert time.monotonic() - begin < 1


def test_a_drawing_that_is_broken_off_makes_nobody_wait() -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError), door.one_at_a_time():
            raise RuntimeError("the page runs again")
    begin = time.monotonic()
    with door.one_at_a_time():
        assert time.monotonic() - begin < 1
