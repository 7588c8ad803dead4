"""How many tokens is a model to be trained on, where they are told as a bare number ("8B on 1T", "in 300B")?"""

from __future__ import annotations

import re

from firstfault_tools.expressions import expression

_BUDGET = expression(
    r"(?i)\b(?:in|on|of|for|over|through|process|see|finish|until) (?:the |all |about |~)?(?P<value>\d{1,4}(?:\.\d{1,3})?)\s?"
    r"(?P<scale>b|bn|billion|t|tn|trillion)\b(?![- ]?(?:model|param|dense|moe|llama|qwen|total|active))"
)
_SIZE = expression(r"(?i)(?<![\w.-])\d{1,4}(?:\.\d{1,3})? ?(?:b|bn|billion)\b")
_OF_MODEL = expression(
    r"(?i)\b\d{1,4}(?:\.\d{1,3})? ?(?:b|bn|billion)[- ]?(?:model|param|dense|moe)"
)
_RATE = expression(r"(?i)\btok(?:en)?s? ?(?:/|per|a) ?s")
_OF_TIME = expression(
    r"(?i)\bdays?\b|\bhours?\b|\bweeks?\b|\bhow long\b|\bwhen\b|\bfinish\w*|\bcosts?\b|\bgpu-?h"
)
_OF_A_RUN = expression(
    r"(?i)\btok|\bdays?\b|\bhours?\b|\bweeks?\b|\bhow long\b|\bcosts?\b|\bflops?\b|\bgpu-?h|\bcompute\b|\btrain"
)


def _find(text: str) -> re.Match[str] | None:
    """The budget: what stands before the word for tokens, else the largest number ("3B on 500B")."""
    found = list(_BUDGET.finditer(text))
    scales = {"b": 1.0, "t": 1e3}
    return max(
        found,
        key=lambda m: (text[m.end() :].lstrip().lower().startswith("tok"), float(m["value"]) * scales[m["scale"][0].lower()]),
        default=None,
    )  # fmt: skip


def read_token_budget(text: str) -> float | None:
    """Tokens to train on, told without the word; None where none are.

    A bare number of billions is one where a rate of tokens stands beside it and no model, or where a
    model of another size does; trillions always are.
    """
    found = _find(text)
    if found is None:
        return None
    trillions = found["scale"].lower().startswith("t")
    others = len(_SIZE.findall(text)) > 1 and _OF_A_RUN.search(text) is not None
    rate = _RATE.search(text) and _OF_TIME.search(text) and not _OF_MODEL.search(text)
    if trillions or others or rate:
        return float(found["value"]) * (1e12 if trillions else 1e9)
    return None


def without_budget(text: str) -> str:
    """`text` in which a budget of tokens is not taken for the size of a model."""
    if read_token_budget(text) is None:
        return text
    found = _find(text)
    return text if found is None else text[: found.start()] + ";".ljust(len(found[0])) + text[found.end() :]  # fmt: skip
