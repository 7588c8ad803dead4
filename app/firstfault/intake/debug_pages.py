"""Which part of a page of torch's debug server is whose? One file a rank: stacks, flight recorders, counters.

`torch.distributed.debug` shows all ranks on one page (templates raw_resp, json_resp and pyspy_dump of
https://github.com/pytorch/pytorch/blob/main/torch/distributed/debug/_frontend.py) and writes the same as text when it
dumps periodically. The readers of stacks and recorders take a rank a file, by its name.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

LIMIT = 256 * 1024 * 1024
MARK = b"Torch Distributed Debug Server"
_PART = expression(
    r"(?s)<h2>\s*Rank (?P<rank>\d{1,6}): (?P<address>[^<\n]{0,200})</h2>\s*(?:<p>(?P<failed>[^<]{0,200})</p>\s*)?<pre>(?P<text>.*?)</pre>"
)
_TEXT = expression(r"(?m)^=== Rank (?P<rank>\d{1,6}): (?P<address>\S{1,200}) ===$")
_FAILED = expression(r"Error: \d{3}\s*$")


@dataclass(frozen=True, slots=True)
class RankPart:
    """What the page shows of one rank. failed: why it shows nothing; '' where it does."""

    rank: int
    text: str
    failed: str = ""

    def name(self, page: str) -> str:
        """The name under which it is read, which carries the rank."""
        return f"{page}/rank_{self.rank}.{'json' if self.text.lstrip()[:1] == '{' else 'txt'}"


def is_page(head: bytes) -> bool:
    """Whether a file begins as such a page or as a periodic dump of one."""
    return MARK in head or head.lstrip().startswith(b"=== Rank 0: ")


def split_page(text: str) -> Iterator[RankPart]:
    """The part of every rank."""
    from html import unescape

    found = False
    for part in _PART.finditer(text):
        found = True
        shown = unescape(part["text"]).strip("\n")
        yield RankPart(int(part["rank"]), shown, (part["failed"] or "").strip())
    if found:
        return
    heads = list(_TEXT.finditer(text))
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(text)
        body = text[head.end() : end].strip("\n")
        failed = body.strip() if _FAILED.fullmatch(body.strip()) else ""
        yield RankPart(int(head["rank"]), body, failed)
