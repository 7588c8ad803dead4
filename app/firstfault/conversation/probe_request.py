"""Does a person ask to measure this machine, which part of it, and under load? The words alone; nothing runs here."""

from __future__ import annotations

import re

from firstfault.conversation.blocks import write_block
from firstfault.conversation.reply import Reply
from firstfault_tools.dataclass import dataclass

_POLITE = r"^\W*(?:please |(?:can|could|would|will) you |let.?s |now |ok(?:ay)?,? )*"
_ASKS = re.compile(
    rf"(?i){_POLITE}(?:run|start|do|make)\b[^?\n]{{0,24}}\b(?:probe|measurement|(?:gpu|node|memory|link|bandwidth) test)\b|"
    rf"{_POLITE}(?:probe|measure|benchmark|stress[- ]?test|test)\b[^?\n]{{0,40}}\b(?:nodes?|gpus?|cards?|machine|hosts?|memory|hbm|links?|"
    r"nvlink|nccl|interconnect|disks?|storage|compute)\b"
)
_ELSEWHERE = re.compile(r"(?i)\b(?:training )?(?:memory|gpus?)\b[^?\n]{0,20}\b(?:needs?|fits?|estimate|of (?:a|the|my) (?:model|step))\b")  # fmt: skip
_COMPONENTS = (
    ("communication", re.compile(r"(?i)\b(?:communication|nccl|nvlink|links?|interconnect|bandwidth|peer|all-?reduce|network)\b")),
    ("memory", re.compile(r"(?i)\b(?:memory|hbm|ecc|vram)\b")),
    ("data", re.compile(r"(?i)\b(?:data|disks?|storage|file ?systems?|loader|read rate)\b")),
    ("compute", re.compile(r"(?i)\b(?:compute|flops|matmul|clocks?|gpus?|cards?|nodes?|machine|hosts?)\b")),
)  # fmt: skip
_LOAD = re.compile(
    r"(?i)\b(?:under|with|full) load\b|\b(?:benchmark|stress|rates?|how fast|throughput)\b"
)
EXAMPLE = "Measure the GPUs of this node"


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What is to be measured. light: state is read only, no load is put on the GPUs."""

    component: str
    light: bool


def read_probe_request(text: str) -> ProbeRequest | None:
    """The request of a message; None where it asks for no measurement of a machine."""
    if _ASKS.search(text) is None or _ELSEWHERE.search(text) is not None:
        return None
    component = next((name for name, words in _COMPONENTS if words.search(text)), "compute")
    return ProbeRequest(component, _LOAD.search(text) is None)


def say_command(request: ProbeRequest) -> Reply:
    """Where the conversation may run nothing: the command, and what would let it."""
    light = " --light" if request.light else ""
    command = f"firstfault probe --only {request.component}{light} --out probe.jsonl"
    text = (
        f"Run it yourself on that node; it measures and changes nothing:\n\n{write_block(command)}\n\n"
        "Then add `probe.jsonl` here. Where `FIRSTFAULT_MODEL_PROBE=true` is set, the conversation runs it on its own machine after your `/approve`."
    )
    return Reply(text, "probe.command")
