"""Which warnings come before faults, and when do faults come? Over the incidents on record."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from firstfault.incidents.records import Incident
from firstfault_tools.findings import Verdict

HOUR_S = 3600.0
SHOWN = 8


def correlate_incidents(incidents: Sequence[Incident], window_h: float = 24.0) -> dict[str, Any]:
    """Precursors, rhythm, bursts and repeat offenders. Times are those at which incidents were opened."""
    from firstfault_tools.metrics.correlation import calculate_correlation

    faults = [i for i in incidents if i.verdict is Verdict.FAULT]
    warnings = [
        {
            "kind": i.signature or (i.category.value if i.category else "warning"),
            "time_s": i.created,
        }
        for i in incidents
        if i.verdict is Verdict.WARNING
    ]
    result = dict(calculate_correlation(warnings, [i.created for i in faults], window_h * HOUR_S))
    result["incidents"], result["faults"], result["window_h"] = (
        len(incidents),
        len(faults),
        window_h,
    )
    for name in ("signature", "host", "gpu"):
        counts = Counter(str(value) for i in faults if (value := getattr(i, name)))
        result[f"by_{name}"] = {key: n for key, n in counts.most_common(SHOWN) if n > 1}
    return result


def correlate_events(text: str, name: str, window_s: float) -> dict[str, Any]:
    """The same of a run's own log of events. Raises UnreadableArtefact."""
    from firstfault_tools.metrics.correlation import calculate_correlation
    from firstfault_tools.metrics.event_log import read_event_log

    log = read_event_log(text, name)
    events = [{"kind": kind, "time_s": time} for kind, time in log.events]
    result = dict(calculate_correlation(events, log.failures, window_s))
    return {
        **result,
        "events": len(log.events),
        "failures": len(log.failures),
        "window_s": window_s,
        "left_out": log.left_out,
    }


def write_correlation(result: Mapping[str, Any], as_json: bool = False) -> str:
    """Text for a terminal, or JSON."""
    if as_json:
        return json.dumps(result)
    if "incidents" in result:
        lines = [f"{result['faults']} faults among {result['incidents']} incidents"]
    else:
        lines = [
            f"{result['failures']} failures among {result['events']} other events, windows of {result['window_s']:g} s"
        ]
    for name in ("signature", "host", "gpu"):
        if result.get(f"by_{name}"):
            told = ", ".join(f"{key} {n}x" for key, n in result[f"by_{name}"].items())
            lines.append(f"  more than once, by {name}: {told}")
    lines += [f"  {p['sentence']}" for p in result["precursors"][:SHOWN]]
    for rhythm in result["rhythms"]:
        lines.append(f"  faults keep to the {rhythm['name']} (p = {rhythm['p_value']:.3g})")
    bursts = result["clustering"]
    if bursts is None:
        lines.append("  too few faults to tell bursts from chance (at least 5 are needed)")
    elif bursts["clustered"]:
        lines.append(f"  faults come in bursts (p = {bursts['p_value']:.3g})")
    else:
        lines.append("  faults are spread as chance would spread them")
    return "\n".join(lines)
