"""Which numbers does a line print, and what is each called? One reading for all step-line formats.

Megatron's pipes, progress bars, Python dicts, JSON lines, `key=value` and prose all print a name
and then a number. The name is the text between the number before and this one; `vocabulary.json`
says what it means and in which unit. A format nobody has seen yet needs a new word there, not new
code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.line import counts_preparation

NUMBER = expression(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+|(?=\.\d))(?:\.\d*)?(?:[eE][-+]?\d+)?"
    r"|(?<![A-Za-z_])[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity)(?![A-Za-z_])"
)
_UNIT = expression(
    r"\s?(samples/sec|samples/s|tokens/s/gpu|tokens/gpu/s|tokens/sec|tokens/s|tok/s/gpu|tok/sec|"
    r"tok/s|images/s|imgs/s|img/s|steps/s|step/s|its/s|it/s|sec/it|s/step|ms/step|ms/it|s/it|/s|"
    r"[GMTK]i?B|[GMT]i|G|ms|msec|us|secs|sec|s|%|min|bytes|B)(?![A-Za-z]|\s*[:=])"
)
_KEY_UNIT = expression(r"\((ms|s|t|sec|us|%|gib|gb|mib|mb|bytes|b)\)[\s:=\"'\[]*$", re.IGNORECASE)
_CUT = expression(r"[|,;{}\[\]()<>:=]|\s-\s|\t|\s{2,}")
_PROGRESS = expression(
    r"(?:\|\s*|\]\[\s*|\[\s*|Batch:?\s+)(\d+)\s*/\s*(\d+)(?=\s*(?:\[|\]|\(\s*\d+%\)|\s*\|))"
)
_COUNT_OF_UNITS = expression(r"(?<![\w.])(\d{1,12})it\s?/\s?(\d{1,12})it\b")
"""`183it/20000it` is step 183 of 20000; the unit names neither number."""

_NUMBER_AHEAD = expression(r"\s{0,20}[=:]?\s{0,20}\d")
_STEP_OF = expression(r"^\s*/\s*$")
_RANK = expression(r"\b[Rr](?:ank|ANK)[ _:=-]*(\d{1,6})\b|\bRANK[ _:=]*(\d{1,6})\b")
_EPOCH = expression(r"\bEpoch\s*(?:\(train\))?\s*\[(\d+)\]")
_EVALUATION = expression(
    r"Epoch\s*\((?:val|test)\)|(?i:^\W*(?:valid|eval|test)\w*\b)|on (?:validation|test) set"
)
_ON_CARD = expression(r"(?i)\b(?:gpu|cuda)\d*\s*$")
_OF_CARD = expression(r"/\s?\d+(?:\.\d+)?\s?([GM]i?B)\b")
"""Memory in use of the whole card: `gpu 3.10/11.17 GiB`."""

_EPOCH_STEP = expression(r"(?<![\d|])\d{1,5}\|(\d{1,9})\|Loss:")
"""Epoch and step in front of the loss, as torchtune's recipes describe their progress bar."""

MOST_KEY, MOST_MEANINGS = 256, 16_384
"""Characters before a value in which its name stands, and names whose meaning is kept."""

_SPLIT = expression(r"[_/\-.\s]+")
_WHOLE = expression(r"(?i)(?:max|total|num)_(?:steps?|iter\w*|epochs?)$")
_SAMPLES = expression(r"\[\s*(\d+)\s*/\s*(\d+)\s*\(\s*\d+%\)")

SIGNALS = frozenset(
    (
        *("loss", "eval_loss", "total_loss", "grad_norm", "lr", "loss_scale", "skipped"),
        *("step_time_ms", "data_time_ms", "tokens_per_s", "samples_per_s", "iterations_per_s"),
        *("tflops", "mfu_pct", "mem_allocated_gib", "mem_reserved_gib", "mem_peak_gib"),
        *("host_mem_gib", "host_mem_pct", "host_free_gib", "nan_iters"),
    )
)


@dataclass(frozen=True, slots=True)
class Field:
    """One number of a line: metric name, value in the metric's unit, place, factor applied."""

    metric: str
    value: float
    start: int
    end: int
    factor: float


