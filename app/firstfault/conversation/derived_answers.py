"""How is a result told that follows from the numbers of a sentence? Each result with its arithmetic, and what was assumed or left aside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from firstfault.conversation.amounts import load_rows
from firstfault.conversation.asked import Asked, is_weighed
from firstfault.conversation.calculator_reply import read_currency, reply_calculated
from firstfault.conversation.derivations import Derived, Known, derive
from firstfault.conversation.formulas import evaluate, say_bytes, say_count, say_result
from firstfault.conversation.quantities import Quantities
from firstfault.conversation.relations import load_table
from firstfault.conversation.reply import Reply
from firstfault.conversation.times import say_time
from firstfault.conversation.unused import find_unused
from firstfault_tools.expressions import expression

_KINDS = {
    "rate": lambda v: f"{say_bytes(v)}/s",
    "bytes": lambda v: say_bytes(v),
    "time": lambda v: (
        say_time(v) if v >= 90 else f"{v:.4g} s" if v >= 1 or not v else f"{1000 * v:.4g} ms"
    ),
    "percent": lambda v: f"{100 * v:.4g} %",
    "flops": lambda v: f"{v / 1e12:g} TFLOP/s",
    "watts": lambda v: _say_power(v),
    "n": lambda v: say_count(v),
}
"""How an amount of each kind is told."""
_ASSUMED = {
    "shape": "the shape of the nearest known model of that size",
    "all_active": "all parameters active for each token",
}


def answer_derived(q: Quantities, asked: Asked) -> Reply:
    """What is asked, the result of each part first."""
    derived = derive(asked.numbers or asked.text, q)
    if derived is None:
        return Reply("Which numbers are given? Parameters, tokens, GPUs, sequence, batch, bytes, rates and times are understood.", "calculator.derived")  # fmt: skip
    return tell_derived(derived, asked)


def use_all_numbers(reply: Reply, asked: Asked) -> Reply:
    """The answer that uses more of the numbers: this one, or what follows from them step by step; what is left is told."""
    text = asked.numbers or asked.text
    inputs = reply.tool.inputs if reply.tool is not None else {}
    used = [float(v) for v in inputs.values() if isinstance(v, int | float)]
    used += [
        float(n)
        for v in inputs.values()
        if isinstance(v, str)
        for n in re.findall(r"\d+(?:\.\d+)?", v)
    ]
    left = find_unused(text, [*used, *_read_otherwise(asked.quantities)])
    told = asked.intent == "formula" and "- Not used:" not in reply.text
    if reply.tool is not None and (told or not left):
        return reply
    derived = derive(text, asked.quantities)
    weighed = is_weighed(text) and reply.tool is not None
    if (
        derived is not None
        and (reply.tool is None or len(derived.left) < len(left))
        and not (weighed and derived.left)
    ):
        return tell_derived(derived, asked)
    if reply.tool is None or asked.intent == "formula":
        return reply
    head, mark, rest = reply.text.partition("\n\n")
    return replace(reply, text=f"{head} I did not use: {', '.join(left)}.{mark}{rest}")


def _read_otherwise(q: Quantities) -> list[float]:
    """Numbers that a calculator takes under another one: nodes as GPUs, a model's size as its name."""
    each = [q.nodes, (q.gpus or 0) / q.nodes] if q.nodes else []
    each_fails = q.each_fails[1] if q.each_fails is not None else None
    return [float(v) for v in (*each, q.billions, q.active_billions, each_fails) if v]


def tell_derived(derived: Derived, asked: Asked) -> Reply:
    """The results of a sentence, with the numbers that none of them uses."""
    currency = read_currency(asked.text)
    first = " ".join(_say_group(group, currency) for group in derived.results)
    left = [derived.reading.mentions[i].raw for i in derived.left]
    if left:
        first = f"In part, since I did not use {', '.join(left)}: {first}"
    steps = {(k.name, k.value): k for g in derived.results for k in _steps(g[0])}
    told = {g[0].name for g in derived.results}
    lines = [
        f"- {_say_value(k, currency)}: {_say_arithmetic(k)}."
        for k in steps.values()
        if k.name not in told
    ]
    lines += _say_wide_gradients(derived)
    holds = dict.fromkeys(
        r.holds for g in derived.results if (r := g[0].by) is not None and r.holds
    )
    sources = dict.fromkeys(
        r.source for g in derived.results if (r := g[0].by) is not None and r.source
    )
    lines += [f"- Taken as given: {'; '.join(holds)}."] * bool(holds) + [f"- Source: {'; '.join(sources)}."] * bool(sources)  # fmt: skip
    inputs = {k.name: k.value for g in derived.results for k in _leaves(g[0])}
    result = {k.name: k.value for g in derived.results for k in g}
    assumed = [_say_assumed(name, inputs.get(name)) for name in sorted(derived.assumed)]
    return reply_calculated(asked, first, lines, "derived", inputs, result, assumed)


