"""What is said where nothing answers: what is lacking, that it is of another field, and what can be asked instead?"""

from __future__ import annotations

from firstfault.conversation.answerer import Question
from firstfault.conversation.asked import Asked, read_asked
from firstfault.conversation.glossary import define_asked, explain_terms
from firstfault.conversation.incident import suggest
from firstfault.conversation.missing import say_evidence, say_missing
from firstfault.conversation.page_search import is_of_another_field, unknown_share
from firstfault.conversation.reply import Reply
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.knowledge_base.tokens import tokenize

SUGGESTED = (
    "What does Xid 79 mean and what do I do?",
    "16 stages, 32 micro-batches: how large is the bubble?",
    "Does a 13B model fit on 8 A100-80GB with ZeRO-3?",
    "It is still running and hangs: what do I collect?",
)
CAN = (
    "Paste a log or a stack trace, ask about a message, a setting or a method of distributed training, or give "
    "numbers for memory, pipeline bubble or checkpoint interval."
)


OTHER_JOB = (
    "Nothing of that other job is here, so it cannot be compared: add its log. Two logs are held against each other by "
    "`firstfault compare GOOD BAD`."
)


def say_lacking(question: Question, asked: Asked) -> Reply | None:
    """What is not here, or not of this field; None where the pages can be asked."""
    if asked.intent == "other_job":
        return Reply(OTHER_JOB, "none.evidence", chips_for(question.diagnosis))
    if question.diagnosis is not None:
        return None
    if asked.intent == "complaint":
        return Reply(say_evidence(asked.text), "none.evidence", SUGGESTED)
    if lacks := say_missing(asked.text):
        return Reply(lacks, "none.missing", SUGGESTED)
    if _about_an_incident(asked):
        return decline(asked, None)
    if is_of_another_field(question.text):
        return define_or_none(asked) or decline(asked, None)
    return None


def define_or_none(asked: Asked) -> Reply | None:
    """One sentence of the glossary to a term that no page explains; None where it has none."""
    said = define_asked(asked.text)
    return Reply(said, "knowledge.what_is", SUGGESTED) if said else None


def decline(asked: Asked, diagnosis: Diagnosis | None) -> Reply:
    """Nothing covers it: one line that says what can be asked."""
    if diagnosis is not None:
        return Reply("Neither this incident nor the pages answer that. Ask for its rank, cause, order of events, cost or next step.", "none", suggest(diagnosis, ""))  # fmt: skip
    if _about_an_incident(asked):
        return Reply("There is no incident here yet: paste the log or drop its files, and ask again.", "none", SUGGESTED)  # fmt: skip
    strange = unknown_share(asked.text) > ALL_STRANGE and not is_of_another_field(asked.text)
    if strange or not tokenize(asked.text):
        return Reply(f"I do not understand that, or it is outside what I can answer: failures of distributed training runs. {CAN}", "none", SUGGESTED)  # fmt: skip
    return Reply(f"That is outside what I can answer: failures of distributed training runs. {CAN}", "none", SUGGESTED)  # fmt: skip


ALL_STRANGE = 0.7
"""Share of unknown words from which on a message is not understood."""


_OF_A_RUN = frozenset(
    [
        "host",
        "rank",
        "line",
        "first_line",
        "timeline",
        "cost",
        "page_whom",
        "affected",
        "certainty",
        "other_causes",
        "manager",
        "newcomer",
        "ticket",
        "health",
        "next",
        "collect",
        "why",
        "suspect",
    ]
)
_OF_A_SUBJECT = frozenset(["what_do", "how_to", "why_general", "what_is", "should", "normal"])
FEW_WORDS = 2


def _about_an_incident(asked: Asked) -> bool:
    """It means one run ("which rank failed?") and names nothing that a page could be about."""
    few = len(set(tokenize(asked.text))) <= FEW_WORDS
    if asked.intent in _OF_A_SUBJECT and explain_terms(asked.text):
        return False
    return few and read_asked(asked.text, True).intent in _OF_A_RUN


def chips_for(diagnosis: Diagnosis | None) -> tuple[str, ...]:
    return suggest(diagnosis, "") if diagnosis is not None else SUGGESTED
