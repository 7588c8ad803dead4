"""What is an artefact to its incident? The run itself, or something that only stands beside it.

The good end of a benchmark on the same machines says nothing about the run; a counter or a setting
neither ends nor goes on.
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Part of an artefact in an incident.

    run: what the job or its launcher wrote. experiment: a test on the same machines (nccl-tests,
    bandwidth tests, burn-in, probes). counter: what a machine, a driver or a scheduler reports of
    itself. configuration: settings. description: words of a person. unknown: none was recognised.
    """

    RUN = "run"
    EXPERIMENT = "experiment"
    COUNTER = "counter"
    CONFIGURATION = "configuration"
    DESCRIPTION = "description"
    UNKNOWN = "unknown"
