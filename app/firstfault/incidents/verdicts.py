"""What was found, and was it found before? Diagnoses, their findings, and earlier incidents."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select, update

from firstfault.incidents.database import Database
from firstfault.incidents.events import RuledOut
from firstfault.incidents.plain import read_diagnosis, redact_plain
from firstfault.incidents.records import Related, Run, clean_text
from firstfault.incidents.schema import artefacts, diagnoses, evidence, findings, incidents
from firstfault.investigation.diagnosis import Diagnosis
from firstfault.investigation.headline import RULED_OUT, name_ruled_out, say_plainly
from firstfault_tools.dataclass import dataclass
from firstfault_tools.hardware.bus import call_gpu

MAX_RELATED = 20
MAX_NAME = 200


def _is_automatic(titles: Collection[str]) -> ColumnElement[bool]:
    """The title is one of these, or says that a verdict was ruled out."""
    return or_(
        incidents.c.title.in_(titles), incidents.c.title.startswith(RULED_OUT, autoescape=True)
    )


@dataclass(frozen=True, slots=True)
class VerdictStore:
    """Diagnoses of all incidents."""

    database: Database

    def save(
        self,
        connection: Connection,
        run: Run,
        diagnosis: Diagnosis,
        files: Mapping[str, Path],
        automatic_titles: Collection[str] = (),
    ) -> None:
        """Keep a run's diagnosis, its findings and the files it was read from. Idempotent.

        automatic_titles: titles that nobody chose; place and cause take their place, as those of an earlier verdict.
        """
        before = self._name_before(connection, run)
        connection.execute(delete(diagnoses).where(diagnoses.c.run == run.id))
        connection.execute(
            diagnoses.insert().values(
                run=run.id,
                incident=run.incident,
                turn=run.turn,
                created=self.database.clock(),
                body=json.dumps(diagnosis.to_json()),
            )
        )
        connection.execute(
            update(incidents)
            .where(incidents.c.id == run.incident)
            .values(
                verdict=diagnosis.verdict.value,
                category=diagnosis.category.value if diagnosis.category else None,
                signature=_short(diagnosis.signature, 200),
                host=_short(diagnosis.host, 255),
                gpu=_short(diagnosis.gpu, 100),
                root_cause=clean_text(diagnosis.root_cause, 2_000),
            )
        )
        connection.execute(
            update(incidents)
            .where(incidents.c.id == run.incident, _is_automatic([*automatic_titles, *before]))
            .values(title=_name(diagnosis))
        )
        self._save_findings(connection, run.incident, diagnosis)
        connection.execute(delete(artefacts).where(artefacts.c.incident == run.incident))
        rows = [
            {"incident": run.incident, "name": n, "path": str(p), "size": p.stat().st_size}
            for n, p in files.items()
        ]
        if rows:
            connection.execute(artefacts.insert(), rows)

    def name_state(
        self, connection: Connection, incident: str, diagnosis: Diagnosis, ruled: RuledOut | None
    ) -> None:
        """Let a title that nobody chose say how the incident stands: its verdict, or that it was ruled out."""
        name = _name(diagnosis)
        title = name if ruled is None else name_ruled_out(ruled.cause, ruled.now)
        connection.execute(
            update(incidents)
            .where(incidents.c.id == incident, _is_automatic([name]))
            .values(title=clean_text(title, MAX_NAME))
        )

    def _name_before(self, connection: Connection, run: Run) -> tuple[str, ...]:
        """The title that the verdict before this one gave, where there is one."""
        rows = connection.execute(
            select(diagnoses.c.body).where(diagnoses.c.incident == run.incident).order_by(diagnoses.c.run.desc()).limit(1)
        )  # fmt: skip
        return tuple(_name(read_diagnosis(redact_plain(json.loads(row.body)))) for row in rows)

    def _save_findings(self, connection: Connection, incident: str, diagnosis: Diagnosis) -> None:
        connection.execute(delete(findings).where(findings.c.incident == incident))
        quotes = {c.n: c for c in diagnosis.citations}
        rows = []
        for number, hypothesis in enumerate(diagnosis.hypotheses):
            first = quotes.get(hypothesis.for_[0]) if hypothesis.for_ else None
            rows.append(
                {
                    "incident": incident,
                    "number": number,
                    "title": clean_text(hypothesis.root_cause, 2_000),
                    "category": hypothesis.category.value if hypothesis.category else None,
                    "confidence": hypothesis.confidence.value,
                    "file": clean_text(first.file, 1_000) if first and first.file else None,
                    "line": first.line if first else None,
                    "quote": clean_text(first.quote, 2_000) if first else None,
                }
            )
        if rows:
            connection.execute(findings.insert(), rows)

    def latest(self, incident: str) -> Diagnosis | None:
        """Diagnosis of the last run that had one."""
        query = (
            select(diagnoses.c.body)
            .where(diagnoses.c.incident == incident)
            .order_by(diagnoses.c.run.desc())
            .limit(1)
        )
        with self.database.read() as connection:
            body = connection.execute(query).scalar_one_or_none()
        return None if body is None else read_diagnosis(redact_plain(json.loads(body)))

    def related(
        self, connection: Connection, incident: str, diagnosis: Diagnosis
    ) -> tuple[Related, ...]:
        """Earlier incidents with the same signature, host or GPU, the closest and newest first; the same log read before is none."""
        same: list[Any] = []
        if diagnosis.signature and diagnosis.verdict in ("fault", "warning"):
            same.append(incidents.c.signature == _short(diagnosis.signature, 200))
        if diagnosis.host:
            same.append(incidents.c.host == _short(diagnosis.host, 255))
            if diagnosis.gpu:
                same.append(
                    and_(incidents.c.host == diagnosis.host, incidents.c.gpu == diagnosis.gpu)
                )
        if not same:
            return ()
        query = (
            select(incidents)
            .where(
                incidents.c.id.not_in([incident, *_readings(connection, incident)]),
                incidents.c.created <= _created(incident),
                incidents.c.verdict.in_(("fault", "warning")),
                or_(*same),
            )
            .order_by(incidents.c.created.desc())
            .limit(MAX_RELATED)
        )
        out = [_related(r, diagnosis) for r in connection.execute(query).mappings()]
        out.sort(key=lambda r: -(2 * r.same_host + 2 * r.same_gpu + r.same_signature))
        return tuple(out)

    def read_before(
        self, connection: Connection, incident: str, diagnosis: Diagnosis
    ) -> tuple[Related, ...]:
        """Earlier incidents that were given the same log, the newest first."""
        query = (
            select(incidents)
            .where(
                incidents.c.id.in_(_readings(connection, incident)),
                incidents.c.created <= _created(incident),
            )
            .order_by(incidents.c.created.desc())
            .limit(MAX_RELATED)
        )
        rows = connection.execute(query).mappings()
        return tuple(replace(_related(r, diagnosis), same_log=True) for r in rows)


def _created(incident: str) -> Any:
    return select(incidents.c.created).where(incidents.c.id == incident).scalar_subquery()


def _readings(connection: Connection, incident: str) -> list[str]:
    """Other incidents of the same evidence: all that one was given, byte for byte, is in the other."""
    query = select(evidence.c.sha256).where(evidence.c.incident == incident)
    mine = set(connection.execute(query).scalars())
    known = mine - {None}
    if not known:
        return []
    shares = select(evidence.c.incident).where(
        evidence.c.sha256.in_(known), evidence.c.incident != incident
    )
    theirs: dict[str, set[str | None]] = {}
    given = select(evidence.c.incident, evidence.c.sha256).where(evidence.c.incident.in_(shares))
    for other, sha256 in connection.execute(given):
        theirs.setdefault(other, set()).add(sha256)
    return [
        other
        for other, files in theirs.items()
        if files <= known or (None not in mine and mine <= files)
    ]


def say_read_before(again: tuple[Related, ...]) -> str:
    """One sentence where the same log was read before; empty where it was not."""
    return f"This log was read before{f', {_times(len(again))}' if len(again) > 1 else ''}; it is the same event, not another one." if again else ""  # fmt: skip


def say_related(related: tuple[Related, ...], diagnosis: Diagnosis) -> str:
    """One sentence on what was seen before; empty when nothing was."""
    both = sum(r.same_host and r.same_signature for r in related)
    on_gpu = sum(r.same_gpu for r in related)
    on_host = sum(r.same_host for r in related)
    alike = sum(r.same_signature for r in related)
    parts = []
    if both:
        parts.append(f"The same fault was seen {_times(both)} before on host {diagnosis.host}")
    elif on_host:
        parts.append(f"Host {diagnosis.host} failed {_times(on_host)} before, in another way")
    if on_gpu:
        parts.append(f"{_times(on_gpu)} on {call_gpu(diagnosis.gpu)}")
    if alike > both:
        where = "on other hosts" if diagnosis.host else "before"
        parts.append(f"this kind of fault was seen {_times(alike - both)} {where}")
    sentence = "; ".join(parts)
    return sentence[:1].upper() + sentence[1:] + "." if sentence else ""


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _related(row: Any, diagnosis: Diagnosis) -> Related:
    host = bool(diagnosis.host) and row["host"] == diagnosis.host
    return Related(
        id=row["id"],
        title=row["title"],
        created=row["created"],
        root_cause=row["root_cause"] or "",
        same_signature=row["signature"] is not None and row["signature"] == diagnosis.signature,
        same_host=host,
        same_gpu=host and bool(diagnosis.gpu) and row["gpu"] == diagnosis.gpu,
    )


def _short(text: str | None, limit: int) -> str | None:
    return None if text is None else clean_text(text, limit)


def _name(diagnosis: Diagnosis) -> str:
    return clean_text(say_plainly(diagnosis)[0], MAX_NAME)
