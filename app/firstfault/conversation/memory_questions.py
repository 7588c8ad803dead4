"""What does the memory model answer to a question in words? Fit, need, the fewest GPUs, the largest batch or sequence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from firstfault.conversation.asked import Asked
from firstfault.conversation.calculator_reply import load_shapes, reply_calculated, run_calculator
from firstfault.conversation.quantities import Quantities
from firstfault.conversation.reply import Reply
from firstfault.conversation.shardings import named_shardings
from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import ToolError


def _value(result: Mapping[str, Any], key: str) -> Any:
    return result[key]


def shape_of(billions: float) -> tuple[dict[str, Any], str]:
    """Fields of the nearest known shape, scaled in layers to the size asked for."""
    row = min(load_shapes()["shapes"], key=lambda r: abs(math.log(r["size"] / billions)))
    fields = {k: v for k, v in row.items() if k not in ("size", "like")}
    layers = max(1, round(row["layers"] * billions / row["size"]))
    if abs(billions / row["size"] - 1) > 0.08:
        fields["layers"] = layers
        return fields, f"the shape of {row['like']} with {layers} layers"
    return fields, f"the shape of {row['like']}"


@dataclass(slots=True)
class SetUp:
    """A run as the memory calculator takes it. assumed: what nobody said, for people."""

    name: str
    shape: dict[str, Any]
    knobs: dict[str, Any]
    card: str
    assumed: list[str]
    billions: float = 0.0

    @property
    def inputs(self) -> dict[str, Any]:
        return {**self.shape, **self.knobs, "card": self.card}

    @property
    def told(self) -> dict[str, Any]:
        """The inputs with the size that was told in place of the shape that was taken for it."""
        sized = self.billions and "model" not in self.shape
        size = {"billions": self.billions} if sized else self.shape
        return {**size, "card": self.card, **self.knobs}


def set_up(q: Quantities, text: str) -> SetUp:
    """The run that the quantities of a text describe."""
    assumed: list[str] = []
    shape: dict[str, Any] = {}
    if q.model is not None:
        shape = {"model": q.model}
        name = q.model
    elif q.hidden is not None and q.billions is None:
        layers = q.layers or 32
        heads = max(1, q.hidden // 128)
        shape = {
            "hidden": q.hidden,
            "layers": layers,
            "heads": heads,
            "ffn": 4 * q.hidden,
            "vocab": 32000,
        }
        name = f"a model of {layers} layers and width {q.hidden}"
        assumed.append(f"{heads} heads, MLP of {4 * q.hidden}, vocabulary 32,000")
    else:
        shape, like = shape_of(q.billions or 7.0)
        parts = (q.stages or 1) * (q.virtual or 1)
        if shape["layers"] % parts:
            shape["layers"] = -(-shape["layers"] // parts) * parts
            like += f", layers rounded up to {shape['layers']} so that {parts} stages divide them"
        name = f"a model of {q.billions:g} billion parameters"
        assumed.append(like)
    gpus = q.gpus or (8 if not q.lora else 1)
    if q.gpus is None:
        assumed.append(f"{gpus} GPU{'s' if gpus > 1 else ''}")
    card = q.card or "H100-80GB"
    if q.card is None:
        assumed.append(card)
    sharding = q.sharding or ("fsdp" if gpus > 1 else "none")
    if q.sharding is None and gpus > 1 and not (q.tensor or q.stages):
        assumed.append("FSDP (as ZeRO-3)")
    sequence, micro = q.sequence or 4096, q.micro_batch or 1
    assumed += [f"sequence {sequence}"] * (q.sequence is None) + [f"micro-batch {micro}"] * (q.micro_batch is None)  # fmt: skip
    precision = {"bf16": "bf16_master", "fp16": "fp16_amp"}.get(
        q.precision or "bf16", q.precision or "bf16_master"
    )
    if q.precision is None:
        assumed.append("BF16 with FP32 master weights and Adam")
    elif precision != q.precision:
        assumed.append(
            f"{q.precision} as mixed precision ({precision}; all in {q.precision} is --precision {q.precision})"
        )
    knobs: dict[str, Any] = {"world": gpus, "sharding": sharding, "sequence": sequence, "micro_batch": micro,
                             "precision": precision, "attention": "flash", "recompute": q.recompute or "none"}  # fmt: skip
    if q.tensor or q.stages:
        knobs |= {"tensor": q.tensor or 1, "pipeline": q.stages or 1}
        if knobs["sharding"] == "fsdp":
            knobs["sharding"] = "ddp"
            if q.sharding is None:
                assumed.append("optimizer states not divided over the data-parallel ranks")
    if q.lora:
        knobs |= {"lora_rank": q.lora_rank or 16, "precision": "bf16"}
        assumed += [] if q.lora_rank else ["LoRA of rank 16"]
    if q.quantized_bits:
        knobs["quantized_bits"] = q.quantized_bits
    if q.offload:
        knobs["offload_optimizer"] = True
        if re.search(
            r"(?i)\bparam\w*\b[^?\n]{0,12}\boffload|\boffload\w*[^?\n]{0,12}\bparam", text
        ):
            knobs["offload_parameters"] = True
    return SetUp(name, shape, knobs, card, assumed, q.billions or 0.0)


def answer_memory(q: Quantities, asked: Asked) -> Reply:
    run = set_up(q, asked.text)
    name, shape, knobs, card, assumed = run.name, run.shape, run.knobs, run.card, run.assumed
    gpus = knobs["world"]
    if _BEFORE_ACTIVATIONS.search(asked.text) and (states := _say_states(q, asked, name, gpus)):
        return states
    asks = _asks_of_memory(asked.text)
    if asks == "gpus" and q.gpus is None:
        if q.recompute is None:
            knobs["recompute"] = "full"
            assumed.append("full activation recomputation")
        assumed = [a for a in assumed if not a.endswith(" GPUs")]
        gpus = knobs["world"] = _least_gpus({**shape, **knobs, "card": card})
        if gpus > 1 and knobs["sharding"] == "none" and not (q.tensor or q.stages):
            knobs["sharding"] = "fsdp"
            assumed = [*(a for a in assumed if not a.endswith(" GPU")), "FSDP (as ZeRO-3)"]
    elif asks in ("micro_batch", "sequence"):
        knobs[asks] = _largest({**shape, **knobs, "card": card}, asks)
        assumed = [a for a in assumed if not a.startswith("micro-batch" if asks == "micro_batch" else "sequence")]  # fmt: skip
    result = run_calculator("memory", {**shape, **knobs, "card": card})
    first = _say_memory(asks, name, knobs, card, result)
    if asks == "fits" and q.recompute is None and str(result["fit"]) not in ("fits", "tight"):
        first = _say_recomputed({**shape, **knobs, "card": card}, result) or first
    host = _say_host(q, result)
    if host.startswith(("No", "Barely")) and first.startswith(("Yes", "Barely")):
        first = f"{host} On the GPUs {first[:1].lower()}{first[1:]}"
        host = ""
    lines = [f"- {host}"] if host else []
    lines += _say_others(asked.text, {**shape, **knobs, "card": card})
    lines += _say_floor(run, result) if asks == "gpus" and gpus > 1 else []
    if asks == "fits" and str(result["fit"]) not in ("fits", "tight"):
        lines += _where_it_fits({**shape, **knobs, "card": card}, card)
    lines += [
        f"- The peak is in the phase '{result['phase']}'; the largest part is {result['dominant_term']}."
    ]
    terms: Any = result["terms_gib"]
    largest = sorted(((v, k) for k, v in terms.items() if v >= 0.05), reverse=True)[:5]
    lines.append("- Parts in GiB: " + ", ".join(f"{k} {v:.1f}" for v, k in largest) + ".")
    lines.append(f"- Precision: {result['precision_means']}.")
    changes: Any = result.get("changes") or []
    if changes:
        lines.append("- Single changes that save most:")
        lines += [
            f"  - {c['change']}: saves {c['saved_gib']:.1f} GiB, then {c['needed_gib']:.0f} GiB, "
            f"{'fits' if c['fits'] else 'still does not fit'} ({c['cost']})"
            for c in changes[:4]
        ]  # fmt: skip
    inputs = {**run.told, **knobs}
    both = f"{name.removeprefix('a model of ').split(' ')[0]}{'B' if q.model is None else ''}"
    return reply_calculated(asked, first, lines, "memory", inputs, result, assumed,
                  (f"Does {both} fit on {gpus} {card} with full activation checkpointing?", "How do I reduce GPU memory?"))  # fmt: skip


def _say_others(text: str, inputs: Mapping[str, Any]) -> list[str]:
    """The need under the other ways of sharding that the question names, a line each."""
    out: list[str] = []
    for sharding in named_shardings(text):
        if sharding == inputs["sharding"] or (sharding, inputs["sharding"]) == ("zero3", "fsdp"):
            continue
        try:
            result = run_calculator("memory", {**inputs, "sharding": sharding})
        except ToolError:
            continue
        need = _value(result, "needed_gib")["expected"]
        fits = {"fits": "fits", "tight": "is tight"}.get(str(result["fit"]), "does not fit")
        out.append(f"- With {_called(sharding)}: {need:.0f} GiB a GPU, which {fits}.")
    return out


def _say_floor(run: SetUp, result: Mapping[str, Any]) -> list[str]:
    """What the states alone would need of cards of that memory, where training is full."""
    from firstfault_tools.memory.models import list_models

    model = run.shape.get("model")
    parameters = float(list_models()[model]["parameters"]) if model else run.billions * 1e9
    if run.knobs.get("lora_rank") or run.knobs["precision"] != "bf16_master" or not parameters:
        return []
    gb = _CARD_GB.search(run.card)
    if gb is None:
        return []
    states = 16 * parameters / 1e9
    least = math.ceil(states / float(gb[1]))
    return [
        f"- The states alone (16 bytes a parameter) take {states:,.0f} GB, which is {least} cards' whole memory: the bare floor, "
        f"with no room for activations. GPUs were counted in powers of two."
    ]


_CARD_GB = re.compile(r"(\d{2,3}) ?G")


def _say_recomputed(inputs: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The verdict where it turns on recomputation, of which the question says nothing; '' where it does not."""
    full = {**inputs, "recompute": "full"}
    if not _fits(full):
        return ""
    less = _value(run_calculator("memory", full), "needed_gib")["expected"]
    whole = _value(result, "needed_gib")["expected"]
    return (
        f"Yes, with full activation recomputation: {less:.0f} GiB a GPU of {float(_value(result, 'capacity_gib')):.0f} GiB on "
        f"{inputs['world']} x {inputs['card']}; without it {whole:.0f} GiB, which does not fit."
    )