@dataclass(frozen=True, slots=True)
class LineReading:
    """What a step line holds. step_field, total and unit describe the step counter."""

    fields: tuple[Field, ...]
    step: Field | None
    total: int | None
    unit: str
    rank: tuple[int, int] | None
    """Span of the rank number within the line."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of `vocabulary.json`."""

    keys: Mapping[str, tuple[str, str]]
    whole: frozenset[str]
    qualifiers: frozenset[str]
    settings: frozenset[str]
    units: Mapping[str, float]
    rates: Mapping[str, str]


@cache
def vocabulary() -> Vocabulary:
    """Load the vocabulary once."""
    raw = json.loads((Path(__file__).parent / "vocabulary.json").read_text(encoding="utf-8"))
    return Vocabulary(
        keys={name: (meaning[0], meaning[1]) for name, meaning in raw["keys"].items()},
        whole=frozenset(raw["whole_key_only"]),
        qualifiers=frozenset(raw["qualifiers"]),
        settings=frozenset(raw["settings"]),
        units=raw["units"],
        rates=raw["rates"],
    )


def to_number(text: str) -> float:
    """The value of a number as NUMBER finds it; thousands separators are allowed."""
    return float(text.replace(",", ""))


@lru_cache(maxsize=MOST_MEANINGS)
def meaning_of(key: str) -> tuple[str, str] | None:
    """(metric, default unit) of a name as logged, or None for a name that means nothing here."""
    name, slash, whole = key.rpartition("/")
    if slash and _WHOLE.match(whole):  # "global_step/max_steps: 1/40"
        return meaning_of(name)
    words = [word for word in _SPLIT.split(key.lower().strip(" :='\"*#>")) if word]
    if words and words[0][:3] == "gpu" and words[0][3:].isdigit():
        words[0] = "gpu"  # "gpu0 mem"
    known = vocabulary()
    if len(words) > 1 and words[-1] == "step" and " ".join(words) not in known.keys:
        # Lightning's "train_loss_step" is a loss of this step and no step.
        rest = meaning_of(" ".join(words[:-1]))
        if rest is not None and rest[0] not in ("step", "global_step", "epoch", "batch"):
            return rest
    if len(words) > 1 and words[-1] == "epoch" and words[-2] in ("loss", "acc", "accuracy", "lr"):
        return None
    for start in range(max(0, len(words) - 6), len(words)):
        if " ".join(words[start:]) in known.keys:
            return _meaning_behind(words[:start], words[start:])
    return None


def _meaning_behind(ahead: list[str], words: list[str]) -> tuple[str, str] | None:
    """Meaning of known words behind others, which may make a setting or an evaluation of it."""
    known, name = vocabulary(), " ".join(words)
    found = known.keys[name]
    if name in known.whole and not all(word in known.qualifiers for word in ahead):
        return None
    # "warmup_steps: 100" or "max_lr: 1e-3" is an argument and no reading.
    if found[0] in ("step", "lr", "epoch"):
        asked = known.settings & set(ahead)
        # "eval step 100" may be a reading; "eval_steps: 100" never is.
        if asked and (words[-1].endswith("s") or asked - {"eval", "log", "logging"}):
            return None
    evaluation = any(word.startswith(("val", "eval", "test")) for word in ahead)
    if evaluation and found[0] not in ("step", "global_step", "epoch"):
        return known.keys["eval loss"] if found[0] == "loss" else None
    return found


def _factor(metric: str, default: str, key_unit: str | None, unit: str | None) -> float:
    units = vocabulary().units
    for name in (unit, key_unit, default):
        if name and name.lower() in units:
            short = name.lower()
            time = metric.endswith("_ms")
            if time == (short in ("ms", "msec", "s", "sec", "secs", "t", "us", "min")) and (
                time or metric.endswith("_gib")
            ):
                return units[short]
    return 1.0


def unit_factor(metric: str, unit: str) -> float:
    """Factor from `unit` to the unit of `metric`; 1 where the unit says nothing."""
    return _factor(metric, unit, None, None)


