"""What does a finished experiment say in an incident? The reader that puts its record among the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import TEXT_BYTES, quote_line
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.roles import Role

if TYPE_CHECKING:
    from firstfault_tools.experiments.record import Record

MARKER, STEPS = b'"schema": "firstfault.experiment/', b'"schema": "firstfault.component/'
FORMS: dict[str, tuple[str, Category, str]] = {
    "host": ("experiment.host", Category.HARDWARE, "gpu-health-check"),
    "together": ("experiment.hosts", Category.COMMUNICATION, "network-topology-analysis"),
    "either": ("experiment.hosts", Category.HARDWARE, "gpu-health-check"),
    "component": ("experiment.path", Category.COMMUNICATION, "network-topology-analysis"),
    "group": ("experiment.path", Category.COMMUNICATION, "network-topology-analysis"),
    "path": ("experiment.path", Category.COMMUNICATION, "network-topology-analysis"),
    "settings": ("experiment.settings", Category.ENVIRONMENT, "bisection"),
}
"""Form of a result -> kind of the finding, what class it is unless the user says, page."""
_SIGNS = {"supported": "experiment.supported", "refuted": "experiment.refuted"}


def recognise_experiment(_name: str, head: bytes) -> bool:
    """The first lines hold the name of one of the schemas."""
    start = head[:4096]
    return MARKER in start or STEPS in start


def find_result(record: Record, evidence: Evidence) -> Finding:
    """The finding of one record: a place or cause that was singled out, or what became of a hypothesis."""
    result = record.result
    facts = {
        "experiment": record.name,
        "root_cause": record.about.root_cause,
        "finding": record.about.finding,
        "hypothesis": record.hypothesis,
        "culprits": list(result.culprits),
    }
    supported = result.verdict.value == "supported"
    told = FORMS.get(result.form) if supported else None
    if supported and record.kind.value == "commits":
        told = ("experiment.commit", Category.CODE_BUG, "bisection")
    if told is None:
        # what a person suspected and named the class of, and trials support, is an explanation of its own
        own = supported and record.about.category is not None and not record.about.root_cause
        return Finding(
            kind=_SIGNS.get(result.verdict.value, "experiment.open"),
            title=f"{record.hypothesis}: {result.verdict.value} by experiment; {result.says}",
            level=Level.FAILURE if own else Level.CONTEXT,
            category=record.about.category,
            evidence=(evidence,),
            facts=facts,
        )
    kind, category, page = told
    if record.kind.value == "pairs" and result.form == "host":
        kind, category, page = "experiment.path", Category.COMMUNICATION, "network-topology-analysis"  # fmt: skip
    return Finding(
        kind=kind,
        title=result.says,
        level=Level.FAILURE,
        category=record.about.category or category,
        evidence=(evidence,),
        host=result.culprits[0] if result.form == "host" else None,
        page=page,
        facts=facts,
    )


def read_experiments(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of all records, and of component tests, ranks and variants compared with each other."""
    # records are rare: what reads them is not loaded with the other readers
    from firstfault_tools.experiments.component_reading import read_components
    from firstfault_tools.experiments.record import find_says, read_record

    steps = tuple(a for a in artefacts if MARKER not in a.head()[:4096])
    parts = read_components(steps) if steps else Reading()
    findings = list(parts.findings)
    for artefact in artefacts:
        if artefact in steps:
            continue
        text = artefact.data(TEXT_BYTES).decode("utf-8", errors="replace")
        number, line = find_says(text)
        evidence = quote_line(artefact.name, number, line)
        findings.append(find_result(read_record(text, artefact.name), evidence))
    return Reading(tuple(findings), {"experiments": [f.title for f in findings], **parts.data})


READER = Reader(
    name="experiments",
    summary="Records of `firstfault experiment`: what trials support or refute; which host, path, commit or part of a step",
    recognise=recognise_experiment,
    read=read_experiments,
    role=Role.EXPERIMENT,
)
