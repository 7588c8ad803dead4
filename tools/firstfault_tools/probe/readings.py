"""What do saved probe records of one or many nodes say? The reader that puts them into an incident."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault_tools.findings import Finding, Json
from firstfault_tools.hardware.excerpt import TEXT_BYTES, NumberedLine, keep_marked
from firstfault_tools.probe.merge import compare_nodes
from firstfault_tools.probe.records import ProbeRecord, parse_records, require_records
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.roles import Role

GATE = ('"schema": "firstfault.probe/',)
MARKERS = GATE


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of probe records pasted into any text."""
    records = parse_records(keep_marked(lines, MARKERS), file)
    return compare_nodes(records).findings if records else ()


def recognise_probe(_name: str, head: bytes) -> bool:
    """The first lines hold the schema's name."""
    return MARKERS[0].encode() in head[:4096]


def read_records(artefact: Artefact) -> list[ProbeRecord]:
    """All records of one file. Raises UnreadableArtefact where there is none."""
    text = artefact.data(TEXT_BYTES).decode("utf-8", errors="replace")
    records = parse_records(enumerate(text.split("\n"), start=1), artefact.name)
    require_records(records, artefact.name)
    return records


def read_probes(artefacts: tuple[Artefact, ...]) -> Reading:
    """All nodes of all files compared with each other."""
    records = [record for artefact in artefacts for record in read_records(artefact)]
    if not records:
        return Reading()
    comparison = compare_nodes(records)
    table: dict[str, Json] = {name: dict(row) for name, row in comparison.table.items()}
    return Reading(comparison.findings, {"hosts": list(comparison.hosts), "rates": table})


SIGNS = ("firstfault.probe/",)

READER = Reader(
    name="probe",
    summary="Records of `firstfault probe` from one or many nodes: odd node out, rates below the card's",
    recognise=recognise_probe,
    read=read_probes,
    role=Role.EXPERIMENT,
)