_BEFORE_ACTIVATIONS = re.compile(
    r"(?i)\b(?:before|without|excluding|excl\.?|not counting|ignoring|no) (?:the )?activations?\b|\b(?:model |optimi[sz]er )?states? (?:only|alone)\b|"
    r"\bstates?\b[^?\n\d]{0,6}\b(?:per|a|each|on each) (?:gpu|rank|card|device)\b|"
    r"\b(?:just|only|merely|alone) (?:for |of )?(?:the )?(?:model |training |optimi[sz]er )?states?\b|\b(?:for|of) the (?:model )?states\b"
)
SHARED: Mapping[str, tuple[float, float]] = {
    "ddp": (16.0, 0.0), "none": (16.0, 0.0), "zero1": (4.0, 12.0), "zero2": (2.0, 14.0), "zero3": (0.0, 16.0), "fsdp": (0.0, 16.0),
}  # fmt: skip
"""Bytes a parameter held whole and divided over the ranks, with 16-bit weights and gradients and FP32 Adam (arXiv 1910.02054, figure 1)."""


def _say_states(q: Quantities, asked: Asked, name: str, gpus: int) -> Reply | None:
    """Bytes of weights, gradients and optimizer states a GPU; None where the sharding is not one of ZeRO's."""
    parameters = (q.billions or 0.0) * 1e9
    if not parameters and q.model is not None:
        from firstfault_tools.memory.models import list_models

        parameters = float(list_models()[q.model]["parameters"])
    sharding = q.sharding or ("ddp" if gpus > 1 else "none")
    if not parameters or sharding not in SHARED or q.lora:
        return None
    several = [s for s in named_shardings(asked.text) if s in SHARED]
    if len(several) > 1:
        return _say_each(several, parameters, name, gpus, asked)
    each, wide, shared = _states_of(sharding, parameters, gpus)
    first = (
        f"{each / 1e9:.1f} GB ({each / 2**30:.1f} GiB) a GPU before activations: {name}, {shared}."
    )
    lines = [
        f"- With FP32 gradients instead of 16-bit ones: {wide / 1e9:.1f} GB.",
        "- Activations, buffers and about 1 GiB of CUDA context come on top.",
        "- Formula: bytes of ZeRO by stage, arXiv 1910.02054, figure 1.",
    ]
    inputs = {"parameters": parameters, "sharding": sharding, "gpus": gpus}
    return reply_calculated(asked, first, lines, "memory_states", inputs, {"bytes_a_gpu": each}, [_STATED], ("How do I reduce GPU memory?",))  # fmt: skip


