"""How does a report become a Word document? Native headings, lists and tables."""

from __future__ import annotations

import io
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
from firstfault.postmortem.report import Report
from firstfault_tools.expressions import expression

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
    for block in lay_out(report):
        if isinstance(block, Heading):
            document.add_heading(_clean(block.text), block.level if block.level > 1 else 0)
        elif isinstance(block, Paragraph):
            document.add_paragraph(_clean(block.text))
        elif isinstance(block, Bullets):
            style = "List Number" if block.numbered else "List Bullet"
            for item in block.items:
                document.add_paragraph(("☐ " if block.boxes else "") + _clean(item), style=style)
        elif isinstance(block, Grid):
            _add_table(document, block)
        elif isinstance(block, Chart):
            _add_fixed(document, block.text, 8)
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

    table = document.add_table(rows=1, cols=len(grid.header), style="Table Grid")
    table.autofit = False
    section = document.sections[0]
    whole = section.page_width - section.left_margin - section.right_margin
    widths = [int(whole * share / sum(grid.widths)) for share in grid.widths]
    for cell, text in zip(table.rows[0].cells, grid.header, strict=True):
        cell.paragraphs[0].add_run(_clean(text)).bold = True
    for row in grid.rows:
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = _clean(without_ticks(text) if grid.code else text)
    # Word takes the width of a column from its cells
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
        for cell in column.cells:
            cell.width = width
            for paragraph in cell.paragraphs:
                paragraph.paragraph_format.space_after = Pt(1)
                for run in paragraph.runs:
                    run.font.size = Pt(9)


def _clean(text: str) -> str:
    """Text that XML can hold."""
    return _FORBIDDEN.sub("\ufffd", text)
