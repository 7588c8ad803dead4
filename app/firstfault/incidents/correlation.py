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


def write_correlation(result: Mapping[str, Any], as_json: bool = False) -> str:
    """Text for a terminal, or JSON."""
    if as_json:
        return json.dumps(result)
    lines = [f"{result['faults']} faults among {result['incidents']} incidents"]
    for name in ("signature", "host", "gpu"):
        if result[f"by_{name}"]:
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