_STATED = "BF16 weights and gradients, FP32 master weights and Adam"


def _states_of(sharding: str, parameters: float, gpus: int) -> tuple[float, float, str]:
    """(bytes a GPU, the same with FP32 gradients, how they are shared)."""
    whole, divided = SHARED[sharding]
    kept = whole > 2  # gradients are whole on each rank
    wide = whole + 2 * kept + (divided + 2 * (not kept)) / gpus
    shared = f"{whole:g} bytes a parameter whole and {divided:g} divided over {gpus} GPUs"
    return parameters * (whole + divided / gpus), parameters * wide, shared


def _say_each(shardings: list[str], parameters: float, name: str, gpus: int, asked: Asked) -> Reply:
    """The states under each of the ways of sharding that a question names."""
    sizes = {s: _states_of(s, parameters, gpus) for s in shardings}
    told = ", ".join(f"{_called(s)} {v[0] / 1e9:.1f} GB" for s, v in sizes.items())
    first = f"A GPU holds before activations: {told}. That is {name} on {gpus} GPUs."
    lines = [
        f"- {_called(s)}: {v[2]} ({v[0] / 2**30:.1f} GiB); with FP32 gradients {v[1] / 1e9:.1f} GB."
        for s, v in sizes.items()
    ]
    lines += [
        "- Activations, buffers and about 1 GiB of CUDA context come on top.",
        "- Formula: bytes of ZeRO by stage, arXiv 1910.02054, figure 1.",
    ]
    inputs = {"parameters": parameters, "shardings": shardings, "gpus": gpus}
    result = {s: v[0] for s, v in sizes.items()}
    return reply_calculated(asked, first, lines, "memory_states", inputs, result, [_STATED], ("How do I reduce GPU memory?",))  # fmt: skip


