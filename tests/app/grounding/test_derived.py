"""Is a calculation that a sentence writes out done again, and does no text break that?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault.grounding.claims import Claim, check_basis, results_of
from firstfault.grounding.derived import Derived, derive
from firstfault.grounding.items import Ground, Item, ItemKind
from firstfault_tools.knowledge.pack import read_yaml

ROWS = read_yaml(Path(__file__).with_name("derived.yaml").read_text("utf-8"))["rows"]


def ground_of(row: dict[str, Any]) -> Ground:
    line = Item("F1:1", ItemKind.LOG, row.get("line", "it goes on"), "a.log", 0)
    return Ground({"F1:1": line, "Q": Item("Q", ItemKind.USER, row.get("asked", ""))})


def all_hold(text: str) -> Derived:
    return derive(text, lambda *_: True, lambda _: True)


@each_row("row", ROWS, ids=lambda r: r["says"][:60])
def test_what_is_worked_out_holds_and_nothing_else(row: dict[str, Any]) -> None:
    found = check_basis(Claim(row["says"], ("F1:1",)), ground_of(row))
    assert [o.part for o in found] == row["falls"]


def test_what_one_paragraph_works_out_the_next_may_use() -> None:
    ground = ground_of({"asked": "23 failures of 55 min"})
    first = Claim("23 x 55 min = 1,265 min = 21.1 h.", ("F1:1",))
    assert {1265.0, 21.1} <= results_of(first, ground)
    assert not results_of(Claim("In all 77.7 h = 4,662 min.", ("F1:1",)), ground)


@each_row(
    ("written", "results"),
    [
        ("6 x 8B x 2T / (512 x 989e12 x 0.4 x 86,400) = 5.5 days", {"5.5"}),
        ("the states are 7B x 16 bytes / 8 = 14 GB", {"14"}),
        ("(8 - 1) / (32 + 8 - 1) = 17.9 %", {"17.9"}),
        ("2 x (64 - 1)/64 x 14 GB = 27.6 GB", {"27.6"}),
        ("2^20 x 4 = 4194304", {"4194304"}),
        ("10 - 3 - 2 = 5", {"5"}),
        ("(1 + 2 = 3", {"3"}),
        ("**7** x 3 = **21**", {"21"}),
        ("14 GB = 7B x 16 / 8", {"14"}),
        ("7B x 16 / 8 = 15 GB", set()),
        ("rank 3 = 7", set()),
        ("(1 + 2 = 4", set()),
        ("9 ^ 9 ^ 9 ^ 9 = 1", set()),
        ("1 / 0 = 1", set()),
        ("exp(9999) = 1", set()),
        ("sqrt(0 - 4) = 2", set()),
        ("ln(0) = 1", set()),
    ],
)
def test_a_calculation_that_is_written_out_is_done_again(written: str, results: set[str]) -> None:
    behind = {n for n in all_hold(written).numbers if n in results or written.endswith(n)}
    assert behind - {"86400", "1"} == results


PIECES = st.lists(st.sampled_from([*"017,.()+*/^x−eEkMGBT=≈-√²:%`", "exp(", "sqrt", "12:30", "min", "h"]))  # fmt: skip


@given(st.text(alphabet="0123456789.,()+*/^x−eE kMGBT=≈-", max_size=200))
def test_no_text_breaks_the_reading_of_calculations(text: str) -> None:
    all_hold(text)


@given(PIECES, st.sampled_from(["", " "]))
def test_no_calculation_breaks_it(pieces: list[str], between: str) -> None:
    all_hold(between.join(pieces))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["(", "1+", "2^", "-", "√", "(1+", "12:30 to ", "1=", "7 h = ", "exp(", "1 x ", "2h40 "])  # fmt: skip
def test_a_long_text_is_read_in_no_time(piece: str) -> None:
    all_hold(piece * (4_000 // len(piece)))
