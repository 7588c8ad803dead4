"""How does a report become a Word document? Native headings, lists and tables."""

from __future__ import annotations

import io
from typing import Any

from firstfault.postmortem.document import Bullets, Grid, Heading, Paragraph, lay_out
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
        else:
            document.add_paragraph(_clean(f"[{block.n}] {block.place} {block.url}".rstrip()))
            run = document.add_paragraph().add_run(_clean(block.quote))
            run.font.name = "Consolas"
            run.font.size = Pt(8.5)
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def _add_table(document: Any, grid: Grid) -> None:
    table = document.add_table(rows=1, cols=len(grid.header), style="Table Grid")
    for cell, text in zip(table.rows[0].cells, grid.header, strict=True):
        cell.paragraphs[0].add_run(_clean(text)).bold = True
    for row in grid.rows:
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = _clean(text)


def _clean(text: str) -> str:
    """Text that XML can hold."""
    return _FORBIDDEN.sub("\ufffd", text)
