"""Is an answer that is meant for a case kept from a question that is not of it?"""

from __future__ import annotations

from tests.rows import each_row

from firstfault.conversation.asked import read_asked
from firstfault.conversation.conditions import conditions_of
from firstfault.conversation.rulings import find_ruling, rulings


@each_row(
    ("answer", "question", "holds"),
    [
        ("why does my loss plateau in pure bf16", "the loss has plateaued, why", False),
        ("why does my loss plateau in pure bf16", "loss plateau, all in bfloat16", True),
        ("is token dropping in moe bad", "is it bad when the dataloader drops tokens", False),
        ("clip_grad_norm with fsdp", "does FSDP2 clip the gradient norm", True),
        ("two runs differ in the 4th decimal", "two runs in bf16 differ", True),
    ],
)
def test_every_case_of_the_answer_is_named_by_the_question(
    answer: str, question: str, holds: bool
) -> None:
    assert (conditions_of(answer) <= conditions_of(question)) is holds


def test_the_nearest_answer_loses_to_the_condition_that_the_question_lacks() -> None:
    ruling = next(r for r in rulings() if "why does my loss plateau in pure bf16" in r.ask)
    near = {next(i for i in ruling.phrases if ruling.phrases[i].endswith("pure bf16")): 0.95}
    assert find_ruling(read_asked("why does my loss plateau in pure bf16", False), near) == ruling
    assert find_ruling(read_asked("why does my loss plateau", False), near) is None
