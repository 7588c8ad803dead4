"""Which values of a quantity does a run print, in order? Loss, gradient norm, memory and the like, by any name."""

from __future__ import annotations

from collections import defaultdict

from firstfault.investigation.examination import Examination, sample_lines
from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Evidence

LEAST = 5
"""Values below which nothing is a curve."""

_PAIR = expression(
    r"(?<![\w/])(?P<name>[A-Za-z][\w/]{0,40}(?: (?:loss|norm|rate|memory|mem))?)['\"]?\s?(?:[:=]|(?<=[a-z]) )\s{0,4}"
    r"['\"]?(?P<value>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?: ?(?P<unit>[KMGT]i?B|%))?(?![\d.]*[\w/])"
)
_NAMES = {
    "validation loss": r"(?i)(?:\w+[/_ ])?(?:val|valid|validation|eval|dev|test)\w*[_/ ]?(?:total_)?loss",
    "loss": r"(?i)(?:train(?:ing)?[_/ ]|total_|avg_|avr_|running |step_|lm |local_)?loss(?:/total|/train)?",
    "memory": r"(?i)(?:cpu_|host_|gpu_|max_|peak_|used_)?(?:rss|ram|mem(?:ory)?)(?:_used|_alloc\w*|_reserved)?",
    "host memory": r"(?i)(?:cpu_|host_|used_|max_)?(?:rss|ram)(?:_used)?|(?:cpu|host|sys\w*)[_ /]mem(?:ory)?",
    "peak memory": r"(?i)(?:\w+/)?(?:max_|peak_)?mem(?:ory)?_(?:peak|alloc\w*|reserved\w*)|allocated|reserved",
    "entropy": r"(?i)(?:\w+/)?(?:policy_)?entropy(?:_loss|/mean)?",
    "KL": r"(?i)(?:\w+/)?(?:ppo_|approx_)?kl(?:_loss|_div)?(?:/mean)?",
    "reward": r"(?i)(?:reward|critic/(?:score|rewards)/mean|env/reward_mean|objective/scores?|rewards?(?:/\w+)?/mean|train/reward)",
    "gradient norm": r"(?i)(?:\w+/)?grad(?:ient)?[_ ]?norm",
    "learning rate": r"(?i)(?:\w+[/_])?(?:lr|learning_rate)(?:/\w+)?",
    "accuracy": r"(?i)(?:(?:val|valid|eval|test|train)\w*[_/ ])?(?:acc(?:uracy)?|top1|acc@1|mAP|dice|iou|f1|bleu)",
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Values of one name in order. places: (line, text) of each."""

    name: str
    file: str
    unit: str
    values: tuple[float, ...]
    places: tuple[tuple[int, str], ...]

    @property
    def start(self) -> float:
        """Middle of the first values."""
        return median(self.values[: max(2, len(self.values) // 4)])

    @property
    def end(self) -> float:
        """Middle of the last values."""
        return median(self.values[-max(2, len(self.values) // 4) :])

    def ends(self) -> tuple[Evidence, ...]:
        """First and last line."""
        kept = dict.fromkeys((self.places[0], self.places[-1]))
        return tuple(Evidence(self.file, n, t.strip()[:600]) for n, t in kept)


def read_curve(examination: Examination, name: str) -> Curve | None:
    """Values of the name that is printed most often among those meant by it, the shortest of several: parts have longer ones."""
    wanted, other = expression(_NAMES[name]), expression(_NAMES["validation loss"])
    found: dict[tuple[str, str], list[tuple[float, str, int, str]]] = defaultdict(list)
    for file, number, text in sample_lines(examination):
        for pair in _PAIR.finditer(text):
            told = pair["name"].strip()
            if not wanted.fullmatch(told) or (name == "loss" and other.fullmatch(told)):
                continue
            found[file, told].append((float(pair["value"]), pair["unit"] or "", number, text))
    if not found:
        return None
    (file, told), rows = max(found.items(), key=lambda item: (len(item[1]), -len(item[0][1])))
    if len(rows) < LEAST:
        return None
    unit = f" {rows[-1][1]}" if rows[-1][1] else ""
    return Curve(told, file, unit, tuple(r[0] for r in rows), tuple((r[2], r[3]) for r in rows))
