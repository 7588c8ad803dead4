"""A turn on one incident with a scripted model that wants a probe; a process of its own where it is to be killed.

python -m tests.app.agent.probe_process DATA LOG TURN TEXT
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from evals.fakes.scripted_model import ScriptedModel, call, in_order, reply

from firstfault.agent.answerer import AgentAnswerer
from firstfault.agent.enrich import make_question
from firstfault.agent.reply import ProbeComponent
from firstfault.agent.store import open_store
from firstfault.incidents.events import AnswerPart
from firstfault.settings import Settings
from firstfault.workspace import Workspace

SCRIPT = in_order(
    call("grep", 0, pattern="OutOfMemory"),
    call("run_probe", 1, component="memory", light=True),
    reply(answer=[{"text": "Rank 1 ran out of memory.", "lines": ["F1:8"]}]),
)


def take_turn(data: Path, log: Path, turn: int, text: str, show: Callable[[str], None]) -> None:
    """One turn; the probe writes a line into a file, so that runs can be counted."""

    def probe(component: ProbeComponent, light: bool) -> list[str]:
        with (data / "probe_runs").open("a") as stream:
            stream.write(f"{component.value} {light}\n")
        if (data / "slow_probe").exists():
            show("PROBING")
            time.sleep(30)
        return ["memory of GPU 0 is fine"]

    settings = Settings(data=data)  # type: ignore[call-arg]
    model = ScriptedModel(SCRIPT)
    answerer = AgentAnswerer(settings, open_store(settings), model, run_probe=probe)
    workspace = Workspace(spool=data / "spool")
    question = make_question(
        workspace.diagnose_paths([log]), {log.name: log}, workspace.knowledge, text
    )
    question = type(question)(**(vars(question) | {"incident": "inc", "turn": turn}))
    parts = answerer.explain(question) if text == "-" else answerer.answer(question)
    for part in parts:
        shown = part.text if isinstance(part, AnswerPart) else f"{part.step}: {part.detail}"
        show(shown.replace("\n", " "))
        if isinstance(part, AnswerPart) and "/approve" in shown and (data / "die").exists():
            show("WAITING")
            time.sleep(60)
    show(f"CALLS {len(model.seen)}")


if __name__ == "__main__":
    take_turn(
        Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4],
        lambda text: print(text, flush=True),
    )  # fmt: skip
