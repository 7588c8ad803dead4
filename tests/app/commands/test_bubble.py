"""Does `firstfault bubble` print both ratios, valid JSON and usage errors that name the field?"""

import json

from click.testing import CliRunner

from firstfault.commands.bubble import COMMAND


def test_json_holds_the_contract_keys() -> None:
    line = "--schedule 1f1b --stages 8 --microbatches 64 --stage-scale 1,1,1,1,1,1,1,1.3 --json"
    done = CliRunner().invoke(COMMAND, line.split())
    result = json.loads(done.output)
    assert done.exit_code == 0
    assert result["schema"] == "firstfault.bubble/1"
    assert abs(result["makespan"] - 270.6) < 1e-9
    assert abs(result["fraction_of_total"] - 0.26386) < 1e-5
    assert (
        abs(result["ratio_to_ideal"] * result["ideal"] - result["makespan"] + result["ideal"])
        < 1e-9
    )


def test_text_names_both_ratios_and_draws() -> None:
    line = "--schedule zb-h1 --stages 4 --microbatches 8 --gantt --at-most 0.05"
    done = CliRunner().invoke(COMMAND, line.split())
    assert done.exit_code == 0
    assert "ratio to ideal" in done.output
    assert "fraction of total" in done.output
    assert "micro-batches (" in done.output
    assert (
        sum(line.lstrip()[:2] in ("0 ", "1 ", "2 ", "3 ") for line in done.output.split("\n")) == 4
    )


def test_bad_input_is_a_usage_error() -> None:
    runner = CliRunner()
    for line in (
        "--stages 4 --microbatches 8 --weight 9",
        "--stages 4 --microbatches 8 --forward x",
        "--stages 4 --microbatches 8 --formula (p-1)/(m*p)",
    ):
        done = runner.invoke(COMMAND, line.split())
        assert done.exit_code == 2
    assert "too low by a factor of p" in done.output
