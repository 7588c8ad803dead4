from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.rows import each_row

from firstfault.commands.search import COMMAND, lay_out


def test_best_page_first() -> None:
    run = CliRunner().invoke(COMMAND, ["CUDA out of memory", "--method", "lexical", "--json"])
    assert run.exit_code == 0
    assert json.loads(run.stdout)[0]["page"] == "cuda-out-of-memory"


def test_words_need_no_quotes() -> None:
    apart = CliRunner().invoke(COMMAND, ["flight", "recorder", "--method", "lexical", "--json"])
    quoted = CliRunner().invoke(COMMAND, ["flight recorder", "--method", "lexical", "--json"])
    assert apart.exit_code == 0
    assert apart.stdout == quoted.stdout


@each_row(("question", "unknown"), [("zxqv blorp wibble", True), ("zxqv checkpoint", False)])
def test_words_that_no_page_holds_are_said_to_be_unknown(question: str, unknown: bool) -> None:
    run = CliRunner().invoke(COMMAND, [question])
    assert ("No page holds any of these words" in run.stdout) is unknown
    assert run.stdout.strip()


def test_nothing_found_is_said() -> None:
    run = CliRunner().invoke(COMMAND, ["zxqv blorp wibble", "--method", "lexical"])
    assert run.stdout.strip() == "No page matches."


@each_row(
    ("arguments", "said"),
    [
        (["oom", "--category", "nope"], "'communication'"),
        (["oom", "--framework", "nope", "--method", "lexical"], "deepspeed"),
        ([" "], "empty"),
    ],
)
def test_what_cannot_match_is_a_usage_error_that_lists_what_can(
    arguments: list[str], said: str
) -> None:
    run = CliRunner().invoke(COMMAND, arguments)
    assert run.exit_code == 2
    assert said in run.output


def test_commands_of_a_passage_stay_whole_and_its_source_is_named() -> None:
    passage = "- Record it.\n  ```bash\n  export A=1 B=2\n  ```\n" + "- A word. " * 200
    lines = lay_out(passage, 4)
    assert lines[:2] == ["- Record it.", "    export A=1 B=2"]
    assert lines[4:] == ["… (--full)"]
    assert len(lay_out(passage, None)) > 5
    run = CliRunner().invoke(COMMAND, ["CUDA out of memory", "--method", "lexical", "--limit", "1"])
    assert "https://docs.pytorch.org" in run.stdout


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FIRSTFAULT_CACHE", str(tmp_path / "file" / "cache"))
    run = CliRunner().invoke(COMMAND, ["CUDA out of memory", "--limit", "1", "--json"])
    assert json.loads(run.stdout)[0]["page"] == "cuda-out-of-memory"