def _key(gap: str) -> tuple[str, str | None]:
    unit = _KEY_UNIT.search(gap)
    key_unit = unit.group(1) if unit else None
    bare = (gap[: unit.start()] if unit else gap).rstrip(" \t:=\"'[(")
    cut = 0
    for found in _CUT.finditer(bare):
        cut = found.end()
    return bare[cut:], key_unit


def _belongs_ahead(metric: str, unit: str | None, text: str, place: re.Match[str]) -> bool:
    """Whether a rate's name behind a value names the next one: "loss 2.1 tokens/s 41200"."""
    rates = vocabulary().rates
    if unit not in rates or metric == rates[unit or ""]:
        return False
    return _NUMBER_AHEAD.match(text, place.end()) is not None


class _LineReader:
    """Reads the numbers of one line in turn.

    before: where the number before ended; previous: its metric; word: what the line calls its steps.
    """

    __slots__ = ("before", "counted", "fields", "previous", "steps", "text", "total", "word")

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: list[Field] = []
        self.steps: dict[str, Field] = {}
        self.total: int | None = None
        self.before, self.previous, self.word = 0, "", "step"
        self.counted = _COUNT_OF_UNITS.search(text) if "it/" in text else None
        if self.counted is not None:
            self.steps["step"] = Field("step", float(self.counted[1]), *self.counted.span(1), 1.0)
            self.total = int(self.counted[2])

    def take(self, found: re.Match[str]) -> None:
        """Read one number: the name ahead of it and the unit behind it say what it is."""
        text, (start, end) = self.text, found.span()
        if self.counted is not None and self.counted.start() <= start < self.counted.end():
            self.before = self.counted.end()
            return
        gap = text[max(self.before, start - MOST_KEY) : start]
        behind = _UNIT.match(text, end)
        unit = behind.group(1) if behind else None
        key, key_unit = _key(gap)
        meaning = meaning_of(key) if key else None
        if meaning is None and (whole := _unit_of_card(text, end, key)):
            meaning, unit = ("mem_allocated_gib", "gib"), whole
        if text[end : end + 2] in ("m ", "h ", "d ") and key == "time":
            return  # "time 1m 28s" is a clock since the start
        if meaning is None and not text[end - 1].isdecimal() and text[end - 1] != ".":
            return  # "nan" or "inf" as a word, as in "number of nan iterations: 0"
        if behind and meaning is not None and _belongs_ahead(meaning[0], unit, text, behind):
            behind = unit = None
        self.before = behind.end() if behind else end
        if meaning is None:
            self._take_nameless(found, gap, unit)
        else:
            self._take_named(found, meaning, key, key_unit, unit)

    def _add(self, metric: str, found: re.Match[str], factor: float) -> None:
        value = to_number(found.group()) * factor
        self.fields.append(Field(metric, value, *found.span(), factor))

    def _take_nameless(self, found: re.Match[str], gap: str, unit: str | None) -> None:
        """A rate, which its unit names, or the whole that the number before is a part of."""
        previous, self.previous = self.previous, ""
        if (metric := vocabulary().rates.get(unit or "")) is not None:
            self._add(metric, found, 1000.0 if unit in ("s/it", "s/step", "sec/it") else 1.0)
            self.previous = metric
        elif _STEP_OF.match(gap) and previous in ("step", "global_step"):
            value = to_number(found.group())
            self.total = int(value) if value < 1e12 else None
        elif _STEP_OF.match(gap) and previous == "host_mem_gib":
            self._add("host_mem_total_gib", found, _factor(previous, "gib", None, unit))

    def _take_named(
        self, found: re.Match[str], meaning: tuple[str, str], key: str, key_unit: str | None,
        unit: str | None,
    ) -> None:  # fmt: skip
        (metric, default), printed = meaning, found.group()
        if metric == "batch" and (key_unit or unit in ("s", "ms")):
            metric = "step_time_ms"
        if metric == "host_mem_gib" and "%" in (unit, key_unit):
            metric = "host_mem_pct"
        factor = _factor(metric, default, key_unit, unit)
        if metric == "mem_peak_gib" and default == "mib" and not unit and not key_unit:
            # Bare "memory: 8123" is MiB by custom; small values with a point are GiB.
            factor = 1.0 if "." in printed and to_number(printed) < 2048 else factor
        if metric == "mfu_pct" and unit != "%" and to_number(printed) <= 1.0:
            factor = 100.0
        self.previous = metric
        if metric not in ("step", "global_step", "batch"):
            self._add(metric, found, factor)
            return
        value = to_number(printed) * factor
        if abs(value) < 1e15:
            self.steps.setdefault(metric, Field(metric, value, *found.span(), factor))
            if key.lower().split()[-1:] in (["iteration"], ["iter"], ["iterations"]):
                self.word = "iteration"


