"""Does `firstfault preflight` tick, name what is missing, and exit right?"""

import json
from pathlib import Path

from click.testing import CliRunner

from firstfault.commands.preflight import COMMAND


def test_preflight(tmp_path: Path) -> None:
    for node, version in ((1, "2.21.5"), (2, "2.20.5")):
        (tmp_path / f"n{node}.txt").write_text(f"torch==2.6.0\nnvidia-nccl-cu12=={version}\n")
    files = [str(tmp_path / "n1.txt"), str(tmp_path / "n2.txt")]
    said = CliRunner().invoke(COMMAND, files)
    assert said.exit_code == 1, said.output
    assert said.output.startswith("Do not start yet")
    assert "[page mixed-software-versions]" in said.output
    body = json.loads(CliRunner().invoke(COMMAND, [*files, "--json"]).output)
    assert body["schema"] == "firstfault.preflight/1"
    assert {i["state"] for i in body["items"]} == {"failed", "unknown", "manual"}


def test_growing(tmp_path: Path) -> None:
    said = CliRunner().invoke(COMMAND, ["--gpus", "64", "--grow-to", "128", "--pipeline", "4"])
    assert said.exit_code == 0, said.output
    assert "396 h instead of 792 h" in said.output
    assert CliRunner().invoke(COMMAND, ["--grow-to", "128"]).exception is not None
    own = tmp_path / "own.yaml"
    own.write_text(f"items:\n  - {{id: x, text: There., exists: {tmp_path}/none}}\n")
    assert CliRunner().invoke(COMMAND, ["--items", str(own)]).exit_code == 1
