"""Which ways of sharding does a sentence name? All of them, where it asks for several at once."""

from __future__ import annotations

import re

from firstfault_tools.expressions import expression

_SHARDINGS = expression(
    r"(?i)\b(?:(?:zero|deepspeed)[- _]?(?:stage[- ]?)?(?P<stages>[0-3](?:(?: ?(?:,|/|&|and|or|vs\.?) ?)+[0-3]\b(?! ?[bx]))*)|(?P<name>fsdp|ddp)\d?)(?![\w.])"
)


def named_shardings(text: str) -> list[str]:
    """Every way of sharding that is named, in order: 'ZeRO-1, 2 and 3' names three."""
    out: list[str] = []
    for found in _SHARDINGS.finditer(text):
        if found["name"]:
            out.append(found["name"].lower())
        else:
            stages = re.findall(r"[0-3]", found["stages"])
            out += [f"zero{n}" if n != "0" else "ddp" for n in stages]
    return list(dict.fromkeys(out))
