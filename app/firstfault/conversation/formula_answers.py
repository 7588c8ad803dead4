"""What does a formula of the table answer? Its result, the further ones that the quantities give, and what else the message asks."""

from __future__ import annotations

import re

from firstfault.conversation.asked import Asked
from firstfault.conversation.calculator_reply import reply_calculated
from firstfault.conversation.formulas import (
    Chosen,
    choose_formula,
    say_formula,
    say_parts,
    say_second,
)
from firstfault.conversation.quantities import Quantities
from firstfault.conversation.reply import Reply
from firstfault.conversation.times import DAY, say_time
from firstfault.conversation.unused import find_unused
from firstfault_tools.expressions import expression

CAN_GIVE = "Parameters, tokens, GPUs, sequence, batch, bytes, rates and times are understood."
_EXPERTS = re.compile(r"(?i)\bmoe\b|\bmixture[- ]of[- ]experts\b|\bmixtral\b")


def answer_formula(q: Quantities, asked: Asked) -> Reply:
    """The formula that is asked for, its further results, and the other questions of the message."""
    chosen = choose_formula(asked.numbers or asked.text, q)
    if chosen is None:
        return Reply("Which numbers are given? " + CAN_GIVE, "calculator.formula")
    formula = chosen.formula
    first, result = say_formula(chosen, say_time)
    inputs = {name: amount.value for name, amount in chosen.amounts.items()}
    assumed = [f"{n.replace('_', ' ')} {inputs[n]:g}" for n in chosen.assumed]
    if formula.computes and not q.active_billions and _EXPERTS.search(asked.text):
        return Reply(
            "How many parameters are active for a token? Of a mixture of experts they count for the compute, not the "
            "total: for example 47B total, 13B active.",
            "calculator.formula",
        )
    second = say_second(chosen, say_time)
    first = " ".join([first, *say_parts(chosen, say_time)])
    others = lines = _other_asks(asked, q, formula.id, first)
    lines = [*lines, f"- {second}"] if second else [*lines]
    if formula.computes and q.active_billions:
        lines.append("- The active parameters of the mixture of experts count for compute, not the total.")  # fmt: skip
    unused = find_unused(asked.numbers or asked.text, _values_used(chosen, q))
    lines += [f"- Not used: {', '.join(unused)}."] * bool(unused and not others)
    lines += [f"- Taken as given: {formula.holds}.", f"- Formula: {formula.source}."]
    return reply_calculated(asked, first, lines, formula.id, inputs, result, assumed,
                  (formula.next,) if formula.next else ())  # fmt: skip


def _values_used(chosen: Chosen, q: Quantities) -> list[float]:
    """The amounts of the result, and the counts of which they are made."""
    told = [a.value for a in chosen.amounts.values()] + [r.value for r in chosen.rates]
    of_counts = {"tokens_a_second": q.tokens_per_second, "parameters": q.billions, "gpus": q.nodes}
    made = [v for name, v in of_counts.items() if v and name in chosen.amounts]
    made += [q.billions] if q.model is not None and q.billions else []
    if q.sequence and "global_batch" in chosen.amounts:
        made.append(float(q.sequence))
    if "failure_gap" in chosen.amounts:
        made += [unit / chosen.amounts["failure_gap"].value for unit in (DAY, 7 * DAY, 30 * DAY)]
    if q.nodes and any(n in chosen.amounts for n in ("gpus", "shards", "rank_count")):
        made += [float(q.nodes), (q.gpus or q.nodes) / q.nodes]
    return [*told, *made, *[float(v) for v in (q.active_billions,) if v]]


_CLAUSES = expression(r"(?i)[?;]+|,? \b(?:and|plus|also)\b |, (?=how|what|which)")
MOST_ASKS = 2


def _other_asks(asked: Asked, q: Quantities, answered: str, said: str) -> list[str]:
    """What the other questions of the message ask of the same numbers, a line each."""
    text = asked.numbers or asked.text
    clauses = [c.strip() for c in _CLAUSES.split(text) if len(c.split()) > 1]
    out: dict[str, str] = {}
    for clause in clauses if len(clauses) > 1 else ():
        chosen = choose_formula(text, q, clause)
        if chosen is None or chosen.formula.id == answered or chosen.formula.id in out:
            continue
        first, _ = say_formula(chosen, say_time)
        if first.split(":")[0].rstrip(".") in said:
            continue
        out[chosen.formula.id] = f"- {' '.join([first, *say_parts(chosen, say_time)])}"
    return list(out.values())[:MOST_ASKS]
