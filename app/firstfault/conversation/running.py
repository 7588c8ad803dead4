"""The job still runs: what is collected in the next five minutes, in which order, with which commands?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.conversation.blocks import write_block
from firstfault.conversation.reply import Reply
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("running.yaml")
DEFAULT = "slurm"


@cache
def _table() -> Mapping[str, Any]:
    data: Mapping[str, Any] = read_yaml(TABLE.read_text(encoding="utf-8"))
    return data


def find_launcher(text: str) -> str | None:
    """slurm, kubernetes or torchrun, as `text` tells; None where it does not."""
    for name, row in _table()["launchers"].items():
        if re.search(row["word"], text, re.IGNORECASE):
            return str(name)
    return None


def answer_running(text: str, context: str = "") -> Reply:
    """The capture as copyable commands. context: what else tells what the job runs on."""
    chosen = find_launcher(text) or find_launcher(context)
    launcher = _table()["launchers"][chosen or DEFAULT]
    rows = []
    for number, step in enumerate(_table()["steps"], 1):
        command = step["command"].replace("{state}", launcher["state"])
        if step["each"]:
            quoted = command.replace("'", "'\\''")
            command = launcher["each"].replace("{command}", quoted)
        if "file" in step:
            command = f"{{ {command}; }} > capture/{step['file']}.txt 2>&1"
        rows.append(f"{number}. {step['what']}: {step['why']}.\n{write_block(command, 3)}")
    others = [r["name"] for n, r in _table()["launchers"].items() if n != (chosen or DEFAULT)]
    assumed = (
        ""
        if chosen
        else f" Written for {launcher['name']}; say so if it runs on {' or '.join(others)}."
    )
    head = f"Leave it running and collect this first, in this order; a kill destroys most of it.{assumed}"
    foot = "Then drop the folder `capture` here. Start with `mkdir -p capture`; JOBID, JOB_LABEL, HOSTS and CHECKPOINTS are yours to fill in."
    suggestions = (
        *(f"It still runs, on {name}" for name in others[:2]),
        "Should I restart it now?",
    )
    return Reply("\n\n".join([head, "\n".join(rows), foot]), "running", suggestions)
