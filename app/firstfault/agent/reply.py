"""In which form must the model answer? A closed schema.

Evidence is named by its id, kinds by enums, pages by their ids. Limits on lengths are checked here;
numeric ones a server's grammar would not keep are not used. Descriptions are part of every request, so
they are short; what the fields mean in full stands in the system prompt.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import GenerateJsonSchema

from firstfault.investigation.diagnosis import PhaseName
from firstfault_tools.findings import Category, Verdict

EvidenceId = Annotated[str, Field(max_length=120)]
MOST_IDS = 24


def _keep_first(ids: Any) -> Any:
    """The first of too many: an answer is not sent back for a line more than is shown."""
    return ids[:MOST_IDS] if isinstance(ids, list) else ids


Ids = Annotated[list[EvidenceId], Field(max_length=MOST_IDS), BeforeValidator(_keep_first)]


class ProbeComponent(StrEnum):
    """What a probe of this node measures alone."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    MEMORY = "memory"
    DATA = "data"


class _Terse(GenerateJsonSchema):
    """A schema without titles and defaults of text, which name nothing that the keys do not."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: Any = "validation") -> dict[str, Any]:
        whole = super().generate(schema, mode)
        for part in (whole, *whole.get("$defs", {}).values()):
            part.pop("title", None)
            if part is not whole:
                part.pop("description", None)
        return whole


class _Closed(BaseModel):
    # a model that writes a GPU as 1 means "1"
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        """A null stands for a field that is left out: models write it for texts and lists, too."""
        if not isinstance(given, dict):
            return given
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {k: v for k, v in given.items() if v is not None or k not in optional}

    @classmethod
    def model_json_schema(cls, *args: Any, **more: Any) -> dict[str, Any]:
        """The schema as it travels with every request: as small as it can be."""
        schema = super().model_json_schema(*args, **{"schema_generator": _Terse, **more})
        return {"title": cls.__name__, **schema}


class Paragraph(_Closed):
    """One thought with its ids; shown whole or not at all."""

    text: str = Field(max_length=900)
    lines: Ids = Field(default_factory=list)


class Account(_Closed):
    """One explanation of the incident."""

    verdict: Verdict
    category: Category | None = None
    rank: int | None = None
    host: str = Field("", max_length=120)
    gpu: str = Field("", max_length=40)
    cause: str = Field(max_length=400)
    mechanism: str = Field("", max_length=1200)
    lines: Ids = Field(default_factory=list)
    against: str = Field("", max_length=400)
    against_lines: Ids = Field(default_factory=list)
    test: str = Field("", max_length=400)
    command: str = Field("", max_length=300)
    page: str = Field("", max_length=80)


class Inapplicable(_Closed):
    """A shown fix that does not fit this run."""

    fix: int
    why: str = Field(max_length=400)
    lines: Ids = Field(default_factory=list)


class NextQuestion(_Closed):
    """The one thing to ask the person, with what to assume when they do not know."""

    phase: PhaseName
    text: str = Field(max_length=240)
    default: str = Field(max_length=160)


class Reply(_Closed):
    """Your answer; best explanation first."""

    # without defaults, so that an answer that was cut off is none
    answer: list[Paragraph] = Field(max_length=4)
    explanations: list[Account] = Field(max_length=3)
    doubts: list[Paragraph] = Field(default_factory=list, max_length=3)
    not_applying: list[Inapplicable] = Field(default_factory=list, max_length=6)
    question: NextQuestion | None = None


def reply_version() -> str:
    """The schema as text: a change of it is a change of the prompt."""
    return json.dumps(Reply.model_json_schema(), sort_keys=True)
