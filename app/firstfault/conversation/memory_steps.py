"""What first, second, third against this out-of-memory, and how much does each save? From the run that was pasted.

The sizes are the memory calculator's: from settings it read beside the message, else from what the pasted lines
and the question say of model, batch, sequence and card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from firstfault.conversation.calculator_reply import record_use, run_calculator
from firstfault.conversation.memory_questions import set_up
from firstfault.conversation.quantities import read_quantities
from firstfault.conversation.telling import Telling
from firstfault.incidents.events import ToolUse
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError
from firstfault_tools.findings import Category

MOST_LINES = 400
"""Of the evidence that are read for settings: a pasted message with its configuration, not a log."""
ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth")


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps in words, and the calculation behind them where there was one."""

    text: str
    tool: ToolUse | None = None


def tell_steps(t: Telling) -> Steps | None:
    """The steps with sizes; None where the fault is no shortage of memory."""
    if t.diagnosis.category is not Category.OOM:
        return None
    estimate = (t.diagnosis.tools.get("memory_oom") or {}).get("estimate") or {}
    if estimate.get("plan"):
        return Steps(_say(t, estimate, list(estimate.get("assumptions", ()))))
    q = read_quantities(_read_from(t))
    if q.model is None and q.billions is None:
        return Steps(_ask_for_run(t))
    if q.quantized_bits and not q.lora:
        q = replace(q, lora=True)
    run = set_up(q, t.asked.text)
    try:
        result = run_calculator("memory", run.inputs)
    except ToolError as error:
        return Steps(f"{_ask_for_run(t)} What was read cannot be calculated: {error}.")
    assumed = [*run.assumed, *(["a 4-bit base is trained through adapters"] * bool(q.quantized_bits))]  # fmt: skip
    return Steps(_say(t, result, assumed), record_use("memory", run.told, result))


def _read_from(t: Telling) -> str:
    """What was pasted and asked; the list marks and bars of a configuration are no part of it."""
    lines = [line.text.strip(" -*|\t") for line in t.evidence.lines[:MOST_LINES]]
    # a number at the end of a line is not that of the words that begin the next one
    return "; ".join([t.asked.text, *lines])


def _say(t: Telling, result: Mapping[str, Any], assumed: Sequence[str]) -> str:
    plan: Sequence[Mapping[str, Any]] = result.get("plan") or ()
    needed, room, card = result["needed_gib"]["expected"], result["capacity_gib"], result["card"]
    if not plan:
        return (
            f"By the estimate it should fit: {needed:.1f} of {room:.1f} GiB on {card}, so something else holds memory: a second process, "
            f"a longer sequence, or fragmentation {t.main}. Look at that first: `nvidia-smi` beside the run, then a memory snapshot."
        )
    first = plan[0]
    head = (
        f"First {first['change']}: it saves about {first['saved_gib']:.1f} GiB of the {needed:.1f} that the step needs, "
        f"and leaves {first['needed_gib']:.1f} of {room:.1f} on {card} {t.main}."
    )
    rows = [
        f"{number}. {name}: {step['change']}, saves {step['saved_gib']:.1f} GiB, then {step['needed_gib']:.1f} GiB, "
        f"{'fits' if step['fits'] else 'does not fit yet'}. Cost: {step['cost']}."
        + (f" {step['side_effects'][:1].upper()}{step['side_effects'][1:]}." if step["alters_result"] else "")
        + (f" `{step['flag']}`" if step["flag"] else "")
        for number, (name, step) in enumerate(zip(ORDINALS, plan, strict=False), 1)
    ]  # fmt: skip
    end = (
        ""
        if plan[-1]["fits"]
        else f"\n\nEven then it does not fit {card}: a smaller model, a larger card or more GPUs."
    )
    blocks = [head, "One on top of the other:\n\n" + "\n".join(rows) + end]
    if assumed:
        blocks.append("Assumed: " + "; ".join(assumed[:6]) + ".")
    return "\n\n".join(blocks)


def _ask_for_run(t: Telling) -> str:
    first = t.diagnosis.fixes[0].text if t.diagnosis.fixes else t.cause
    return (
        f"{first} {t.main} How much each change saves depends on the run, which is not told here: say the model, micro-batch, sequence "
        'and GPU, as in "8B with LoRA, batch 4, sequence 2048, on a T4", or drop its configuration.'
    )