NARROW, WIDE = 2.0, 4.0
"""Bytes a parameter of gradients in 16 bits, as taken where nothing is said, and in FP32, as Megatron and DeepSpeed may keep them."""
_NARROW_TOLD = expression(
    r"(?i)\b(?:bf16|fp16|16-?bit|2 bytes)\b[^.;?\n]{0,24}\bgrad|\bgrad\w*\b[^.;?\n]{0,24}(?:\bbf16|\bfp16|\b16-?bit|\b2 bytes)"
)


def _say_wide_gradients(derived: Derived) -> Iterator[str]:
    """The states with FP32 gradients, where the sentence leaves open which they are."""
    if "pure16" in derived.reading.flags or _NARROW_TOLD.search(derived.reading.text):
        return
    for known, *others in derived.results:
        widths = {k.name: k for k in known.inputs}
        grads = widths.get("grad_width")
        if others or known.by is None or grads is None or grads.by is None or grads.value != NARROW:
            continue
        wide = evaluate(known.by.tree, {k.name: k.value for k in known.inputs} | {"grad_width": WIDE})  # fmt: skip
        yield f"- With FP32 gradients instead of 16-bit ones: {_say_unit(wide, 'bytes')}."


def _say_assumed(name: str, value: float | None) -> str:
    if name in _ASSUMED or value is None:
        return _ASSUMED.get(name, name.replace("_", " "))
    return say_amount(name, value) if name in load_rows() else f"{name.replace('_', ' ')} {value:g}"


def _say_group(group: tuple[Known, ...], currency: str) -> str:
    """One asked quantity in a sentence; its several values, where a number of it is told several times."""
    one = group[0]
    if len(group) == 1:
        return f"{_say_value(one, currency)}: {_say_arithmetic(one)}{_say_whole(one)}."
    told = "; ".join(
        f"{_say_sharding(k)}{_say_value(k, currency)} with {_say_arithmetic(k)}{_say_whole(k)}"
        for k in group
    )
    return f"{told}."


def _say_sharding(known: Known) -> str:
    """The way of sharding that an equation is of; '' where it holds for any."""
    named = [w for w in sorted(known.by.when) if w.startswith("zero")] if known.by else []
    return f"ZeRO-{named[0][-1]} " if named else ""


def _say_value(known: Known, currency: str) -> str:
    out = load_table().outputs[known.name]
    value = known.value
    if out.unit == "share":
        return f"{_say_share(value)} {out.name}".strip()
    if out.unit in ("count", "number", "ratio"):
        number = (
            f"{value:.4g} : 1"
            if out.unit == "ratio"
            else f"{value:,.0f}"
            if value % 1 == 0 and value < 1e6
            else f"{value:.4g}"
        )
        return f"{out.name[:1].upper()}{out.name[1:]} {number}"
    if out.unit == "money":
        return f"{currency}{value:,.0f} {out.name}".strip()
    if out.unit == "watts":
        return f"{_say_power(value)} {out.name}".strip()
    if out.unit == "watt-hours":
        return f"{value / 1e6:,.4g} MWh" if value >= 1e6 else f"{value / 1e3:.4g} kWh"
    if out.unit == "FLOP/s":
        return f"{value / 1e12:.4g} TFLOP/s {out.name}"
    return f"{_say_unit(value, out.unit)} {out.name}".strip()


def _say_unit(value: float, unit: str) -> str:
    """A result in its unit, exact enough to be checked."""
    if unit == "bytes a second" and value < 1e10:
        return f"{value / 1e9:.3g} GB/s" if value >= 1e9 else f"{value / 1e6:.3g} MB/s"
    if unit == "bytes":
        return _say_bytes(value)
    if unit in ("time", "seconds"):
        size, name = next((s, n) for least, s, n in _SPANS if value >= least or n == "ms")
        told = f"{value / size:.3g}" if size <= 1 else f"{value / size:,.1f}".removesuffix(".0")
        return f"{told} {name}"
    return say_result(value, unit, say_time)


