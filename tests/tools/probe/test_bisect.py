"""The bisection driver: any border, either direction, real commands, limits, refusals."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault_tools.errors import InvalidParameter
from firstfault_tools.probe.bisect import BisectionVerdict, Trial, bisect_command, fill_command

COMMAND = ["train", "--size={value}"]


def runner(works: object) -> object:
    def run(argv: Sequence[str], value: int, limit_s: float) -> Trial:
        assert argv == ["train", f"--size={value}"]
        return Trial(value, works(value), 0, 0.0, "", ())  # type: ignore[operator]

    return run


@given(st.integers(-1000, 1000), st.integers(1, 400), st.integers(1, 5), st.booleans(), st.data())
def test_every_border_is_found(
    good: int, steps: int, step: int, upwards: bool, data: st.DataObject
) -> None:
    sign = 1 if upwards else -1
    last = data.draw(st.integers(0, steps - 1))
    bad = good + sign * steps * step
    border = good + sign * last * step

    def works(value: int) -> bool:
        return (value - border) * sign <= 0

    found = bisect_command(COMMAND, good, bad, step=step, run=runner(works))  # type: ignore[arg-type]
    assert (found.verdict, found.works, found.fails) == (
        BisectionVerdict.FOUND,
        border,
        border + sign * step,
    )
    assert len(found.trials) <= 2 + steps.bit_length()


def test_ends_that_do_not_behave_as_told() -> None:
    never = bisect_command(COMMAND, 1, 8, run=runner(lambda _: False))  # type: ignore[arg-type]
    assert never.verdict is BisectionVerdict.GOOD_FAILS
    always = bisect_command(COMMAND, 1, 8, run=runner(lambda _: True))  # type: ignore[arg-type]
    assert always.verdict is BisectionVerdict.BAD_WORKS
    refused = bisect_command(COMMAND, 1, 8, run=runner(lambda _: True), show=lambda _: False)  # type: ignore[arg-type]
    assert refused.verdict is BisectionVerdict.STOPPED
    assert refused.trials == ()


@pytest.mark.parametrize(
    ("command", "good", "bad", "step", "field"),
    [
        ([], 1, 2, 1, "command"),
        (["train"], 1, 2, 1, "command"),
        (COMMAND, 2, 2, 1, "bad"),
        (COMMAND, 1, 8, 2, "step"),
        (COMMAND, 1, 8, 0, "step"),
    ],
)
def test_rules(command: list[str], good: int, bad: int, step: int, field: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        bisect_command(command, good, bad, step=step)
    assert caught.value.field == field


def test_a_real_command_and_its_last_words() -> None:
    script = "import sys; v = int(sys.argv[1]); sys.exit('CUDA out of memory' if v > 3 else 0)"
    shown: list[Sequence[str]] = []
    found = bisect_command(
        [sys.executable, "-c", script, "{value}"], 1, 6, show=lambda argv: not shown.append(argv)
    )
    assert (found.works, found.fails) == (3, 4)
    failing = next(t for t in found.trials if not t.works)
    assert failing.tail == ("CUDA out of memory",)
    assert len(shown) == len(found.trials)
    assert json.loads(json.dumps(found.as_json("batch size")))["largest_that_works"] == 3


def test_nothing_goes_through_a_shell() -> None:
    assert fill_command(["echo", "$(touch x); {value}"], 3) == ["echo", "$(touch x); 3"]


def test_a_hanging_run_ends_with_its_children() -> None:
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60 * int(sys.argv[1]))"
    begin = time.monotonic()
    found = bisect_command([sys.executable, "-c", script, "{value}"], 0, 1, limit_s=1.5)
    assert time.monotonic() - begin < 30
    assert found.verdict is BisectionVerdict.FOUND
    assert found.trials[-1].reason == "did not end within 1.5 s"


def test_a_command_that_cannot_start() -> None:
    found = bisect_command(["/no/such/thing", "{value}"], 1, 2)
    assert found.verdict is BisectionVerdict.GOOD_FAILS
    assert found.trials[0].reason.startswith("cannot start")
