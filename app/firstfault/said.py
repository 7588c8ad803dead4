"""What did people say and do in an incident? Lines of the post-mortem's timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firstfault.conversation.branches import read_refuted
from firstfault.conversation.walk import Said, follow
from firstfault.incidents.records import Turn, TurnKind
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.postmortem.draft import SaidLine
from firstfault_tools.knowledge.page import Page

DEEDS = {
    TurnKind.EVIDENCE: "added evidence",
    TurnKind.AGAIN: "asked for the diagnosis again",
    TurnKind.GO_ON: "had the reading go on",
    TurnKind.READ: "asked for a verdict on what was read so far",
}


def say_turns(
    turns: Sequence[Turn], diagnosis: Diagnosis, pages: Mapping[str, Page]
) -> tuple[SaidLine, ...]:
    """What people said as evidence and did, in order."""
    said_by = [Said(t.text, t.created) for t in turns if t.text]
    walk = follow(diagnosis, said_by, read_refuted(diagnosis, pages))
    said = [SaidLine(s.time, s.who, s.text) for s in walk.statements]
    did = [
        SaidLine(t.created, "Somebody", DEEDS[t.kind], did=True) for t in turns if t.kind in DEEDS
    ]
    return tuple(sorted((*said, *did), key=lambda s: s.time))
