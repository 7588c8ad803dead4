"""How does a report become a PDF? With a Unicode font where the machine has one.

Without one, characters outside Latin-1 are written as <U+XXXX>: visibly wrong, never silently lost.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from firstfault.postmortem.document import (
    Block,
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
    told = f"Post-mortem, draft by Firstfault {report.version}"
    return _Writer(fonts or find_fonts(), told).write(report)


INK, QUIET, LINE, SHADE, LINK = (
    (22, 27, 36),
    (86, 96, 113),
    (198, 205, 217),
    (243, 245, 248),
    (36, 86, 199),
)
LANE = {"#": (170, 180, 196), "X": (179, 38, 30), "o": (208, 138, 29), "-": (86, 96, 113)}
MEANS = (("#", "wrote"), ("X", "first fault"), ("o", "follows from it"), ("-", "shutdown"))
LEAST_ROOM = 32.0
"""Millimetres below a heading; with less it goes to the next page with what it heads."""

_BREAKS = expression(r"(?<=[/_,=:;)\]-])(?=[A-Za-z0-9\[(/.'\"])")
"""Where a long word may go on in the next line: after its joints, not in the middle of a name."""


class _Writer:
    def __init__(self, fonts: tuple[Path, Path, Path] | None, told: str = "") -> None:
        from fpdf import FPDF

        class Paged(FPDF):
            """A page number at the foot of each page."""

            def footer(self) -> None:
                self.set_y(-12)
                self.set_font(text, "", 8)
                self.set_text_color(*QUIET)
                self.cell(0, 5, told)
                self.set_x(self.l_margin)
                self.cell(0, 5, f"{self.page_no()} / {{nb}}", align="R")
                self.set_text_color(*INK)

        text = "Text" if fonts is not None else "Helvetica"
        self.pdf: Any = Paged(format="A4")
        self.pdf.set_margins(18, 18, 18)
        self.pdf.set_auto_page_break(True, margin=18)
        self.unicode = fonts is not None
        self.text, self.mono = text, "Courier"
        if fonts is not None:
            self.mono = "Mono"
            self.pdf.add_font("Text", "", str(fonts[0]))
            self.pdf.add_font("Text", "B", str(fonts[1]))
            self.pdf.add_font("Mono", "", str(fonts[2]))
        self.pdf.set_text_color(*INK)
        self.pdf.set_draw_color(*LINE)

    def write(self, report: Report) -> bytes:
        self.pdf.set_title(self.clean(f"Post-mortem: {report.title}"))
        self.pdf.add_page()
        for block in lay_out(report):
            self._block(block)
        return bytes(self.pdf.output())

    def _block(self, block: Block) -> None:
        if isinstance(block, Heading):
            self._heading(block)
        elif isinstance(block, Paragraph):
            self._line(block.text)
        elif isinstance(block, Bullets):
            for number, item in enumerate(block.items, 1):
                mark = f"{number}." if block.numbered else "[  ]" if block.boxes else "-"
                self._item(mark, item)
        elif isinstance(block, Grid):
            self._table(block)
        elif isinstance(block, Chart):
            self._chart(block)
        else:
            self._source(block)

    def clean(self, text: str, breaks: bool = False) -> str:
        flat = "".join(c if c.isprintable() else " " for c in text)
        if self.unicode:
            return _BREAKS.sub("\u200b", flat) if breaks else flat
        return "".join(c if ord(c) < 256 else f"<U+{ord(c):04X}>" for c in flat)

    def _heading(self, heading: Heading) -> None:
        if self.pdf.will_page_break(LEAST_ROOM):
            self.pdf.add_page()
        self.pdf.ln(1 if heading.level == 1 else 4)
        self.pdf.set_font(self.text, "B", {1: 16, 2: 12.5, 3: 10.5}[heading.level])
        self._cell(heading.text, 7)
        self.pdf.ln(1 if heading.level == 1 else 0.5)

    def _line(self, text: str) -> None:
        self.pdf.set_font(self.text, "", 10)
        if self.pdf.will_page_break(11):
            self.pdf.add_page()
        self.pdf.set_x(self.pdf.l_margin)
        self._cell(without_ticks(text), 5)
        self.pdf.ln(1)

    def _item(self, mark: str, text: str) -> None:
        """One entry of a list: its further lines stand below its words, not below its mark."""
        self.pdf.set_font(self.text, "", 10)
        if self.pdf.will_page_break(10):
            self.pdf.add_page()
        self.pdf.set_x(self.pdf.l_margin + 2)
        self.pdf.cell(7, 5, mark)
        self._cell(without_ticks(text), 5)
        self.pdf.ln(1)

    def _cell(self, text: str, height: float) -> None:
        width = self.pdf.w - self.pdf.r_margin - self.pdf.get_x()
        self.pdf.multi_cell(
            width, height, self.clean(text, True), align="L", new_x="LMARGIN", new_y="NEXT"
        )

    def _table(self, grid: Grid) -> None:
        from fpdf.enums import TableBordersLayout
        from fpdf.fonts import FontFace

        self.pdf.set_font(self.text, "", 9)
        self.pdf.ln(1)
        bold = FontFace(emphasis="BOLD", fill_color=SHADE)
        with self.pdf.table(
            col_widths=grid.widths, line_height=5, text_align="LEFT", padding=(0.6, 1.2), v_align="TOP",
            borders_layout=TableBordersLayout.HORIZONTAL_LINES, headings_style=bold, first_row_as_headings=bool(grid.header),
        ) as table:  # fmt: skip
            for cells in (*([grid.header] if grid.header else []), *grid.rows):
                row = table.row()
                for number, cell in enumerate(cells):
                    name = bold if not grid.header and not number else None
                    row.cell(
                        self.clean(without_ticks(cell) if grid.code else cell, True), style=name
                    )
        self.pdf.ln(2)

    def _chart(self, chart: Chart) -> None:
        """Lanes of the ranks, silence as a thin line."""
        if not chart.bars:
            self._fixed(chart.text)
            return
        pdf, wide, high = self.pdf, 3.2, 4.6
        if pdf.will_page_break(high * min(len(chart.bars) + 3, 20)):
            pdf.add_page()
        pdf.set_font(self.text, "", 8.5)
        begin = pdf.l_margin + 18
        self._note(begin, chart.head)
        for name, signs, note in chart.bars:
            top = pdf.get_y()
            if pdf.will_page_break(high):
                pdf.add_page()
                top = pdf.get_y()
            pdf.set_x(pdf.l_margin)
            pdf.cell(18, high, name)
            pdf.line(begin, top + high / 2, begin + wide * len(signs), top + high / 2)
            for at, sign in enumerate(signs):
                if sign in LANE:
                    pdf.set_fill_color(*LANE[sign])
                    tall = high - 0.6 if sign in "Xo" else high - 2.2
                    pdf.rect(begin + wide * at, top + (high - tall) / 2, wide - 0.3, tall, "F")
            pdf.set_xy(begin + wide * len(signs) + 2, top)
            pdf.cell(30, high, note, new_x="LMARGIN", new_y="NEXT")
        if chart.foot:
            self._note(begin, chart.foot)
        self._legend(begin)

    def _note(self, begin: float, text: str) -> None:
        self.pdf.set_x(begin)
        self.pdf.set_text_color(*QUIET)
        self.pdf.cell(0, 5, self.clean(text), new_x="LMARGIN", new_y="NEXT")
        self.pdf.set_text_color(*INK)

    def _legend(self, begin: float) -> None:
        self.pdf.ln(1)
        self.pdf.set_x(begin)
        for sign, means in MEANS:
            self.pdf.set_fill_color(*LANE[sign])
            self.pdf.rect(self.pdf.get_x(), self.pdf.get_y() + 1, 2.6, 2.6, "F")
            self.pdf.set_x(self.pdf.get_x() + 4)
            self.pdf.cell(self.pdf.get_string_width(means) + 6, 4.6, means)
        self.pdf.cell(0, 4.6, "thin line: silent", new_x="LMARGIN", new_y="NEXT")
        # tables fill their cells with the colour that was used last
        self.pdf.set_fill_color(255, 255, 255)
        self.pdf.ln(2)

    def _source(self, source: Source) -> None:
        if self.pdf.will_page_break(14):
            self.pdf.add_page()
        self._line(f"[{source.n}] {source.place}".rstrip())
        if source.url.startswith(("http://", "https://")):
            self.pdf.set_font(self.text, "", 8.5)
            self.pdf.set_text_color(*LINK)
            self.pdf.set_x(self.pdf.l_margin + 4)
            self.pdf.cell(0, 4, self.clean(source.url[:110]), link=source.url, new_x="LMARGIN", new_y="NEXT")  # fmt: skip
            self.pdf.set_text_color(*INK)
        self._fixed(source.quote)

    def _fixed(self, text: str) -> None:
        """Lines as they are, in a fixed-width font."""
        self.pdf.set_font(self.mono, "", 8)
        width = self.pdf.w - self.pdf.r_margin - self.pdf.l_margin - 4
        for line in text.split("\n"):
            self.pdf.set_x(self.pdf.l_margin + 4)
            self.pdf.multi_cell(width, 4, self.clean(line), align="L", new_x="LMARGIN", new_y="NEXT")  # fmt: skip
        self.pdf.ln(1)
