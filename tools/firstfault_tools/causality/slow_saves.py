"""Was the rank for which the others waited still writing its checkpoint, shard by shard, to slow storage?

It is missing from the collective because its save takes longer than their patience, not because its code took
another path: what it printed of sizes and seconds gives the bandwidth, `df` beside it the file system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level, Strength, Together
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.hardware.host.tables import read_tables
from firstfault_tools.log.digest import Line
from firstfault_tools.log.scan import make_line

STILL_WRITING = Rule("missing-while-it-saved", Relation.EXPLAINS, "the rank was still writing its checkpoint when the wait of the others ran out")  # fmt: skip

SLOW_MBS, LEAST_S, LEAST_WRITES = 200.0, 300.0, 2
"""MB/s of one writer below which storage is slow; seconds and parts it must have been seen to write."""

SEARCHED = 4_000
SILENT = 6
"""Lines that the rank may print after the last part it wrote."""

_WORDS = ("wrote", "writ", "saved", "saving", "Saved", "Saving", "Writ", "Wrote", "flush", "upload")
_SAVES = expression(r"(?i)\b(?:wrote|written|writing|saved|saving|flushed|uploaded|save|write)\b")
_SIZE = expression(r"(?<![\w.])(?P<n>\d+(?:\.\d+)?) ?(?P<unit>[KMGT])i?B\b(?!/s)")
_SECONDS = expression(
    r"\b(?:in|took|after|elapsed)[ =:]{1,3}(?P<n>\d+(?:\.\d+)?) ?(?P<unit>ms|s|sec(?:ond)?s?|m|min(?:ute)?s?)\b"
)
_COUNT = expression(
    r"(?i)\b(?:shard|part|file|chunk|rank file|tensor)s?\D{0,4}(?P<n>\d+) ?(?:/|of) ?(?P<all>\d+)\b"
)
_PATH = expression(r"(?<![\w./:@-])(?:/[\w.@+=-]+){1,24}")
_SCALE = {"K": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}


@dataclass(frozen=True, slots=True)
class _Write:
    """One part that was written. mb, seconds: where printed, the seconds else since the part before."""

    line: Line
    mb: float | None
    seconds: float | None
    count: tuple[int, int] | None


def join_slow_saves(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail | None = None
) -> list[Finding]:
    """Ranks that are missing since they still save, told as what held them up."""
    trail = trail or Trail()
    out = []
    for finding in findings:
        live = finding.level in (Level.CAUSE, Level.FAILURE) and not finding.survived
        absent = live and finding.rank is not None and finding.has(FindingRole.ABSENT)
        told = _read_save(incident, finding) if absent and finding.evidence else None
        if told is None:
            out.append(finding)
            continue
        victim = replace(finding, level=Level.SYMPTOM)
        trail.note(STILL_WRITING, finding, victim, told)
        out += [told, victim]
    return out


def _read_save(incident: LogIncident, absent: Finding) -> Finding | None:
    spoken = list(_spoken(incident, absent))
    writes = list(_read_writes(spoken))
    timed = [w for w in writes if w.seconds]
    seconds = sum(w.seconds or 0 for w in timed)
    if len(writes) < LEAST_WRITES or seconds < LEAST_S or _is_over(writes[-1], spoken):
        return None
    rate = _rate_of(timed)
    if rate is not None and rate >= SLOW_MBS:
        return None
    last = writes[-1]
    path = next((m[0] for x in reversed(spoken) if _SAVES.search(x.message) and (m := _PATH.search(x.message))), "")  # fmt: skip
    mount = _find_mount(incident, path)
    to = f" to {path}" if path else ""
    where = f" ({mount[0]})" if mount else ""
    pace = f" at {rate:.1f} MB/s" if rate is not None else f", {seconds / len(timed):.0f} s a part"
    part = f" (part {last.count[0]} of {last.count[1]} after {seconds:.0f} s)" if last.count else ""
    return Finding(
        kind="storage.slow_save",
        title=f"rank {absent.rank} was still writing its checkpoint{to}{where}{pace}{part} when the wait of the others ran out: "
        "the bandwidth of the storage holds it up, and the collective is only where they waited",
        level=Level.CAUSE,
        category=Category.CHECKPOINT,
        evidence=(last.line.evidence(), writes[0].line.evidence(), *((mount[1],) if mount else ()), *absent.evidence[:1]),
        rank=absent.rank,
        host=absent.host,
        time=absent.time,
        page="checkpoint-slow",
        strength=Strength(Together.SERIES),
    )  # fmt: skip


def _rate_of(timed: Sequence[_Write]) -> float | None:
    """MB/s over all writes that tell their size."""
    sized = [w for w in timed if w.mb]
    if not sized:
        return None
    return sum(w.mb or 0 for w in sized) / sum(w.seconds or 0 for w in sized)


def _spoken(incident: LogIncident, absent: Finding) -> Iterator[Line]:
    """What the rank itself said until the others gave up."""
    end = absent.evidence[0]
    for digest in incident.digests:
        if digest.name_rank != absent.rank and absent.rank not in digest.ranks:
            continue
        at = digest.position(end.line) if digest.file == end.file else len(digest.kept)
        for number, text in digest.kept[max(0, at - SEARCHED) : at]:
            line = make_line(digest.file, number, text, digest.year)
            speaker = digest.name_rank if line.place.rank is None else line.place.rank
            if speaker == absent.rank:
                yield line


def _read_writes(spoken: Sequence[Line]) -> Iterator[_Write]:
    before: float | None = None
    for line in spoken:
        text = line.message[:400]
        if not any(word in text for word in _WORDS) or not _SAVES.search(text):
            continue
        size, took, count = _SIZE.search(text), _SECONDS.search(text), _COUNT.search(text)
        if (size is not None and took is not None) or count is not None:
            mb = float(size["n"]) * _SCALE[size["unit"]] if size is not None else None
            since = line.time - before if line.time is not None and before is not None else None
            seconds = _seconds(took["n"], took["unit"]) if took is not None else since
            yield _Write(line, mb, seconds, (int(count["n"]), int(count["all"])) if count else None)
        before = line.time


def _seconds(number: str, unit: str) -> float:
    return float(number) * (1e-3 if unit == "ms" else 60.0 if unit.startswith("m") else 1.0)


def _is_over(last: _Write, spoken: Sequence[Line]) -> bool:
    """All parts were written, or the rank went on to something else."""
    if last.count is not None and last.count[0] >= last.count[1]:
        return True
    return len(spoken) - 1 - spoken.index(last.line) > SILENT


def _find_mount(incident: LogIncident, path: str) -> tuple[str, Evidence] | None:
    """The listed file system that a path lies on."""
    found = [
        (row, digest.file)
        for digest in incident.digests
        if path and digest.kept.holds(("Mounted on",))
        for row in read_tables(list(digest.kept), digest.file, "file_systems")
        if path.startswith(row["mount"].rstrip("/") + "/")
    ]
    if not found:
        return None
    row, file = max(found, key=lambda f: len(f[0]["mount"]))
    return f"{row['device']}, {row['share']} full", quote_line(file, *row.place)
