"""Do `firstfault metrics` and `firstfault verify-fix` read runs, print tables and JSON, and exit right?"""

import io
import json
from pathlib import Path

from click.testing import CliRunner

from firstfault.commands._following import MAX_LINE, read_lines
from firstfault.commands.metrics import COMMAND as METRICS
from firstfault.commands.verify_fix import COMMAND as VERIFY
from firstfault.errors import InputUnreadable


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
    missing = CliRunner().invoke(METRICS, [str(tmp_path / "none")])
    assert isinstance(missing.exception, InputUnreadable)
    assert "No such file" in str(missing.exception)
    empty = CliRunner().invoke(METRICS, ["-"], input=b"no steps, no UTF-8: \xff\n")
    assert (empty.exit_code, empty.output) == (4, "stdin: no step lines were found\n")
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


def test_quoted_lines_are_redacted_and_cannot_steer_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "".join(
            f"step {s} | loss {'nan' if s > 40 else 3 - s / 100} | grad_norm 1.0 | "
            "password=hunter22x \u202e\x9b31m\n"
            for s in range(1, 80)
        )
    )
    for arguments in ([str(log)], [str(log), "--json"]):
        shown = CliRunner().invoke(METRICS, arguments)
        assert shown.exit_code == 1
        assert "hunter22x" not in shown.output
        assert "\u202e" not in shown.output
        assert "\x9b" not in shown.output
    assert "<redacted:password>" in shown.output


def test_a_line_without_end_is_cut() -> None:
    lines = list(read_lines(io.BytesIO(b"a" * 10_000_000 + b"\nstep 1\r\nlast")))
    assert [line[:6] for line in lines] == ["aaaaaa", "step 1", "last"]
    assert len(lines[0]) == MAX_LINE


def test_one_log_is_one_trial_and_a_broken_pattern_is_said_plainly(tmp_path: Path) -> None:
    before, after = tmp_path / "before.log", tmp_path / "after.log"
    for path in (before, after):
        path.write_text("step 1 loss 2.0\n")
    twice = CliRunner().invoke(
        VERIFY, ["--before", str(before), "--before", str(before), "--after", str(after)]
    )
    assert (twice.exit_code, "named twice" in twice.output) == (2, True)
    broken = CliRunner().invoke(
        VERIFY, ["--before", str(before), "--after", str(after), "--problem-if", "("]
    )
    assert broken.exit_code == 2
    assert "--problem-if: missing )" in broken.output
