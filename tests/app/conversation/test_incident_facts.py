"""Single facts of an incident are told first, from its lines."""

from __future__ import annotations

import re

from evals.questions.__main__ import ask
from tests.rows import each_row

SLOW, OOM, PROBE = (
    "performance-gdr-disabled-on-one-host",
    "b5-oom-ema-copy-only-on-rank-zero",
    "b5-scheduler-liveness-probe-kills-trainer",
)


@each_row(
    ("case", "question", "first"),
    [
        (SLOW, "what is the step time", r"2\.4\d? s"),
        (SLOW, "is the loss ok?", r"^Yes, the loss is finite"),
        (OOM, "at which step did it die?", r"^Step 560"),
        (OOM, "why does v-02 say network error then", r"^It follows from the first fault"),
        (OOM, "which nccl version?", r"2\.26\.2"),
        (PROBE, "which pod", r"^lm70-worker-5"),
        (PROBE, "is the checkpoint of step 4000 usable", r"^No: its save was begun"),
        (PROBE, "should we just raise the memory limit?", r"^No, it would not"),
        (PROBE, "when did it start", r"\d\d:\d\d"),
        (PROBE, "how many ranks failed", r"^\d+ (?:of \d+ )?ranks"),
    ],
)
def test_a_fact_comes_first(case: str, question: str, first: str) -> None:
    said = ask({"ask": question, "case": case}).text.split("\n")[0]
    assert re.search(first, said), said
