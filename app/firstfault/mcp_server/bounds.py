"""How large may an answer be? Cut down to a limit, and every cut is said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_CHARS = 40_000
_STEPS = ((2_000, 200), (800, 60), (300, 30), (160, 12), (80, 5))
"""(longest string, longest list), tried in order until the answer fits."""


def write_bounded(value: Any, limit: int = MAX_CHARS) -> str:
    """`value` as JSON of at most `limit` characters."""
    text = json.dumps(value, ensure_ascii=False)
    for longest, most in _STEPS:
        if len(text) <= limit:
            return text
        text = json.dumps(_cut(value, longest, most), ensure_ascii=False)
    if len(text) <= limit:
        return text
    note = f"answer of {len(text)} characters cut at {limit}; ask for less"
    return json.dumps({"cut": note, "start": text[: limit // 2]}, ensure_ascii=False)


def _cut(value: Any, longest: int, most: int) -> Any:
    if isinstance(value, str):
        if len(value) <= longest:
            return value
        return f"{value[:longest]}… ({len(value) - longest} more characters)"
    if isinstance(value, Mapping):
        kept = list(value.items())[: 4 * most]
        out = {k: _cut(v, longest, most) for k, v in kept}
        if len(value) > len(kept):
            out["…"] = f"{len(value) - len(kept)} more keys"
        return out
    if isinstance(value, Sequence):
        out_list = [_cut(v, longest, most) for v in value[:most]]
        if len(value) > most:
            out_list.append(f"… {len(value) - most} more")
        return out_list
    return value
