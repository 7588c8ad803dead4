"""How is a log line cut into words? Identifiers stay whole and are split as well.

`NCCL_IB_GID_INDEX`, `torch.OutOfMemoryError`, `CUDA_ERROR_ECC_UNCORRECTABLE` and `9b:00` count as one
word each, and their parts count too. Addresses, hashes and long numbers say nothing and are dropped.
"""

from __future__ import annotations

import re

_WORD = re.compile(
    r"[A-Za-z0-9_\u00c0-\u024f\u4e00-\u9fff][\w.:/+-]*[A-Za-z0-9_]|[A-Za-z0-9\u4e00-\u9fff]"
)
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_NOISE = re.compile(r"^(?:0x[0-9a-f]+|[0-9a-f]{16,}|\d{6,}|\d+[.:]\d+[.:\d]*)$")
_STOP = frozenset(
    ["a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "do", "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "my", "no", "not", "of", "on", "or", "our", "so", "than", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "we", "were", "what", "when", "where", "which", "while", "who", "why", "will", "with", "you", "your", "just", "after", "before", "get", "got", "always", "one", "all", "any", "some"]
)  # fmt: skip
_SUFFIXES = ("ations", "ation", "ings", "ing", "edly", "ed", "ies", "es", "s", "ly")


def tokenize(text: str) -> list[str]:
    """Words of a text, lower case, in order, with identifier parts after their whole."""
    out: list[str] = []
    for match in _WORD.finditer(text[:20_000]):
        word = match[0].strip(".:/-")
        lower = word.lower()
        if not lower or lower in _STOP or _NOISE.match(lower):
            continue
        out.append(_stem(lower))
        if any(c in word for c in "_./:-+") or (word != lower and word != word.upper()):
            parts = [p.lower() for p in _CAMEL.findall(word)]
            out += [_stem(p) for p in parts if len(p) > 1 and p != lower and p not in _STOP]
    return out


def _stem(word: str) -> str:
    """A light cut of English endings; identifiers and short words stay."""
    if len(word) < 5 or not word.isalpha() or not word.isascii():
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            base = word[: -len(suffix)]
            return base + "y" if suffix == "ies" else base
    return word
