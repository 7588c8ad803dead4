"""Is one storage target (OST) of Lustre full while the file system as a whole is not (`lfs df`)?

A file lies on the targets of its stripes alone: a full one refuses its blocks with ENOSPC, whatever `df` says
of the whole. The rank that met the refusal is the target's victim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level

GATE = ("[OST:",)
KIND = "storage.target_full"
FULL = 99
"""Percent from which a target takes no further checkpoint."""

_ROW = expression(
    r"^\s*(?P<name>\S{1,80}-OST[0-9a-f]{4})(?:_UUID)?\s+(?P<size>[\d.]+[KMGTP]?)\s+[\d.]+[KMGTP]?\s+(?P<free>-?[\d.]+[KMGTP]?)\s+"
    r"(?P<percent>\d{1,3})%\s+(?P<path>/[^\s\[]*)\[OST:(?P<index>\d{1,4})\]"
)
_WHOLE = expression(
    r"^\s*filesystem[_ ]summary:\s+[\d.]+[KMGTP]?\s+[\d.]+[KMGTP]?\s+(?P<free>[\d.]+[KMGTP]?)\s+(?P<percent>\d{1,3})%"
)


def find_in_lines(lines: Sequence[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """The full targets of a listing, in one finding; none where all of them are full, which `df` shows as well."""
    rows = [(n, t, m) for n, t in lines if "[OST:" in t and (m := _ROW.match(t)) is not None]
    full = [row for row in rows if int(row[2]["percent"]) >= FULL]
    if not full or len(full) == len(rows):
        return ()
    whole = next((m for _, t in lines if (m := _WHOLE.match(t)) is not None), None)
    worst = full[0][2]
    several = len(full) > 1
    names = ", ".join(f"{m['index']} ({m['name']})" for _, _, m in full[:4])
    rest = f"{whole['free']} free of the whole" if whole else f"{len(rows) - len(full)} others not"
    title = (
        f"OST{'s' if several else ''} {names} of the Lustre file system {worst['path']} {'are' if several else 'is'} "
        f"{worst['percent']}% full ({worst['free']} left), with {rest}: a file whose stripes lie there gets "
        "'No space left on device' (ENOSPC)"
    )
    return (
        Finding(
            kind=KIND,
            title=title,
            level=Level.CAUSE,
            category=Category.ENVIRONMENT,
            evidence=tuple(Evidence(file, n, t) for n, t, _ in full[:4]),
            page="disk-full-or-quota",
            facts={"targets": [m["name"] for _, _, m in full], "path": worst["path"]},
        ),
    )


def join_full_target(findings: Sequence[Finding]) -> list[Finding]:
    """A refused write with the full target that refused it: the target leads, the writer is its victim."""
    target = next((f for f in findings if f.kind == KIND), None)
    if target is None:
        return list(findings)
    path = target.text(Fact.PATH)
    refused = [f for f in findings if f.has(FindingRole.NO_SPACE) and not f.survived and _is_below(f, path)]  # fmt: skip
    if not refused:
        return list(findings)
    lead = refused[0]
    led = replace(
        target,
        rank=lead.rank,
        host=target.host or lead.host,
        time=lead.time,
        evidence=(*target.evidence, *lead.evidence[:2]),
    )
    out = [led if f is target else f for f in findings]
    return [replace(f, level=Level.SYMPTOM) if f in refused else f for f in out]


def _is_below(finding: Finding, path: str) -> bool:
    """What was written lies on that file system, so far as the finding names it."""
    written = finding.text(Fact.PATH)
    return not written.startswith("/") or written.startswith(path.rstrip("/") + "/")