def _called(sharding: str) -> str:
    return f"ZeRO-{sharding[-1]}" if sharding.startswith("zero") else sharding.upper()


def _say_host(q: Quantities, result: Mapping[str, Any]) -> str:
    """Whether what is offloaded finds room in the memory of a host; '' where nothing is."""
    node = result.get("host_node_gib") or {}
    if not q.offload or not node:
        return ""
    needed = float(node["unpinned"])
    need = f"offloaded states take {needed:,.0f} GiB of RAM a node ({node['pinned']:,.0f} pinned)"
    if q.host_gib is None:
        return f"The {need}, beside page cache and loaders."
    if needed > q.host_gib:
        return f"No: the {need}, more than the {q.host_gib:,.0f} GiB there; use NVMe offload or more nodes."
    if needed > 0.8 * q.host_gib:
        return f"Barely: the {need}, of {q.host_gib:,.0f} GiB, which page cache, pinned buffers and loaders share."
    return f"The {need}, of {q.host_gib:,.0f} GiB."


def _where_it_fits(inputs: Mapping[str, Any], card: str) -> list[str]:
    """The fewest GPUs on which it fits with all activations recomputed; nothing where more do not help."""
    if inputs.get("lora_rank") and inputs["sharding"] == "none":
        return []
    least = _least_gpus({**inputs, "recompute": "full"})
    if least > MOST_TIMES * int(inputs["world"]):
        return []
    if least >= MOST_GPUS or least <= int(inputs["world"]):
        return ["- It fits on these GPUs with full activation recomputation."] if least <= int(inputs["world"]) else []  # fmt: skip
    return [f"- It fits on {least} x {card} with full activation recomputation."]


