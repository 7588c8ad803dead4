"""Which rank fell silent, and is a log that only had a start left out?"""

from __future__ import annotations

from collections.abc import Iterable

from tests.rows import each_row

from firstfault_tools.triage.silence import NEVER_BEGUN_S, Silence


def step(n: int) -> str:
    return f"step {n} | loss 2.0"


def run(silence: Silence, logs: Iterable[str], seconds: range, rows: int = 1) -> None:
    for now in seconds:
        for name in logs:
            silence.hear(name, [step(now)] if rows else ["working"], rows, float(now))


def test_one_log_is_silent_once_and_again_after_it_spoke() -> None:
    silence = Silence()
    run(silence, ["run.log"], range(0, 300, 30))
    assert silence.judge(400.0) is None
    found = silence.judge(600.0)
    assert found is not None
    assert found.kind == "metrics.stalled"
    assert found.title == "No step line for 330 s (usually every 30.0 s): the run stands still"
    assert (found.evidence[0].line, found.evidence[0].text) == (10, step(270))
    assert silence.judge(700.0) is None
    silence.hear("run.log", [step(11)], 1, 710.0)
    assert silence.judge(720.0) is None
    assert silence.judge(1200.0) is not None


@each_row("rows", [1, 0], ids=["steps", "lines"])
def test_the_rank_that_fell_silent_while_others_go_on(rows: int) -> None:
    silence = Silence()
    names = [f"logs/rank_{n}.log" for n in range(8)]
    run(silence, names, range(200), rows)
    run(silence, [n for n in names if n != "logs/rank_3.log"], range(200, 330), rows)
    found = silence.judge(329.0)
    assert found is not None
    assert found.rank == 3
    assert "while 7 others go on" in found.title
    assert ("last step 199, theirs 329" in found.title) == bool(rows)
    assert silence.judge(331.0) is None


def test_all_silent_names_the_first() -> None:
    silence = Silence()
    names = [f"attempt_0/{n}/stdout.log" for n in range(4)]
    run(silence, names, range(300))
    run(silence, names[:2] + names[3:], range(300, 340))
    assert silence.judge(430.0) is None, "the others have not been silent for long enough to know"
    found = silence.judge(500.0)
    assert found is not None
    assert found.rank == 2
    assert "any of 4 logs" in found.title
    assert "rank 2 fell silent first, 40 s before the next, at step 299" in found.title
    run(silence, names, range(510, 520))
    assert silence.judge(521.0) is None


def test_ranks_that_only_wrote_at_their_start_are_not_silent() -> None:
    silence = Silence()
    quiet = [f"rank_{n}.log" for n in range(1, 8)]
    run(silence, quiet, range(60), rows=0)
    run(silence, ["rank_0.log"], range(3600))
    assert silence.judge(3600.0) is None
    long = Silence()
    run(long, quiet, range(400), rows=0)
    run(long, ["rank_0.log"], range(3600))
    assert long.judge(3600.0) is None, "all of their kind are silent and the steps go on"


def test_a_job_that_never_began() -> None:
    silence = Silence()
    run(silence, ["rank_0.log", "rank_1.log"], range(20), rows=0)
    assert silence.judge(1000.0) is None
    assert silence.judge(NEVER_BEGUN_S + 20) is not None


def test_what_a_person_says_counts() -> None:
    silence = Silence(stall_after=4.0)
    silence.hear("a.log", ["hello"], 0, 0.0)
    assert silence.judge(3.9) is None
    assert silence.judge(4.0) is not None