def _unit_of_card(text: str, end: int, key: str) -> str | None:
    """Unit of memory in use of a whole card, which stands behind the whole: `gpu 3.10/11.17 GiB`."""
    if text[end : end + 1] != "/" or not _ON_CARD.search(key):
        return None
    whole = _OF_CARD.match(text, end)
    return whole[1] if whole is not None else None


def read_line(text: str) -> LineReading | None:
    """Numbers of a step line, or None where the line is not one.

    text: without colour codes. A step line names a step or an epoch and at least one signal.
    """
    if counts_preparation(text):
        return None
    reader = _LineReader(text)
    for found in NUMBER.finditer(text):
        if found.end() > found.start():
            reader.take(found)
    return _assemble(reader)


def _name_metrics(text: str, fields: list[Field]) -> dict[str, Field]:
    """The first field of each metric; of an evaluation only what it measured."""
    unique: dict[str, Field] = {}
    for item in fields:
        unique.setdefault(item.metric, item)
    total = unique.pop("total_loss", None)
    if total is not None:
        unique.setdefault("loss", replace(total, metric="loss"))
    if "epoch" not in unique and (epoch := _EPOCH.search(text)):
        unique["epoch"] = Field("epoch", float(epoch.group(1)), *epoch.span(1), 1.0)
    if _EVALUATION.search(text):
        shown = unique.get("loss") or unique.get("eval_loss")
        unique = {k: f for k, f in unique.items() if k in ("epoch", "eval_loss", "eval_accuracy")}
        if shown is not None:
            unique["eval_loss"] = replace(shown, metric="eval_loss")
    return unique


def _find_counter(reader: _LineReader, has_epoch: bool) -> tuple[Field | None, int | None, str]:
    """(step, total, unit) of the line, by name or else by the form of a bar or of samples."""
    text, steps, total, word = reader.text, reader.steps, reader.total, reader.word
    if named := steps.get("global_step") or steps.get("step"):
        return named, total, "step" if "global_step" in steps else word
    if "|Loss:" in text and (counted := _EPOCH_STEP.search(text)):
        return Field("step", float(counted.group(1)), *counted.span(1), 1.0), total, word
    samples = _SAMPLES.search(text)
    if progress := samples or _PROGRESS.search(text):
        step = Field("step", float(progress.group(1)), *progress.span(1), 1.0)
        unit = "sample" if samples else "batch" if has_epoch else "step"
        return step, int(progress.group(2)), unit
    return steps.get("batch"), total, "batch" if "batch" in steps else word


def _assemble(reader: _LineReader) -> LineReading | None:
    text = reader.text
    unique = _name_metrics(text, reader.fields)
    if not SIGNALS & unique.keys() or "train_runtime" in text:
        return None
    if "Arguments(" in text or "Namespace(" in text or "Config(" in text:
        return None
    step, total, unit = _find_counter(reader, "epoch" in unique)
    host = {"host_mem_gib", "host_mem_pct", "host_free_gib"} & unique.keys()
    if step is None and "epoch" not in unique and not host:
        return None
    if step is None and not host and not {"loss", "eval_loss", "grad_norm", "lr"} & unique.keys():
        return None
    rank = _RANK.search(text, 0, 200)
    span_of_rank = None
    if rank:
        span_of_rank = rank.span(1) if rank.group(1) else rank.span(2)
    return LineReading(tuple(unique.values()), step, total, unit, span_of_rank)
