"""What does each arm say to a numbered case? Rules; the reader alone; the product with the reader."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from evals.relay.blind import Blind, load_blind
from evals.relay.desk import ALONE_PROMPT, Desk, open_desk, serve

from firstfault.agent.endpoint import Endpoint, Limits
from firstfault.agent.enrich import enrich, make_question
from firstfault.agent.model import EndpointModel
from firstfault.agent.pseudonymise import Veil
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.workspace import Workspace

ALONE_CHARS = 40_000
LIMITS = Limits(silence_s=30, turn_s=120, attempts=1, steps=4)


def run_arms(
    folder: Path,
    reader: str,
    arms: Sequence[str],
    *,
    passed: bool,
    again: bool,
    only: Collection[str] = (),
) -> None:
    """Do what the replies allow; write the requests that are open."""
    desk = open_desk(folder, reader)
    results = folder / "results" / reader
    results.mkdir(parents=True, exist_ok=True)
    workspace = Workspace(spool=folder / "spool")
    finished = 0
    cases = load_blind(folder, frozenset(only))
    with serve(desk) as address:
        for case in cases:
            for arm in arms:
                target = results / f"{case.number}.{arm}.json"
                if target.exists() and not again:
                    finished += 1
                    continue
                if arm == "alone":
                    row = _ask_alone(desk, case)
                else:
                    row = _ask_product(desk, case, workspace, address, passed)
                if row is not None:
                    target.write_text(json.dumps(row, ensure_ascii=False, indent=1), "utf-8")
                    finished += 1
    print(f"{finished} of {len(cases) * len(arms)} finished, {len(desk.open)} request(s) wait for a reply in {folder / 'replies' / reader}")  # fmt: skip
    for name in desk.open:
        print(f"  {desk.requests / name}.md")


def _ask_alone(desk: Desk, case: Blind) -> dict[str, Any] | None:
    name = f"{case.number}.alone.1"
    text = _write_alone(case)
    reply = desk.ask(name, f"# {name}\n\n{text}", text.encode())
    return (
        None if reply is None else {"answer": reply.get("reply", {}), "bytes": len(text.encode())}
    )


def _write_alone(case: Blind) -> str:
    room = ALONE_CHARS // max(1, len(case.files))
    parts = [ALONE_PROMPT, f"The engineer asks:\n{case.question}"]
    for file in case.files:
        data = file.read_bytes()
        if b"\0" in data[:4096]:
            continue
        text = data.decode("utf-8", "replace")
        if len(text) > room:
            text = f"{text[: room // 3]}\n...\n{text[-2 * room // 3 :]}"
        parts.append(f"<log name={file.name!r}>\n{text}\n</log>")
    return Veil(frozenset()).hide("\n\n".join(parts))


def diagnose_blind(workspace: Workspace, case: Blind, folder: Path) -> Diagnosis:
    """The tools' reading."""
    return workspace.diagnose_paths(case.files, case.question)


def _ask_product(
    desk: Desk, case: Blind, workspace: Workspace, address: str, passed: bool
) -> dict[str, Any] | None:
    begin = time.perf_counter()
    diagnosis = diagnose_blind(workspace, case, desk.folder)
    rules_seconds = time.perf_counter() - begin
    endpoint = Endpoint("reader", f"{address}/{case.number}/v1", limits=LIMITS, ask_first=False)
    files = _name_files(case)
    question = make_question(diagnosis, files, workspace.knowledge, case.question)
    waiting = len(desk.open)
    enriched = enrich(question, EndpointModel(endpoint), earned=passed)
    if len(desk.open) > waiting:
        return None
    shown, ruling = enriched.assessment, enriched.ruling
    names = [n for n in desk.sent if n.startswith(f"{case.number}.product.")]
    replied = [desk.replies[n] for n in names if n in desk.replies]
    return {
        "rules": diagnosis.to_json(),
        "product": enriched.diagnosis.to_json(),
        "text": enriched.text,
        "problem": enriched.problem,
        "said": replied[-1].get("reply") if replied else None,
        "led_by": enriched.diagnosis.led_by.value,
        "disputed": enriched.diagnosis.disputed,
        "why": list(ruling.why) if ruling is not None else [],
        "proposed": shown.proposed if shown is not None else 0,
        "kept": shown.kept if shown is not None else 0,
        "explanations_kept": len(shown.explanations) if shown is not None else 0,
        "removed": dict(shown.removed) if shown is not None else {},
        "requests": len(names),
        "bytes": sum(desk.sent[n] for n in names),
        "reply_bytes": sum(len(json.dumps(r)) for r in replied),
        "rules_seconds": rules_seconds,
    }


def _name_files(case: Blind) -> dict[str, Path]:
    return {p.name: p for p in case.files}
