"""How far is the simulation from bubbles measured on two GPUs? Prints every row's error.

The simulation knows compute times and the schedule only. The measured steps also hold launch gaps,
transfers and the loss of overlap, which grow with the number of chunks, so the measured step is
expected to be longer and the test says by how much. Both figures are bounds on what was seen, not
tuned to it: no constant of the simulation comes from this file.
"""

import json
from pathlib import Path

import pytest

from firstfault_tools.pipeline.bubble import plan_of, price_plan

MEASURED = Path(__file__).parents[4] / "shared" / "truth" / "bubble_measured.jsonl"


@pytest.mark.skipif(not MEASURED.is_file(), reason="measured bubbles are not here")
def test_against_measured_steps(capsys: pytest.CaptureFixture[str]) -> None:
    errors: dict[str, list[float]] = {}
    with capsys.disabled():
        print("\nschedule              m  measured  predicted  error")
    for line in MEASURED.read_text().splitlines():
        row = json.loads(line)
        name, _, rest = row["schedule"].partition("_")
        unequal = rest.startswith("unequal")
        # Its ideal is the busiest rank's compute; 2:1 means one rank does twice the other's work.
        per_microbatch = row["ideal_ms"] / row["m"]
        plan = plan_of(
            name,
            row["p"],
            row["m"],
            row["v"],
            per_microbatch / 3,
            per_microbatch * 2 / 3,
            stage_scale=[1.0, 0.5] if unequal else None,
        )
        predicted = price_plan(plan).makespan
        error = predicted / row["step_ms"] - 1
        errors.setdefault(row["schedule"], []).append(error)
        with capsys.disabled():
            print(
                f"{row['schedule']:<20} {row['m']:>3} {row['step_ms']:>9.2f} {predicted:>10.2f} "
                f"{error:>+7.1%}"
            )
    every = [abs(e) for line_errors in errors.values() for e in line_errors]
    with capsys.disabled():
        print(f"mean absolute error {sum(every) / len(every):.1%}, worst {max(every):.1%}")
    assert len(every) == 25
    assert sum(every) / len(every) < 0.12
    assert max(every) < 0.25
