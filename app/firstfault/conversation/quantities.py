"""Which numbers stand in a sentence, and what of? Sizes and counts of a training run, with units."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from firstfault.conversation import times
from firstfault.conversation.budgets import without_budget
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

_SIZE = expression(
    r"(?i)(?<![\w.-])(\d{1,4}(?:\.\d{1,3})?)\s?(b|bn|billion|m|million)\b(?!\s*(?:/|per|tokens|yte))"
)
_NAMED = expression(
    r"(?i)\b(?P<family>llama|qwen|mistral|mixtral|gpt|opt|gemma|phi|falcon|yi|olmo|deepseek)[- ]?(?P<version>v?\d(?:\.\d)?)?[- ]?(?P<size>\d{1,4}(?:\.\d{1,2})?b|8x7b|xl)?\b"
)
_CARD = expression(
    r"(?i)(?<![a-z])(?:(?P<count>\d{1,6})\s?(?:x|×)?\s?)?(?:nvidia |amd |rtx[- ]?)?(?P<name>GH200|[HAB][12]00|[HA]800|H20|L40S|L40|L4|A40|A10G|A10|A6000|V100|T4|MI300X|[345]090)s?"
    r"(?:[- ]?(?P<form>sxm|nvl|pcie)\d?)?(?:[- ,]{0,2}\(?(?P<gib>\d{2,3})\s?g(?:i?b)?\)?)?(?![a-z0-9])"
)
_BY_SIZE = expression(
    r"(?i)(?<![\w.])(?P<count>\d{1,4}) ?(?:x|×) ?(?P<gib>16|24|32|40|48|80|96|141|192) ?gi?b\b"
)
"""Cards told by their memory alone: '2x80GB'."""
_HEADS = expression(
    r"(?i)\b(\d{1,3}) (?:attention[- ]|query[- ]|q[- ])?heads\b|(?<!kv )\bheads\s?(?:=|:|of)?\s?(\d{1,3})\b"
)
_KV_HEADS = expression(
    r"(?i)\b(\d{1,3}) (?:kv|key[- ]value|gqa)[- ]?(?:heads|groups)\b|\bkv[- ]?heads\s?(?:=|:|of)?\s?(\d{1,3})\b"
)
_HOST_RAM = expression(
    r"(?i)(\d{1,5}(?:\.\d)?) ?(t|g)i?b?\b (?:of )?(?:host |cpu |system |node )?(?:ram|dram|cpu memory|host memory)\b(?! ?\d)|"
    r"\b(?:ram|host memory|cpu memory)\b ?(?:of|is|=|:)? ?(\d{1,5}(?:\.\d)?) ?(t|g)i?b?\b"
)
_SIZED_CARD = expression(
    r"(?i)\b(?:on|in|into|with|within)\s(?:an?\s|one\s|my\s|single\s){0,2}(\d{2,3})\s?gi?b\b(?!/|\s?(?:a|per) s)"
)
_ONE_CARD = expression(
    r"(?i)\b(?:a|an|one|single)(?: single| one)? (?:\d{2,3} ?gi?b )?(?:nvidia |rtx[- ]?)?(?:GH200|[HAB][12]00|H20|L40S?|L4|A40|A10G?|A6000|V100|T4|MI300X|[345]090)\b(?! nodes?)"
)
_GPUS = expression(
    r"(?i)\b(\d{1,3}(?:,\d{3})+|\d{1,6})\s?(?:x\s?)?(?:gpus?|cards?|accelerators?|ranks?|devices?)\b|\bworld(?: size)? ?(?:of |"
    r"is |= ?)?(\d{1,6})\b|\bsingle (gpu|card)\b|\bone (gpu|card)\b"
)
_NODES = expression(
    r"(?i)\b(\d{1,5}) (?:nodes|hosts|machines|servers)\b(?:[^.?\n]{0,20}?\b(?:of|with|x|each)?\s?(\d{1,2})\b)?"
)
_EACH_NODE = expression(
    r"(?i)\b(\d{1,2}) ?x? ?(?:gpus?|cards?|[hab]\d00s?) (?:each|per (?:node|host|machine)|a node|in each)\b|\bwith (\d{1,2}) (?:gpus?|cards?)\b"
)
_NODES_TIMES = expression(
    r"(?i)\b(\d{1,5}) (?:nodes|hosts|machines|servers) ?(?:x|×|\*|of|with) ?(\d{1,2}) ?(?:x ?)?(?:gpus?|cards?|[hab]\d00s?)\b"
)
_ZERO = expression(r"(?i)\b(?:zero|deepspeed|stage)[- _]?(?:stage[- ]?)?([0123])\b")
_STAGES = expression(
    r"(?i)\b(\d{1,3}) (?:pipeline[- ])?(?:stages?\b|pipeline ranks)|\b(?:pp|pipeline[- ]parallel(?:ism|"
    r"[- ]size)?|pipeline (?:of|with|depth))\s?(?:of|size|=|:|is)?\s?(\d{1,3})\b|\bp\s?=\s?(\d{1,3})\b|"
    r"\b(\d{1,3})[- ](?:stage|way pipeline|deep)\b"
)
_MICRO_COUNT = expression(
    r"(?i)\b(\d{1,5}) (?:micro-?\s?batch(?:es)?\b|micros?\b|mbs?\b)|\bmicro-?\s?batches\s?(?:=|:|is|of)\s?(\d{1,5})|"
    r"\bm\s?=?\s?(\d{1,5})\b|\bgradient accumulation(?: steps)?\s?(?:of|=|:|is)?\s?(\d{1,5})"
)
_MICRO_SIZE = expression(
    r"(?i)\b(?:micro-?\s?(?:batch(?:[- ]size)?|bs)|mbs|batch(?:[- ]size)?(?: per (?:gpu|device))?)\s?(?:of|=|:|is)?\s?(\d{1,5})\b(?! micro)"
)
_GLOBAL = expression(
    r"(?i)\b(?:global[- ]batch(?:[- ]size)?|gbs)\s?(?:of|=|:|is)?\s?(\d{1,7})\b(?!\s?[km]?\s?tok)"
)
_GLOBAL_TOKENS = expression(
    r"(?i)\b(?:(?:global|total|effective)[- ]batch(?:[- ]size)?|gbs)\s?(?:of|=|:|is)?\s?(?P<value>\d{1,9}(?:\.\d{1,3})?)\s?(?P<scale>k|m)?\s?tok(?:en)?s?\b|"
    r"(?<![\w.])(?P<before>\d{1,9}(?:\.\d{1,3})?)\s?(?P<kind>k|m)?[- ]tok(?:en)?s?[- ](?:global[- ])?batch\b"
)
"""A global batch counted in tokens rather than in sequences."""
_ACTIVE = expression(
    r"(?i)(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)\s?(?:b|bn|billion)(?: param\w*)?[ -](?:are )?(?:active|activated)\b|"
    r"\b(?:active|activated)(?: param\w*)?\s?(?:=|:|of|is|are)?\s?(\d{1,4}(?:\.\d{1,3})?)\s?(?:b|bn|billion)\b|\d ?b-a(\d{1,3}(?:\.\d)?)b\b"
)
"""Parameters of a mixture of experts that one token passes through, in billions."""
_TOTAL = expression(
    r"(?i)(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)\s?(?:b|bn|billion)(?: param\w*)? (?:in )?total\b|\btotal(?: param\w*)?\s?(?:=|:|of|is)?\s?(\d{1,4}(?:\.\d{1,3})?)\s?(?:b|bn|billion)\b"
)
_VIRTUAL = expression(
    r"(?i)\b(\d{1,2}) (?:virtual|chunks?|model chunks)|\bvirtual(?: pipeline)?(?: size| stages)?\s?(?:of|"
    r"=|:)?\s?(\d{1,2})|\bvpp\s?(?:of|=|:|is)?\s?(\d{1,2})|\bv\s?=?\s?(\d{1,2})\b|\binterleav\w{0,5} (?:with|by|of|x|factor) (\d{1,2})\b"
)
_SEQUENCE = expression(
    r"(?i)\b(?:seq(?:uence)?s?(?:[- ]?len(?:gth)?)?|context(?:[- ]?len(?:gth)?| window)?|tokens)\s?(?:of|"
    r"=|:|is|length)?\s?(\d{1,7})\s?(k)?\b|\b(\d{1,7})\s?(k)?[- ]?(?:tokens?(?: (?:long|sequence|context))?|"
    r"context|ctx|seq(?:uence)?(?:[- ]?len(?:gth)?)?)\b(?!\s*(?:/|per))"
)
_TENSOR = expression(
    r"(?i)\b(?:tp|tensor[- ]parallel(?:ism|[- ]size)?)\s?(?:of|size|=|:|is)?\s?(\d{1,3})\b|\btp(\d{1,3})\b"
)
_DATA = expression(
    r"(?i)\b(?:dp|data[- ]parallel(?:ism|[- ]size)?)\s?(?:of|size|=|:|is)?\s?(\d{1,5})\b|"
    r"\b(\d{1,5}) (?:replicas|data[- ]parallel ranks)\b|\b(\d{1,5})[- ]?way (?:dp|data)\b"
)
_LAYERS_A_CHUNK = expression(r"(?i)\blayers per virtual stage (\d{1,3})\b")
_RANK = expression(r"(?i)\brank (\d{1,6})\b")
_TARGET = expression(
    r"(?i)(?:\b(?:less than|lower than|smaller than|below|under|at most|max(?:imum)?|within|not more than|no more than|up to|get to|down to)|<=?)\s?"
    r"(\d{1,2}(?:\.\d{1,2})?)\s?(?:%|percent)|\bfor (?:a )?(\d{1,2}(?:\.\d{1,2})?)\s?(?:%|percent) bubble"
)
_CLEAN = expression(
    r"(?i)\b(\d{1,5}) (?:\w+ )?(?:clean|good|successful|passing|ok|fine|without)\b|\b(?:clean|good|successful|passed|ran|survived)\b[^.?\n\d]{0,12}(\d{1,5})\b"
)
_LORA_RANK = expression(r"(?i)\b(?:lora[- ]?)?r(?:ank)?\s?=?\s?(\d{1,4})\b")
_CONTEXT = expression(
    r"(?i)\b(?:cp|context[- ]parallel(?:ism|[- ]size)?)\s?(?:of|size|=|:|is)?\s?(\d{1,3})\b"
)
_TOKENS_RATE = expression(
    r"(?i)\b(\d{1,3}(?:,\d{3})+|\d{1,9}(?:\.\d{1,3})?)\s?(k|m|thousand|mn|million)? ?(?:tok(?:en)?s?)\s?(?:/|per |a )\s?(?:s|"
    r"sec|second)\b(?P<each>\s?(?:/|per|a|each|on each|and)\s?(?:gpu|card|device))?"
)
_PRICE = expression(
    r"(?i)[$€£]\s?(\d{1,4}(?:\.\d{1,4})?)|\b(\d{1,4}(?:\.\d{1,4})?)\s?(?:[$€£]|(?:dollars?|usd|euros?|eur|bucks)\b)|"
    r"\bprices?(?: of| is|:)? ?(\d{1,4}(?:\.\d{1,4})?)\b|\b(\d{1,4}(?:\.\d{1,4})?) ?(?:per|/|an?) ?(?:gpu[- ]?)?(?:h|hr|hour)\b"
)
_ODDS = expression(
    r"(?i)\b(\d{1,4}) (?:of|out of|in|from) (?:the last )?(\d{1,5})\b|\b(\d{1,2}(?:\.\d{1,2})?)\s?%|\bone in (\d{1,4})\b"
)
_PRECISION = expression(r"(?i)\b(bf16|fp32|fp16|fp8)\b")
_LAYERS = expression(r"(?i)\b(\d{1,3}) layers\b|\blayers\s?(?:=|:|of)?\s?(\d{1,3})\b")
_HIDDEN = expression(
    r"(?i)\bhidden(?: size| dim)?\s?(?:=|:|of|is)?\s?(\d{3,6})\b|\b(\d{3,6}) hidden\b"
)
COUNTS: Mapping[str, tuple[re.Pattern[str], ...]] = {
    "global_batch_tokens": (_GLOBAL_TOKENS,), "kv_heads": (_KV_HEADS,), "heads": (_HEADS,), "layers": (_LAYERS,),
    "hidden": (_HIDDEN,), "stages": (_STAGES,), "tensor": (_TENSOR,), "context": (_CONTEXT,), "data": (_DATA,),
    "sequence": (_SEQUENCE,),
}  # fmt: skip
"""Counts told on either side of their noun, which `bind` gives their numbers."""
_SCHEDULES = (
    ("interleav|virtual|vpp", "interleaved"),
    ("gpipe", "gpipe"),
    ("zb-?v|zero[- ]bubble v", "zb-v"),
    ("zb|zero[- ]bubble", "zb-h1"),
    ("dual ?pipe", "dualpipe"),
)


@dataclass(frozen=True, slots=True)
class Quantities:
    """Numbers of a sentence; None where it gives none. Times in seconds, rates per second, sizes in billions."""

    model: str | None = None
    billions: float | None = None
    card: str | None = None
    gpus: int | None = None
    sharding: str | None = None
    stages: int | None = None
    micro_batches: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    virtual: int | None = None
    schedule: str | None = None
    sequence: int | None = None
    tensor: int | None = None
    context: int | None = None
    precision: str | None = None
    recompute: str | None = None
    lora: bool = False
    quantized_bits: int | None = None
    tokens_per_second: float | None = None
    tokens_each_gpu: bool = False
    price: float | None = None
    save_seconds: float | None = None
    interval_seconds: float | None = None
    failure_seconds: float | None = None
    restart_seconds: float | None = None
    duration_seconds: float | None = None
    odds: float | None = None
    layers: int | None = None
    hidden: int | None = None
    data: int | None = None
    rank: int | None = None
    target_share: float | None = None
    clean_runs: int | None = None
    lora_rank: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    active_billions: float | None = None
    nodes: int | None = None
    each_fails: tuple[str, float] | None = None
    lost_seconds: float | None = None
    offload: bool = False
    host_gib: float | None = None

    @property
    def any(self) -> bool:
        """Something was given."""
        return any(getattr(self, f.name) not in (None, False) for f in fields(self))

    def serves(self, calculator: str) -> bool:
        """Enough of what `calculator` is about was given to begin with it."""
        return any(getattr(self, name) not in (None, False) for name in _SERVES[calculator])


_SERVES: Mapping[str, tuple[str, ...]] = {
    "bubble": ("stages", "micro_batches", "virtual"),
    "trials": ("odds", "failure_seconds"),
    "position": ("rank",),
    "interval": ("save_seconds", "interval_seconds", "failure_seconds", "gpus"),
    "checkpoint_size": ("billions", "model"),
    "mfu": ("tokens_per_second",),
    "idle_cost": ("gpus", "price"),
    "mesh": ("tensor", "stages", "context", "global_batch", "virtual"),
    "memory": ("billions", "model", "hidden"),
    "states": ("billions", "model"),
}


def infer_calculator(q: Quantities) -> str | None:
    """The calculator that a sentence is for by what it gives, where its wording names none."""
    sizes = q.tensor, q.stages, q.context, q.data
    mesh = sum(x is not None for x in sizes)
    if (q.heads and q.tensor) or (q.layers and q.stages and not q.micro_batches):
        return "mesh"
    if q.rank is not None and mesh >= 2:
        return "position"
    if q.stages is not None and q.micro_batches is not None:
        return "bubble"
    if q.odds is not None and q.clean_runs is not None:
        return "trials"
    if q.gpus and q.price is not None and q.duration_seconds:
        return "idle_cost"
    if (q.model or q.billions) and q.tokens_per_second:
        return "mfu"
    if (q.model or q.billions) and (q.card or q.sharding or q.lora):
        return "memory"
    if mesh >= 2 and (q.gpus or q.data):
        return "mesh"
    if q.save_seconds is not None and (q.failure_seconds or q.interval_seconds):
        return "interval"
    if q.global_batch and (q.micro_batch or q.data):
        return "mesh"
    return None


def read_quantities(text: str) -> Quantities:
    """Numbers of `text`, each with what it measures."""
    model, billions = _read_model(without_budget(text))
    card, count = _read_card(text)
    schedule = next((s for p, s in _SCHEDULES if re.search(rf"(?i){p}", text)), None)
    rate = _TOKENS_RATE.search(text)
    micro_text = _GLOBAL.sub("", text)
    counts = bind(_TOKENS_RATE.sub(_blank, text), COUNTS)
    sequence = _read_sequence(counts.get("sequence"))
    return Quantities(
        model=model,
        billions=billions,
        card=card,
        gpus=_read_gpus(text, count),
        sharding=_read_sharding(text),
        stages=_count(counts.get("stages")),
        micro_batches=_integer(_MICRO_COUNT, text),
        micro_batch=_integer(_MICRO_SIZE, micro_text),
        global_batch=_integer(_GLOBAL, text) or _batch_of_tokens(text, sequence),
        virtual=_integer(_VIRTUAL, text) or _virtual_of_layers(text),
        schedule=schedule,
        sequence=sequence,
        tensor=_count(counts.get("tensor")),
        context=_count(counts.get("context")),
        precision=(m[1].lower() if (m := _PRECISION.search(text)) else None),
        recompute=_read_recompute(text),
        lora=re.search(r"(?i)\bq?lora\b", text) is not None,
        quantized_bits=4 if re.search(r"(?i)\bqlora\b|\b4-?\s?bit\b|\bnf4\b", text) else 8 if re.search(r"(?i)\b8-?\s?bit\b(?! adam)", text) else None,
        tokens_per_second=_rate(rate) if rate is not None else None,
        tokens_each_gpu=rate is not None and rate["each"] is not None,
        price=_number(_PRICE, text),
        save_seconds=times.read_save(text),
        interval_seconds=times.read_interval(text),
        failure_seconds=times.read_failures(text),
        each_fails=times.read_each_fails(text),
        nodes=int(n[1]) if (n := _NODES.search(text)) is not None else None,
        lost_seconds=times.read_lost(text),
        active_billions=_number(_ACTIVE, text),
        restart_seconds=times.read_restart(text),
        duration_seconds=times.read_duration(text),
        odds=_read_odds(text),
        layers=_count(counts.get("layers")),
        hidden=_count(counts.get("hidden")),
        data=_count(counts.get("data")),
        rank=_integer(_RANK, text),
        target_share=(t / 100 if (t := _number(_TARGET, text)) is not None else None),
        clean_runs=_integer(_CLEAN, text),
        lora_rank=_integer(_LORA_RANK, text),
        heads=_count(counts.get("heads")),
        kv_heads=_count(counts.get("kv_heads")),
        offload=re.search(r"(?i)\b(?:with|and|zero-?\s?3|zero-?\s?2|cpu|fsdp|optimi[sz]er|param\w*)?[ ,+-]*(?<!no )(?<!without )offload", text) is not None,
        host_gib=_read_host(text),
    )  # fmt: skip


def bind(text: str, patterns: Mapping[str, Sequence[re.Pattern[str]]]) -> dict[str, re.Match[str]]:
    """The mention of each quantity, where a number and a noun serve once: in '80 layers 8 kv heads' the
    8 is that of the heads, since the layers have their number, and in 'layers 80 heads 64' it is the other way.

    From left to right the longest mention takes its words; one that shares but a part of them is refused.
    """
    mentions = [
        (m.start(), -m.end(), order, name, m)
        for name, alternatives in patterns.items()
        for order, pattern in enumerate(alternatives)
        for m in _overlapping(pattern, text)
    ]
    taken: list[tuple[int, int]] = []
    found: dict[str, tuple[int, re.Match[str]]] = {}
    for start, minus_end, order, name, match in sorted(mentions, key=lambda x: x[:3]):
        span = start, -minus_end
        if span not in taken and any(start < b and a < span[1] for a, b in taken):
            continue
        taken.append(span)
        if name not in found or order < found[name][0]:
            found[name] = order, match
    return {name: match for name, (_, match) in found.items()}


def _overlapping(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Every match, those too that begin within another."""
    match = pattern.search(text)
    while match is not None:
        yield match
        match = pattern.search(text, match.start() + 1)


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _count(found: re.Match[str] | None) -> int | None:
    return (
        None if found is None else next((int(g) for g in found.groups() if g and g.isdigit()), None)
    )


