"""Which formula answers a question, by what is asked and which quantities are given? Both are data (formulas.yaml)."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.conversation.budgets import read_token_budget
from firstfault.conversation.quantities import COUNTS, Quantities, bind
from firstfault.conversation.times import seconds_of
from firstfault_tools.dataclass import dataclass
from firstfault_tools.knowledge.pack import read_yaml

TABLE = Path(__file__).with_name("formulas.yaml")
_NUMBER = r"(?<![\w.])(?P<value>\d{1,3}(?:,\d{3}){1,4}|\d{1,12}(?:\.\d{1,4})?)"
_PARTS = {
    "{x}": r"(?<![\w.])(?P<value>\d{1,6}(?:\.\d{1,8})?(?:e-?\d{1,2})?)",
    "{n}": rf"{_NUMBER} ?(?P<scale>k|m|mn|million|b|bn|billion|t|tn|trillion)?(?![a-z\d])",
    "{time}": rf"{_NUMBER} ?(?P<time>ms|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|months?|years?)\b",
    "{bytes}": rf"{_NUMBER} ?(?P<bytes>[kmgtp]i?b)(?:ytes)?\b",
    "{b}": rf"{_NUMBER} ?(?P<bytes>(?-i:[kmgtp]i?b|[kKMGTP]i?B))(?:ytes)? ?(?:/|per |a )s(?:ec(?:ond)?)?\b",
    "{bits}": rf"{_NUMBER} ?(?P<bits>(?:[kmgt]b(?=ps)|[kmgt]bit|(?-i:[KMGT]b(?=/s| per s))))(?:ps| ?(?:/|per |a )s(?:ec(?:ond)?)?)\b",
}
_SCALES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
YEAR = 31_557_600.0
_CARD_MEMORY = re.compile(r"(\d{2,3}) ?G(?:i?B)")
_NO_NAMES = frozenset(
    {"checkpoint", "ckpt", "gb", "tb", "at", "over", "with", "gives", "of", "disk"}
)
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "ceil": lambda x: float(math.ceil(x)), "sqrt": math.sqrt, "log": math.log, "exp": math.exp, "min": min,
    "floor": lambda x: float(math.floor(x)), "cos": math.cos,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Pow: operator.pow,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True)
class Amount:
    """One quantity. value in units of the base: seconds, bytes, bytes a second, or a count; name: of what."""

    value: float
    kind: str = "n"
    name: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A further result of the same quantities, said where `given` are told and none of `lacks` is."""

    given: tuple[str, ...]
    lacks: tuple[str, ...]
    result: str
    unit: str
    say: str


@dataclass(frozen=True, slots=True)
class Formula:
    """One row of the table."""

    id: str
    asks: re.Pattern[str]
    given: tuple[str, ...]
    default: Mapping[str, float]
    result: str
    unit: str
    say: str
    holds: str
    source: str
    next: str = ""
    unless: re.Pattern[str] | None = None
    also: str = ""
    also_unit: str = ""
    also_say: str = ""
    told: tuple[str, ...] = ()
    computes: bool = False
    """It counts FLOP: of a mixture of experts the active parameters."""
    parts: tuple[Part, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)
    negative: str = ""
    beside: bool = False
    """Only for a further question of a message that another calculator answers."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A formula with the amounts of one sentence; assumed: names that the sentence did not give."""

    formula: Formula
    amounts: Mapping[str, Amount]
    rates: tuple[Amount, ...]
    assumed: tuple[str, ...]

    def evaluate(self, **more: float) -> float:
        """The result in base units."""
        names = {k: a.value for k, a in self.amounts.items()} | more
        return evaluate(ast.parse(self.formula.result, mode="eval").body, names)

    @property
    def second(self) -> float | None:
        """The other result of the formula, where it has one."""
        if not self.formula.also:
            return None
        names = {k: a.value for k, a in self.amounts.items()}
        return evaluate(ast.parse(self.formula.also, mode="eval").body, names)


