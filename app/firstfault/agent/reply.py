"""In which form must the model answer? A closed schema; it has no field for a verdict or a fix.

Causes are named by the page that describes them, evidence by its id, phases and probes by enums.
Limits on lengths are checked here; numeric ones a server's grammar would not keep are not used.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from firstfault.investigation.diagnosis import PhaseName
from firstfault_tools.findings import Category

EvidenceId = Annotated[str, Field(max_length=12, description="id as shown, such as E4")]
Ids = Annotated[list[EvidenceId], Field(max_length=8)]


class Stance(StrEnum):
    """What the model thinks of the deterministic verdict."""

    AGREE = "agree"
    DOUBT = "doubt"
    CANNOT_SAY = "cannot_say"


class ProbeComponent(StrEnum):
    """What a probe of this node measures alone."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    MEMORY = "memory"
    DATA = "data"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sentence(_Closed):
    """One sentence of the explanation."""

    text: str = Field(max_length=400, description="one sentence, no marks")
    evidence: Ids = Field(description="ids that say all of it")


class HypothesisClaim(_Closed):
    """A cause to weigh against the verdict's."""

    category: Category
    page: str = Field("", max_length=80, description="id of a page you were shown, or empty")
    statement: str = Field(max_length=240, description="the cause in one sentence")
    supports: Ids = Field(default_factory=list, description="ids that speak for it")
    contradicts: Ids = Field(default_factory=list, description="ids that speak against it")
    test: str = Field("", max_length=240, description="what would tell it from the verdict")


class NextQuestion(_Closed):
    """The one thing to ask the person, with what to assume when they do not know."""

    phase: PhaseName
    text: str = Field(max_length=240)
    default: str = Field(max_length=160)


class NextProbe(_Closed):
    """A measurement worth taking."""

    component: ProbeComponent
    reason: Sentence


class Reply(_Closed):
    """Your answer. Only what evidence with an id says; leave out what none says."""

    stance: Stance
    doubts: list[Sentence] = Field(
        default_factory=list, max_length=3, description="what contradicts the verdict, with its ids"
    )
    explanation: list[Sentence] = Field(max_length=10)
    hypotheses: list[HypothesisClaim] = Field(default_factory=list, max_length=4)
    whys: list[Sentence] = Field(
        default_factory=list, max_length=5, description="five whys, symptom first; stop early"
    )
    next_question: NextQuestion | None = None
    next_probe: NextProbe | None = None