def _batch_of_tokens(text: str, sequence: int | None) -> int | None:
    """Sequences of a global batch that is told in tokens; None where the length of one is not told."""
    found = _GLOBAL_TOKENS.search(text)
    if found is None or not sequence:
        return None
    scale = (found["scale"] or found["kind"] or "").lower()
    tokens = float(found["value"] or found["before"]) * {"k": 1024, "m": 1024**2}.get(scale, 1)
    return max(1, round(tokens / sequence))


def _virtual_of_layers(text: str) -> int | None:
    """Model chunks a stage, from Megatron's layers per virtual stage."""
    each, layers, stages = _integer(_LAYERS_A_CHUNK, text), _integer(_LAYERS, text), _integer(_STAGES, text)  # fmt: skip
    if not each or not layers or not stages or layers % (stages * each):
        return None
    return layers // (stages * each)


def _integer(pattern: re.Pattern[str], text: str) -> int | None:
    found = times.find_group(pattern, text)
    return int(found) if found is not None and found.isdigit() else None


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    found = times.find_group(pattern, text)
    return float(found.replace(",", "")) if found is not None else None


def _read_model(text: str) -> tuple[str | None, float | None]:
    """A model known by name, else its size in billions of parameters."""
    from firstfault_tools.memory.models import find_named, list_models

    size = _SIZE.search(_ACTIVE.sub("", text)) or _SIZE.search(text)
    billions = None
    if size is not None:
        billions = float(size[1]) * (1.0 if size[2].lower().startswith("b") else 1e-3)
        if billions < 0.01 or (size[2].lower() == "m" and "model" not in text.lower()):
            billions = None
    if (total := _number(_TOTAL, text)) is not None:
        billions = total
    if name := find_named(text):
        return name, billions
    found = _NAMED.search(text)
    if found is None or found["version"] or not found["size"]:
        return None, billions
    start, end = found["family"].lower(), f"-{found['size'].lower()}"
    names = (name for name in list_models() if name.startswith(start) and name.endswith(end))
    return next(names, None), billions


