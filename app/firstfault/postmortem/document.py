"""How is a report laid out? As plain blocks that every format renders alike; blanks stay visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.plain_text import say_hours, show_line, show_text
from firstfault.postmortem.rank_chart import LEGEND
from firstfault.postmortem.report import Cited, Impact, LossKind, Report
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.log.clock import NO_YEAR

BLANK = "________"
_TICKS = expression(r"`([^`\n]{1,300})`")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of level 1 to 3."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list; numbered, or with boxes to tick."""

    items: tuple[str, ...]
    numbered: bool = False
    boxes: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; without a header, names and their values. widths: shares of the page. code: `spans` in its cells are
    code, from our own pages."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    code: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """One citation: number, place, exact quote, link."""

    n: int
    place: str
    quote: str
    url: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows of plain characters, shown in a fixed-width font. bars: the same as (name, signs, note), to be drawn."""

    text: str
    head: str = ""
    bars: tuple[tuple[str, str, str], ...] = ()
    foot: str = ""


Block: TypeAlias = Heading | Paragraph | Bullets | Grid | Source | Chart


def lay_out(report: Report) -> tuple[Block, ...]:
    """Blocks of a report in reading order, without characters that steer a terminal or a page."""
    return tuple(_clean(block) for block in _blocks(report))


def _clean(block: Block) -> Block:
    if isinstance(block, Chart):
        return replace(block, text=show_text(block.text))
    if isinstance(block, Heading | Paragraph):
        return replace(block, text=show_text(block.text))
    if isinstance(block, Bullets):
        return replace(block, items=tuple(map(show_text, block.items)))
    if isinstance(block, Grid):
        return replace(block, rows=tuple(tuple(map(show_text, row)) for row in block.rows))
    return replace(block, place=show_line(block.place), quote=show_text(block.quote))


def _blocks(report: Report) -> tuple[Block, ...]:
    blocks: list[Block] = [
        Heading(f"Post-mortem: {report.title}", 1),
        Grid(
            (),
            (
                ("Status", report.status),
                ("Severity", f"{report.severity.value} (by rule, correct it if needed)"),
                ("Incident", report.incident or BLANK),
                ("Authors", BLANK),
                ("Reviewed on", BLANK),
            ),
            (30, 70),
        ),
        Paragraph(
            "Draft, written from the evidence listed at the end. It looks at systems, not at people. "
            f"A statement without a source is marked (assumption); {BLANK} is for you to fill in."
        ),
        Heading("Summary"),
        Paragraph(" ".join(say(c) for c in report.summary) or BLANK),
        Heading("Impact"),
        *_impact(report.impact),
        Heading("Timeline (UTC)"),
        *_timeline(report),
        *_ranks(report),
        Heading("Detection"),
        *_cited(report.detection),
        Heading("Trigger"),
        *_cited((report.trigger,) if report.trigger else ()),
        Heading("Root cause"),
        *_cited((report.root_cause,) if report.root_cause else ()),
        Paragraph(f"Confidence: {report.confidence}."),
        Heading("Five whys"),
        *_whys(report),
        Heading("Contributing factors"),
        *_cited(report.contributing),
        Heading("Resolution"),
        *_cited(report.resolution),
        Heading("Was it fixed?", 3),
        *_fix_check(report),
        Heading("What went well"),
        *_cited(report.went_well),
        Heading("What went badly"),
        *_cited(report.went_badly),
        Heading("Where luck helped"),
        *_cited(report.by_luck),
        Heading("Action items"),
        *_actions(report),
        Heading("Prevention checklist"),
        Bullets(report.prevention, boxes=True) if report.prevention else Paragraph(BLANK),
        Heading("Lessons"),
        *_cited(report.lessons),
        Heading("Sources"),
        *_sources(report.citations),
        Heading("What was read"),
        _inputs(report),
        Paragraph(f"Written by Firstfault {report.version}."),
    ]
    return tuple(blocks)


def say(statement: Cited) -> str:
    """A statement with its marks."""
    marks = "".join(f"[{n}]" for n in statement.citations)
    assumed = " (assumption)" if statement.assumed else ""
    return f"{statement.text}{assumed}{' ' if marks else ''}{marks}"


def without_ticks(text: str) -> str:
    """Text of our pages for formats that have no code within a line."""
    return _TICKS.sub(r"\1", text)


def say_time(seconds: float | None, date: bool = True) -> str:
    """A time in UTC, without the year where no source prints one; a blank when it is not known."""
    if seconds is None:
        return BLANK
    moment = datetime.fromtimestamp(seconds, UTC)
    day = "%m-%d " if moment.year == NO_YEAR else "%Y-%m-%d "
    return moment.strftime(f"{day if date else ''}%H:%M:%S")


def _cited(statements: Sequence[Cited]) -> list[Block]:
    if not statements:
        return [Paragraph(BLANK)]
    if len(statements) == 1:
        return [Paragraph(say(statements[0]))]
    return [Bullets(tuple(say(s) for s in statements))]


