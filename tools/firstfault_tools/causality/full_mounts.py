"""Did what failed write to a file system that a listing shows to be full?

A writer tells its symptom: an image that is not imported, an archive that ends too early, a compiler that returns 1.
`df` beside it tells why, where what was written lies on the full file system. A full one to which nobody wrote
explains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.correlation.decisions import Relation, Rule, Trail
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.host.full_mounts import KIND
from firstfault_tools.placement.table import same_host

WRITTEN = Rule("write-met-a-full-file-system", Relation.EXPLAINS, "what was written lies on the file system that df shows to be full")  # fmt: skip
UNUSED = Rule("full-file-system-unused", Relation.CONTRADICTS, "nothing that failed is seen to have written there")  # fmt: skip

BEFORE, AFTER = 40, 16
"""Lines round a failure in which stands where it wrote."""

_MAY_WRITE = (None, Category.CHECKPOINT, Category.ENVIRONMENT, Category.DATA, Category.CODE_BUG)
_WRITES = expression(
    r"(?i)\bwrit(?:e|es|ing|ten|er)\b|write_|_write|\bsav(?:e|ing)\b|save_|_save|serializ|\bflush|fsync|\bdump|mksquashfs|extract|unpack|\buntar|"
    r"download|import(?:ing)? (?:\w+ ){0,2}image|compil|/(?:gcc|g\+\+|nvcc|cc|clang|ld)\b|\bninja\b|mkdir|makedirs|copy(?:file|ing)|rename|spill|\bpip install"
)
_WROTE = expression(r"(?i)\bwrit(?:e|ing)\b|\bsav(?:e|ing)\b|serializ|mksquashfs|extract|unpack|import(?:ing)? (?:\w+ ){0,2}image|spill|unexpected pos")  # fmt: skip
_OTHER_REASON = expression(r"Permission denied|Read-only file system|No such file|\[Errno (?!28\b|122\b)\d+\]|not found|\b40[134]\b")  # fmt: skip
_PATH = expression(r"(?<![\w./:@-])(?:/[\w.@+=~-]+){1,24}")
_CODE = expression(r"^/(?:usr|opt|proc|sys|bin|lib\w*)/|/site-packages/|\.pyx?$|\.so$")


def join_full_mounts(
    incident: LogIncident, findings: Sequence[Finding], trail: Trail | None = None
) -> list[Finding]:
    """Full file systems with what failed to write there; without that they only stand beside it."""
    trail = trail or Trail()
    mounts = [f for f in findings if f.kind == KIND]
    if not mounts:
        return list(findings)
    met = [_met_by(incident, f, mounts) if _may_have_written(f) else None for f in findings]
    failed = any(f.kind != KIND and not f.survived and f.level in (Level.CAUSE, Level.FAILURE) for f in findings)  # fmt: skip
    out = []
    for finding, mount in zip(findings, met, strict=True):
        changed = finding
        if writers := [w for w, full in zip(findings, met, strict=True) if full is finding]:
            changed = _lead(finding, writers)
            trail.note(WRITTEN, finding, changed, writers[0])
        elif finding.kind == KIND and failed:
            changed = replace(finding, level=Level.CONTEXT)
            trail.note(UNUSED, finding, changed)
        elif mount is not None:
            changed = _follow(finding, mount)
            trail.note(WRITTEN, finding, changed, mount)
        out.append(changed)
    return out


def _may_have_written(finding: Finding) -> bool:
    live = finding.level in (Level.CAUSE, Level.FAILURE) and not finding.survived
    told = finding.kind.startswith(("signature.", "traceback.")) and finding.evidence
    return bool(live and told) and finding.category in _MAY_WRITE


def _met_by(incident: LogIncident, finding: Finding, mounts: Sequence[Finding]) -> Finding | None:
    """The full file system that it wrote to: by the path it names, else the only one there is."""
    refused = finding.has(FindingRole.NO_SPACE)
    own = " ".join(e.text for e in finding.evidence[:3])
    if not refused and _OTHER_REASON.search(own):
        return None
    near = _lines_round(incident, finding)
    if not refused and not _WRITES.search(" ".join((own, finding.title, *near[-AFTER - 20 :]))):
        return None
    fitting = [
        m
        for m in mounts
        if not m.host or not (host := _host_of(finding)) or same_host(m.host, host)
    ]
    paths = [finding.text(Fact.PATH), *_paths(own.split("\n")), *_paths(near)]
    paths = [p for p in dict.fromkeys(paths) if p.startswith("/")]
    for mount in fitting:
        if any(_lies_on(path, mount) for path in paths):
            return mount
    alone = len({m.text(Fact.PATH) for m in fitting}) == 1
    return fitting[0] if alone and not paths and (refused or _WROTE.search(own)) else None


def _host_of(finding: Finding) -> str | None:
    """Its host; that of the log says nothing where another rank printed what it tells of."""
    printed = finding.evidence[0].rank
    return finding.host if printed is None or printed == finding.rank else None


def _lines_round(incident: LogIncident, finding: Finding) -> list[str]:
    place = finding.evidence[0]
    digest = next((d for d in incident.digests if d.file == place.file), None)
    if digest is None:
        return []
    at = digest.position(place.line)
    return [text for _, text in digest.kept[max(0, at - BEFORE) : at + AFTER]]


def _paths(texts: Sequence[str]) -> list[str]:
    """Paths that lines name, but for those of code."""
    told = (m[0] for t in texts if 'File "' not in t for m in _PATH.finditer(t[:1000]))
    return [path for path in told if not _CODE.search(path)]


def _lies_on(path: str, mount: Finding) -> bool:
    """Of all file systems listed there, the full one is the nearest above the path."""
    listed = mount.fact(Fact.MOUNTS)
    names = [str(m) for m in listed] if isinstance(listed, list | tuple) else []
    above = [m for m in names if m == "/" or path == m or path.startswith(m.rstrip("/") + "/")]
    return max(above, key=len, default="") == mount.text(Fact.PATH)


def _lead(mount: Finding, writers: Sequence[Finding]) -> Finding:
    """A full file system as the cause of what could not be written; one that was refused for space says so itself."""
    if any(w.has(FindingRole.NO_SPACE) for w in writers):
        return replace(mount, level=Level.CONTEXT)
    first = writers[0]
    return replace(
        mount,
        title=f"{mount.title}, so what was written there failed: {first.parted[0]}",
        level=Level.CAUSE,
        category=Category.CHECKPOINT if first.category is Category.CHECKPOINT else mount.category,
        rank=first.rank,
        host=mount.host or _host_of(first),
        time=first.time,
        evidence=(*mount.evidence, *first.evidence[:2]),
    )


def _follow(writer: Finding, mount: Finding) -> Finding:
    """The writer is a victim; where it says itself that no room was left, it leads and df says where."""
    if not writer.has(FindingRole.NO_SPACE):
        return replace(writer, level=Level.SYMPTOM)
    return replace(
        writer,
        title=f"{writer.title}; {mount.title}",
        host=_host_of(writer) or mount.host,
        evidence=(*writer.evidence[:3], *mount.evidence),
    )
