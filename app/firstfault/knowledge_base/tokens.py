"""How is a log line cut into words? Identifiers stay whole and are split as well.

`NCCL_IB_GID_INDEX`, `torch.OutOfMemoryError`, `CUDA_ERROR_ECC_UNCORRECTABLE` count as one word each,
and their parts count too. A number that names a kind of error (Xid 79, exit code -9, errno 28) is
joined to its word. Addresses, hashes and long numbers say nothing and are dropped.
"""

from __future__ import annotations

from firstfault_tools.expressions import expression

MAX_CHARS = 20_000
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_LETTER = (
    "0-9A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0370-\u167f\u1681-\u1fff\uac00-\ud7a3"
)
"""Letters and digits of scripts that part words; written out, since `\\w` is ASCII in long texts. Ogham's space is none."""
_WORD = expression(rf"[{_CJK}]+|[_{_LETTER}](?:[_{_LETTER}]|[.:/+-])*[_{_LETTER}]|[{_LETTER}]")
_CAMEL = expression(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_NOISE = expression(r"^(?:0x[0-9a-f_]+|[0-9a-f]{16,}|\d{6,}|\d+[.:/-][\d.:/-]*\d)$")
_NUMBERED = expression(
    r"(?i)\b(?P<word>xid|sxid|errno|error|vendor err|exit ?code|return code|signal|status|code)\b"
    r"(?:\s*\([^()\n]{0,40}\))?\s*[:=#]?\s*(?P<number>-?\d{1,5})\b"
)
_COMMON = """
a an and are as at be been but by can do does for from had has have how i if in into is
it its my me no not of on or our so than that the their then there these they this to
was we were what when where which while who why will with you your just after before get
got always one all any some am did should would could them very too only other each
every between during until again here out up off over more most such own same doing
because about also still now
"""
_STOP = frozenset(_COMMON.split())
_SUFFIXES = ("ations", "ation", "ings", "ing", "edly", "ed", "ies", "es", "s", "ly")


def tokenize(text: str) -> list[str]:
    """Words of a text, lower case, in order, with identifier parts after their whole."""
    text = text[:MAX_CHARS]
    out: list[str] = []
    for match in _WORD.finditer(text):
        word = match[0].strip(".:/-+")
        lower = word.lower()
        if not lower or lower in _STOP or _NOISE.match(lower):
            continue
        out.append(stem(lower))
        if any(c in word for c in "_./:-+") or (word != lower and word != word.upper()):
            parts = [p.lower() for p in _CAMEL.findall(word)]
            out += [
                stem(p)
                for p in parts
                if len(p) > 1 and p != lower and p not in _STOP and not _NOISE.match(p)
            ]
    out += [
        f"{m['word'].lower().replace(' ', '')}#{m['number'].lstrip('-')}"
        for m in _NUMBERED.finditer(text)
    ]
    return out


def stem(word: str) -> str:
    """A light cut of English endings; identifiers and short words stay."""
    if len(word) < 4 or not word.isalpha() or not word.isascii():
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            if suffix == "s" and word.endswith(("ss", "us", "is")):
                return word
            base = word[: -len(suffix)]
            if suffix == "ies":
                return base + "y"
            if suffix in ("ing", "ed") and base[-1] == base[-2] and base[-1] not in "lsz":
                base = base[:-1]
            return base.removesuffix("e") if suffix != "s" else _drop_e(base)
    return _drop_e(word)


def _drop_e(word: str) -> str:
    """`cache`, `caches` and `caching` share one stem."""
    return word[:-1] if len(word) > 4 and word.endswith("e") else word
