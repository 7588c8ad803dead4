"""An answer begins as the question is put, and a message that changes one thing of the one before is read in full."""

from __future__ import annotations

from tests.rows import each_row

from firstfault.conversation.follow_up import put_in_full
from firstfault.conversation.forms import Form, asks_yes_or_no, read_form
from firstfault.conversation.rulings import say_in_form
from firstfault.knowledge_base.rulings import Ruling

FORMS = (("should", "No, leave it."), ("how", "Set it to 1."))
RULING = Ruling("x/1", ("a", "b"), "page", "", "It is a buffer.", "", "", forms=FORMS)


@each_row(
    ("text", "form"),
    [
        ("should I set it", Form.SHOULD),
        ("how do I set it", Form.HOW),
        ("what does it do", Form.WHAT),
        ("why is it slow", Form.WHY),
        ("xid 79. what now", Form.DO),
        ("how many are ok", Form.MUCH),
        ("xid 79", None),
    ],
)
def test_the_form_of_a_question(text: str, form: Form | None) -> None:
    assert read_form(text) is form


def test_a_last_clause_asks_for_yes_or_no() -> None:
    assert asks_yes_or_no("machine check events logged. drain?")
    assert not asks_yes_or_no("IBV_WC_RETRY_EXC_ERR. cable or switch?")


@each_row(
    ("text", "begins"),
    [
        ("should I set NCCL_BUFFSIZE", "No"),
        ("how do I set NCCL_BUFFSIZE", "Set"),
        ("what is NCCL_BUFFSIZE", "It is"),
        ("what is NCCL_BUFFSIZE and do I want it", "No"),
        ("NCCL_BUFFSIZE", "No"),
    ],
)
def test_an_answer_begins_as_it_is_asked(text: str, begins: str) -> None:
    said = say_in_form(RULING, text)
    assert said.startswith(begins)
    assert said.endswith("It is a buffer.")


@each_row(
    ("text", "before", "meant"),
    [
        ("and if it is 79 instead", "xid 94 on one h100. do i drain?", "xid 79 on one h100. do i drain?"),
        ("and on kubernetes?", "how do I drain a node?", "how do I drain a node on kubernetes?"),
        ("and how do I reset it?", "xid 94. drain?", "and how do I reset it?"),
        ("what is Xid 63", "xid 94. drain?", "what is Xid 63"),
    ],
)  # fmt: skip
def test_a_changed_question_is_put_in_full(text: str, before: str, meant: str) -> None:
    assert put_in_full(text, [before]) == meant