_ASKS_GPUS = re.compile(
    r"(?i)\b(?:gpus?|cards?) (?:are |is )?(?:needed|required|necessary|count)\b|\bnumber of (?:gpus|cards)\b|"
    r"\bhow many\b[^?\n]{0,24}\b(?:gpus?|cards?|nodes?|[hab]\d00s?|accelerators)\b|\b(?:minimum|least|fewest)\b[^?\n]{0,20}\bgpus"
)
_ASKS_LARGEST = re.compile(
    r"(?i)\b(?:max\w*|largest|biggest|longest|highest|how (?:big|large|long))\b[^?\n]{0,24}\b(?P<what>micro|batch|seq\w*|context)"
)
_ASKS_HOW_MUCH = re.compile(
    r"(?i)\bhow much\b|\bhow many (?:gib|gb|gigabytes)\b|\b(?:memory|vram)\b[^?\n]{0,40}\b(?:need\w*|requir\w*|take\w*|use\w*|footprint|estimate)\b"
)
MOST_GPUS = 4096
MOST_TIMES = 8
"""A cluster so many times larger than the one asked about is no advice."""


def _asks_of_memory(text: str) -> str:
    """What is sought: gpus, micro_batch, sequence, how_much, or fits."""
    largest = _ASKS_LARGEST.search(text)
    if largest is not None:
        return (
            "sequence" if largest["what"].lower().startswith(("seq", "context")) else "micro_batch"
        )
    if _ASKS_GPUS.search(text):
        return "gpus"
    return "how_much" if _ASKS_HOW_MUCH.search(text) and not re.search(r"(?i)\bfits?\b", text) else "fits"  # fmt: skip


def _fits(inputs: Mapping[str, Any]) -> bool:
    try:
        return str(run_calculator("memory", inputs)["fit"]) == "fits"
    except ToolError:
        return False


def _least_gpus(inputs: Mapping[str, Any]) -> int:
    """Least number of GPUs, doubled from one, on which it fits; MOST_GPUS where it does on none."""
    least = int(inputs.get("tensor", 1)) * int(inputs.get("pipeline", 1))
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048) if n >= least]
    sharded = {**inputs, "sharding": inputs["sharding"] if inputs["sharding"] != "none" else "fsdp"}
    return next((n for n in counts if _fits({**sharded, "world": n, "sharding": "none" if n == 1 else sharded["sharding"]})), MOST_GPUS)  # fmt: skip


def _largest(inputs: Mapping[str, Any], name: str) -> int:
    """Largest power of two (times the least) of a setting with which it still fits; the least where none does."""
    value = 1 if name == "micro_batch" else 512
    while value < 4_194_304 and _fits({**inputs, name: value * 2}):
        value *= 2
    return value


def _say_memory(
    asks: str, name: str, knobs: Mapping[str, Any], card: str, result: Mapping[str, Any]
) -> str:
    """The first sentence: what was asked for."""
    needed, capacity, gpus = (
        _value(result, "needed_gib"),
        float(_value(result, "capacity_gib")),
        knobs["world"],
    )
    fits = str(result["fit"])
    need = f"{needed['expected']:.0f} GiB a GPU ({needed['low']:.0f} to {needed['high']:.0f})"
    offers = f"{gpus} x {card}, which offers {capacity:.0f} GiB"
    verdict = {"fits": "it fits", "tight": "it is tight"}.get(fits, "it does not fit")
    if asks == "gpus":
        if fits not in ("fits", "tight"):
            return f"No number of GPUs is enough as set up: {name} needs {need} even on {offers}; recompute activations, or use tensor or pipeline parallelism."
        return f"{gpus} x {card} {'are' if gpus > 1 else 'is'} enough: {name} then needs {need} of {capacity:.0f} GiB."
    if asks in ("micro_batch", "sequence"):
        what = "micro-batch" if asks == "micro_batch" else "sequence length"
        if fits not in ("fits", "tight"):
            return f"None fits: even with {what} {knobs[asks]}, {name} needs {need} on {offers}."
        return f"{what.capitalize()} {knobs[asks]:,} is the largest that fits (in powers of two): {name} then needs {need} on {offers}."
    if asks == "how_much":
        return f"About {need}: {name} on {offers}, so {verdict}."
    word = {"fits": "Yes", "tight": "Barely"}.get(fits, "No")
    return f"{word}, {verdict}: {name} needs {need} on {offers}."