def _read_card(text: str) -> tuple[str | None, int | None]:
    from firstfault_tools.memory.cards import list_cards

    found = _CARD.search(text)
    if found is None:
        sized = _BY_SIZE.search(text)
        if sized is None:
            alone = _SIZED_CARD.search(text)
            return (f"{alone[1]} GiB" if alone else None), None
        gib = f"-{sized['gib']}gb"
        usual = (f"h100{gib}", f"a100{gib}", *(k for k in list_cards() if k.endswith(gib)))
        return next((list_cards()[k].name for k in usual if k in list_cards()), None), int(
            sized["count"]
        )
    name = found["name"].upper()
    name = f"RTX-{name}" if name.endswith("090") or name == "A6000" else name
    cards = list_cards()
    tries = [f"{name}-{found['gib']}gb"] if found["gib"] else []
    if (found["form"] or "").lower() == "nvl":
        tries.insert(0, f"{name}-nvl")
    card = next((cards[t.lower()].name for t in (*tries, name) if t.lower() in cards), None)
    return card, int(found["count"]) if found["count"] else None


def read_card_spans(text: str) -> list[tuple[int, int]]:
    """Where names of cards stand, with their form and memory but without the number of them."""
    return [(m.start("name"), m.end()) for m in _CARD.finditer(text)]


