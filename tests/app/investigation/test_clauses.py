"""What each clause of a message asks of the log."""

from __future__ import annotations

from tests.rows import each_row

from firstfault.investigation.clauses import ClauseKind, is_against_another, read_clauses
from firstfault.investigation.vetoes import read_statement

C, Q, F, O = ClauseKind.CONTEXT, ClauseKind.QUESTION, ClauseKind.FIGURE, ClauseKind.OPAQUE  # fmt: skip  # noqa: E741


@each_row(
    ("text", "kinds"),
    [
        ("Mixtral on 4 nodes of 8 H200.", [C]), ("Our intern changed the warm-up.", [C]), ("The image was rebuilt last night.", [C]),
        ("Just handing this over to the next shift.", [C]), ("How long does it take until the end?", [Q]), ("was everything saved?", []),
        ("The loss is 2.3 now.", [F]), ("last week it had 480 TFLOPs", [F]), ("it limps", [O]), ("We upgraded the driver and it limps.", [C, O]),
        ("We added a node that limps.", [O]), ("We never changed the throttle.", [O]), ("Warum wackelt es?", [O]),
        ("The weights in memory wobble.", [O]),
    ],
)  # fmt: skip
def test_kinds(text: str, kinds: list[ClauseKind]) -> None:
    assert [c.kind for c in read_clauses(read_statement(text))] == kinds


def test_what_a_clause_holds() -> None:
    (clause,) = read_clauses(read_statement("Throughput is 410k tok/s and evaluation loss 1.2"))
    assert clause.quantities == {"", "validation loss"}
    assert [(f.value, f.rate) for f in clause.figures] == [(410_000.0, True), (1.2, False)]


@each_row(
    ("text", "other"),
    [
        ("4x slower than before", True), ("half of what my colleague has", True), ("since the maintenance", True),
        ("grad_norm jumped 50x", False), ("slower than the one before", False), ("the loss falls", False),
    ],
)  # fmt: skip
def test_against_another_run(text: str, other: bool) -> None:
    assert is_against_another(text) is other
