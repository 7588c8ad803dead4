"""A process that works on one incident with a scripted model that wants a probe; run by the kill test.

python -m tests.app.agent.probe_process DATA LOG TURN TEXT
"""

from __future__ import annotations

import os
import sys
import time
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


def main() -> None:
    """One turn; the probe writes a line into a file, so that runs can be counted."""
    data, log, turn, text = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

    def probe(component: ProbeComponent, light: bool) -> list[str]:
        with (data / "probe_runs").open("a") as stream:
            stream.write(f"{component.value} {light}\n")
        if (data / "slow_probe").exists():
            print("PROBING", flush=True)
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
        print(shown.replace("\n", " "), flush=True)
        if isinstance(part, AnswerPart) and "/approve" in shown and (data / "die").exists():
            print("WAITING", flush=True)
            time.sleep(60)
    print(f"CALLS {len(model.seen)} PID {os.getpid()}", flush=True)


if __name__ == "__main__":
    main()
