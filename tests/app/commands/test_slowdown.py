"""Does `firstfault slowdown` say the cost and the cheapest remedy, and exit right?"""

import json
from pathlib import Path

from click.testing import CliRunner

from firstfault.commands.slowdown import COMMAND


def test_log_and_stages(tmp_path: Path) -> None:
    log = tmp_path / "t.log"
    log.write_text(
        "".join(
            f"rank {r} gx-0{r // 4} gpu {r}: compute {640 if r == 5 else 500}.0 allreduce wait {20 if r == 5 else 160}\n"
            for r in range(8)
        )
    )
    said = CliRunner().invoke(COMMAND, [str(log), "--gpus", "512", "--hours-left", "72"])
    assert said.exit_code == 1, said.output
    assert said.output.startswith("Rank 5 costs ")
    assert "swap the node" in said.output.splitlines()[0]
    body = json.loads(CliRunner().invoke(COMMAND, [str(log), "--json"]).output)
    assert body["schema"] == "firstfault.slowdown/1"
    stages = CliRunner().invoke(COMMAND, ["--stages", "30,30,39,30", "--micro-batches", "32"])
    assert stages.output.startswith("Stage 2 costs ")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    empty = tmp_path / "e.log"
    empty.write_text("hello\n")
    assert CliRunner().invoke(COMMAND, [str(empty)]).exit_code != 0
    assert CliRunner().invoke(COMMAND, ["--stages", "a,b"]).exit_code != 0
