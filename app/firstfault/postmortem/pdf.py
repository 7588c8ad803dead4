"""How does a report become a PDF? With a Unicode font where the machine has one.

Without one, characters outside Latin-1 are written as <U+XXXX>: visibly wrong, never silently lost.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
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

_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "/Library/Fonts", "/System/Library/Fonts/Supplemental", "C:/Windows/Fonts")  # fmt: skip
_FAMILIES = (
    ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf"),
    ("NotoSans-Regular.ttf", "NotoSans-Bold.ttf", "NotoSansMono-Regular.ttf"),
    ("LiberationSans-Regular.ttf", "LiberationSans-Bold.ttf", "LiberationMono-Regular.ttf"),
    ("arial.ttf", "arialbd.ttf", "cour.ttf"),
    ("Arial.ttf", "Arial Bold.ttf", "Courier New.ttf"),
)


@cache
def find_fonts() -> tuple[Path, Path, Path] | None:
    """Regular, bold and fixed-width font files of this machine; None when there are none."""
    known = {
        file.name: file
        for folder in map(Path, _FOLDERS)
        if folder.is_dir()
        for file in folder.rglob("*.ttf")
    }
    for regular, bold, mono in _FAMILIES:
        if regular in known and bold in known and mono in known:
            return known[regular], known[bold], known[mono]
    return None


def write_pdf(report: Report, fonts: tuple[Path, Path, Path] | None = None) -> bytes:
    """The report as PDF, A4. `fonts` overrides what `find_fonts` finds."""
    return _Writer(fonts or find_fonts()).write(report)


class _Writer:
    def __init__(self, fonts: tuple[Path, Path, Path] | None) -> None:
        from fpdf import FPDF

        self.pdf: Any = FPDF(format="A4")
        self.pdf.set_margins(18, 18, 18)
        self.pdf.set_auto_page_break(True, margin=18)
        self.unicode = fonts is not None
        self.text, self.mono = "Helvetica", "Courier"
        if fonts is not None:
            self.text, self.mono = "Text", "Mono"
            self.pdf.add_font("Text", "", str(fonts[0]))
            self.pdf.add_font("Text", "B", str(fonts[1]))
            self.pdf.add_font("Mono", "", str(fonts[2]))

    def write(self, report: Report) -> bytes:
        self.pdf.set_title(self.clean(f"Post-mortem: {report.title}"))
        self.pdf.add_page()
        for block in lay_out(report):
            if isinstance(block, Heading):
                self._heading(block)
            elif isinstance(block, Paragraph):
                self._line(block.text)
            elif isinstance(block, Bullets):
                for number, item in enumerate(block.items, 1):
                    mark = f"{number}." if block.numbered else "[  ]" if block.boxes else "-"
                    self._line(f"{mark} {item}", indent=4)
            elif isinstance(block, Grid):
                self._table(block)
            elif isinstance(block, Chart):
                self._fixed(block.text)
            else:
                self._source(block)
        return bytes(self.pdf.output())

    def clean(self, text: str) -> str:
        flat = "".join(c if c.isprintable() else " " for c in text)
        if self.unicode:
            return flat
        return "".join(c if ord(c) < 256 else f"<U+{ord(c):04X}>" for c in flat)

    def _heading(self, heading: Heading) -> None:
        self.pdf.ln(1 if heading.level == 1 else 3)
        self.pdf.set_font(self.text, "B", {1: 17, 2: 13, 3: 11}[heading.level])
        self._cell(heading.text, 7)

    def _line(self, text: str, indent: float = 0) -> None:
        self.pdf.set_font(self.text, "", 10)
        self.pdf.set_x(self.pdf.l_margin + indent)
        self._cell(text, 5)
        self.pdf.ln(1)

    def _cell(self, text: str, height: float) -> None:
        width = self.pdf.w - self.pdf.r_margin - self.pdf.get_x()
        self.pdf.multi_cell(
            width, height, self.clean(text), align="L", new_x="LMARGIN", new_y="NEXT", wrapmode="CHAR" if len(max(text.split() or [""], key=len)) > 80 else "WORD",
        )  # fmt: skip

    def _table(self, grid: Grid) -> None:
        self.pdf.set_font(self.text, "", 9)
        self.pdf.ln(1)
        with self.pdf.table(
            col_widths=grid.widths, line_height=5, text_align="LEFT", wrapmode="CHAR" if self._wide(grid) else "WORD",
        ) as table:  # fmt: skip
            for cells in (grid.header, *grid.rows):
                row = table.row()
                for cell in cells:
                    row.cell(self.clean(without_ticks(cell) if grid.code else cell))
        self.pdf.ln(2)

    @staticmethod
    def _wide(grid: Grid) -> bool:
        return any(len(w) > 30 for row in grid.rows for cell in row for w in cell.split())

    def _source(self, source: Source) -> None:
        self._line(f"[{source.n}] {source.place}".rstrip())
        if source.url.startswith(("http://", "https://")):
            self.pdf.set_text_color(36, 86, 199)
            self.pdf.set_x(self.pdf.l_margin + 4)
            self.pdf.cell(0, 4, self.clean(source.url[:110]), link=source.url, new_x="LMARGIN", new_y="NEXT")  # fmt: skip
            self.pdf.set_text_color(0, 0, 0)
        self._fixed(source.quote)

    def _fixed(self, text: str) -> None:
        """Lines as they are, in a fixed-width font."""
        self.pdf.set_font(self.mono, "", 8)
        width = self.pdf.w - self.pdf.r_margin - self.pdf.l_margin - 4
        for line in text.split("\n"):
            self.pdf.set_x(self.pdf.l_margin + 4)
            self.pdf.multi_cell(width, 4, self.clean(line), align="L", new_x="LMARGIN", new_y="NEXT", wrapmode="CHAR")  # fmt: skip
        self.pdf.ln(1)
