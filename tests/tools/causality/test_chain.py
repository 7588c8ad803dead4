"""The order of explanations: which criterion puts one before another, and what it is called."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from tests.rows import each_row

from firstfault_tools.causality.chain import CRITERIA, Standing, order_findings, rank_explanations
from firstfault_tools.findings import Category, Evidence, Finding, Level, Strength, Together


def made(kind: str, level: Level = Level.CAUSE, line: int = 5, file: str = "a", **more: Any) -> Finding:  # fmt: skip
    return Finding(kind, kind, level, evidence=(Evidence(file, line, kind),), **more)


CAUSE = made("x.one", category=Category.DATA)


@each_row(
    ("first", "second", "rule"),
    [
        (made("x.two", Level.SYMPTOM), made("run.ended", Level.CAUSE, 1), "unexplained-end-last"),
        (made("x.two", Level.FAILURE), replace(CAUSE, category=Category.PERFORMANCE), "slowness-after-faults"),
        (replace(CAUSE, evidence=(Evidence("a", 9, "x"),)), made("x.two", Level.FAILURE, 1), "deeper-level-first"),
        (replace(CAUSE, category=Category.HARDWARE), made("x.two", line=1, category=Category.COMMUNICATION), "consequence-of-a-category"),
        (made("peers.lost", Level.SYMPTOM), made("x.two", Level.SYMPTOM, 1), "summary-of-ranks-first"),
        (made("x.two", file="b", time=1.0), made("x.three", time=2.0), "earliest-first"),
        (made("x.two", line=9, time=1.0), made("x.three", line=1, file="b"), "first-file-first"),
        (made("x.two", line=1), made("x.three", line=2), "earliest-first"),
        (made("x.two", line=9, facts={"starts_at": 1}), made("x.three", line=2), "earliest-first"),
        (replace(CAUSE, strength=Strength(Together.RANKS)), replace(CAUSE, kind="x.two", strength=Strength(1, 900)), "stronger-evidence-first"),
        (replace(CAUSE, strength=Strength(1, 40)), replace(CAUSE, kind="x.two", strength=Strength(1, 20)), "stronger-evidence-first"),
    ],
)  # fmt: skip
def test_what_stands_first_and_why(first: Finding, second: Finding, rule: str) -> None:
    both = [first, second] if rule == "first-file-first" else [second, first]
    ranked = rank_explanations(both)
    assert [e.finding for e in ranked] == [first, second]
    assert ranked[0].standing.reason_before(ranked[1].standing)[0] == rule


def test_every_field_has_a_reason() -> None:
    assert list(CRITERIA) == [part.name for part in fields(Standing)]


def test_what_training_survived_is_set_aside() -> None:
    over = replace(CAUSE, facts={"survived": True})
    chain = order_findings([over, made("x.two", Level.SYMPTOM)])
    assert chain.survived == (over,)
    assert chain.first is not None
    assert chain.first.kind == "x.two"
    slow = replace(over, category=Category.PERFORMANCE)
    assert order_findings([slow]).first == slow
