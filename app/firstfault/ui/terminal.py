"""How does a diagnosis look in a terminal? Verdict, evidence, next command first; the rest after."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault_tools.findings import Verdict

_LOOK = {
    Verdict.FAULT: ("FAULT", "bold red"),
    Verdict.WARNING: ("WARNING", "bold yellow"),
    Verdict.HEALTHY: ("HEALTHY", "bold green"),
    Verdict.UNKNOWN: ("NOT ENOUGH EVIDENCE", "bold cyan"),
}


def render(diagnosis: Diagnosis, console: Console | None = None) -> None:
    """Print a diagnosis for a person; colours only where the terminal has them."""
    console = console or Console(highlight=False, soft_wrap=False)
    for part in _parts(diagnosis):
        console.print(part)


def _parts(diagnosis: Diagnosis) -> list[RenderableType]:
    parts: list[RenderableType] = [_verdict(diagnosis), Text(diagnosis.explanation), Text()]
    parts += _evidence(diagnosis)
    parts += _fixes(diagnosis)
    parts += _next(diagnosis)
    if diagnosis.disproof:
        parts += [
            Rule("What would prove this wrong", align="left", style="dim"),
            Text(diagnosis.disproof),
            Text(),
        ]
    others = diagnosis.hypotheses[1:]
    if others:
        parts.append(Rule("Other hypotheses", align="left", style="dim"))
        for other in others:
            marks = "".join(f"[{n}]" for n in other.for_)
            parts.append(Text(f"- {other.confidence.value}: {other.root_cause} {marks}"))
        parts.append(Text())
    parts += _sources(diagnosis)
    parts.append(_receipt(diagnosis))
    return parts


def _verdict(diagnosis: Diagnosis) -> RenderableType:
    word, style = _LOOK[diagnosis.verdict]
    head = Text(word, style=style)
    if diagnosis.category is not None:
        head.append(f"  {diagnosis.category.value}", style="default")
    head.append(f"  {diagnosis.confidence.value}", style="dim")
    where = [
        f"rank {diagnosis.first_failing_rank}" if diagnosis.first_failing_rank is not None else "",
        f"host {diagnosis.host}" if diagnosis.host else "",
        f"GPU {diagnosis.gpu}" if diagnosis.gpu else "",
    ]
    body = Text(diagnosis.root_cause, style="bold")
    line = Text("  ".join(w for w in where if w), style="default")
    return Panel(
        Group(head, body, line) if line.plain else Group(head, body), border_style=style.split()[-1]
    )


def _evidence(diagnosis: Diagnosis) -> list[RenderableType]:
    logs = [c for c in diagnosis.citations if c.kind is not CitationKind.PAGE][:5]
    if not logs:
        return []
    out: list[RenderableType] = [Rule("Evidence", align="left", style="dim")]
    for citation in logs:
        out.append(Text(f"[{citation.n}] {_place(citation)}", style="dim"))
        out.append(Padding(Text(citation.quote[:400]), (0, 0, 0, 4)))
    return [*out, Text()]


def _place(citation: Citation) -> str:
    if citation.kind is CitationKind.PAGE:
        return f"{citation.page} > {citation.heading}" + (
            f"  {citation.url}" if citation.url else ""
        )
    return f"{citation.file}:{citation.line}" if citation.line else str(citation.file)


def _fixes(diagnosis: Diagnosis) -> list[RenderableType]:
    out: list[RenderableType] = []
    for kind, title in (("immediate", "Fix now"), ("structural", "Fix for good")):
        fixes = [f for f in diagnosis.fixes if f.kind == kind]
        if not fixes:
            continue
        out.append(Rule(title, align="left", style="dim"))
        for fix in fixes:
            marks = "".join(f"[{n}]" for n in fix.citations)
            state = "  (changes state)" if fix.changes_state else ""
            out.append(Text(f"- {fix.text}{state} {marks}"))
            if fix.command:
                out.append(
                    Padding(Syntax(fix.command, "bash", background_color="default"), (0, 0, 0, 4))
                )
        out.append(Text())
    return out


def _next(diagnosis: Diagnosis) -> list[RenderableType]:
    if not diagnosis.next_artefacts:
        return []
    out: list[RenderableType] = [Rule("Collect next", align="left", style="dim")]
    for artefact in diagnosis.next_artefacts:
        out.append(Text(f"- {artefact.what}: {artefact.why}"))
        out.append(
            Padding(Syntax(artefact.command, "bash", background_color="default"), (0, 0, 0, 4))
        )
    return [*out, Text()]


def _sources(diagnosis: Diagnosis) -> list[RenderableType]:
    pages = [c for c in diagnosis.citations if c.kind is CitationKind.PAGE]
    if not pages:
        return []
    out: list[RenderableType] = [Rule("Sources", align="left", style="dim")]
    out += [Text(f"[{c.n}] {_place(c)}", style="dim") for c in pages]
    return [*out, Text()]


def _receipt(diagnosis: Diagnosis) -> Text:
    got = diagnosis.input
    parts = [f"read {got.lines_read} of {got.lines_total} lines in {len(got.files)} file(s)"]
    if got.ranks_seen:
        world = f" of {got.world_size}" if got.world_size else ""
        parts.append(f"{len(got.ranks_seen)}{world} rank(s) seen")
    if got.redactions:
        parts.append(f"{sum(got.redactions.values())} secret(s) redacted")
    parts += [f"skipped {s.what}: {s.why}" for s in got.skipped[:5]]
    return Text("; ".join(parts), style="dim")
