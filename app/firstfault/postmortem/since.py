"""Since when does it last? One answer for card, page and report."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.investigation.begin import own_time
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.postmortem.evidence import Artefacts
from firstfault.postmortem.report import Loss


def find_since(
    diagnosis: Diagnosis, artefacts: Artefacts, stood: Sequence[Loss]
) -> tuple[float | None, bool]:
    """(seconds since the epoch, whether only about then). stood: what was lost from the fault on.

    The stamp of the deciding line itself, less the wait it tells of; of a line that prints none, when the run became
    slow or stood still, else the time of a line near it.
    """
    first = diagnosis.first_line
    if first is None:
        return None, False
    at, about = artefacts.time_at(first.file, first.line, first.text)
    if at is not None and not about:
        return own_time(diagnosis, at), False
    if stood:
        return stood[0].start, stood[0].estimated
    return (artefacts.begun_at(first.file, first.line, first.text), True) if at is not None else (None, False)  # fmt: skip
