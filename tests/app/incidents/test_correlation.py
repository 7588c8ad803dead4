"""What the record says about what precedes what: a planted precursor, too few, repeat offenders."""

from __future__ import annotations

import json

from firstfault.incidents.correlation import correlate_incidents, write_correlation
from firstfault.incidents.records import Incident, IncidentState
from firstfault_tools.findings import Category, Verdict

DAY = 86400.0


def incident(
    number: int, days: float, verdict: Verdict, signature: str, host: str | None = None
) -> Incident:
    return Incident(
        str(number), "t", IncidentState.DONE, days * DAY, days * DAY, False, None, verdict,
        Category.HARDWARE, signature, host, None, "why", 1, 1,
    )  # fmt: skip


def planted() -> list[Incident]:
    rows = []
    for n in range(12):
        at = 10.0 * n + (n * 7 % 5) / 3
        rows.append(incident(2 * n, at, Verdict.WARNING, "link-crc", "n1"))
        rows.append(
            incident(2 * n + 1, at + 0.3, Verdict.FAULT, "nccl-timeout", "n1" if n % 2 else "n2")
        )
    rows += [incident(100 + n, 10.0 * n + 5, Verdict.WARNING, "slow-step") for n in range(12)]
    return rows


def test_a_planted_precursor_is_found_and_the_innocent_is_not() -> None:
    result = correlate_incidents(planted())
    told = {p["kind"]: p for p in result["precursors"]}
    assert told["link-crc"]["low_95"] > 1
    assert "slow-step" not in told or not (told["slow-step"]["low_95"] or 0) > 1
    assert result["by_host"] == {"n1": 6, "n2": 6}
    assert "link-crc" in write_correlation(result)
    assert json.loads(write_correlation(result, as_json=True))["faults"] == 12


def test_few_incidents_are_said_to_be_too_few() -> None:
    text = write_correlation(correlate_incidents(planted()[:4]))
    assert "too few" in text
    assert write_correlation(correlate_incidents([])).startswith("0 faults among 0 incidents")
