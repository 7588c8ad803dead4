"""Did a person decide about a probe that waits? By exact words alone, and each decision once."""

from __future__ import annotations

from firstfault.agent.store import AgentStore, Decision, PendingProbe
from firstfault.conversation.answerer import Question
from firstfault_tools.expressions import expression

_REJECT = expression(r"(?is)^/?reject(?:\s*[:,]\s*(?P<reason>.{0,400}))?$")
HOW = "Nothing runs before you reply `/approve`; `/reject: reason` goes on without it."


def read_decision(
    store: AgentStore, question: Question
) -> tuple[PendingProbe, Decision, str] | None:
    """The probe, what was decided and why; the same again for a turn that is taken over."""
    rejected = _REJECT.match(question.text.strip())
    reason = (rejected["reason"] or "") if rejected is not None else ""
    earlier = store.decided_in(question.incident, question.turn)
    if earlier is not None:
        return (*earlier, reason)
    approved = question.text.strip().lower() in ("/approve", "approve")
    if not approved and rejected is None:
        return None
    probe = store.pending(question.incident)
    decision = Decision.APPROVE if approved else Decision.REJECT
    if probe is None or not store.decide(probe.thread, decision, question.turn):
        return None
    return probe, decision, reason
