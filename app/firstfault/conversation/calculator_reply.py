"""How is the result of a calculator told? The result first, then lines, then what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.conversation.asked import Asked
from firstfault.conversation.formulas import find_rate, read_amounts
from firstfault.conversation.quantities import Quantities
from firstfault.conversation.reply import Reply
from firstfault.incidents.events import ToolUse
from firstfault_tools.findings import Json
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.registry import calculators

SHAPES = Path(__file__).with_name("shapes.yaml")


@cache
def load_shapes() -> Mapping[str, Any]:
    """Shapes of models by size, and peaks of cards."""
    data: Mapping[str, Any] = read_yaml(SHAPES.read_text(encoding="utf-8"))
    return data


def run_calculator(name: str, inputs: Mapping[str, Any]) -> Mapping[str, Json]:
    chosen = next(c for c in calculators() if c.name == name)
    return chosen.run(**inputs)


_UNDERSTOOD: Mapping[str, str] = {
    "model": "{}", "billions": "{:g} billion parameters", "active_billions": "{:g} billion active", "gpus": "{:,} GPUs", "nodes": "{:,} nodes",
    "card": "{}", "sharding": "{}", "tensor": "TP {}", "stages": "PP {}", "context": "CP {}", "data": "DP {}", "virtual": "{} chunks a stage",
    "micro_batches": "{} micro-batches", "micro_batch": "micro-batch {}", "global_batch": "global batch {:,}", "sequence": "sequence {:,}",
    "layers": "{} layers", "hidden": "hidden {:,}", "heads": "{} heads", "kv_heads": "{} KV heads", "precision": "{}", "recompute": "recompute {}",
    "tokens_per_second": "{:,.0f} tokens/s", "price": "{:g} a GPU-hour", "save_seconds": "{:g} s a save", "interval_seconds": "a save every {:g} s",
    "failure_seconds": "a failure every {:,.0f} s", "restart_seconds": "{:g} s to restart", "lost_seconds": "{:g} s of work lost",
}  # fmt: skip


def say_understood(q: Quantities) -> str:
    """Which quantities were read in the sentence, so that one that was read wrongly shows."""
    told = [say.format(v) for name, say in _UNDERSTOOD.items() if (v := getattr(q, name)) is not None]  # fmt: skip
    if q.each_fails is not None:
        told.append(f"one {q.each_fails[0]} fails every {q.each_fails[1] / 86_400:g} days")
    told += ["offload"] * q.offload + ["LoRA"] * q.lora
    return ", ".join(told)


def reply_calculated(
    asked: Asked, first: str, lines: list[str], tool: str, inputs: dict[str, Any], result: Mapping[str, Any],
    assumed: list[str], suggestions: tuple[str, ...] = (),
) -> Reply:  # fmt: skip
    blocks = [first, "\n".join(lines)]
    understood = "" if asked.intent in ("formula", "derived") else say_understood(asked.quantities)
    if understood:
        blocks.append(f"Read from the question: {understood}.")
    if assumed:
        blocks.append("Assumed, since the question does not say: " + "; ".join(assumed) + ".")
    use = record_use(tool, inputs, result)
    return Reply(
        "\n\n".join(b for b in blocks if b), f"calculator.{asked.intent}", suggestions, use
    )


_LARGE = frozenset({"gantt", "phases", "idle_by_stage", "busy_by_stage"})
"""Results that are drawings, of which an answer keeps no copy."""


def record_use(tool: str, inputs: Mapping[str, Any], result: Mapping[str, Any]) -> ToolUse:
    """What an answer keeps of a calculation: the page opens the calculator with these inputs."""
    return ToolUse(tool, inputs, {k: v for k, v in result.items() if k not in _LARGE})


def time_of_bytes(q: Quantities, asked: Asked) -> float | None:
    """Seconds of a save whose size and rate are told instead."""
    text = asked.numbers or asked.text
    rate, size = find_rate(text), read_amounts(text, q).get("size")
    return size.value / rate if rate and size is not None else None


def read_currency(text: str) -> str:
    """Sign of the currency that a text names; '' for none."""
    return next((c for c in "$€£" if c in text), "$" if "dollar" in text.lower() else "")