def _read_gpus(text: str, cards: int | None) -> int | None:
    """GPUs in all; `cards` is what stands before the card's name, which nodes multiply."""
    nodes = _NODES.search(text)
    each = _EACH_NODE.search(text)
    if nodes is not None and each is not None:
        return int(nodes[1]) * int(next(g for g in each.groups() if g))
    if (times_ := _NODES_TIMES.search(text)) is not None:
        return int(times_[1]) * int(times_[2])
    if cards is not None:
        return cards * int(nodes[1]) if nodes is not None else cards
    if nodes is None and _ONE_CARD.search(text):
        return 1
    found = times.find_group(_GPUS, text)
    if found is not None:
        return int(found.replace(",", "")) if found[0].isdigit() else 1
    return int(nodes[1]) * int(nodes[2] or 8) if nodes is not None else None


def _read_host(text: str) -> float | None:
    """Memory of a host in GiB, where the sentence gives it."""
    found = _HOST_RAM.search(text)
    if found is None:
        return None
    value, unit = [g for g in found.groups() if g][:2]
    return float(value) * (1e12 if unit.lower() == "t" else 1e9) / 2**30


def _read_sharding(text: str) -> str | None:
    stage = _ZERO.search(text)
    if stage is not None and int(stage[1]):
        return f"zero{stage[1]}"
    if re.search(r"(?i)\b(?:distributed|sharded)[-_ ]optimi[sz]er\b", text):
        return "zero1"
    found = re.search(r"(?i)\b(fsdp|ddp)\d?\b", text)
    return found[1].lower() if found is not None else None


