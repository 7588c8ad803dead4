"""What does a Kubernetes reason or a container's exit code mean for the job?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Level

TABLE = Path(__file__).with_name("kubernetes_reasons.json")


_NODES = expression(r"^\d+/(?P<all>\d+) nodes are available: ")
_COUNTED = expression(r"^(?P<nodes>\d+) (?:node\(s\) )?(?P<lack>.+)$")
"""A reason of the scheduler: how many nodes it holds for. The number counts nodes, never what they lack."""

_PREEMPTION = expression(r"\.? *preemption: .*$|\.$")
_LACKS = "Insufficient "
"""Words of the scheduler around what the nodes lack."""


@dataclass(frozen=True, slots=True)
class ReasonMeaning:
    """kind: stable end of the finding's kind. category: None where it says that something ended, and not why.
    reading: what happened, in words; brief: where a message says the rest."""

    kind: str
    level: Level
    category: Category | None
    reading: str
    confidence: Confidence
    brief: str = ""


@cache
def load_reasons() -> Mapping[str, ReasonMeaning]:
    """The table by reason; a reason that names a cause is itself the proof."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    meanings = {}
    for reason, row in rows.items():
        level = Level(row["level"])
        sure = Confidence.CONFIRMED if level is Level.CAUSE else Confidence.LIKELY
        category = Category(row["category"])
        meanings[reason] = ReasonMeaning(
            row["kind"], level, category, row["reading"], sure, row.get("brief", "")
        )
    return meanings


def name_pod(pod: str | None) -> str:
    """How a sentence about a pod begins, where the excerpt may not say which."""
    return f"Pod {pod}" if pod else "A pod"


def explain_reason(reason: str) -> ReasonMeaning | None:
    """Meaning of a reason, None where it is normal (`Completed`, `Started`)."""
    return load_reasons().get(reason)


def explain_exit(code: int | None) -> ReasonMeaning | None:
    """Meaning of an exit code without a telling reason; None for 0 and for no code."""
    if code in (None, 0):
        return None
    level, category, sure = Level.FAILURE, Category.CODE_BUG, Confidence.LIKELY
    if code == 137:
        reading = "the container was ended by SIGKILL, not said by whom"
        return ReasonMeaning("sigkill", level, None, reading, Confidence.POSSIBLE)
    if code == 143:
        reading = "the container was asked to stop (SIGTERM)"
        return ReasonMeaning("sigterm", Level.SYMPTOM, Category.SCHEDULER, reading, sure)
    if code in (134, 139):
        signal = "SIGABRT" if code == 134 else "SIGSEGV"
        return ReasonMeaning("crashed", level, category, f"the program crashed ({signal})", sure)
    # it says that the program ended, never why
    reading = "the program ended with an error; its own log has the reason"
    return ReasonMeaning("exited", Level.SYMPTOM, category, reading, sure)


def say_reason(who: str, meaning: ReasonMeaning, reason: str, message: str | None) -> str:
    """What befell a pod or node, with what the cluster says of it: of nodes that take no pod every reason, with the
    number of nodes it holds for, what they lack first."""
    nodes = _NODES.match(message or "")
    told = _PREEMPTION.sub("", _NODES.sub("", message or ""))[:160]
    if not told:
        return f"{who}: {meaning.reading} ({reason})"
    if not meaning.brief:
        return f"{who}: {meaning.reading} ({reason}: {(message or '')[:160]})"
    parts = sorted(told.split(", "), key=lambda part: _LACKS not in part)
    if nodes is None or not all(_COUNTED.match(part) for part in parts):
        first = parts[0].removeprefix("Pod ")
        joint = ", "
        if first.startswith("The "):
            joint, first = " since ", f"the {first[4:]}"
        return f"{who}: {meaning.brief}{joint}{', '.join((first, *parts[1:]))} ({reason})"
    return f"{who}: {meaning.brief}, {_say_nodes(parts, int(nodes['all']))} ({reason})"


def _say_nodes(parts: list[str], total: int) -> str:
    """`12 of 14 nodes: Insufficient nvidia.com/gpu, and 2: had untolerated taint`."""
    found = [m for part in parts if (m := _COUNTED.match(part)) is not None]
    first, *rest = [f"{m['nodes']}: {m['lack']}" for m in found]
    count, _, lack = first.partition(": ")
    many = f"{count} of {total} nodes" if rest or int(count) != total else f"all {total} nodes"
    return ", and ".join((f"{many}: {lack}", *rest))
