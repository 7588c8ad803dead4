"""Is an answer taken whose only flaw is a null where a text or list may be left out?"""

import pytest
from pydantic import ValidationError
from tests.rows import each_row

from firstfault.agent.reply import MOST_IDS, Account, Paragraph, Reply


def test_null_is_a_field_left_out() -> None:
    account = {"verdict": "healthy", "category": None, "rank": None, "host": None, "gpu": None, "cause": "Nothing is wrong.", "against_lines": None}  # fmt: skip
    reply = Reply.model_validate(
        {"answer": [], "explanations": [account], "doubts": None, "not_applying": None}
    )
    assert reply.explanations == [Account(verdict="healthy", cause="Nothing is wrong.")]  # type: ignore[arg-type]
    assert reply.doubts == []


@each_row("field", ["answer", "explanations"])
def test_what_must_be_there_may_not_be_null(field: str) -> None:
    given = {"answer": [], "explanations": [], field: None}
    with pytest.raises(ValidationError, match=field):
        Reply.model_validate(given)


def test_the_first_of_too_many_ids_are_kept() -> None:
    ids = [f"F1:{n}" for n in range(40)]
    assert Paragraph.model_validate({"text": "x", "lines": ids}).lines == ids[:MOST_IDS]