def _read_sequence(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    number, kilo = (found[1], found[2]) if found[1] else (found[3], found[4])
    value = int(number) * (1024 if kilo else 1)
    return value if value >= 64 else None


def _read_recompute(text: str) -> str | None:
    if re.search(r"(?i)\bselective\b", text):
        return "selective"
    if re.search(
        r"(?i)\b(?:no|without) (?:gradient |activation )?(?:checkpointing|recompu\w{0,6})|"
        r"\b(?:checkpointing|recomput\w{0,6})\s?(?:=|:|is)?\s?(?:disabled|off|false|no|none)\b",
        text,
    ):
        return "none"
    found = re.search(
        r"(?i)\b(?:gradient|activation)[- _]checkpointing|\b(?:full )?recompu\w{0,6}", text
    )
    return "full" if found is not None else None


def _rate(found: re.Match[str]) -> float:
    return float(found[1].replace(",", "")) * {"k": 1e3, "t": 1e3, "m": 1e6}.get(
        (found[2] or "")[:1].lower(), 1.0
    )


def _read_odds(text: str) -> float | None:
    """Share of tries that fail, between 0 and 1."""
    found = _ODDS.search(text)
    if found is None:
        return None
    if found[1]:
        return int(found[1]) / int(found[2]) if 0 < int(found[1]) <= int(found[2]) else None
    return float(found[3]) / 100 if found[3] else 1 / int(found[4])
