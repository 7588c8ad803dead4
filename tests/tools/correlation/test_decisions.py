"""The trail: what a pass changed is recorded, whether it says so or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.rows import each_row

from firstfault_tools.correlation.decisions import Decision, Relation, Rule, Trail, pair_changes
from firstfault_tools.findings import Category, Evidence, Finding, Level

RULE = Rule("some-rule", Relation.REFINES, "because")
OWN = Rule("own-rule", Relation.EXPLAINS, "the other explains it")


def made(kind: str, line: int) -> Finding:
    return Finding(kind, kind, Level.CAUSE, evidence=(Evidence("log", line, kind),))


A, B, C = made("a", 1), made("b", 2), made("b", 3)


def test_changes_are_found_whatever_the_order() -> None:
    lower = replace(C, level=Level.SYMPTOM)
    assert pair_changes([A, B, C], [lower, A]) == [(B, None), (C, lower)]
    assert pair_changes([A, B], [B, A]) == []


def test_a_silent_pass_is_recorded_under_its_rule() -> None:
    def work(findings: Sequence[Finding]) -> Iterable[Finding]:
        return [replace(findings[0], rank=3), *findings[1:]]

    trail = Trail()
    after = trail.run(RULE, work, [A, B])
    assert [(d.rule, d.of, d.became, d.change) for d in trail.decisions] == [
        (RULE, A, after[0], "rank 3")
    ]


def test_a_pass_with_rules_of_its_own_is_not_recorded_twice() -> None:
    trail = Trail()

    def work(findings: Sequence[Finding]) -> Iterable[Finding]:
        low = replace(findings[0], level=Level.SYMPTOM)
        trail.note(OWN, findings[0], low, findings[1])
        return [low, findings[1]]

    trail.run(RULE, work, [A, B])
    assert [(d.rule, d.by) for d in trail.decisions] == [(OWN, B)]
    assert trail.decisions[0].lines == (("log", 1), ("log", 2))


def test_what_changes_nothing_for_a_reader_is_no_decision() -> None:
    trail = Trail()
    trail.note(OWN, A, A)
    trail.run(RULE, lambda findings: [replace(f, facts={"count": 1}) for f in findings], [A])
    assert trail.decisions == []


@each_row(
    ("now", "words"),
    [
        (None, "dropped"),
        (replace(A, level=Level.CONTEXT), "cause -> context"),
        (replace(A, category=Category.DATA, host="n1"), "category data, host n1"),
        (replace(A, title="x"), "wording"),
        (replace(A, facts={"survived": True}), "survived"),
    ],
)
def test_a_change_in_words(now: Finding | None, words: str) -> None:
    assert Decision(RULE, A, now).change == words
