"""Columns of what the loss does not show: one that runs away, updates that change nothing, and columns that stay."""

from __future__ import annotations

from tests.rows import each_row

from firstfault_tools.metrics.learning.growing_columns import judge_table


def table(head: str, rows: list[str]) -> list[tuple[int, str]]:
    return list(enumerate([head, *rows], 1))


def by_layer(name: str, growth: float) -> list[tuple[int, str]]:
    rows = [
        f"{100 * n},{layer},{20 * (growth**n if layer == 7 else 1.01**n):.4g}"
        for n in range(12)
        for layer in (1, 7, 9)
    ]
    return table(f"step,layer,{name}", rows)


@each_row(
    ("name", "growth", "words"),
    [
        ("max_attn_logit", 1.8, "layer 7"),
        ("qk_max", 1.8, "layer 7"),
        ("router_logits_max", 1.9, "runs away"),
        ("act_absmax", 1.8, "runs away"),
        ("max_attn_logit", 1.05, ""),
        ("tokens_seen", 1.8, ""),
    ],
)
def test_quantity_that_runs_away(name: str, growth: float, words: str) -> None:
    found = judge_table(by_layer(name, growth), "a.csv")
    assert bool(found) is bool(words)
    assert not words or words in found[0].title


def test_overflow_of_half_precision_is_named() -> None:
    rows = [f"{n},2.1,{900 * 1.6**n:.0f}" for n in range(10)]
    found = judge_table(table("step,loss,attn_logit_L3", [*rows, "10,nan,inf"]), "a.csv")
    assert "65504" in found[0].title


@each_row(("end", "told"), [(0.001, True), (0.2, False)])
def test_updates_that_change_nothing(end: float, told: bool) -> None:
    rows = [f"{n},1.4,{0.3 if n < 5 else end}" for n in range(12)]
    found = judge_table(table("step,loss,frac_weights_changed", rows), "a.csv")
    assert bool(found) is told
