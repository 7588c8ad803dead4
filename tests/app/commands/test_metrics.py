"""Do `firstfault metrics` and `firstfault verify-fix` read runs, print tables and JSON, and exit right?"""

import json
from pathlib import Path

from click.testing import CliRunner

from firstfault.commands.metrics import COMMAND as METRICS
from firstfault.commands.verify_fix import COMMAND as VERIFY


def write(path: Path, sick: bool, ms: float = 100.0) -> str:
    path.write_text(
        "".join(
            f"\x1b[32mstep {s}\x1b[0m | loss {'nan' if sick and s > 40 else 3 - s / 100} | grad_norm 1.0 | "
            f"step_time {ms + s % 3}ms\n"
            for s in range(1, 80)
        )
    )
    return str(path)


def test_metrics(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.log", False), write(tmp_path / "b.log", True)
    well = CliRunner().invoke(METRICS, [good, "--checklist", "first_steps"])
    assert well.exit_code == 0
    assert "step_time_ms" in well.output
    assert "passed  Loss and gradient norm are finite." in well.output
    ill = CliRunner().invoke(METRICS, [bad, "--json", "--baseline", good])
    body = json.loads(ill.output)
    assert ill.exit_code == 1
    assert body["schema"] == "firstfault.metrics/1"
    assert body["findings"][0]["kind"] == "metrics.nan_loss"
    assert body["columns"]["loss"]["not_finite"] == 39
    assert None in body["charts"]["loss"]["y"]
    assert CliRunner().invoke(METRICS, [good, "--checklist", "x"]).exit_code == 2
    assert CliRunner().invoke(METRICS, [str(tmp_path / "none")]).exit_code == 2
    assert "no step lines" in CliRunner().invoke(METRICS, ["-"], input="hello\n").output


def test_verify_fix(tmp_path: Path) -> None:
    def logs(option: str, sick: str, ms: float = 100.0) -> list[str]:
        out = []
        for i, mark in enumerate(sick):
            out += [option, write(tmp_path / f"{option}{i}{ms}.log", mark == "x", ms)]
        return out

    fixed = CliRunner().invoke(VERIFY, [*logs("--before", "xxx"), *logs("--after", "...")])
    assert fixed.exit_code == 0
    assert fixed.output.startswith("fixed:")
    slower = CliRunner().invoke(
        VERIFY, [*logs("--before", "xxx"), *logs("--after", "...", 150.0), "--json"]
    )
    assert json.loads(slower.output)["verdict"] == "regression"
    assert slower.exit_code == 1
    by_line = CliRunner().invoke(
        VERIFY, [*logs("--before", "..."), *logs("--after", "..."), "--problem-if", "loss nan"]
    )
    assert by_line.output.startswith("inconclusive:")
    bad = CliRunner().invoke(
        VERIFY, [*logs("--before", "."), *logs("--after", "."), "--problem-if", "("]
    )
    assert bad.exit_code == 2
