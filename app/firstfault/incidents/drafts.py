"""What was it really? Feedback, kept as a draft eval case that a person can finish."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from sqlalchemy import select

from firstfault.incidents.database import Database
from firstfault.incidents.records import Feedback, Incident, clean_text
from firstfault.incidents.schema import feedback
from firstfault.investigation.diagnosis import Diagnosis
from firstfault_tools.dataclass import dataclass
from firstfault_tools.findings import Category, Verdict
from firstfault_tools.log import secrets
from firstfault_tools.log.line import normalise

MAX_INPUT_LINES = 20_000
_SEVERITY = {Verdict.FAULT: "critical", Verdict.WARNING: "warning", Verdict.HEALTHY: "ok"}
_HEADER = """# Draft from feedback; finish it before moving it to evals/cases/dev/<kind>/:
# cut the inputs down to what matters, check that no name or secret is left in them, fill in expect.
"""


@dataclass(frozen=True, slots=True)
class FeedbackStore:
    """Feedback of all incidents; drafts lie below `folder`."""

    database: Database
    folder: Path

    def add(
        self,
        incident: Incident,
        diagnosis: Diagnosis | None,
        files: Mapping[str, Path],
        questions: Sequence[str],
        helpful: bool | None,
        really: str,
        category: Category | None,
    ) -> Feedback:
        """Keep feedback; where it says what it really was, a draft case is written as well."""
        draft = None
        text = clean_text(secrets.redact(really.strip()), 10_000)
        if text:
            draft = self._folder_of(incident.id)
            _write_case(draft, incident, diagnosis, files, questions, text, category)
        now = self.database.clock()
        with self.database.write() as connection:
            connection.execute(
                feedback.insert().values(
                    incident=incident.id,
                    created=now,
                    helpful=helpful,
                    really=text,
                    category=category.value if category else None,
                    draft=str(draft) if draft else None,
                )
            )
        return Feedback(now, helpful, text, category, draft)

    def delete_draft(self, incident: str) -> None:
        """Remove the draft case of an incident, evidence included."""
        shutil.rmtree(self._folder_of(incident), ignore_errors=True)

    def _folder_of(self, incident: str) -> Path:
        return self.folder / f"draft-{incident}"

    def of_incident(self, incident: str) -> tuple[Feedback, ...]:
        """Feedback on one incident, oldest first."""
        query = select(feedback).where(feedback.c.incident == incident).order_by(feedback.c.id)
        with self.database.read() as connection:
            return tuple(
                Feedback(
                    created=r["created"],
                    helpful=None if r["helpful"] is None else bool(r["helpful"]),
                    really=secrets.redact(r["really"]),
                    category=Category(r["category"]) if r["category"] else None,
                    draft=Path(r["draft"]) if r["draft"] else None,
                )
                for r in connection.execute(query).mappings()
            )


def _write_case(
    folder: Path,
    incident: Incident,
    diagnosis: Diagnosis | None,
    files: Mapping[str, Path],
    questions: Sequence[str],
    really: str,
    category: Category | None,
) -> None:
    import yaml

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    inputs = []
    for name, path in files.items():
        flat = re.sub(r"[^\w.-]+", "_", name)[-120:] or "log.txt"
        flat = f"input_{flat}" if flat == "case.yaml" else flat
        _copy_redacted(path, folder / flat)
        inputs.append(flat)
    known = category or (diagnosis.category if diagnosis is not None else None)
    case: dict[str, Any] = {
        "id": folder.name,
        "source": "feedback on an incident",
        "title": incident.title,
        "question": next(iter(questions), ""),
        "inputs": inputs,
        "tags": ["draft"],
        "answered": diagnosis.root_cause if diagnosis is not None else None,
        "expect": {
            "category": known.value if known else None,
            "root_cause": really,
            "first_failing_rank": None,
            "must_mention": [],
            "must_not_claim": [],
            "fix": [],
            "severity": _SEVERITY.get(diagnosis.verdict, "critical") if diagnosis else "critical",
        },
    }
    text = yaml.safe_dump(case, sort_keys=False, allow_unicode=True)
    with _open_private(folder / "case.yaml") as out:
        out.write((_HEADER + text).encode("utf-8"))


def _open_private(path: Path) -> IO[bytes]:
    """A new file that only its owner may read."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _copy_redacted(source: Path, target: Path) -> None:
    """Copy with secrets removed; binary artefacts are copied as they are."""
    with source.open("rb") as stream:
        head = stream.read(8192)
        stream.seek(0)
        if head.count(0) > len(head) // 20:
            with _open_private(target) as out:
                out.write(stream.read(64 * 1024 * 1024))
            return
        with _open_private(target) as out:
            lines = map(normalise, islice(stream, MAX_INPUT_LINES))
            out.writelines(
                f"{line}\n".encode("utf-8", "replace") for line in secrets.redact_lines(lines)
            )
