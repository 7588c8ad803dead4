"""Is a calculation that a sentence writes out done again, and does no text break that?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.grounding.arithmetic import worked_out


@pytest.mark.parametrize(
    ("written", "results"),
    [
        ("6 x 8B x 2T / (512 x 989e12 x 0.4 x 86,400) = 5.5 days", {"5.5"}),
        ("the states are 7B x 16 bytes / 8 = 14 GB", {"14"}),
        ("(8 - 1) / (32 + 8 - 1) = 17.9 %", {"17.9"}),
        ("2 x (64 - 1)/64 x 14 GB = 27.6 GB", {"27.6"}),
        ("2^20 x 4 = 4194304", {"4194304"}),
        ("10 - 3 - 2 = 5", {"5"}),
        ("7B x 16 / 8 = 15 GB", set()),
        ("rank 3 = 7", set()),
        ("(1 + 2 = 3", set()),
        ("9 ^ 9 ^ 9 ^ 9 = 1", set()),
        ("1 / 0 = 1", set()),
    ],
)
def test_a_calculation_that_is_written_out_is_done_again(written: str, results: set[str]) -> None:
    assert worked_out(written) == results


@given(st.text(alphabet="0123456789.,()+*/^x−eE kMGBT=≈-", max_size=200))
def test_no_text_breaks_the_reading_of_calculations(text: str) -> None:
    worked_out(text)
