"""What do the lines of a probe say? JSON lines of `firstfault.probe/1` -> typed records, bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Json

SCHEMA = "firstfault.probe/1"
MAX_RECORDS = 1_000_000
MAX_LINE = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    """One record with the place it came from."""

    file: str
    line: int
    text: str
    host: str
    kind: str
    test: str
    status: str
    gpu_index: int | None
    rank: int | None
    reason: str | None
    at_unix_s: float | None
    values: Mapping[str, Json]

    def number(self, key: str) -> float | None:
        """A numeric value, None where it is missing or no number."""
        value = self.values.get(key)
        return (
            float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def parse_line(line: str, number: int, file: str) -> ProbeRecord | None:
    """One record, None for a line that is no record of the schema (a launcher prints between them)."""
    start = line.find('{"schema"')
    if start < 0 or len(line) > MAX_LINE:
        return None
    try:
        row, _ = json.JSONDecoder().raw_decode(line[start:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        return None
    values = row.get("values")
    reason, at = row.get("reason"), row.get("at_unix_s")
    return ProbeRecord(
        file=file,
        line=number,
        text=line[start:],
        host=str(row.get("host", "?"))[:255],
        kind=str(row.get("kind", "result"))[:40],
        test=str(row.get("test", "?"))[:80],
        status=str(row.get("status", "?"))[:40],
        gpu_index=_whole(row.get("gpu_index")),
        rank=_whole(row.get("rank")),
        reason=reason[:1000] if isinstance(reason, str) else None,
        at_unix_s=float(at) if isinstance(at, int | float) and not isinstance(at, bool) else None,
        values=values if isinstance(values, dict) else {},
    )


def parse_records(lines: Iterable[tuple[int, str]], file: str) -> list[ProbeRecord]:
    """All records among numbered lines."""
    found = []
    for number, line in lines:
        record = parse_line(line, number, file)
        if record is not None:
            found.append(record)
        if len(found) > MAX_RECORDS:
            raise UnreadableArtefact(f"{file}: more than {MAX_RECORDS} records; split the file")
    return found


def require_records(records: Sequence[ProbeRecord], file: str) -> None:
    """Raise UnreadableArtefact where a file holds no record at all."""
    if not records:
        raise UnreadableArtefact(
            f"{file}: holds no line of schema {SCHEMA}; run `firstfault probe --out FILE` on the node"
        )
