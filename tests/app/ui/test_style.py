"""Do the pairs of the style sheet and of the themes reach WCAG AA?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault.ui import theme
from firstfault.ui.sidebar import STATES
from firstfault.ui.words import PHASE_STATES, ROLES, VERDICTS

CSS = (Path(theme.__file__).with_name("style.css")).read_text(encoding="utf-8")
PAIRS = {
    m[1]: (m[2], m[3])
    for m in re.finditer(r"--ff-([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", CSS)
}
ON_SURFACE = ["text", "muted", "accent", "fault", "warn", "ok", "unknown", "plain"]
ON_SOFT = ["fault", "warn", "ok", "unknown", "plain"]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["surface", "sunken", "page"])
@pytest.mark.parametrize("name", ON_SURFACE)
def test_text_on_grounds(name: str, ground: str, side: int) -> None:
    assert contrast(PAIRS[name][side], PAIRS[ground][side]) >= 4.5


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ON_SOFT)
def test_words_and_log_lines_on_their_tint(name: str, side: int) -> None:
    soft = PAIRS[f"{name}-soft"][side]
    assert contrast(PAIRS[name][side], soft) >= 4.5
    assert contrast(PAIRS["text"][side], soft) >= 4.5


@each_row("palette", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_palettes_of_the_frame(palette: dict[str, str]) -> None:
    for ground in ("backgroundColor", "secondaryBackgroundColor"):
        for ink in ("textColor", "linkColor", "primaryColor", "grayTextColor"):
            assert contrast(palette[ink], palette[ground]) >= 4.5


def test_nothing_is_told_by_colour_alone() -> None:
    for table in (VERDICTS, STATES, PHASE_STATES, ROLES):
        looks = list(table.values())
        assert len({(look.icon, look.word) for look in looks}) == len(looks)


def test_flags_switch_statistics_and_error_details_off() -> None:
    flags = theme.streamlit_flags("127.0.0.1", 8501, 1024)
    assert "--browser.gatherUsageStats=false" in flags
    assert "--client.showErrorDetails=none" in flags
    # else every viewer waits for a walk over all that is loaded
    assert "--runner.postScriptGC=false" in flags
    assert "--server.address=127.0.0.1" in flags
