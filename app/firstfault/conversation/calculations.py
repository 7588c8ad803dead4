"""What do the calculators answer to a question in words? The result first, then what was assumed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from firstfault.conversation.asked import Asked
from firstfault.conversation.calculator_reply import (
    load_shapes,
    read_currency,
    reply_calculated,
    run_calculator,
    time_of_bytes,
)
from firstfault.conversation.derived_answers import answer_derived, use_all_numbers
from firstfault.conversation.divisions import find_divisions, say_divisions
from firstfault.conversation.formula_answers import CAN_GIVE, answer_formula
from firstfault.conversation.formulas import find_rate
from firstfault.conversation.memory_questions import answer_memory
from firstfault.conversation.quantities import Quantities
from firstfault.conversation.reply import Reply
from firstfault.conversation.times import HOUR, say_time
from firstfault_tools.errors import ToolError
from firstfault_tools.expressions import expression

_ASKS_LOSS = expression(r"(?i)\b(?:fraction|share|percent\w*|%|how much)\b[^?\n]{0,30}\b(?:los[te]\w*|wast\w*|overhead)|\bhow much do we lose\b")  # fmt: skip
_ASKS_GOODPUT = re.compile(r"(?i)\bgoodput|\beffective|\buseful|\bavailab")
FAILURES_PER_GPU_HOUR = 2.0e-5
"""419 unexpected interruptions in 54 days on 16,384 H100s (arXiv 2407.21783, section 3.3.4)."""
SAVE_SECONDS, RESTART_SECONDS = 60.0, 600.0
CONFIDENCE = 0.95
"""Chance of being fooled below 5 %, as fix-verification says."""


def calculate(asked: Asked) -> Reply:
    """The answer of the calculator that the question is about."""
    try:
        reply = _CALCULATE[asked.intent](asked.quantities, asked)
    except ToolError as error:
        return Reply(f"That cannot be calculated: {error}.", f"calculator.{asked.intent}")
    return reply if asked.intent == "derived" else use_all_numbers(reply, asked)


def _bubble(q: Quantities, asked: Asked) -> Reply:
    assumed = []
    schedule = q.schedule or ("interleaved" if q.virtual else "1f1b")
    if q.schedule is None and not q.virtual:
        assumed.append("schedule 1F1B")
    stages = q.stages
    if stages is None:
        return Reply(
            f"How many pipeline stages? With p stages and {q.micro_batches} micro-batches the bubble is "
            f"(p-1)/({q.micro_batches}+p-1) of a 1F1B step.",
            "calculator.bubble",
            tuple(f"{p} stages, {q.micro_batches} micro-batches: how large is the bubble?" for p in (4, 8, 16)),
        )  # fmt: skip
    micro = q.micro_batches
    if micro is None and q.global_batch and (q.micro_batch or q.data or q.gpus):
        micro = max(1, q.global_batch // ((q.micro_batch or 1) * _replicas(q)))
        assumed += [] if q.data or q.gpus else ["one data-parallel rank"]
    if micro is None and q.target_share:
        return _bubble_target(q, asked, schedule, stages)
    if micro is None:
        micro = 4 * stages
        assumed.append(f"{micro} micro-batches, four times the stages")
    inputs: dict[str, Any] = {"schedule": schedule, "stages": stages, "microbatches": micro}
    if schedule == "interleaved":
        inputs["virtual"] = q.virtual or 2
        if not q.virtual:
            assumed.append("2 model chunks a stage")
    assumed.append("equal stages, backward twice the forward")
    at_most = q.target_share or 0.1
    result = run_calculator("bubble", {**inputs, "at_most": at_most})
    share, ratio = float(_f(result, "fraction_of_total")), float(_f(result, "ratio_to_ideal"))
    lines = [f"- That is {100 * ratio:.1f} % on top of the ideal step."]
    need: Any = result.get("microbatches_needed") or {}
    if need.get("microbatches") and share > at_most:
        lines.append(
            f"- For at most {100 * at_most:g} % of the step: {need['microbatches']} micro-batches."
        )
    if schedule == "1f1b":
        lines.append("- Two model chunks a stage (interleaved) about halve it, for more messages; zero-bubble schedules hide it behind weight gradients.")  # fmt: skip
    first = f"{100 * share:.1f} % of the step is pipeline bubble: {stages} stages, {micro} micro-batches, schedule {schedule}."  # fmt: skip
    other = _OTHER_MICRO.search(asked.numbers or asked.text)
    if other is not None and int(other[1]) != micro:
        held = float(
            _f(
                run_calculator("bubble", {**inputs, "microbatches": int(other[1])}),
                "fraction_of_total",
            )
        )
        first = f"{first.rstrip('.')}; with {other[1]} micro-batches it is {100 * held:.1f} %."
    if schedule == "interleaved":
        first = f"{first.rstrip('.')} of {inputs['virtual']} chunks; {_say_plain(stages, micro)}."
    return reply_calculated(asked, first, lines, "bubble", inputs, result, assumed,
                  (f"{stages} stages, {2 * micro} micro-batches: how large is the bubble?", "How do I make the pipeline bubble smaller?"))  # fmt: skip


_OTHER_MICRO = expression(
    r"(?i)\b(?:vs\.?|versus|or|against|->|to)\s?(?:m\s?=?\s?|with )?(\d{1,5})\b(?! ?(?:stages|gpus|chunks))"
)
"""A second number of micro-batches that the first is held against."""


def _say_plain(stages: int, micro: int) -> str:
    """The bubble of the same pipeline without interleaving, which that is held against."""
    plain = run_calculator("bubble", {"schedule": "1f1b", "stages": stages, "microbatches": micro})
    share, ratio = float(_f(plain, "fraction_of_total")), float(_f(plain, "ratio_to_ideal"))
    return f"plain 1F1B, and GPipe, has {100 * share:.1f} % ({100 * ratio:.1f} % on top of the ideal step)"


def _replicas(q: Quantities) -> int:
    """Data-parallel ranks, given or by the GPUs."""
    if q.data:
        return q.data
    return max(1, (q.gpus or 1) // ((q.tensor or 1) * (q.stages or 1) * (q.context or 1)))


def _bubble_target(q: Quantities, asked: Asked, schedule: str, stages: int) -> Reply:
    """How many micro-batches keep the bubble below the share that is asked for."""
    share = q.target_share or 0.1
    inputs: dict[str, Any] = {"schedule": schedule, "stages": stages, "microbatches": stages}
    assumed = ["equal stages, backward twice the forward"]
    assumed += ["schedule 1F1B"] if q.schedule is None and not q.virtual else []
    if schedule == "interleaved":
        inputs["virtual"] = q.virtual or 2
        assumed += [] if q.virtual else ["2 model chunks a stage"]
    result = run_calculator("bubble", {**inputs, "at_most": share})
    need: Any = result.get("microbatches_needed") or {}
    count = need.get("microbatches") or stages
    first = f"{count} micro-batches keep the bubble at or below {100 * share:g} % of the step with {stages} stages, schedule {schedule}."  # fmt: skip
    lines = ["- Formula: (p-1)/(v m+p-1) of the step, for p stages, m micro-batches and v chunks a stage."]  # fmt: skip
    return reply_calculated(
        asked, first, lines, "bubble", {**inputs, "microbatches": count}, result, assumed
    )


def _f(result: Mapping[str, Any], key: str) -> Any:
    return result[key]


def _interval(q: Quantities, asked: Asked) -> Reply:
    missing = _missing_for_interval(q, asked)
    if missing:
        return Reply(f"I did not understand {missing}, so I give no interval. {CAN_GIVE}", "calculator.interval",
                     ("A save takes 60 s and the job fails every 12 hours: how often should we save?",))  # fmt: skip
    assumed: list[str] = []
    gpus = q.gpus or 1
    save = q.save_seconds or time_of_bytes(q, asked)
    failure = _time_between_failures(q)
    if save is None:
        save = SAVE_SECONDS
        assumed.append(f"training stands still {save:.0f} s for a save")
    inputs: dict[str, Any] = {
        "save_seconds": save,
        "gpus": gpus,
        "restart_seconds": q.restart_seconds or RESTART_SECONDS,
    }
    if q.restart_seconds is None:
        assumed.append(f"{RESTART_SECONDS / 60:.0f} min to restart")
    if failure is not None:
        inputs["mtbf_hours"] = failure / HOUR
    else:
        inputs["failures_per_gpu_hour"] = FAILURES_PER_GPU_HOUR
        assumed.append("2 failures in 100,000 GPU-hours (Llama 3, arXiv 2407.21783)")
        if q.gpus is None:
            inputs["gpus"] = gpus = 1024
            assumed.append("1,024 GPUs")
    if q.interval_seconds is not None:
        inputs["interval_seconds"] = q.interval_seconds
    if q.price is not None:
        inputs["price_per_gpu_hour"] = q.price
    result = run_calculator("checkpoint_interval", inputs)
    best, mtbf = float(_f(result, "daly_s")), float(_f(result, "mtbf_h"))
    lines = [
        (f"- Time between failures: {say_time(mtbf * HOUR)}; at the best interval {100 * float(_f(result, 'waste_share_at_best')):.1f} "
f"% of the time goes into saves, lost work and restarts."),
    ]  # fmt: skip
    if q.interval_seconds is not None:
        lines.append(
            f"- Every {say_time(q.interval_seconds)}, as now, {100 * float(_f(result, 'waste_share')):.1f} % is "
            f"lost; a failure costs {say_time(float(_f(result, 'lost_work_s')))} of work on average."
        )
    if q.gpus is not None or failure is None:
        lines.append(f"- Lost a day: {float(_f(result, 'gpu_h_per_day_lost')):,.0f} GPU-hours.")
    first = f"Save every {say_time(best)} (Daly's optimum for a save of {say_time(save)} and a failure every {say_time(mtbf * HOUR)})."  # fmt: skip
    if q.interval_seconds is None and _ASKS_GOODPUT.search(asked.text):
        lines.insert(
            0,
            f"- Goodput is then {100 * (1 - float(_f(result, 'waste_share_at_best'))):.1f} % at the best.",
        )
    goodput = _ASKS_GOODPUT.search(asked.text) is not None
    if q.interval_seconds is not None and (goodput or _ASKS_LOSS.search(asked.text)):
        lines.insert(0, f"- {first}")
        lost = float(_f(result, "waste_share"))
        head = (
            f"Goodput is {100 * (1 - lost):.1f} %"
            if goodput
            else f"{100 * lost:.1f} % of the time is lost"
        )
        first = (
            f"{head} as set up: a save of {say_time(save)} every {say_time(q.interval_seconds)}, a failure every "
            f"{say_time(mtbf * HOUR)}, {say_time(inputs['restart_seconds'])} to restart."
        )
    return reply_calculated(asked, first, lines, "checkpoint_interval", inputs, result, assumed,
                  ("How do I make checkpoints faster?", "What should be in a checkpoint to resume exactly?"))  # fmt: skip


_SPEAKS_OF_FAILURES = re.compile(
    r"(?i)\b(?:fail\w*|crash\w*|mtbf|mttf|dies|breaks|interrupt\w*)\b[^.?\n]{0,30}\d|"
    r"\d[^.?,\n]{0,20}\b(?:fail\w*|crash\w*)"
)


def _time_between_failures(q: Quantities) -> float | None:
    """Of the whole run: as told, else by what one of its nodes or GPUs lasts."""
    if q.each_fails is None:
        return q.failure_seconds
    part, seconds = q.each_fails
    count = q.nodes if part == "node" else q.gpus
    return seconds / count if count else None


def _missing_for_interval(q: Quantities, asked: Asked) -> str:
    """What the sentence tells of failures without its being understood; '' where nothing is."""
    if q.each_fails is not None and _time_between_failures(q) is None:
        return f"how many {q.each_fails[0]}s there are"
    told = _SPEAKS_OF_FAILURES.search(asked.numbers or asked.text) is not None
    known = q.failure_seconds is not None or q.each_fails is not None
    return "how often it fails" if told and not known else ""


def _checkpoint_size(q: Quantities, asked: Asked) -> Reply:
    inputs: dict[str, Any] = (
        {"model": q.model} if q.model else {"parameters": int((q.billions or 7) * 1e9)}
    )
    result = run_calculator("checkpoint_size", inputs)
    each = float(_f(result, "bytes_per_parameter"))
    billions = float(_f(result, "parameters")) / 1e9
    first = (
        f"{float(_f(result, 'total_gb')):,.0f} GB for a full checkpoint of {billions:.3g} billion parameters: "
        f"weights and Adam state at {each:g} bytes a parameter."
    )
    rate = find_rate(asked.numbers or asked.text)
    if rate:
        first = f"{first.rstrip('.')}; {say_time(float(_f(result, 'total_gb')) * 1e9 / rate)} to write or read at {rate / 1e9:g} GB/s."
    lines = [
        f"- Weights alone in BF16: {2 * billions:,.0f} GB.",
        f"- Without the BF16 copy: {12 * billions:,.0f} GB.",
        f"- Keeping three: {3 * float(_f(result, 'total_gb')):,.0f} GB.",
    ]
    return reply_calculated(
        asked,
        first,
        lines,
        "checkpoint_size",
        inputs,
        result,
        ["mixed precision with Adam"],
        ("How often should we save a checkpoint with 1024 GPUs?",),
    )


def _mfu(q: Quantities, asked: Asked) -> Reply:
    peaks: Mapping[str, float] = load_shapes()["peaks"]
    card = q.card or "H100-80GB"
    peak = peaks.get(card) or next((v for k, v in peaks.items() if card.startswith(k)), 989)
    billions = q.active_billions or q.billions
    if billions is None and q.model is not None:
        billions = (
            float(_f(run_calculator("checkpoint_size", {"model": q.model}), "parameters")) / 1e9
        )
    if billions is None:
        return Reply(
            "How many parameters has the model? MFU = 6 x parameters x tokens per second / (GPUs x peak FLOP/s).",
            "calculator.mfu",
            (f"MFU of a 7B model at {q.tokens_per_second:g} tokens/s per GPU on H100?",),
        )
    gpus = 1 if q.tokens_each_gpu else (q.gpus or 1)
    rate = (q.tokens_per_second or 0.0) / gpus
    mfu = 6 * billions * 1e9 * rate / (peak * 1e12)
    assumed = [
        f"{peak:g} TFLOP/s dense BF16 peak of {card}",
        "6 FLOP a parameter and token, attention left out",
    ]
    if not q.tokens_each_gpu and q.gpus is None:
        assumed.append("the rate is that of one GPU")
    inputs = {
        "billions": billions,
        "tokens_per_second": q.tokens_per_second,
        "gpus": gpus,
        "card": card,
    }
    usual = "above the usual 35 to 50 %" if mfu > 0.5 else "within the usual 35 to 50 %" if mfu >= 0.35 else "below the usual 35 to 50 %"  # fmt: skip
    first = f"MFU is {100 * mfu:.1f} %, {usual}: {billions:g} billion parameters at {rate:,.0f} tokens a second and GPU."
    return reply_calculated(
        asked,
        first,
        [
            "- 35 to 50 % is usual for dense models on well-connected nodes; below 20 % something costs time."
        ],
        "mfu",
        inputs,
        {"mfu_share": mfu},
        assumed,
        ("Why is MFU low?",),
    )


def _idle_cost(q: Quantities, asked: Asked) -> Reply:
    if q.gpus is None or q.duration_seconds is None:
        return Reply(
            (
                "How many GPUs stood idle, for how long, and at what price an hour? For example: 256 GPUs idle for "
                "80 minutes at $4."
            ),
            "calculator.idle_cost",
            ("256 GPUs idle for 80 minutes at $4 an hour: what does it cost?",),
        )
    if q.price is None and _TELLS_PRICE.search(asked.text):
        return Reply("I did not understand the price of a GPU-hour. For example: 256 GPUs idle for 80 minutes at $4.", "calculator.idle_cost")  # fmt: skip
    share = _lost_share(asked.text)
    hours = q.gpus * q.duration_seconds / HOUR * share
    money = (
        f", {read_currency(asked.text)}{hours * q.price:,.0f} at {q.price:g} a GPU-hour"
        if q.price is not None
        else ""
    )
    slowed = f", of which {share:.1%} is lost at that speed" if share < 1 else ""
    first = f"{hours:,.1f} GPU-hours{money}: {q.gpus:,} GPUs for {say_time(q.duration_seconds)}{slowed}."
    inputs = {"gpus": q.gpus, "seconds": q.duration_seconds, "price": q.price, "lost_share": share}
    result = {"gpu_hours": hours, "cost": None if q.price is None else hours * q.price}
    lines = [] if q.price is not None else ["- Give a price of a GPU-hour for the money."]
    holds = (
        "every GPU stood still all the time"
        if share == 1
        else "the rest of the run goes on at that speed"
    )
    return reply_calculated(asked, first, lines, "idle_cost", inputs, result, [holds])


_TELLS_PRICE = re.compile(r"[$€£] ?\d|\d ?[$€£]")
_SLOWED = expression(
    r"(?i)(?P<now>\d[\d,]*(?:\.\d+)?) ?k?\b[^\d\n]{0,16}\b(?:instead of|rather than|not)\b[^\d\n]{0,6}(?P<before>\d[\d,]*(?:\.\d+)?) ?k?[^.?\n\d]{0,3}(?:tok|samples|images|steps)"
)


def _lost_share(text: str) -> float:
    """Share of the GPU-hours that a speed below the usual one loses (`89K instead of 142K tokens/s`); 1 where none is told."""
    told = _SLOWED.search(text)
    if told is None:
        return 1.0
    now, before = (float(told[name].replace(",", "")) for name in ("now", "before"))
    return 1 - now / before if 0 <= now < before else 1.0


def _trials(q: Quantities, asked: Asked) -> Reply:
    if q.odds is not None and 0 < q.odds < 1 and q.clean_runs:
        return _luck(q.odds, q.clean_runs, asked)
    if q.odds is not None and 0 < q.odds < 1:
        count = math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - q.odds))
        first = f"{count} clean runs in a row: with a fault that strikes {100 * q.odds:.3g} % of runs, fewer leave more than 5 % chance of luck."  # fmt: skip
        inputs: dict[str, Any] = {"fails_share": q.odds, "confidence": CONFIDENCE}
        result: dict[str, Any] = {"clean_runs": count}
    elif q.failure_seconds is not None:
        wait = -math.log(1 - CONFIDENCE) * q.failure_seconds
        first = f"{say_time(wait)} without the failure: three times the usual {say_time(q.failure_seconds)} between failures leave 5 % chance of luck."  # fmt: skip
        inputs, result = {"failure_seconds": q.failure_seconds}, {"wait_seconds": wait}
    else:
        return Reply("How often does it fail: in which share of runs, or after what time? For example: it fails 3 of 10 runs.", "calculator.trials")  # fmt: skip
    return reply_calculated(
        asked,
        first,
        [
            (
                "- Run them on the nodes of the incident and on others, and without the fix once more: it must fail "
                "again."
            )
        ],
        "trials",
        inputs,
        result,
        ["independent runs"],
        ("How do I verify a fix?",),
    )


def _luck(odds: float, clean: int, asked: Asked) -> Reply:
    """Whether runs that were clean so far prove anything."""
    luck = (1 - odds) ** clean
    count = math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - odds))
    proven = luck <= 1 - CONFIDENCE
    word = "Yes, very likely fixed" if proven else "Not proven yet"
    first = (
        f"{word}: {clean} clean runs would be luck in {100 * luck:.2g} % of cases if it still failed in {100 * odds:.3g} % of runs"
        + ("." if proven else f"; {count} are needed for 5 %.")
    )
    inputs = {"fails_share": odds, "clean_runs": clean}
    return reply_calculated(asked, first, ["- Run it once more without the fix: it must fail again."], "trials", inputs,
                  {"chance_of_luck": luck, "clean_runs_needed": count}, ["independent runs"], ("How do I verify a fix?",))  # fmt: skip


def _position(q: Quantities, asked: Asked) -> Reply:
    """Where a rank stands in the mesh."""
    sizes = {"tp": q.tensor or 1, "pp": q.stages or 1, "cp": q.context or 1}
    world = q.gpus or sizes["tp"] * sizes["pp"] * sizes["cp"] * (q.data or 1)
    inputs: dict[str, Any] = {"rank": q.rank, "world": max(world, (q.rank or 0) + 1 if not q.gpus and not q.data else world), **sizes}  # fmt: skip
    result = run_calculator("rank_position", inputs)
    place: Any = result["dense"]
    first = (
        f"Rank {q.rank} is pipeline stage {place['pp']} (of {sizes['pp']}), tensor rank {place['tp']}, data-parallel rank {place['dp']}"
        + (f", context rank {place['cp']}" if sizes["cp"] > 1 else "")
        + "."
    )
    groups: Any = result.get("groups") or {}
    lines = [
        f"- Same {k.upper()} group: {', '.join(map(str, v[:16]))}{' ...' if len(v) > 16 else ''}."
        for k, v in groups.items()
        if k in ("tp", "pp", "dp") and isinstance(v, list) and len(v) > 1
    ]
    return reply_calculated(asked, first, lines, "rank_position", inputs, result,
                  ["Megatron's order tp-cp-ep-dp-pp, counted from 0"])  # fmt: skip


def _mesh(q: Quantities, asked: Asked) -> Reply:
    tp, pp, cp = q.tensor or 1, q.stages or 1, q.context or 1
    model = tp * pp * cp
    world = q.gpus or (q.data * model if q.data else None)
    if q.rank is not None:
        return _position(q, asked)
    inputs: dict[str, Any] = {"world": world, "tp": tp, "pp": pp, "cp": cp}
    divided = find_divisions(q)
    if divided and (world is None or not all(d.whole for d in divided)):
        return say_divisions(divided, asked)
    if world is None:
        return Reply(
            (
                f"How many GPUs in all? One replica takes {model} (TP {tp} x PP {pp} x CP {cp}); the data-parallel "
                f"size is the GPUs divided by that."
            ),
            "calculator.mesh",
            (f"TP {tp}, PP {pp} on {model * 8} GPUs: what is the data-parallel size?",),
        )
    if world % model:
        return reply_calculated(
            asked,
            f"That does not divide: {world} GPUs are no multiple of TP {tp} x PP {pp} x CP {cp} = {model}.",
            [
                f"- Nearest that does: {world // model * model} or {(world // model + 1) * model} GPUs."
            ],
            "mesh",
            inputs,
            {"divides": False},
            [],
        )
    dp = world // model
    lines = []
    result: dict[str, Any] = {"data_parallel_size": dp}
    first = f"Data-parallel size {dp}: {world} GPUs / (TP {tp} x PP {pp} x CP {cp})."
    if q.global_batch:
        micro = q.micro_batch or 1
        steps, rest = divmod(q.global_batch, dp * micro)
        result["micro_batches"] = steps
        if rest:
            first = f"That does not divide: a global batch of {q.global_batch} is no multiple of {dp} replicas x micro-batch {micro}."
        else:
            first = (
                f"{steps} micro-batches a step and replica: global batch {q.global_batch} / ({dp} replicas x micro-batch {micro}); "
                f"the data-parallel size is {dp} = {world} / (TP {tp} x PP {pp} x CP {cp})."
            )
            if pp > 1:
                lines.append(
                    f"- Bubble (1F1B): {100 * (pp - 1) / (steps + pp - 1):.1f} % of the step."
                )
    return reply_calculated(asked, first, lines, "mesh", inputs, result, [])


_CALCULATE: Mapping[str, Callable[[Quantities, Asked], Reply]] = {
    "derived": answer_derived,
    "formula": answer_formula,
    "bubble": _bubble,
    "memory": answer_memory,
    "states": answer_memory,
    "interval": _interval,
    "checkpoint_size": _checkpoint_size,
    "mfu": _mfu,
    "idle_cost": _idle_cost,
    "trials": _trials,
    "mesh": _mesh,
    "position": _position,
}