def _say_bytes(value: float) -> str:
    """Bytes in decimal units, and in binary ones beside them."""
    for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if value >= 1000.0**power:
            one, other = value / 1000.0**power, value / 1024.0**power
            return f"{one:,.{1 if one >= 10 else 2}f} {letter}B ({other:,.2f} {letter}iB)"
    return f"{value:,.0f} bytes"


_SPANS = (
    (172_800.0, 86_400.0, "days"),
    (5400.0, 3600.0, "h"),
    (120.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (0.0, 1e-3, "ms"),
)


def _say_share(value: float) -> str:
    return f"{100 * value:.1f} %" if abs(value) >= 0.01 else f"{100 * value:.3g} %"


def _say_power(watts: float) -> str:
    return f"{watts / 1e6:.4g} MW" if watts >= 1e6 else f"{watts / 1e3:.4g} kW" if watts >= 1e3 else f"{watts:g} W"  # fmt: skip


def _say_whole(known: Known) -> str:
    out = load_table().outputs[known.name]
    if out.whole and abs(known.value - round(known.value)) > 1e-6:
        return ", which is not a whole number: change the batch or the GPUs"
    if out.up and known.value % 1:
        return f", so {int(known.value) + 1}"
    return ""


def _say_arithmetic(known: Known) -> str:
    """The equation of a result with its amounts in place of the names, without what nobody gave and does not matter."""
    if known.by is None:
        return "as given"
    if len(known.inputs) == 1 and known.by.expression == known.inputs[0].name:
        return _say_arithmetic(known.inputs[0])
    idle = {k.name for k in known.inputs if k.name in known.by.neutral and not k.used}
    values = {k.name: "" if k.name in idle and k.value in (0, 1) else say_amount(k.name, k.value) for k in known.inputs}  # fmt: skip
    return _render(known.by.tree, values, 0)


_SIGNS: Mapping[type[ast.operator], tuple[str, int]] = {
    ast.Add: ("+", 1), ast.Sub: ("-", 1), ast.Mult: ("x", 2), ast.Div: ("/", 2), ast.Mod: ("mod", 2), ast.Pow: ("^", 3),
}  # fmt: skip


def _render(node: ast.expr, values: Mapping[str, str], outer: int) -> str:
    """Arithmetic in words; '' for a factor 1 or a term 0 that is left out. outer: how strongly what is around it binds."""
    if isinstance(node, ast.Constant):
        return ast.unparse(node)
    if isinstance(node, ast.Name):
        return values.get(node.id, node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        inside = ", ".join(p for a in node.args if (p := _render(a, values, 0)))
        return (
            inside if node.func.id == "min" and "," not in inside else f"{node.func.id}({inside})"
        )
    assert isinstance(node, ast.BinOp), "arithmetic of relations.yaml"
    sign, strength = _SIGNS[type(node.op)]
    if not _render(node.left, values, 0) or not _render(node.right, values, 0):
        return _render(node.left, values, outer) or _render(node.right, values, outer)
    left, right = (
        _render(node.left, values, strength),
        _render(node.right, values, strength + (sign in "-/^")),
    )
    told = f"{left} {sign} {right}" if left and right else left or right
    return f"({told})" if left and right and strength < outer else told


def say_amount(name: str, value: float) -> str:
    """An amount by its name, as people tell it."""
    row, out = load_rows().get(name.removesuffix("_2")), load_table().outputs.get(name)
    if row is not None:
        kind = "n" if row.kind not in _KINDS else row.kind
        return row.say.format(_KINDS[kind](value))
    if out is None or out.unit in ("count", "number"):
        return say_count(value)
    if out.unit == "share":
        return f"{100 * value:.4g} %"
    if out.unit in ("bytes", "small bytes"):
        return say_bytes(value)
    if out.unit in ("time", "seconds"):
        return _KINDS["time"](value)
    return f"{say_count(value)} {out.unit}"


def _steps(known: Known) -> Iterator[Known]:
    """The results on the way."""
    for k in known.inputs:
        yield from _steps(k)
        if k.by is not None and len(k.inputs) > 1 and k.name in load_table().outputs:
            yield k


def _leaves(known: Known) -> Iterator[Known]:
    if not known.inputs:
        yield known
    for k in known.inputs:
        yield from _leaves(k)
