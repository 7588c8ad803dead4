"""On which host does a rank sit, and which ranks does a line name? From the lines where the verdict has none."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.conversation.evidence import Line
from firstfault_tools.expressions import expression

NAMED_RANK = expression(r"(?i)\branks?[\s_:#-]{0,2}(\d{1,6})\b")
"""A rank as people name it."""
_RANKS_OF = expression(
    r"(?i)\b(?P<host>[a-z][\w.-]*\d[\w.-]*|[a-z]+\d*)\b[ :=]{0,2}(?:8x \w+ )?[\[(]?ranks? (?P<first>\d{1,6})-(?P<last>\d{1,6})|"
    r"\branks? (?P<first2>\d{1,6})-(?P<last2>\d{1,6}) (?:on|at|@) (?P<host2>[\w.-]{2,60})|"
    r"\[(?P<host3>[\w.-]{2,60})\] node_rank \d+ -> ranks (?P<first3>\d{1,6})-(?P<last3>\d{1,6})"
)
_NAMED_RANKS = expression(
    r"(?i)\b(?:fail\w*|error\w*|exception|raised|broke\w*|stop\w*|out of memory)\b[^.;\n]{0,60}?\bon ranks? (?P<ranks>\d{1,6}(?:(?:, ?| and )\d{1,6}){0,40})"
)
_DICT_KEYS = expression(r"ranks:dict_keys\(\[(?P<ranks>[\d, ]{1,400})\]\)")


def hosts_of_ranks(lines: Sequence[Line]) -> dict[int, str]:
    """Host of each rank, where a line of the start lists them ('tt-0 [ranks 0-7]')."""
    out: dict[int, str] = {}
    for line in lines[:400]:
        if "rank" not in line.text.lower():
            continue
        for m in _RANKS_OF.finditer(line.text):
            host = m["host"] or m["host2"] or m["host3"]
            first = int(m["first"] or m["first2"] or m["first3"])
            last = int(m["last"] or m["last2"] or m["last3"])
            if last - first < 1_024 and host.lower() not in _NO_HOSTS:
                out |= {r: host.rstrip(",;") for r in range(first, last + 1)}
    return out


_NO_HOSTS = frozenset({"and", "on", "the", "of", "with", "seen", "all", "from", "local", "global"})


def find_failed_ranks(texts: Sequence[str]) -> list[int]:
    """Ranks that the explanation, or an exception's own text, names as those where it failed."""
    for pattern in (_DICT_KEYS, _NAMED_RANKS):
        for text in texts:
            found = pattern.search(text)
            if found is not None:
                return [int(n) for n in expression(r"\d{1,6}").findall(found["ranks"])]
    return []