def _impact(impact: Impact) -> list[Block]:
    hours, cost = impact.gpu_hours, impact.cost
    money = f"{impact.currency}{cost:,.0f}" if cost is not None else BLANK
    price = f"{impact.currency}{impact.price:,.2f}" if impact.price is not None else BLANK
    rows = [
        ("Start (UTC)", say_time(impact.start)),
        ("End (UTC)", say_time(impact.end)),
        ("GPUs", str(impact.gpus) if impact.gpus is not None else BLANK),
        ("Price of a GPU-hour", price),
        (
            "GPU-hours lost",
            say_hours(hours) if hours is not None else BLANK,
        ),
        ("Cost", money),
    ]
    blocks: list[Block] = [Grid((), tuple(rows), (30, 70))]
    words = {
        LossKind.SLOW: "slow",
        LossKind.STOPPED: "stopped",
        LossKind.REPEATED: "work to be repeated",
    }
    if impact.losses:
        lines = []
        for loss in impact.losses:
            marks = "".join(f"[{n}]" for n in loss.citations)
            lost = f"{loss.gpu_hours:,.1f} GPU-hours" if loss.gpu_hours is not None else BLANK
            share = f"{100 * loss.share:.0f} %" if loss.share is not None else BLANK
            lines.append(
                f"{words[loss.kind]} from {say_time(loss.start, False)} to {say_time(loss.end, False)}: "
                f"{(loss.end - loss.start) / 60:.0f} min x {share} x "
                f"{impact.gpus if impact.gpus is not None else BLANK} GPUs = {lost} {marks}"
            )
        blocks += [Paragraph("How this is counted:"), Bullets(tuple(lines))]
    if impact.reported:
        text = "Booked elsewhere, as quoted; it need not agree with the count above:"
        blocks += [Paragraph(text), Bullets(tuple(say(c) for c in impact.reported))]
    if impact.assumed:
        blocks.append(
            Paragraph(f"From the evidence, correct it if needed: {'; '.join(impact.assumed)}.")
        )
    if impact.missing:
        blocks.append(Paragraph("Not known: " + "; ".join(impact.missing) + "."))
    return blocks


def _timeline(report: Report) -> list[Block]:
    if not report.timeline:
        return [Paragraph(BLANK)]
    days = {say_time(r.time)[:-9] for r in report.timeline if r.time is not None}
    one_day = len(days) == 1
    rows = tuple(
        (
            ("about " if r.about else "") + say_time(r.time, not one_day)
            if r.time is not None
            else "not printed",
            r.source,
            f"{r.text} {''.join(f'[{n}]' for n in r.citations)}",
        )
        for r in report.timeline
    )
    note = "Times are those the sources print, without a zone taken as UTC; about: the time of the nearest line that prints one."
    if one_day:
        note = f"All on {days.pop()}. {note}"
    return [Grid(("Time", "What", "Line"), rows, (18 if one_day else 24, 14, 68)), Paragraph(note)]


def _ranks(report: Report) -> list[Block]:
    chart = report.ranks
    if chart is None:
        return []
    width = max(len(str(row.rank)) for row in chart.rows)
    bars = tuple((f"rank {row.rank:>{width}}", row.bar, f"last {row.last}") for row in chart.rows)
    span = f"{chart.start} to {chart.end} UTC"
    left = [f"{chart.left_out} more ranks are not drawn"] if chart.left_out else []
    rows = [f"{'':{width + 7}}{span}", *("  ".join(bar) for bar in bars), *left, LEGEND]
    return [Heading("Ranks over time", 3), Chart("\n".join(rows), span, bars, "".join(left))]


def _whys(report: Report) -> list[Block]:
    if not report.whys:
        return [Paragraph(BLANK)]
    items = []
    for why in report.whys:
        if why.because is None:
            items.append(f"{why.question} The evidence stops here: {BLANK}")
        else:
            items.append(f"{why.question} Because: {say(why.because)}")
    return [Bullets(tuple(items), numbered=True)]


def _fix_check(report: Report) -> list[Block]:
    check = report.fix_check
    if check is None:
        return [
            Paragraph(
                f"Not verified: {BLANK} (add the log of the run after the fix to compare the figures)"
            )
        ]
    rows = tuple(
        (
            c.name,
            f"{c.healthy:,.0f}" if c.healthy is not None else BLANK,
            f"{c.during:,.0f}",
            f"{c.after:,.0f}",
        )
        for c in check.changes
    )
    return [
        Paragraph(f"{check.state.value.capitalize()}: {check.reason}."),
        Grid(("Metric (median)", "Before", "During", "After the fix"), rows, (40, 20, 20, 20)),
    ]


def _actions(report: Report) -> list[Block]:
    if not report.actions:
        return [Paragraph(BLANK)]
    rows = tuple(
        (
            a.kind,
            f"{a.text} {''.join(f'[{n}]' for n in a.citations)}".rstrip(),
            a.owner or BLANK,
            a.due or BLANK,
        )
        for a in report.actions
    )
    return [Grid(("Type", "Action", "Owner", "Due"), rows, (13, 57, 15, 15), code=True)]


def _sources(citations: Sequence[Citation]) -> list[Source]:
    """One block each, with the address of its page."""
    return [_source(citation) for citation in citations]


def _source(citation: Citation) -> Source:
    if citation.kind is CitationKind.PAGE:
        place = f"knowledge page {citation.page}, {citation.heading}"
    else:
        place = f"{citation.file}, line {citation.line}" if citation.line else f"{citation.file}"
    return Source(citation.n, place, " ".join(citation.quote.split()), citation.url or "")


def _inputs(report: Report) -> Block:
    if not report.inputs:
        return Paragraph(BLANK)
    rows = tuple((name, digest[:16] or BLANK) for name, digest in report.inputs)
    return Grid(("File", "SHA-256, first 16 digits"), rows, (60, 40))
