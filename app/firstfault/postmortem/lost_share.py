"""Which share of the work was lost, where no step line measures it? As a line of the evidence states it."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.postmortem.evidence import TimedLine
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression

# "Throughput: 89,412 tokens/s (was 142,000)", "Per-step time: 11.2s (was 7.0s)", "MFU 26 %, baseline 41 %"
_NOW_AND_BEFORE = expression(
    r"(?i)\b(?P<name>throughput|tokens?[ /_]?(?:s|sec|per[ _]s\w*)|samples[ /_]?(?:s|sec)|mfu|tps|"
    r"(?:per-)?step[ _-]?time|iteration time|s/it)\b[^\d\n]{0,12}(?P<now>\d[\d,.]*)(?P<k>[kK]?)\s?[\w/%]{0,14}[ ,;(]{1,3}"
    r"(?:was|before|baseline|normally|usually|down from|up from|instead of|vs\.?)[: ]{1,2}(?P<before>\d[\d,.]*)(?P<k2>[kK]?)"
)
_PERCENT = expression(
    r"(?i)(?:\b(?P<lost>\d{1,2}(?:\.\d+)?) ?% (?:regression|slower|of the throughput was lost)|"
    r"\b(?:at|ran at|runs at|only) (?P<left>\d{1,2}(?:\.\d+)?) ?% of (?:its|the|normal|usual|healthy) (?:speed|throughput|rate))"
)
_TIME = expression(r"(?i)time|s/it")


@dataclass(frozen=True, slots=True)
class StatedShare:
    """share: of the work that was not done, between 0 and 1; the line that states it."""

    share: float
    line: TimedLine


def read_lost_share(lines: Sequence[TimedLine]) -> StatedShare | None:
    """The first statement of a speed now and before, or of a share; None where there is none."""
    for line in lines:
        share = _share_in(line.text)
        if share is not None and 0.02 <= share <= 0.98:
            return StatedShare(share, line)
    return None


def _share_in(text: str) -> float | None:
    match = _NOW_AND_BEFORE.search(text[:1_000])
    if match is not None:
        now, before = _number(match["now"], match["k"]), _number(match["before"], match["k2"])
        if not now or not before:
            return None
        return 1 - before / now if _TIME.search(match["name"]) else 1 - now / before
    told = _PERCENT.search(text[:1_000])
    if told is None:
        return None
    return float(told["lost"]) / 100 if told["lost"] else 1 - float(told["left"]) / 100


def _number(digits: str, kilo: str) -> float:
    try:
        return float(digits.rstrip(".,").replace(",", "")) * (1_000 if kilo else 1)
    except ValueError:
        return 0.0
