"""How does a diagnosis look in a terminal? Verdict, evidence, next command first; the rest after."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault.plain_text import show_line, show_text
from firstfault_tools.findings import Verdict

MAX_QUOTE = 400
MAX_SKIPPED, MAX_SHOWN, MAX_BRIEF = 5, 5, 100
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
        if isinstance(part, _Command):
            # a wrapped or cropped command cannot be copied
            console.print(part.highlighted(), soft_wrap=True)
        else:
            console.print(part)


@dataclass(frozen=True, slots=True)
class _Command:
    """Shell lines to be copied as they are, whatever the width of the terminal."""

    text: str

    def highlighted(self) -> Text:
        text = Syntax("", "bash", background_color="default").highlight(show_text(self.text))
        text.rstrip()
        lines = text.split("\n")
        return Text("\n").join(Text("    ").append_text(line) for line in lines)


_Part = RenderableType | _Command


def _say(text: str, style: str = "") -> Text:
    return Text(show_text(text), style=style)


def _parts(diagnosis: Diagnosis) -> list[_Part]:
    parts: list[_Part] = [_verdict(diagnosis), _say(diagnosis.explanation), Text()]
    parts += _evidence(diagnosis)
    parts += _fixes(diagnosis)
    parts += _next(diagnosis)
    if diagnosis.disproof:
        parts += [
            Rule("What would prove this wrong", align="left", style="dim"),
            _say(diagnosis.disproof),
            Text(),
        ]
    others = diagnosis.hypotheses[1:]
    if others:
        parts.append(Rule("Other hypotheses", align="left", style="dim"))
        for other in others:
            marks = "".join(f"[{n}]" for n in other.for_)
            parts.append(_say(f"- {other.confidence.value}: {other.root_cause} {marks}"))
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
        _say_gpu(diagnosis.gpu),
    ]
    body = _say(diagnosis.root_cause, style="bold")
    line = _say("  ".join(w for w in where if w), style="default")
    return Panel(
        Group(head, body, line) if line.plain else Group(head, body), border_style=style.split()[-1]
    )


def _say_gpu(gpu: str | None) -> str:
    if not gpu:
        return ""
    return gpu if gpu.upper().startswith("GPU") else f"GPU {gpu}"


def _evidence(diagnosis: Diagnosis) -> list[_Part]:
    logs = _quoted_lines(diagnosis)[:MAX_SHOWN]
    if not logs:
        return []
    out: list[_Part] = [Rule("Evidence", align="left", style="dim")]
    for citation in logs:
        out.append(_say(f"[{citation.n}] {_place(citation)}", style="dim"))
        quote = citation.quote
        shown = quote if len(quote) <= MAX_QUOTE else f"{quote[:MAX_QUOTE]}…"
        out.append(Padding(_say(shown), (0, 0, 0, 4)))
    return [*out, Text()]


def _quoted_lines(diagnosis: Diagnosis) -> list[Citation]:
    return [c for c in diagnosis.citations if c.kind is not CitationKind.PAGE]


def _place(citation: Citation) -> str:
    if citation.kind is CitationKind.PAGE:
        return f"{citation.page} > {citation.heading}" + (
            f"  {citation.url}" if citation.url else ""
        )
    return show_line(f"{citation.file}:{citation.line}" if citation.line else str(citation.file))


def _fixes(diagnosis: Diagnosis) -> list[_Part]:
    out: list[_Part] = []
    for kind, title in (("immediate", "Fix now"), ("structural", "Fix for good")):
        fixes = [f for f in diagnosis.fixes if f.kind == kind]
        if not fixes:
            continue
        out.append(Rule(title, align="left", style="dim"))
        for fix in fixes:
            marks = "".join(f"[{n}]" for n in fix.citations)
            state = "  (changes state)" if fix.changes_state else ""
            out.append(_say(f"- {fix.text}{state} {marks}"))
            if fix.command:
                out.append(_Command(fix.command))
        out.append(Text())
    return out


def _next(diagnosis: Diagnosis) -> list[_Part]:
    if not diagnosis.next_artefacts:
        return []
    out: list[_Part] = [Rule("Collect next", align="left", style="dim")]
    for artefact in diagnosis.next_artefacts:
        out.append(_say(f"- {artefact.what}: {artefact.why}"))
        if artefact.command:
            out.append(_Command(artefact.command))
    return [*out, Text()]


def _sources(diagnosis: Diagnosis) -> list[_Part]:
    pages = [c for c in diagnosis.citations if c.kind is CitationKind.PAGE]
    rest = _quoted_lines(diagnosis)[MAX_SHOWN:]
    if not pages and not rest:
        return []
    out: list[_Part] = [Rule("Sources", align="left", style="dim")]
    out += [_say(f"[{c.n}] {_place(c)}  {_shorten(c.quote)}", style="dim") for c in rest]
    marks: dict[str, str] = {}
    for citation in pages:
        place = _place(citation)
        marks[place] = f"{marks.get(place, '')}[{citation.n}]"
    out += [_say(f"{mark} {place}", style="dim") for place, mark in marks.items()]
    return [*out, Text()]


def _shorten(quote: str) -> str:
    flat = " ".join(quote.split())
    return flat if len(flat) <= MAX_BRIEF else f"{flat[:MAX_BRIEF]}…"


def _receipt(diagnosis: Diagnosis) -> Text:
    got = diagnosis.input
    parts = [f"read {got.lines_read} of {got.lines_total} lines in {len(got.files)} file(s)"]
    if got.ranks_seen:
        world = f" of {got.world_size}" if got.world_size else ""
        parts.append(f"{len(got.ranks_seen)}{world} rank(s) seen")
    if got.redactions:
        parts.append(f"{sum(got.redactions.values())} secret(s) redacted")
    parts += [show_line(f"skipped {s.what}: {s.why}") for s in got.skipped[:MAX_SKIPPED]]
    if len(got.skipped) > MAX_SKIPPED:
        parts.append(f"{len(got.skipped) - MAX_SKIPPED} more skipped, see --json")
    return _say("; ".join(parts), style="dim")
