"""How are the ranks laid out over the hosts, as a script or a person puts it in words?

`task = node*8 + local rank`, `ranks 0-7 on a05, 8-15 on a06`, `8 ranks per node, a04 is node 0`,
`node_rank 0 -> a04, node_rank 1 -> a05`, `nodes a04..a07`: the same few facts, each in several spellings.
A note at a saved output tells its own host: `# dmesg on a05 (node_rank 1)`, `(node a05, ranks 8-15)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

MOST_EACH = 16
MOST_SPAN = 1_024
LONGEST = 4_000

_HOST = r"(?=[\w.-]{0,60}[A-Za-z])(?=[\w.-]{0,60}\d)[A-Za-z0-9][\w.-]{0,60}\w"
_NODE = r"(?:node|host|machine)"
_RANKS = r"(?:(?:global )?ranks?|tasks?|process(?:es)?|workers?)"
_EACH = (
    expression(
        rf"(?i)\b{_RANKS}\s?(?:=|is|:)\s?{_NODE}\w*(?: (?:rank|index|id))?\s?(?:\*|x|×)\s?(?P<each>\d{{1,2}})\s?\+"
    ),
    expression(
        rf"(?i)\b{_NODE}\w*\s?(?:=\s?|is )?(?:n|rank|task|r|t|i)\s?(?:/{{1,2}}|div)\s?(?P<each>\d{{1,2}})\b"
    ),
    expression(
        rf"(?i)\b(?P<each>\d{{1,2}}) (?:{_RANKS}|gpus?)(?: each)? (?:per|a|on each|on every|for each) {_NODE}\b"
    ),
    expression(rf"(?i)\beach {_NODE} (?:has|runs|holds) (?P<each>\d{{1,2}}) {_RANKS}\b"),
)
_SPAN = expression(
    rf"(?i)(?<![\w.-])(?P<first>\d{{1,6}}) ?(?:-|–|to|\.\.) ?(?P<last>\d{{1,6}}) (?:are |run |sit |live )?(?:on|->|=) (?P<host>{_HOST})"
)
_SPAN_BACK = expression(
    rf"(?i)(?<![\w.-])(?P<host>{_HOST}) ?(?:has|runs|holds|=|:|is|->|[(\[]) ?{_RANKS}:? ?(?P<first>\d{{1,6}}) ?(?:-|–|to|\.\.) ?(?P<last>\d{{1,6}})\b"
)
_SPAN_NOTED = expression(
    rf"(?i)\((?:(?:on )?{_NODE} )?(?P<host>{_HOST})[,;:] ?{_RANKS}:? ?(?P<first>\d{{1,6}}) ?(?:-|–|to|\.\.) ?(?P<last>\d{{1,6}})\)"
)
"""A note in brackets tells both of one host."""

_NUMBERED = expression(
    rf"(?i)\bnode(?:[_ ]?(?:rank|id|index))? ?#?(?P<index>\d{{1,4}}) ?(?:is|=|->|=>|:) ?(?:host )?(?P<host>{_HOST})"
)
_NUMBERED_BACK = expression(
    rf"(?i)(?<![\w.-])(?P<host>{_HOST}) ?(?:is|=|->|=>|[(\[]) ?node(?:[_ ]?(?:rank|id|index))? ?[#=:]? ?(?P<index>\d{{1,4}})\b"
)
_RUN = expression(
    rf"(?i)\bnodes[:=]? (?P<host>{_HOST}) ?(?:\.{{2,3}}|to|through) ?(?P<last>[\w.-]{{0,60}}\d)"
)
_DIGITS = expression(r"^(?P<stem>.*?)(?P<number>\d+)$")


@dataclass(frozen=True, slots=True)
class Layout:
    """What was said. per_node: ranks of each host; order: hosts by node number; spans: first and last rank by host."""

    per_node: int | None = None
    order: Mapping[str, int] = field(default_factory=dict)
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def told(self) -> bool:
        """Anything was said."""
        return bool(self.per_node or self.order or self.spans)

    @property
    def host(self) -> str | None:
        """The one host that it speaks of."""
        hosts = {*self.order, *self.spans}
        return hosts.pop() if len(hosts) == 1 else None

    def rename(self, host: str) -> Layout:
        """The same of its one host under another name."""
        return Layout(
            self.per_node,
            dict.fromkeys([host], next(iter(self.order.values()))) if self.order else {},
            dict.fromkeys([host], next(iter(self.spans.values()))) if self.spans else {},
        )


def read_layout(text: str) -> Layout:
    """Layout that a line or a question states; what it says in two ways that differ is left out."""
    text = text[:LONGEST]
    spans: dict[str, tuple[int, int]] = {}
    if "ank" in text or "ask" in text or "orker" in text or "rocess" in text:
        for match in (
            *_SPAN.finditer(text),
            *_SPAN_BACK.finditer(text),
            *_SPAN_NOTED.finditer(text),
        ):
            first, last = int(match["first"]), int(match["last"])
            if 0 <= last - first < MOST_SPAN:
                spans[match["host"]] = first, last
    each = {int(m["each"]) for pattern in _EACH for m in pattern.finditer(text)}
    each |= {last - first + 1 for first, last in spans.values()}
    per_node = each.pop() if len(each) == 1 else None
    return Layout(
        per_node if per_node and per_node <= MOST_EACH else None, dict(_order(text)), spans
    )


def _order(text: str) -> Iterator[tuple[str, int]]:
    if "ode" not in text and "ODE" not in text:
        return
    for match in (*_NUMBERED.finditer(text), *_NUMBERED_BACK.finditer(text)):
        yield match["host"], int(match["index"])
    if (run := _RUN.search(text)) is not None:
        first, last = _DIGITS.match(run["host"]), _DIGITS.match(run["last"])
        if first is not None and last is not None and first["stem"].endswith(last["stem"]):
            low, high = int(first["number"]), int(last["number"])
            width = len(first["number"])
            for index, number in enumerate(range(low, min(high, low + MOST_SPAN) + 1)):
                yield f"{first['stem']}{number:0{width}d}", index


def number_from(host: str, known: Mapping[str, int]) -> int | None:
    """Node number of a host whose name counts on from one of known number: a10 is node 0, so a13 is node 3."""
    own = _DIGITS.match(host)
    if own is None or host in known:
        return known.get(host)
    found = {
        index + int(own["number"]) - int(other["number"])
        for name, index in known.items()
        if (other := _DIGITS.match(name)) is not None and other["stem"] == own["stem"]
    }
    return found.pop() if len(found) == 1 and min(found, default=-1) >= 0 else None
