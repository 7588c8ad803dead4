"""What does the product say of a case? Diagnosed once in a process, for every check that looks at it."""

from __future__ import annotations

from dataclasses import dataclass, field

from evals.cases import Case

from firstfault.intake.collect import collect_paths
from firstfault.investigation.diagnose import conclude
from firstfault.investigation.diagnosis import Diagnosis, SkippedInput
from firstfault.investigation.examination import examine
from firstfault.workspace import Workspace, measure
from firstfault_tools.findings import Finding


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A case, its diagnosis and the findings that the diagnosis was made of, the first one apart."""

    case: Case
    diagnosis: Diagnosis
    findings: tuple[Finding, ...]
    first: Finding | None

    @property
    def lead(self) -> Finding | None:
        """The finding that the verdict rests on; None where it came from the question alone."""
        told = self.diagnosis.signature
        given = (self.first, *self.findings)
        return next(
            (f for f in given if f is not None and f.kind.removeprefix("signature.") == told), None
        )


@dataclass
class Diagnoses:
    """Diagnoses of one workspace by case; each is made when it is first asked for."""

    workspace: Workspace = field(default_factory=Workspace)
    _made: dict[str, Diagnosed] = field(default_factory=dict)

    def of(self, case: Case) -> Diagnosed:
        """The diagnosis of a case, as every door makes it."""
        made = self._made.get(case.id)
        if made is None:
            made = self._made[case.id] = diagnose_case(self.workspace, case)
        return made


def diagnose_case(workspace: Workspace, case: Case) -> Diagnosed:
    """The same as `Workspace.diagnose_paths`, with the findings kept."""
    known = workspace.knowledge
    collection = collect_paths(case.inputs, workspace.spool)
    skipped = [SkippedInput(s.what, s.why) for s in collection.skipped]
    examination = examine(collection.artefacts, known.signatures)
    made = conclude(examination, collection.artefacts, known, skipped, case.question)
    diagnosis = measure(made, collection)
    return Diagnosed(case, diagnosis, tuple(examination.findings), examination.chain.first)
