"""How many bytes does a parameter take, by the formats that a sentence names: in general, and part by part ("fp32 master, 8-bit moments")?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from firstfault_tools.expressions import expression

_WIDTHS: Mapping[str, float] = {
    "uint16": 2.0, "uint32": 4.0, "fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "nf4": 0.5, "4-bit": 0.5,
    "8-bit": 1.0, "16-bit": 2.0, "32-bit": 4.0, "float32": 4.0,
}  # fmt: skip
_FORMAT = rf"(?P<format>{'|'.join(_WIDTHS)})"
_NAMED = expression(rf"(?i)\b(?:{'|'.join(_WIDTHS)})\b")
_BITS = re.compile(r"(?i)\b(\d{1,2})[- ]?bits?\b")
_PARTS: Mapping[str, str] = {
    "weight_width": r"(?<!master )(?:weights?|params?|parameters)",
    "grad_width": r"(?:grads?|gradients?)",
    "master_width": r"masters?(?: (?:copy|weights?|params?))?",
    "moment_width": r"(?:adamw? |optimi[sz]er )?(?:moments?|momentum)|adamw?(?= (?:fp32|bf16|8-bit) states?\b)",
}
"""Parts of the state of a parameter by the name that relations.yaml has for its width."""
_PART = "|".join(f"(?P<{name}>{words})" for name, words in _PARTS.items())
_TOKEN = expression(rf"(?i)\b(?:{_FORMAT}|{_PART})\b")
_CLAUSE = expression(r"[,;:?()]+|\.(?!\d)|(?i:\bwith\b|\bno\b|\bwithout\b)|\+(?= ?(?:bf|fp|\d))")
_NO = expression(r"(?i)\b(?:no|without)\s+$")
_BOTH = expression(r"(?i)\bm ?(?:,|/|&|\+|and) ?v\b|\bmomentum (?:and|\+|&) variance\b")
_KEEPS_MOMENTS = expression(r"(?i)\badamw?\b|\boptimi[sz]er\b")
MOMENTS = 2
"""Adam keeps two of them; a momentum alone is one."""
USUAL = {"master_width": 4.0, "moment_width": 4.0}
"""Bytes of a part that is listed without a format."""
LEAST_LISTED = 2


def read_widths(text: str) -> list[float]:
    """Bytes of the number formats that are named, in order."""
    said = re.sub(r"(?i)\b[48][- ]?bit adam\w*|\b[48][- ]?bit (?:moments|optimi[sz]er)", "", text)
    said = _BITS.sub(r"\1-bit", said).lower()
    return list(dict.fromkeys(_WIDTHS[m[0].lower()] for m in _NAMED.finditer(said)))


def read_parts(text: str) -> dict[str, float]:
    """Bytes a parameter of each part that a sentence lists; {} where it lists fewer than two with master copy or moments among them."""
    said = _BITS.sub(r"\1-bit", _BOTH.sub("moments", text))
    found: dict[str, float] = {}
    for clause in _clauses(said):
        tokens = list(_TOKEN.finditer(clause))
        for at, token in enumerate(tokens):
            name = token.lastgroup or ""
            if name == "format" or name in found:
                continue
            width = _format_of(tokens, at)
            if width is None:
                width = USUAL.get(name)
            if width is not None:
                one = name != "moment_width" or token[0].lower() == "momentum"
                found[name] = width * (1 if one else MOMENTS)
    if "master_width" in found and "moment_width" not in found and _KEEPS_MOMENTS.search(said):
        found["moment_width"] = USUAL["moment_width"] * MOMENTS
    listed = len(found) >= LEAST_LISTED and (set(found) & set(USUAL) or "grad_width" in found)
    return found if listed else {}


def _clauses(text: str) -> Iterator[str]:
    """Clauses of a sentence, without those that say what there is not."""
    cuts = [0, *(x for m in _CLAUSE.finditer(text) for x in m.span()), len(text)]
    for start, end in pairwise(cuts):
        if start < end and not _NO.search(text[max(0, start - 12) : start] + " "):
            yield text[start:end]


def _format_of(tokens: list[re.Match[str]], at: int) -> float | None:
    """The format that belongs to a part: the nearest before it, else the one behind it."""
    before = next((t for t in reversed(tokens[:at]) if t["format"]), None)
    behind = next((t for t in tokens[at + 1 : at + 2] if t["format"]), None)
    one = before or behind
    return _WIDTHS[one["format"].lower()] if one is not None else None
