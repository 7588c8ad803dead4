"""Which of several numbered groups is slow, where one line lists a rate for each (`0:44.8 1:44.9 3:11.6`)?"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line
from firstfault_tools.hardware.outliers import find_low

GATE = ("GB/s", "Gb/s", "GiB/s", "busbw", "bandwidth")
_ITEM = expression(r"(?<![\w.:])(?P<index>\d{1,4}):\s?(?P<value>\d{1,6}(?:\.\d{1,4})?)(?![\w:.])")
_NAME = expression(
    r"(?i)\b(?P<name>[a-z0-9]+ groups?|groups?|nodes?|rails?|ranks?|rings?|pairs?|nics?|hcas?|channels?)\b"
)
LEAST, BELOW = 4, 0.25


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The slow one of a list of rates; the last such line counts."""
    found: tuple[Finding, ...] = ()
    for number, text in keep_marked(lines, GATE)[-200:]:
        items = _ITEM.findall(text) if len(text) < 4000 and text.count(":") > LEAST else []
        rates = {int(i): float(v) for i, v in items}
        if len(rates) < LEAST or len(rates) != len(items):
            continue
        low = find_low(rates, BELOW)
        if not low or len(low) * 4 > len(rates):
            continue
        name = _NAME.search(text)
        what = name["name"].rstrip("s") if name else "group"
        odd = ", ".join(str(o.key) for o in low[:6])
        found = (
            Finding(
                kind="metrics.slow_group",
                title=f"{what} {odd} reaches {low[0].value:g} GB/s where the other {len(rates) - len(low)} reach {low[0].reference:g}: "
                "a link, port or host that belongs to it is slow, and every step waits for it",
                level=Level.FAILURE,
                category=Category.PERFORMANCE,
                evidence=(quote_line(file, number, text),),
                facts={
                    "index": [o.key for o in low],
                    "value_gbs": low[0].value,
                    "starts_at": number,
                },
            ),
        )
    return found
