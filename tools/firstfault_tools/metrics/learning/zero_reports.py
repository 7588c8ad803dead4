"""Where is a zero reported that should be a number? Trainable weights, restored state, loaded keys, samples.

A run without an error can still do nothing: `0 momentum buffers` after a resume, `trainable params: 0`,
`loaded 0/318 keys`, an adapter whose lora_B is still zero after training. What each object means when it
is zero stands in `zero_reports.json`; where the log shows the condition it is a cause, and otherwise a
note that counts when somebody complains of just that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked
from firstfault_tools.log.logs import Logs
from firstfault_tools.log.prefix import read_prefix
from firstfault_tools.placement.rank_table import RANK

BESIDE = ("kind:metrics.grad_norm_zero", "kind:zero.")

MARKERS = (
    "rainable", "requires_grad", "require grad", "ptimizer p", "ptimizer g", "ptimizer: ", "ptimizer t", "ptimizer s",
    "momentum buf", "momentum_buf", "ptimizer.s", "ptimizer_s", "optim_state", "exp_avg", "moments", "keys", "matched", " loaded 0",
    "oaded 0", "lora_", "LoRA B", "adapter weight", "grads", "with grad", "gradient", "delta", "diff", "changed", "updated",
    "on-zero", "onzero", "examples", "annotations", " 0 samples", " 0 images", " 0 rows", " 0 batches", " 0 labels",
    "n_labels", "abel tok", "labels != -100", "labels not -100", "!=-100", "!= -100", "oss_mask", "oss mask", "upervised tok",
    "ompletion tok", "nmasked tok",
    "samples: 0", "num_updates", "n_updates", "0 shards", "0 param", "0 documents", "num_rows: 0", "length: 0", "loader) = 0", "ataset) = 0", "loader): 0",
    "samples kept", "samples left",
    "raining samples: 0", "0 tars", "shards: 0", "EMA", "samples = 0", "images: 0", "size: 0", "Found 0",
)  # fmt: skip
_NONE = (
    "grad is None",
    "grad None",
    "gradients None",
    "gradient None",
    "grads None",
    "grad=None",
    "grads are None",
    "gradients are None",
    "grad: None",
)
_SHAPES = ("(0,)", "torch.Size([0])", "hape [0]", "hape: [0]")
MOST, MOST_CHARS = 4_000, 2_000
_ZEROS = ("0", "zero", "{}", "[]", "empty", ">>> ", "In [")
_FIGURE = (
    r"(?P<value>\d[\d,]{0,30}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?)(?![\w.]{0,60}[A-Za-z%])(?!\s{0,9}[:=])"
    r"(?:\s{0,9}(?:/|of|out of)\s{0,9}(?:the )?(?P<whole>\d[\d,]{0,30}))?"
)
_AFTER = expression(
    rf"[\w()'\"\]\[|<>.\- \t]{{0,40}}?(?:[:=,]{{1,9}}\s{{0,9}}|\s(?:is|are)\s{{1,9}}|\s)"
    rf"(?:tensor\(|\()?(?:{_FIGURE}|(?P<word>\{{\}}|\[\]|empty\b|all[- ]zeros?\b|zeros?\b|none changed))"
)
_BEFORE = expression(
    rf"(?<![\d.,:/-])(?:{_FIGURE}|\b(?P<word>[Nn]o|[Zz]ero))\s+(?:[a-z]+ ){{0,2}}\Z"
)
_EQUALS = expression(r"\s*[:=]")
_PROMPT = expression(r"^\s*(?:>>> |\$ |In \[\d+\]: |\.\.\. |# |print\()")
_LONE = expression(
    r"^\s*(?:Out\[\d+\]: )?(?:tensor\(\[*)?(?P<value>[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)(?:[,. ]|\Z|\))"
)
_RESUMED = expression(
    r"(?i)\bresum(?:e|ed|ing)\b(?![\w=.:\- '\"]{0,30}\b(?:none|null|false)\b)|\b(?:load(?:ed|ing)|restor(?:ed|ing)) (?:\w+ ){0,3}(?:checkpoint|ckpt|state)\b|"
    r"load_state|continuing (?:training )?from"
)
_LOADED = expression(r"(?i)\b(?:load(?:ed|ing)?|from_pretrained|restor(?:ed|ing))\b")
_ADAPTER_LOADED = expression(
    r"(?i)(?:load\w*|from_pretrained|resum\w*).{0,40}(?:adapter|lora|peft)|PeftModel\.from_pretrained"
)
_STEP = expression(
    r"(?i)['\"]?\bloss['\"]?\s?[:=]?\s?-?\d|train_runtime|training (?:completed|finished|done)|\bepochs?\b\W{0,3}\d+"
)
_PRINTED_CODE = expression(
    r"\blen\([^)]*\) ?(?:[<>!]|==)|\bdef |\bassert |\braise |^\s*File \"|f\"|f'|\bif \w"
)
_CHECKPOINTING = (
    "gradient_checkpointing = True",
    "gradient_checkpointing=True",
    "gradient_checkpointing: true",
    "gradient_checkpointing: True",
    "--gradient_checkpointing",
)
_GRADLESS = "Gradients will be None"
_RATE = expression(
    r"(?i)(?:\blr|learning.?rate)\W{0,3}(?:<-|->|[:=])?\s*(?P<value>\d[\d.]*(?:[eE][-+]?\d+)?)"
)


@dataclass(frozen=True, slots=True)
class Report:
    """One figure of one object: rank where its line has one, value, and how it is put."""

    number: int
    text: str
    rank: int | None
    value: float
    put: str


@dataclass(frozen=True, slots=True)
class Reported:
    """An object of the table with its compiled patterns."""

    entry: dict[str, Any]
    noun: re.Pattern[str]
    line: re.Pattern[str] | None
    other: re.Pattern[str]


@cache
def _objects() -> tuple[Reported, ...]:
    table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return tuple(
        Reported(
            entry,
            expression(rf"(?<!\w)(?:{entry['noun']})(?!\w)", re.IGNORECASE),
            expression(entry["line"], re.IGNORECASE) if "line" in entry else None,
            expression(entry["not_line"], re.IGNORECASE),
        )
        for entry in table["objects"]
    )


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> Iterator[Finding]:
    """Objects reported as zero, as a cause where the log shows that they should not be."""
    yield from _read_shapes(lines, file)
    yield from _read_missing_gradients(lines, file)
    marked = keep_marked(lines, MARKERS)
    if not marked or len(marked) > MOST:
        return
    if not any(any(zero in t for zero in _ZEROS) for _, t in marked):
        return
    texts = dict(lines)
    for reported in _objects():
        reports = list(_read(reported, marked, texts))
        zeros = [r for r in reports if r.value == 0]
        if not zeros:
            continue
        if len(lines) <= MOST:
            # the marks name zeros: who reports another figure of the same object is looked for only now
            reports = list(_read(reported, lines, texts))
        found = _weigh(reported, reports, zeros, lines, file)
        if found is not None:
            yield found


def _read(
    reported: Reported, marked: Sequence[tuple[int, str]], texts: dict[int, str]
) -> Iterator[Report]:
    marks = tuple(reported.entry["marks"])
    for number, text in marked:
        if len(text) > MOST_CHARS or not any(mark in text for mark in marks):
            continue
        if reported.other.search(text) or _PRINTED_CODE.search(text):
            continue
        if reported.line is not None and not reported.line.search(text):
            continue
        told = _figure(reported, text, texts.get(number + 1, ""))
        if told is not None:
            yield Report(number, text, _rank_of(text), *told)


def _rank_of(text: str) -> int | None:
    rank = read_prefix(text)[0].rank
    told = RANK.search(text) if rank is None and "ank" in text else None
    return rank if told is None else int(told[1])


def _figure(reported: Reported, text: str, following: str) -> tuple[float, str] | None:
    """(value, as printed) of the object in this line, a zero first; a typed check has its value below."""
    typed = _PROMPT.match(text) is not None
    other: tuple[float, str] | None = None
    for noun in reported.noun.finditer(text):
        if typed and (lone := _LONE.match(following)) is not None:
            return _number(lone["value"]), following.strip()[:80]
        direct = typed or "after" in reported.entry or _EQUALS.match(text, noun.end()) is not None
        told = None if direct else _BEFORE.search(text[max(0, noun.start() - 60) : noun.start()])
        if told is not None:
            put = text[noun.start() - len(told[0]) : noun.end()]
        elif (told := _AFTER.match(text[noun.end() : noun.end() + 100])) is not None and not typed:
            put = text[noun.start() : noun.end() + told.end()]
        else:
            continue
        if told["word"] is None and reported.entry["kind"] == "count" and "." in told["value"]:
            continue
        value = 0.0 if told["word"] is not None else _number(told["value"])
        if value == 0:
            return value, " ".join(put.split())
        other = other or (value, " ".join(put.split()))
    return other


def _number(text: str) -> float:
    try:
        return float(text.replace(",", "").rstrip("."))
    except ValueError:
        return 1.0


def _weigh(
    reported: Reported,
    reports: Sequence[Report],
    zeros: Sequence[Report],
    lines: Sequence[tuple[int, str]],
    file: str,
) -> Finding | None:
    entry = reported.entry
    alone = _find_alone(reports, zeros)
    last = zeros[-1]
    if alone is None and _is_refuted(entry["when"], reports, last.number):
        return None
    holds, why = _condition(entry["when"], last.number, lines)
    title = _say(entry, last, why, lines)
    if alone is not None:
        title = f"rank {alone}: {title}"
    return Finding(
        kind=f"zero.{entry['id']}",
        title=title[0].upper() + title[1:],
        level=Level.CAUSE if holds else Level.CONTEXT,
        category=Category.CHECKPOINT if why == "loaded" else Category(entry["category"]),
        evidence=tuple(
            Evidence(file, r.number, r.text.strip()[:600], rank=r.rank)
            for r in dict.fromkeys((zeros[0], last))
        ),
        rank=alone,
        page=entry["page"],
        facts={
            "object": entry["id"], "explains": dict.fromkeys(entry["explains"], 0.9), "survived": False, "starts_at": 1 if holds else last.number,
        },
    )  # fmt: skip


def _find_alone(reports: Sequence[Report], zeros: Sequence[Report]) -> int | None:
    """The one rank that has nothing where another has something."""
    ranks = {r.rank for r in zeros} - {None}
    others = {r.rank for r in reports if r.value} - {None}
    return next(iter(ranks)) if len(ranks) == 1 and others - ranks else None


def _is_refuted(when: str, reports: Sequence[Report], last: int) -> bool:
    """Another value is reported later; in a run that goes on, another value at all."""
    return any(r.value and (when == "run" or r.number > last) for r in reports)


def _say(entry: dict[str, Any], last: Report, why: str, lines: Sequence[tuple[int, str]]) -> str:
    """What this zero means; of an adapter it depends on what happened before."""
    if entry["id"] == "adapter" and why == "loaded":
        return (
            f"the adapter's weights were not loaded: lora_B is zero ({last.put}) as freshly initialised, so the model "
            "computes what the base model does (names in the adapter file do not match, or another adapter is active)"
        )
    said: str = entry["says"].format(count=last.put, schedule=_schedule(entry, last.number, lines))
    if entry["id"] == "adapter" and why == "trained" and keep_marked(lines, _CHECKPOINTING):
        said += " (gradient checkpointing is on: with frozen inputs its reentrant variant cuts the graph, enable_input_require_grads() or use_reentrant=False is needed)"
    return said


def _condition(when: str, number: int, lines: Sequence[tuple[int, str]]) -> tuple[bool, str]:
    """Whether the log shows that the figure should not be zero, and by which event."""
    if when == "anywhere":
        return True, ""
    if when == "run":
        return any(_STEP.search(t[:MOST_CHARS]) for _, t in lines[:50_000]), ""
    before = [t[:MOST_CHARS] for n, t in lines[:50_000] if n < number]
    if when == "resumed":
        return any(_RESUMED.search(t) for t in before), ""
    if when == "loaded":
        return any(_LOADED.search(t) for t in before), ""
    if any("loss" in t or "train_runtime" in t for t in before if _STEP.search(t)):
        return True, "trained"
    if any(_ADAPTER_LOADED.search(t) for t in before):
        return True, "loaded"
    return False, ""


def _schedule(entry: dict[str, Any], number: int, lines: Sequence[tuple[int, str]]) -> str:
    """What the learning rate did at the resume, where it started far below its last value."""
    if entry["id"] != "optimizer_state":
        return ""
    before: float | None = None
    after: float | None = None
    for n, text in lines[:50_000]:
        if "lr" not in text and "earning" not in text:
            continue
        told = _RATE.search(text[:MOST_CHARS])
        if told is None:
            continue
        if n < number:
            before = _number(told["value"])
        elif after is None:
            after = _number(told["value"])
    if before and after is not None and after < before / 3:
        return (
            f", and the scheduler starts over: learning rate {after:g} at the resume, {before:g} before it "
            "(warm-up begins again)"
        )
    return ""


_EMPTY = expression(r"\(0,\)|torch\.Size\(\[0\]\)|\b[Ss]hape:? ?\[0\]")
_NO_CHECK = expression(
    r"(?i)size mismatch|copying a param|Error\b|state_dict for|(?:saved|recomputed) metadata:"
)
_STAGE_3 = (
    "stage=3",
    "zero3",
    "ZeRO-3",
    "zero_stage: 3",
    "stage3",
    "zero_stage=3",
    '"stage": 3',
    "stage 3",
    "Stage 3",
    "zero_stage ....",
    "stage_3",
)


_ALL_NONE = expression(
    r"(?i)\bgrad(?:ient)?s?(?: is| are|=|:)? ?None\b\D{0,24}(?P<none>\d{1,7}) ?(?:/|of|out of) ?(?P<all>\d{1,7})\b"
)


def _read_missing_gradients(lines: Sequence[tuple[int, str]], file: str) -> Iterator[Finding]:
    """All parameters of the model have no gradient after the backward pass."""
    for number, text in keep_marked(lines, _NONE):
        told = _ALL_NONE.search(text[:MOST_CHARS])
        if told is None or told["none"] != told["all"] or told["all"] == "0":
            continue
        yield Finding(
            kind="zero.gradients",
            title=f"No parameter received a gradient (gradient None for {told['none']} of {told['all']}): the loss does not depend on the trainable "
            "weights (detached or computed under no_grad, frozen inputs under reentrant checkpointing, or another copy of the model)",
            level=Level.CAUSE,
            category=Category.CODE_BUG,
            evidence=(Evidence(file, number, text.strip()[:600]),),
            facts={"survived": False, "starts_at": 1, "explains": {"unlearned": 0.4}},
        )
        return


def _read_shapes(lines: Sequence[tuple[int, str]], file: str) -> Iterator[Finding]:
    """Shapes printed of a saved file that hold no element: partitions that nobody gathered."""
    for number, text in keep_marked(lines, _SHAPES):
        if len(text) > MOST_CHARS or _NO_CHECK.search(text):
            continue
        empty = _EMPTY.findall(text)
        sized = re.findall(r"\(\d+, ?\d+\)|Size\(\[\d+, ?\d+\]\)", text)
        if not empty or sized:
            continue
        stage = keep_marked(lines, _STAGE_3)
        sharded = "a ZeRO-3 model" if stage else "a sharded model (ZeRO-3, FSDP)"
        under = f"the partitions of {sharded} that the ranks hold were not gathered before the save"
        asked = next((n for n, t in lines if n == number - 1 and _PROMPT.match(t)), None)
        before = [Evidence(file, n, t.strip()[:600]) for n, t in lines if n == asked]
        yield Finding(
            kind="zero.empty_tensors",
            title=f"The saved tensors are empty (shape {empty[0]}): {under}, so the file holds placeholders of 0 elements instead of the "
            "trained weights, and loading it changes nothing",
            level=Level.CAUSE,
            category=Category.CHECKPOINT,
            evidence=(Evidence(file, number, text.strip()[:600]), *before, *(Evidence(file, n, t.strip()[:600]) for n, t in stage[:1])),
            facts={"survived": False, "starts_at": 1, "explains": {"unlearned": 0.4}},
        )  # fmt: skip
        return


def find_in_incident(incident: Any, findings: Sequence[Finding]) -> Iterable[Finding]:
    """No gradient at all beside the notice of checkpointing: the frozen inputs are why."""
    dead = next((f for f in findings if f.kind in ("metrics.grad_norm_zero", "zero.adapter", "zero.gradients") and f.level is Level.CAUSE), None)  # fmt: skip
    if dead is None:
        return ()
    logs: Logs = incident
    notice = next(iter(logs.lines_with((_GRADLESS,))), None)
    if notice is None:
        return ()
    digest, number, text = notice
    beside = next((f for f in findings if f.kind == "zero.adapter"), None)
    adapter = any(True for _ in logs.lines_with(("LoRA", "lora", "adapter", "trainable params")))
    what = "the LoRA adapter gets no gradient" if adapter else "no gradient reaches the weights"
    shown = (
        "grad_norm is exactly 0" if dead.kind == "metrics.grad_norm_zero" else "nothing was updated"
    )
    if beside is not None:
        shown += ", lora_B is still zero"
    return (
        Finding(
            kind="zero.checkpointed_inputs",
            title=f"{what[0].upper()}{what[1:]} ({shown}): with reentrant gradient checkpointing (use_reentrant=True) and frozen "
            "embeddings no input of a checkpointed block requires grad, so its gradients are None; "
            "model.enable_input_require_grads() is missing",
            level=Level.CAUSE,
            category=Category.CODE_BUG,
            confidence=Confidence.CONFIRMED,
            evidence=(
                Evidence(digest.file, number, text.strip()[:600]),
                *dead.evidence[-1:],
                *(beside.evidence[-1:] if beside is not None and beside is not dead else ()),
            ),
            facts={"survived": False, "starts_at": 1, "explains": {"unlearned": 0.4}},
        ),
    )
