"""Does `firstfault compare` say what is worse and why, as text and as JSON, and exit right?"""

import json
from pathlib import Path

from click.testing import CliRunner

from firstfault.commands.compare import COMMAND


def write(path: Path, network: str, ms: int, node: str) -> str:
    path.write_text(
        f"{node}:100:200 [0] NCCL INFO Using network {network}\n  micro_batch_size .......... 2\n"
        + "".join(
            f" iteration {i}/ 100 | elapsed time per iteration (ms): {ms + i % 3} | learning rate: 1.0E-04 | "
            f"lm loss: {8 - i / 100:.6E} | loss scale: 1.0 | grad norm: 1.0 |\n"
            for i in range(1, 31)
        )
    )
    return str(path)


def test_text_and_json(tmp_path: Path) -> None:
    good = write(tmp_path / "good.log", "IB", 500, "gpu-a01")
    bad = write(tmp_path / "bad.log", "Socket", 900, "gpu-b07")
    said = CliRunner().invoke(COMMAND, [good, bad])
    assert said.exit_code == 1, said.output
    first = said.output.splitlines()[0]
    assert first.startswith("Step time is ")
    assert "IB -> Socket" in first
    assert "[page nccl-over-tcp]" in said.output
    assert "good.log:1 / bad.log:1" in said.output
    body = json.loads(CliRunner().invoke(COMMAND, [good, bad, "--json"]).output)
    assert body["schema"] == "firstfault.compare/1"
    assert body["effects"] == ["slow"]
    assert body["differences"][0]["page"] == "nccl-over-tcp"
    assert body["answer"] == first


def test_exit_codes(tmp_path: Path) -> None:
    good = write(tmp_path / "good.log", "IB", 500, "gpu-a01")
    same = write(tmp_path / "same.log", "IB", 500, "gpu-a01")
    assert CliRunner().invoke(COMMAND, [good, same]).exit_code == 0
    assert CliRunner().invoke(COMMAND, [good, str(tmp_path / "none")]).exit_code == 2
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / "b.txt").write_text("world\n")
    nothing = CliRunner().invoke(COMMAND, [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    assert nothing.exit_code == 4, nothing.output
