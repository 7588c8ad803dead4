"""Memory that people measured and published, asked as they asked it: which answers are within 10 %?

`what`: allocated or reserved by PyTorch. `missed` says why an answer is further off; such a row stays
in the data, and must really be missed, so that a repair is noticed.
"""

import json
from pathlib import Path

import pytest
from tests.rows import each_row

from firstfault_tools.answers import answer_calculation

ROOT = Path(__file__).resolve().parents[3]
ROWS = [
    json.loads(line)
    for line in (ROOT / "evals/truth/memory_questions.jsonl").read_text().splitlines()
]


def answer_in_unit(row):
    result = answer_calculation("memory", row["inputs"]).result
    if row["what"] == "allocated":
        gib = result["allocated_gib"]["expected"]
    else:
        gib = result["needed_gib"]["expected"] - result["outside_pytorch_gib"]["expected"]
    return gib * (2**30 / 1e9 if row["unit"] == "GB" else 1)


@each_row("row", ROWS, ids=[row["question"] for row in ROWS])
def test_answer(row):
    assert row["url"].startswith("https://github.com/")
    close = answer_in_unit(row) == pytest.approx(row["measured"], rel=0.1)
    assert close != bool(row.get("missed"))


def test_how_many_are_answered():
    assert len(ROWS) >= 40
    assert sum(not row.get("missed") for row in ROWS) >= 31
