"""What does a CSV export of an experiment tracker say? Columns by their names, one row a step."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Finding, Json
from firstfault_tools.metrics.learning.growing_columns import judge_table as judge_columns
from firstfault_tools.metrics.learning.rollout_mismatch import judge_table as judge_rollout
from firstfault_tools.metrics.sources.table import Row, judge_rows
from firstfault_tools.metrics.sources.tokens import SIGNALS, meaning_of
from firstfault_tools.placement.rank_table import read_heading
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.roles import Role

LIMIT = 256 * 1024 * 1024


def _header(line: str) -> list[str] | None:
    try:
        names = next(csv.reader([line]), [])
    except csv.Error:
        return None
    known = {found[0] for found in map(meaning_of, names) if found}
    enough = {"step", "global_step", "epoch"} & known and SIGNALS & known
    return names if enough and len(names) >= 2 else None


def _recognise(name: str, head: bytes) -> bool:
    if not name.lower().endswith((".csv", ".tsv")):
        return False
    first = head.split(b"\n", 1)[0][:20_000].decode("utf-8", errors="replace")
    # one row a rank is a comparison of ranks, which the log's own readers of such tables make
    return _header(first.replace("\t", ",")) is not None and read_heading(first) is None


def csv_rows(text: str) -> Iterator[Row]:
    """Rows of a CSV or TSV text. Spread columns (`__MIN`, `__MAX`) of exports are left out."""
    lines = text.split("\n")
    separator = "\t" if lines[0].count("\t") > lines[0].count(",") else ","
    reader = csv.reader(io.StringIO(text), delimiter=separator)
    names = next(reader, [])
    for cells in reader:
        values = {}
        for name, cell in zip(names, cells, strict=False):
            if name.endswith(("__MIN", "__MAX")) or not cell:
                continue
            try:
                values[name] = float(cell)
            except ValueError:
                continue
        number = reader.line_num
        yield Row(values=values, line=number, text=lines[number - 1].strip()[:600])


def _read(artefacts: tuple[Artefact, ...]) -> Reading:
    findings: list[Finding] = []
    files: list[Json] = []
    for artefact in artefacts:
        text = artefact.data(LIMIT).decode("utf-8", errors="replace").replace("\r\n", "\n")
        try:
            found, summary = judge_rows(csv_rows(text), artefact.name)
        except (csv.Error, StopIteration) as error:
            raise UnreadableArtefact(
                f"{artefact.name}: not a readable CSV table ({error}); export the run's history again"
            ) from error
        findings += found
        lines = list(enumerate(text.split("\n"), 1))
        findings += (*judge_rollout(lines, artefact.name), *judge_columns(lines, artefact.name))
        files.append(summary)
    return Reading(tuple(findings), {"tracker_exports": files})


SIGNS = ("name:.csv", "name:.tsv")

READER = Reader(
    name="tracker_export",
    summary="Step metrics of a CSV export from an experiment tracker",
    recognise=_recognise,
    read=_read,
    role=Role.RUN,
)
