"""How does a report become a Word document? Native headings, lists and tables."""

from __future__ import annotations

import io
from itertools import groupby
from typing import Any

from firstfault.postmortem.document import (
    Bullets,
    Chart,
    Grid,
    Heading,
    Paragraph,
    Source,
    lay_out,
    without_ticks,
)
from firstfault.postmortem.rank_chart import LEGEND
from firstfault.postmortem.report import Report
from firstfault_tools.expressions import expression

COLOURS = {"#": "7B8798", ".": "C6CDD9", "X": "B3261E", "o": "B07400", "-": "566071"}

_FORBIDDEN = expression(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write_docx(report: Report) -> bytes:
    """The report as .docx."""
    from docx import Document
    from docx.shared import Pt

    document = Document()
    document.core_properties.title = _clean(f"Post-mortem: {report.title}")[:250]
    document.core_properties.author = ""
    document.core_properties.comments = f"Firstfault {report.version}"
    document.styles["Normal"].font.size = Pt(10.5)
    document.styles["Title"].font.size = Pt(20)
    document.styles["Normal"].paragraph_format.space_after = Pt(4)
    _number_pages(document, f"Post-mortem, draft by Firstfault {report.version}, page ")
    for block in lay_out(report):
        if isinstance(block, Heading):
            document.add_heading(_clean(block.text), block.level if block.level > 1 else 0)
        elif isinstance(block, Paragraph):
            document.add_paragraph(_clean(without_ticks(block.text)))
        elif isinstance(block, Bullets):
            style = "List Number" if block.numbered else "Normal" if block.boxes else "List Bullet"
            for item in block.items:
                document.add_paragraph(
                    ("☐ " if block.boxes else "") + _clean(without_ticks(item)), style=style
                )
        elif isinstance(block, Grid):
            _add_table(document, block)
        elif isinstance(block, Chart):
            _add_chart(document, block)
        else:
            _add_source(document, block)
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def _add_fixed(document: Any, text: str, size: float) -> None:
    """Text in a fixed-width font, its lines kept."""
    from docx.shared import Pt

    run = document.add_paragraph().add_run(_clean(text))
    run.font.name = "Consolas"
    run.font.size = Pt(size)


def _add_chart(document: Any, chart: Chart) -> None:
    """Lanes of the ranks, the first fault and what follows from it in colour and bold."""
    from docx.shared import Pt, RGBColor

    if not chart.bars:
        _add_fixed(document, chart.text, 8)
        return
    paragraph = document.add_paragraph()
    paragraph.paragraph_format.keep_together = True
    indent = " " * (len(chart.bars[0][0]) + 2)
    rows = [[(f"{indent}{chart.head}", "")]]
    for name, signs, note in chart.bars:
        parts = [("".join(run), sign) for sign, run in groupby(signs)]
        rows.append([(f"{name}  ", ""), *parts, (f"  {note}", "")])
    rows += [[(text, "")] for text in (chart.foot, LEGEND) if text]
    for number, parts in enumerate(rows):
        for text, sign in parts:
            run = paragraph.add_run(_clean(text))
            run.font.name, run.font.size = "Consolas", Pt(8)
            run.font.bold = sign in ("X", "o")
            if sign in COLOURS:
                run.font.color.rgb = RGBColor.from_string(COLOURS[sign])
        if number < len(rows) - 1:
            paragraph.add_run().add_break()


def _number_pages(document: Any, told: str) -> None:
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn
    from docx.shared import Pt

    paragraph = document.sections[0].footer.paragraphs[0]
    run = paragraph.add_run(_clean(told))
    field = OxmlElement("w:fldSimple")
    field.set(qn("w:instr"), "PAGE")
    paragraph._p.append(field)
    run.font.size = Pt(8)


def _add_source(document: Any, source: Source) -> None:
    paragraph = document.add_paragraph(_clean(f"[{source.n}] {source.place} "))
    if source.url.startswith(("http://", "https://")):
        _add_link(paragraph, source.url)
    _add_fixed(document, source.quote, 8.5)


def _add_link(paragraph: Any, url: str) -> None:
    """The address as a link: python-docx has no call for one, so its element is written."""
    from docx.opc.constants import RELATIONSHIP_TYPE
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    link = OxmlElement("w:hyperlink")
    link.set(
        qn("r:id"), paragraph.part.relate_to(url, RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
    )
    run, looks, colour, line, text = map(OxmlElement, ("w:r", "w:rPr", "w:color", "w:u", "w:t"))
    colour.set(qn("w:val"), "2456C7")
    line.set(qn("w:val"), "single")
    text.text = _clean(url)
    looks.extend((colour, line))
    run.extend((looks, text))
    link.append(run)
    paragraph._p.append(link)


def _add_table(document: Any, grid: Grid) -> None:
    from docx.shared import Pt

    table = document.add_table(rows=0, cols=len(grid.widths), style="Table Grid")
    table.autofit = False
    section = document.sections[0]
    whole = section.page_width - section.left_margin - section.right_margin
    widths = [int(whole * share / sum(grid.widths)) for share in grid.widths]
    if grid.header:
        cells = table.add_row().cells
        _head_row(table.rows[0])
        for cell, text in zip(cells, grid.header, strict=True):
            _shade(cell)
            cell.paragraphs[0].add_run(_clean(text)).bold = True
    for row in grid.rows:
        cells = table.add_row().cells
        for cell, text in zip(cells, row, strict=True):
            cell.text = _clean(without_ticks(text) if grid.code else text)
        if not grid.header:
            _shade(cells[0])
            cells[0].paragraphs[0].runs[0].bold = True
    # Word takes the width of a column from its cells
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
        for cell in column.cells:
            cell.width = width
            for paragraph in cell.paragraphs:
                paragraph.paragraph_format.space_after = Pt(1)
                for run in paragraph.runs:
                    run.font.size = Pt(9)


def _shade(cell: Any) -> None:
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    shade = OxmlElement("w:shd")
    for name, value in (("val", "clear"), ("color", "auto"), ("fill", "F3F5F8")):
        shade.set(qn(f"w:{name}"), value)
    cell._tc.get_or_add_tcPr().append(shade)


def _head_row(row: Any) -> None:
    """The row stands again at the top of every page that the table reaches."""
    from docx.oxml import OxmlElement

    row._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))


def _clean(text: str) -> str:
    """Text that XML can hold."""
    return _FORBIDDEN.sub("\ufffd", text)
