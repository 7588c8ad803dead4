"""May a measurement run on this node, and did it already? A probe runs once for one approval.

The call is written down before the probe starts and its result after it ended. Whoever takes over a
turn finds the result, or finds that the probe was begun and must not be begun again.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from firstfault.agent.reply import ProbeComponent
from firstfault.agent.store import AgentStore, ProbeState
from firstfault_tools.dataclass import dataclass

NAME = "run_probe"
LIMIT_S = 150.0


class ProbeRunner(Protocol):
    """Runs the probe kit and returns lines of findings and rates."""

    def __call__(self, component: ProbeComponent, light: bool) -> list[str]: ...


def run_local_probe(component: ProbeComponent, light: bool) -> list[str]:
    """The kit of `firstfault probe`, on the machine this process runs on."""
    from firstfault_tools.probe.local import run_here
    from firstfault_tools.probe.merge import compare_nodes

    arguments = ["--only", component.value, *(["--light"] if light else [])]
    run = run_here(arguments, LIMIT_S)
    comparison = compare_nodes(run.records)
    lines = [f.title for f in comparison.findings]
    for metric, row in comparison.table.items():
        lines += [f"{metric} {place}: {value:g}" for place, value in row.items()]
    return lines or ["the probe measured nothing on this machine"]


@dataclass(frozen=True, slots=True)
class OnceOnly:
    """A probe runner whose calls are written down."""

    store: AgentStore
    run: ProbeRunner

    def call(self, call_id: str, component: ProbeComponent, light: bool) -> list[str]:
        """Result of this call; the probe itself runs at most once for it."""
        state, result = self.store.begin_probe(call_id)
        if state is ProbeState.DONE:
            lines: list[str] = json.loads(result)
            return lines
        if state is ProbeState.BEGUN:
            return [
                "the probe was begun earlier and the process ended before its result was kept; it is "
                "not run again without a new approval"
            ]
        lines = self.run(component, light)
        self.store.end_probe(call_id, json.dumps(lines))
        return lines


def describe_request(arguments: dict[str, Any]) -> str:
    """What a person is asked to approve."""
    component = str(arguments.get("component", "?"))[:20]
    light = bool(arguments.get("light", True))
    load = "reads state only" if light else "puts load on the GPUs for up to 150 s"
    flag = " --light" if light else ""
    return f"`firstfault probe --only {component}{flag}` on the machine Firstfault runs on; it {load} and changes nothing"
