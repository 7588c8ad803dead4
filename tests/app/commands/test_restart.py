"""`firstfault restart`: attempts of one job, one after the other, as a launcher asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from firstfault.commands.restart import COMMAND

XID = "{0} kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
SILENT = "step {0} | loss 2.0\n"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTFAULT_DATA", str(tmp_path / "data"))


def ask(log: Path, text: str, *more: str) -> tuple[int, dict[str, Any]]:
    log.write_text(text)
    done = CliRunner().invoke(COMMAND, [str(log), "--job", "pretrain/7b", "--json", *more])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, json.loads(done.stdout)


def test_a_node_is_left_out_for_good_and_a_job_without_progress_ends(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    code, told = ask(log, XID.format("node-07"))
    assert (code, told["decision"], told["exclude"]) == (0, "restart without a node", ["node-07"])
    for number in (2, 3):
        code, told = ask(log, "".join(SILENT.format(n) for n in range(41)))
        assert (code, told["decision"], told["exclude"]) == (0, "restart without a node", ["node-07"])  # fmt: skip
        assert [a["attempt"] for a in told["attempts"]] == list(range(1, number + 1))
    code, told = ask(log, "".join(SILENT.format(n) for n in range(41)))
    assert (code, told["decision"]) == (1, "stop")
    assert told["reason"] == "3 attempts in a row got no further than step 40"
    assert [a["step"] for a in told["attempts"]] == [None, 40, 40, 40]


def test_the_same_attempt_asked_twice_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    first = ask(log, SILENT.format(3), "--attempt", "5")[1]
    again = ask(log, SILENT.format(3), "--attempt", "5")[1]
    assert first["incident"] == again["incident"]
    assert [a["attempt"] for a in again["attempts"]] == [5]


def test_a_confirmed_cause_that_stays_stops_and_shadow_only_says_so(tmp_path: Path) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.10 GiB of which 1.02 GiB is free.\n"
    agent = "ERROR:torch.distributed.elastic.agent.server.api:[default] Worker group FAILED. {0}/3 attempts left; will restart worker group\n"
    log = tmp_path / "train.log"
    text = "".join(oom + agent.format(n) for n in (3, 2, 1)) + oom
    code, told = ask(log, text)
    assert (code, told["decision"]) == (1, "stop")
    assert ask(log, text, "--shadow")[0] == 0
    said = CliRunner().invoke(COMMAND, [str(log), "--job", "other"])
    assert said.output.startswith("STOP  (attempt 1 of other): ")
