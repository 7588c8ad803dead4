"""May this node be measured where no model is set? A person asks, the command is shown, and the same exact words approve it.

The same store and the same once-only call as with a model: a process that dies measures nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from firstfault.agent.approval import HOW, read_decision
from firstfault.agent.probe import NAME, OnceOnly, ProbeRunner, describe_request
from firstfault.agent.reply import ProbeComponent
from firstfault.agent.store import AgentStore, Decision, PendingProbe
from firstfault.conversation.answerer import Question
from firstfault.conversation.probe_request import EXAMPLE, read_probe_request
from firstfault.conversation.rules import RuleAnswerer
from firstfault.errors import FirstfaultError
from firstfault.incidents.events import AnswerPart, Progress, VerdictReached
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError
from firstfault_tools.findings import Category, Verdict

MOST_LINES = 40
OF_THE_NODE = frozenset({Category.HARDWARE, Category.COMMUNICATION, Category.PERFORMANCE})
"""Kinds of faults of which a measurement of the node can tell something."""


@dataclass
class ProbingRules:
    """The answers by rule, and a probe of the machine this runs on behind an approval."""

    store: AgentStore
    run_probe: ProbeRunner
    rules: RuleAnswerer = field(default_factory=RuleAnswerer)
    repeatable: bool = True
    explains: bool = False

    def explain(self, question: Question) -> Iterator[AnswerPart]:
        """As the rules do."""
        return self.rules.explain(question)

    def answer(self, question: Question) -> Iterator[AnswerPart | Progress | VerdictReached]:
        """A decision, a request, else the rules."""
        decided = read_decision(self.store, question)
        if decided is not None:
            yield from self._carry_out(*decided)
            return
        request = read_probe_request(question.text)
        if request is None:
            for part in self.rules.answer(question):
                yield _offer(part, question)
            return
        arguments: dict[str, Any] = {"component": request.component, "light": request.light}
        asked = {"name": NAME, "args": arguments}
        thread = f"{question.incident}:{question.turn}"
        self.store.ask_approval(question.incident, thread, asked)
        yield Progress("approval", json.dumps(asked))
        yield AnswerPart(f"I can measure this node: {describe_request(arguments)}. {HOW}", kind="probe.offer", suggestions=("/approve", "/reject"))  # fmt: skip

    def _carry_out(
        self, probe: PendingProbe, decision: Decision, reason: str
    ) -> Iterator[AnswerPart | Progress]:
        arguments = probe.request["args"]
        if decision is Decision.REJECT:
            yield AnswerPart("Nothing was run" + (f": {reason.strip()}." if reason.strip() else "."), kind="probe.rejected")  # fmt: skip
            return
        yield Progress("probe", f"{decision.value}: {describe_request(arguments)}")
        call = OnceOnly(self.store, self.run_probe)
        component, light = ProbeComponent(arguments["component"]), bool(arguments["light"])
        try:
            lines = call.call(f"{probe.thread}/0", component, light)
        except (FirstfaultError, ToolError, OSError) as error:
            yield AnswerPart(f"The probe could not run here: {error}", kind="probe.failed")
            return
        rows = "\n".join(f"- {line}" for line in lines[:MOST_LINES])
        flag = " --light" if light else ""
        yield AnswerPart(
            f"Measured on the machine Firstfault runs on, {component.value} alone:\n\n{rows}\n\nAs evidence of this incident: "
            f"`firstfault probe --only {component.value}{flag} --out probe.jsonl` on the node in question, and add the file.",
            kind="probe.result",
        )  # fmt: skip


def _offer(part: AnswerPart, question: Question) -> AnswerPart:
    """The answer with the probe among what can be asked next, where the fault may lie in a node."""
    found = question.diagnosis
    if found is None or found.category not in OF_THE_NODE or found.verdict is Verdict.HEALTHY:
        return part
    return replace(part, suggestions=(*part.suggestions, EXAMPLE))
