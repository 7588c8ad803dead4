"""Has this model been asked exactly this before? Then its answer is taken from the record, not asked again.

Exactly this: the same first message over the same files and earlier incidents, the same prompt version,
model, endpoint and way to answer. Kept with the incident and deleted with it; the checks and the judge
run anew, for what a model may do can change.
"""

from __future__ import annotations

import hashlib
import json

from firstfault.agent.context import TurnContext
from firstfault.agent.evidence import to_rows
from firstfault.agent.exam.standing import prompt_version
from firstfault.agent.graph import Outcome
from firstfault.agent.probe import NAME as PROBE
from firstfault.agent.reply import Reply
from firstfault.agent.store import AgentStore


def digest_of(context: TurnContext, message: str) -> str:
    """SHA-256 of everything that the answer depends on."""
    endpoint = context.endpoint
    files = []
    for name, path in context.question.artefacts.items():
        seen = path.stat()
        files.append((name, str(path), seen.st_size, seen.st_mtime_ns))
    limits = endpoint.limits
    row = [
        prompt_version(), endpoint.url, endpoint.name, endpoint.structure.value, endpoint.reasoning,
        sorted(h.value for h in endpoint.hidden), limits.context_tokens, limits.answer_tokens, limits.steps,
        message, files, repr(context.related), context.probe is not None,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(row).encode()).hexdigest()


def recall(store: AgentStore, incident: str, digest: str, context: TurnContext) -> Outcome | None:
    """The answer given before, what its tools had shown back in the book; None where there is none."""
    body = store.find_reply(digest, incident)
    if body is None:
        return None
    kept = json.loads(body)
    context.book.adopt(kept["items"])
    context.veil.adopt(kept["names"])
    return Outcome(reply=Reply.model_validate(kept["reply"]), tools=kept["tools"])


def remember(
    store: AgentStore, incident: str, digest: str, context: TurnContext, outcome: Outcome
) -> None:
    """Keep an answer. One that measured something or waits for a person is of its moment only."""
    if outcome.reply is None or outcome.waiting is not None or PROBE in outcome.tools:
        return
    shown = [context.book.items[i] for i in sorted(context.book.shown) if i in context.book.items]
    row = {
        "reply": outcome.reply.model_dump(mode="json"),
        "items": to_rows(shown),
        "names": dict(context.veil.names),
        "tools": outcome.tools,
    }
    store.save_reply(digest, incident, json.dumps(row))
