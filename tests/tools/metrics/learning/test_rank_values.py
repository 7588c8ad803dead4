"""Numbers of ranks: the part that holds up the step, the value that breaks first, the empty batch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.findings import Finding, Level
from firstfault_tools.metrics import log_lines
from firstfault_tools.metrics.learning import empty_batch
from firstfault_tools.metrics.pace import load_balance, rank_parts


def number(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.split("\n"), start=1))


def timing(data: float, wait: float, odd: int = 3, steps: int = 4) -> str:
    return "\n".join(
        f"rank {r} (n{r // 2}) step {s * 50} data {data if r == odd and s > 1 else 0.05:.2f} fwd 0.30 "
        f"bwd+allreduce {wait if r == odd and s > 1 else 4.6 if s > 1 else 0.5:.2f} total 5.0"
        for s in range(steps)
        for r in range(6)
    )


def test_the_rank_that_waits_for_its_input() -> None:
    (found,) = rank_parts.find_in_lines(number(timing(4.0, 0.7)), "t.log")
    assert (found.kind, found.rank, found.host) == ("metrics.rank_waits", 3, "n1")
    assert "input data" in found.title
    assert "since step 100" in found.title


def test_a_table_of_parts_by_rank() -> None:
    rows = "\n".join(
        f"[default0]:  {r}   3800  {2711 if r == 5 else 310}  {11 if r == 5 else 2400}"
        for r in range(8)
    )
    text = "[default0]: rank  fwd+bwd  d2h_offload  wait_in_reduce_scatter\n" + rows
    (found,) = rank_parts.find_in_lines(number(text), "t.log")
    assert found.rank == 5
    assert "between host and GPU" in found.title


def test_a_host_of_slow_ranks_is_named_without_a_rank() -> None:
    rows = "\n".join(
        f"   node d{n}  rank {2 * n}:  {5400 if n == 2 else 3170}   rank {2 * n + 1}:  {5410 if n == 2 else 3190}"
        for n in range(4)
    )
    text = "time in compute kernels by rank, ms per step\n" + rows
    (found,) = rank_parts.find_in_lines(number(text), "t.log")
    assert (found.rank, found.host, found.facts["ranks"]) == (None, "d2", [4, 5])


@each_row(
    "text",
    [
        timing(0.06, 4.6),
        timing(0.20, 4.5),
        "\n".join(f"rank {r}: loaded data 0{r}" for r in range(8)),
        "\n".join(f"[rank{r}]: read 12 files, opt 3, eval 4" for r in range(8)),
        "rank 1: data 9 comm 1\nrank 2: data 1 comm 9",
    ],
)
def test_parts_that_are_alike(text: str) -> None:
    assert rank_parts.find_in_lines(number(text), "t.log") == ()


def gradients(value: str, after: str) -> str:
    lines = [
        f"[n{r // 4}] rank {r} iter {s} local_loss 2.0{r} local_grad_norm {value if (r, s) == (5, 12) else f'0.12{r}'}"
        for s in range(10, 13)
        for r in range(8)
    ]
    return "\n".join([*lines, *(f"iter {s} loss {after} grad_norm {after}" for s in range(13, 22))])


def by_kind(text: str, kind: str) -> list[Finding]:
    return [f for f in log_lines.find_in_lines(number(text), "t.log") if f.kind == kind]


def test_one_rank_s_gradient_explodes_under_a_normal_loss() -> None:
    (found,) = by_kind(gradients("3.1e+19", "nan"), "metrics.rank_value")
    assert (found.rank, found.level) == (5, Level.CAUSE)
    assert "iter" in found.evidence[0].text
    assert "corrupt" in found.title


def test_a_spike_that_passes_is_no_cause() -> None:
    (found,) = by_kind(gradients("31.5", "1.9"), "metrics.rank_value")
    assert found.level is Level.CONTEXT


def test_ranks_that_differ_a_little_are_healthy() -> None:
    assert by_kind(gradients("0.8", "1.9"), "metrics.rank_value") == []


EMPTY = """\
[rank0]: DEBUG micro loss 1.2160 tokens 5071
[rank1]: DEBUG micro loss 1.2377 tokens 4933
[rank3]: DEBUG micro loss 1.2249 tokens 5120
[rank2]: DEBUG micro loss nan tokens 0
"""
LISTED = """\
{'loss': 1.2274, 'num_loss_tokens': [4977, 5090, 5188, 4902], 'epoch': 0.41}
{'loss': nan, 'num_loss_tokens': [5071, 0, 4933, 5120], 'epoch': 0.42}
{'loss': nan, 'num_loss_tokens': [5061, 5052, 4912, 5061], 'epoch': 0.42}
"""


@each_row(("text", "rank", "line"), [(EMPTY, 2, 4), (LISTED, 1, 2)])
def test_a_count_of_zero_beside_the_first_nan(text: str, rank: int, line: int) -> None:
    (found,) = empty_batch.find_in_lines(number(text), "t.log")
    assert (found.rank, found.evidence[0].line) == (rank, line)
    assert "0 " in found.title


def test_two_empty_batches_name_no_single_rank() -> None:
    text = (
        EMPTY.replace("1.2160 tokens 5071", "nan tokens 0")
        + "[rank4]: DEBUG micro loss 1.1 tokens 9"
    )
    (found,) = empty_batch.find_in_lines(number(text), "t.log")
    assert (found.rank, found.facts["ranks"]) == (None, [0, 2])


@each_row(
    "text",
    [
        EMPTY.replace("nan tokens 0", "nan tokens 4800"),
        LISTED.replace("5090", "0"),
        "number of skipped iterations: 0 | number of nan iterations: 0",
        "[rank2]: loss nan, 0 samples dropped",
    ],
)
def test_zeros_that_explain_no_nan(text: str) -> None:
    assert empty_batch.find_in_lines(number(text), "t.log") == ()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=60),
            st.builds(
                lambda r, a, b: f"rank {r} data {a} allreduce {b} nan tokens 0",
                st.integers(),
                st.floats(),
                st.floats(),
            ),
            st.builds(lambda a: f"'tokens': [{a}, 0, {a}] nan", st.integers()),
            st.builds(lambda a, b: f"rank {a}: {b} rank {b}: {a}", st.integers(), st.integers()),
            st.just("rank data wait"),
        ),
        max_size=14,
    )
)
def test_damage_raises_nothing(lines: list[str]) -> None:
    numbered = number("\n".join(lines))
    rank_parts.find_in_lines(numbered, "x")
    empty_batch.find_in_lines(numbered, "x")


def paced(special: int, ranks: int = 2, pause: float = 1650.0, odd: int = 0) -> str:
    return "\n".join(
        f"[rank{r}] iteration {s:5d}/ 100 | elapsed time per iteration (ms): "
        f"{pause if s % special == 0 and r != odd else 14.2:.1f} | data time (ms): 0.1 | lm loss: 2.5{r}"
        for s in range(1, 30)
        for r in range(ranks)
    )


def test_a_rank_that_is_busy_between_its_steps() -> None:
    (found,) = by_kind(paced(8, odd=1), "metrics.rank_pauses")
    assert found.facts["busy_rank"] == 1
    assert "every 8 steps" in found.title


def test_steps_that_are_long_on_all_ranks_are_nobody_s() -> None:
    assert by_kind(paced(8, odd=9), "metrics.rank_pauses") == []
    assert by_kind(paced(50), "metrics.rank_pauses") == []


def starved(data: float, others: float, ranks: int = 3) -> str:
    return "\n".join(
        f"[rank{r}] iteration {s:5d}/ 100 | elapsed time per iteration (ms): {915 if s > 8 else 14} | data "
        f"time (ms): {(data if r == 1 else others) if s > 8 else 0.1} | lm loss: 2.5{r}"
        for s in range(1, 27)
        for r in range(ranks)
    )


def test_one_rank_alone_waits_for_its_data() -> None:
    (found,) = by_kind(starved(900.5, 0.1), "metrics.rank_waits")
    assert (found.rank, found.level) == (1, Level.CAUSE)
    assert "since iteration 9" in found.title


@each_row(("data", "others"), [(900.5, 880.0), (40.0, 0.1), (120.0, 0.1)])
def test_data_that_all_wait_for_or_that_costs_little(data: float, others: float) -> None:
    assert by_kind(starved(data, others), "metrics.rank_waits") == []


def verl(high: float, time: float, balanced: str = "") -> str:
    return "\n".join(
        f"(TaskRunner pid=4410) step:{s} - global_seqlen/min:200000 - global_seqlen/max:{334000 + high * s:.0f} - "
        f"{balanced}global_seqlen/mean:330000.0 - response_length/max:9000 - response_length/mean:600.0 - "
        f"timing_s/step:{280 + time * s:.1f}"
        for s in range(6)
    )


def test_work_that_drifts_apart_while_steps_take_longer() -> None:
    (found,) = load_balance.find_in_lines(number(verl(140_000, 80)), "t.log")
    assert found.rank is None
    assert "unevenly" in found.title


@each_row(
    "text",
    [
        verl(0, 0),
        verl(0, 80),
        verl(140_000, 0),
        verl(
            140_000, 80, "global_seqlen/balanced_min:329000 - global_seqlen/balanced_max:331000 - "
        ),
    ],
)
def test_work_that_is_even_or_costs_nothing(text: str) -> None:
    assert load_balance.find_in_lines(number(text), "t.log") == ()


def megatron(low: float, high: float) -> str:
    return "\n".join(
        f" iteration {s:8d}/ 1000 | consumed samples: {s * 256} | elapsed time per iteration (ms): 2900.{s % 10} | "
        f"learning rate: 1.0E-04 | global batch size: 256 | lm loss: {4 - s / 100:.4f}E+00 | grad norm: 0.5 |\n"
        "(min, max) time across ranks (ms):\n"
        "    forward-compute ................................: (200.10, 2212.30)\n"
        f"    batch-generator ................................: ({low:.2f}, {high:.2f})"
        for s in range(1, 12)
    )


def test_a_data_timer_that_is_long_on_the_slowest_rank() -> None:
    (found,) = by_kind(megatron(2.1, 2008.3), "metrics.rank_data_spread")
    assert "batch-generator" in found.title
    assert by_kind(megatron(2.1, 2.3), "metrics.rank_data_spread") == []
    assert by_kind(megatron(1990.0, 2008.3), "metrics.rank_data_spread") == []
