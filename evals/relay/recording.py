"""What was said by a reader, with all that it was said about: to see what a change does to the same replies."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from evals.fakes.scripted_model import ScriptedModel, turns_of
from evals.relay.blind import load_blind
from evals.relay.desk import calls_of, open_desk
from langchain_core.messages import AIMessage

from firstfault.agent.enrich import Enriched, enrich, make_question
from firstfault.incidents.plain import read_diagnosis
from firstfault.investigation.knowledge import Knowledge


def record(folder: Path, reader: str, to: Path, only: Collection[str] = ()) -> None:
    """Write files, question, tools' reading, replies and outcome of every finished case."""
    desk = open_desk(folder, reader)
    rows = []
    for case in load_blind(folder, frozenset(only)):
        result = folder / "results" / reader / f"{case.number}.product.json"
        if not result.exists():
            continue
        row = json.loads(result.read_text("utf-8"))
        names = sorted(n for n in desk.replies if n.startswith(f"{case.number}.product."))
        rows.append(
            {
                "number": case.number,
                "question": case.question,
                "files": {p.name: p.read_text("utf-8", "replace") for p in case.files},
                "reading": row["rules"],
                "replies": [desk.replies[n] for n in names],
                "outcome": {
                    "led_by": row["led_by"], "disputed": row["disputed"], "verdict": row["product"]["verdict"],
                    "category": row["product"]["category"], "rank": row["product"]["first_failing_rank"],
                    "kept": row["kept"], "proposed": row["proposed"],
                },
            }
        )  # fmt: skip
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", "utf-8")
    print(f"{len(rows)} cases in {to}")


def replay(
    row: Mapping[str, Any], folder: Path, knowledge: Knowledge, *, earned: bool = True
) -> Enriched:
    """The product over a recorded case, with the same reading and the same replies."""
    files = {}
    for name, text in row["files"].items():
        files[name] = folder / Path(name).name
        files[name].write_text(text, "utf-8")
    diagnosis = read_diagnosis(row["reading"])

    def script(messages: Any, _tools: Any) -> AIMessage:
        turn = turns_of(messages)
        said = row["replies"][min(turn, len(row["replies"]) - 1)]
        calls = [
            {"name": n, "args": json.loads(a), "id": f"c{turn}-{i}"}
            for i, (n, a) in enumerate(calls_of(said))
        ]
        return AIMessage("", tool_calls=calls)

    question = make_question(diagnosis, files, knowledge, row["question"])
    return enrich(question, ScriptedModel(script), earned=earned)
