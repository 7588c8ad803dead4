"""Timestamps of training logs."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.log.clock import find_year, read_time


@each_row(
    ("text", "expected"),
    [
        ("2026-06-08 19:40:06 WARNING x", 1780947606.0),
        ("[2026-06-08T19:40:06.250Z] x", 1780947606.25),
        ("2026-06-08T21:40:06+02:00 x", 1780947606.0),
        ("[rank6]:[E608 19:40:06.500000000 P.cpp:1] x", 1780947606.5),
        ("W0608 19:40:06.000000 77 api.py:897] x", 1780947606.0),
        ("Jun  8 19:40:06 node kernel: x", 1780947606.0),
        ("[Mon Jun  8 19:40:06 2026] NVRM: x", 1780947606.0),
        ("no time here 12:30", None),
        ("08.06.26 19:40:06 x", 1780947606.0),
        ("[08.06.2026, 19:40:06.250] x", 1780947606.25),
        ("driver 25.13.26 99:99:99 x", None),
        ("(EngineCore_0 pid=40980) ERROR 06-08 19:40:06 [core.py:710] x", 1780947606.0),
        ("EJ0001: 2026-06-08-19:40:06.250.645 x", 1780947606.25),
        ("ERROR 404-22 19:40:06", None),
        ("2026-13-45 99:99:99 x", None),
    ],
)
def test_read_time(text: str, expected: float | None) -> None:
    assert read_time(text, 2026) == expected


def test_year_of_a_log_without_one_comes_from_its_neighbours() -> None:
    assert find_year("a\n[E608 19:40:06 x]\n2025-06-08 19:40:06 y") == 2025
    assert find_year("nothing") is None
