from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from firstfault.commands.search import COMMAND


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTFAULT_CACHE", str(tmp_path))


def test_best_page_first() -> None:
    run = CliRunner().invoke(COMMAND, ["CUDA out of memory", "--method", "lexical", "--json"])
    assert run.exit_code == 0
    assert json.loads(run.stdout)[0]["page"] == "cuda-out-of-memory"


@pytest.mark.parametrize(
    ("question", "unknown"), [("zxqv blorp wibble", True), ("zxqv checkpoint", False)]
)
def test_words_that_no_page_holds_are_said_to_be_unknown(question: str, unknown: bool) -> None:
    run = CliRunner().invoke(COMMAND, [question])
    assert ("No page holds any of these words" in run.stdout) is unknown
    assert run.stdout.strip()


def test_nothing_found_is_said() -> None:
    run = CliRunner().invoke(COMMAND, ["zxqv blorp wibble", "--method", "lexical"])
    assert run.stdout.strip() == "No page matches."