@cache
def load_formulas() -> tuple[Formula, ...]:
    """Every formula, in the order in which they are tried."""
    return tuple(
        Formula(
            row["id"], re.compile(row["asks"], re.IGNORECASE), tuple(row["given"]), row.get("default", {}),
            row["result"], row["unit"], row["say"], row["holds"], row["source"], row.get("next", ""),
            re.compile(row["not"], re.IGNORECASE) if "not" in row else None,
            row.get("also", ""), row.get("also_unit", ""), row.get("also_say", ""), tuple(row.get("told", ())),
            row.get("computes", False),
            tuple(
                Part(tuple(p["given"]), tuple(p.get("lacks", ())), p["result"], p["unit"], p["say"])
                for p in row.get("parts", ())
            ),
            row.get("instead", {}), row.get("negative", ""), row.get("beside", False),
        )
        for row in read_yaml(TABLE.read_text(encoding="utf-8"))["formulas"]
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Headline:
    """A quantity that is asked for by name. by: formulas that give it; calculator: which else does, '' for none."""

    asks: re.Pattern[str]
    by: tuple[str, ...]
    calculator: str


@cache
def _headlines() -> tuple[Headline, ...]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["headlines"]
    return tuple(
        Headline(re.compile(r["asks"], re.IGNORECASE), tuple(r["by"]), r.get("calculator", ""))
        for r in rows
    )


def _keep_headline(asked: list[Formula], text: str, quantities: Quantities) -> list[Formula]:
    """The formulas of the quantity that is asked for by name first; no others where a calculator of its own gives it."""
    headline = next((h for h in _headlines() if h.asks.search(text)), None)
    if headline is None:
        return asked
    first = [f for f in asked if f.id in headline.by]
    if headline.calculator and quantities.serves(headline.calculator):
        return first
    return first + [f for f in asked if f not in first]


@cache
def _patterns() -> Mapping[str, tuple[re.Pattern[str], ...]]:
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["quantities"]
    return {name: tuple(_compile(p) for p in row["say"]) for name, row in rows.items()}


def _compile(phrase: str) -> re.Pattern[str]:
    for mark, pattern in _PARTS.items():
        phrase = phrase.replace(mark, pattern)
    return re.compile(phrase, re.IGNORECASE)


OF_ITS_OWN = 3
"""Words up to which a clause ("how long?") has no subject of its own: that of the message is meant."""


def choose_formula(text: str, quantities: Quantities, clause: str = "") -> Chosen | None:
    """The first formula that is asked for and whose quantities `text` gives; None where none is.

    clause: the part of `text` that asks, where only one of several questions is meant.
    """
    asks = clause or text
    context = asks if len(asks.split()) > OF_ITS_OWN else text
    asked = [
        f
        for f in load_formulas()
        if f.asks.search(asks)
        and (clause or not f.beside)
        and (f.unless is None or f.unless.search(context) is None)
    ]
    if not clause:
        asked = _keep_headline(asked, text, quantities)
    if not asked:
        return None
    amounts = read_amounts(text, quantities)
    rates = tuple(_amount(m) for p in _patterns()["rates"] for m in p.finditer(text))
    for formula in asked:
        if any(_find(t, text) is None for t in formula.told):
            continue
        if _serves_twice(formula, amounts, text):
            continue
        if all(rates if g == "rates" else g in amounts for g in formula.given):
            names = (*formula.given, *formula.default)
            wanted = {*names, *(n for p in formula.parts for n in p.given)}
            known = {n: amounts[n] for n in amounts if n in wanted}
            for name, other in formula.instead.items():
                if name not in known and other in amounts:
                    known[name] = amounts[other]
            if formula.computes and quantities.active_billions:
                known["parameters"] = Amount(quantities.active_billions * 1e9)
            missing = tuple(n for n in formula.default if n not in known)
            return Chosen(
                formula, known | {n: Amount(formula.default[n]) for n in missing}, rates, missing
            )
    return None


def _serves_twice(formula: Formula, amounts: Mapping[str, Amount], text: str) -> bool:
    """One time of the sentence is taken for two of the quantities that the formula needs."""
    times = [a.value for g in formula.given if (a := amounts.get(g)) and a.kind == "time"]
    told = [_amount(m).value for m in _compile("{time}").finditer(text)]
    return any(times.count(t) > max(1, told.count(t)) for t in times)


def _find(name: str, text: str) -> re.Match[str] | None:
    """The first mention of a quantity in the sentence."""
    return next((m for p in _patterns()[name] if (m := p.search(text)) is not None), None)


def find_rate(text: str) -> float | None:
    """Bytes a second that the sentence gives; None where it gives none."""
    found = _find("link", text)
    return _amount(found).value if found is not None else None


@cache
def _counts() -> Mapping[str, tuple[re.Pattern[str], ...]]:
    """Quantities that are a number beside a noun, with those of other calculators, which claim their words too."""
    rows = read_yaml(TABLE.read_text(encoding="utf-8"))["quantities"]
    own = {name: _patterns()[name] for name, row in rows.items() if row.get("count")}
    return own | {f"other {name}": patterns for name, patterns in COUNTS.items() if name not in own}


def read_amounts(text: str, quantities: Quantities) -> dict[str, Amount]:
    """Every amount of the sentence, by name."""
    out: dict[str, Amount] = {}
    counts = _counts()
    bound = bind(text, counts)
    for name in _patterns():
        found = bound.get(name) if name in counts else _find(name, text)
        if found is not None and name != "rates":
            out[name] = _amount(found)
            if name == "sequence" and (found["scale"] or "").lower() == "k":
                out[name] = Amount(out[name].value * 1.024)  # lengths are told in units of 1,024
    of_sentence = {
        "gpus": quantities.gpus, "tensor": quantities.tensor, "stages": quantities.stages,
        "context": quantities.context, "sequence": quantities.sequence,
        "global_batch": quantities.global_batch, "shards": quantities.data or quantities.gpus,
    }  # fmt: skip
    out |= {n: Amount(v) for n, v in of_sentence.items() if v and n not in out}
    _add_told(out, text, quantities)
    times = {"restart": quantities.restart_seconds, "lost_work": quantities.lost_seconds}
    out |= {n: Amount(v, "time") for n, v in times.items() if v}
    if quantities.price:
        out["price"] = Amount(quantities.price)
    if quantities.tokens_per_second:
        each = (quantities.gpus or 1) if quantities.tokens_each_gpu else 1
        out["tokens_a_second"] = Amount(quantities.tokens_per_second * each)
    if quantities.failure_seconds:
        out["failure_gap"] = Amount(quantities.failure_seconds, "time")
    if quantities.billions:
        out["parameters"] = Amount(quantities.billions * 1e9)
    out = {n: Amount(v) for n, v in shape_of_model(quantities).items()} | out
    if "hidden" in out and "heads" in out:
        out.setdefault("head_dim", Amount(out["hidden"].value / out["heads"].value))
    if quantities.precision:
        out["width"] = Amount({"fp32": 4, "fp8": 1}.get(quantities.precision, 2))
    peak = find_peak(quantities.card)
    if peak is not None:
        out["peak"] = Amount(peak * 1e12)
    return out


def _add_told(out: dict[str, Amount], text: str, quantities: Quantities) -> None:
    """Tokens told as a bare number, and the memory of a card that is named with it."""
    budget = read_token_budget(text)
    if budget:
        out.setdefault("tokens", Amount(budget))
    if quantities.card and (gib := _CARD_MEMORY.search(quantities.card)) is not None:
        out.setdefault("card_memory", Amount(float(gib[1]) * 1e9, "bytes"))


def shape_of_model(quantities: Quantities) -> dict[str, float]:
    """Shape of the model that is named, else of the nearest known one of its size."""
    if quantities.model is not None:
        from firstfault_tools.memory.models import list_models

        known = list_models()[quantities.model]
        config = known["config"]
        names = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads",
                 "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "vocabulary": "vocab_size"}  # fmt: skip
        shape = {n: float(config[k]) for n, k in names.items() if isinstance(config.get(k), int)}
        return {"parameters": float(known["parameters"]), **shape, **_kv_of(shape)}
    if not quantities.billions:
        return {}
    rows = read_yaml(TABLE.with_name("shapes.yaml").read_text(encoding="utf-8"))["shapes"]
    row = min(rows, key=lambda r: abs(math.log(r["size"] / quantities.billions)))
    shape = {n: float(row[k]) for n, k in (("hidden", "hidden"), ("heads", "heads"), ("vocabulary", "vocab"), ("kv_heads", "kv_heads")) if k in row}  # fmt: skip
    shape["layers"] = max(1.0, round(row["layers"] * quantities.billions / row["size"]))
    return {**shape, **_kv_of(shape)}


def _kv_of(shape: Mapping[str, float]) -> dict[str, float]:
    """As many key and value heads as heads, where the shape names none."""
    return {"kv_heads": shape["heads"]} if "kv_heads" not in shape and "heads" in shape else {}


def find_peak(card: str | None) -> float | None:
    """Dense BF16 peak of a card in TFLOP/s; None where it is not known (shapes.yaml)."""
    if card is None:
        return None
    peaks = read_yaml(TABLE.with_name("shapes.yaml").read_text(encoding="utf-8"))["peaks"]
    return next((float(v) for k, v in peaks.items() if card.startswith(k)), None)


def _amount(found: re.Match[str]) -> Amount:
    groups = found.groupdict()
    value = float(groups["value"].replace(",", ""))
    if groups.get("bits"):
        return Amount(value * 1000.0 ** "bkmgt".index(groups["bits"][0].lower()) / 8, "rate")
    if groups.get("time"):
        unit = groups["time"].lower()
        return Amount(value * seconds_of(unit), "time")
    if groups.get("bytes"):
        unit = groups["bytes"].lower()
        power = "bkmgtp".index(unit[0])
        name = groups.get("name") or ""
        name = "" if name.lower() in _NO_NAMES else name
        return Amount(value * (1024.0 if "i" in unit else 1000.0) ** power, "bytes", name)
    scale = (groups.get("scale") or "")[:1].lower()
    return Amount(value * _SCALES.get(scale, 1.0))


def evaluate(node: ast.expr, names: Mapping[str, float]) -> float:
    """Arithmetic of the table: names, numbers, + - * / ** and a few functions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](evaluate(node.left, names), evaluate(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(evaluate(a, names) for a in node.args))
    raise ValueError(f"not arithmetic of formulas.yaml: {ast.dump(node)}")


def say_formula(chosen: Chosen, say_time: Callable[[float], str]) -> tuple[str, dict[str, Any]]:
    """(first sentence, result by name). say_time: how a duration is said."""
    formula = chosen.formula
    said = {name: _say(name, a, say_time) for name, a in chosen.amounts.items()}
    if "rates" not in formula.given:
        result = chosen.evaluate()
        if result < 0 and formula.negative:
            return formula.negative.format(**said), {formula.id: result}
        text = formula.say.format(**said, result=say_result(result, formula.unit, say_time))
        return text, {formula.id: result}
    rows, results = [], {}
    for number, rate in enumerate(chosen.rates, 1):
        name = rate.name or f"rate {number}"
        results[name] = chosen.evaluate(rate=rate.value)
        what = (
            f"{rate.name}, {say_bytes(rate.value)}/s" if rate.name else f"{say_bytes(rate.value)}/s"
        )
        rows.append(
            formula.say.format(
                **said, result=say_result(results[name], formula.unit, say_time), rate=what
            )
        )
    return f"{'; '.join(rows)}: for {said['size']}.", results


def say_parts(chosen: Chosen, say_time: Callable[[float], str]) -> list[str]:
    """The further results whose quantities the sentence gives, a sentence each."""
    names = {k: a.value for k, a in chosen.amounts.items()}
    told = {n for n in names if n not in chosen.assumed}
    said = {name: _say(name, a, say_time) for name, a in chosen.amounts.items()}
    if chosen.rates and "rates" in chosen.formula.given:
        names["rate"] = chosen.rates[0].value
    out: list[str] = []
    if chosen.formula.negative and chosen.evaluate() < 0:
        return out
    for part in chosen.formula.parts:
        if any(g not in told for g in part.given) or any(x in told for x in part.lacks):
            continue
        value = evaluate(ast.parse(part.result, mode="eval").body, names)
        out.append(part.say.format(**said, result=say_result(value, part.unit, say_time)))
    return out


def say_second(chosen: Chosen, say_time: Callable[[float], str]) -> str:
    """The other result in a sentence; '' where there is none."""
    second, formula = chosen.second, chosen.formula
    if second is None:
        return ""
    told = (
        say_result(second, formula.also_unit, say_time) if formula.also_unit else say_count(second)
    )
    return formula.also_say.format(also=told)


def _say(name: str, amount: Amount, say_time: Callable[[float], str]) -> str:
    if amount.kind == "time":
        if amount.value >= YEAR:
            return f"{amount.value / YEAR:.3g} years"
        hours = amount.value / 3600
        if amount.value < 90:
            return f"{amount.value:g} s"
        return f"{hours:,.0f} h" if hours >= 1000 else say_time(amount.value)
    if amount.kind == "bytes":
        return say_bytes(amount.value) + ("/s" if name in ("link", "algbw", "busbw") else "")
    if amount.kind == "rate":
        return f"{say_bytes(amount.value)}/s"
    if name == "peak":
        return f"{amount.value / 1e12:g} TFLOP/s"
    return say_count(amount.value)


def say_count(value: float) -> str:
    if value >= 1e16:
        return f"{value:.3g}"
    for letter, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.4g}{letter}"
    return f"{value:.6g}" if value % 1 else f"{value:,.0f}"


def say_bytes(value: float) -> str:
    for letter, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if value >= scale:
            return f"{value / scale:.4g} {letter}"
    return f"{value:,.0f} bytes"


_PLAIN: Mapping[str, Callable[[float], str]] = {
    "small bytes": lambda v: f"{v / 1024:,.0f} KiB ({v:,.0f} bytes)",
    "bytes a second": lambda v: f"{v / 1e9:.1f} GB/s",
    "money": lambda v: f"{v:,.0f}",
    "FLOP": lambda v: f"{v:.3g} FLOP",
    "%": lambda v: f"{v:.1f} %",
    "rate": lambda v: f"{v:.3g}",
    "parameters": lambda v: f"{say_count(v)} parameters",
}
"""Units that are told in one way, whatever the value."""


def say_result(value: float, unit: str, say_time: Callable[[float], str]) -> str:
    if unit == "time":
        return f"{value / 3600:.1f} h" if 172_800 <= value < 259_200 else say_time(value)
    if unit == "seconds":
        return f"{1000 * value:,.0f} ms" if value < 1 else f"{value:.2f} s" if value < 10 else say_time(value)  # fmt: skip
    if unit in _PLAIN:
        return _PLAIN[unit](value)
    if unit == "bytes" and value >= 2**40:
        return f"{value / 1e12:.2f} TB ({value / 2**40:.2f} TiB)"
    if unit == "bytes":
        binary = f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
        return f"{binary} ({say_bytes(value)})"
    if unit == "tokens" and value >= 1e9:
        return f"{say_count(value)} tokens"
    if value % 1 and value < 100:
        return f"{value:.3g} {unit}"
    return f"{value:,.0f} {unit}"
