"""In which formats can a report leave? By name or by the suffix of a file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from firstfault.errors import UsageError
from firstfault.postmortem.report import Report


class ReportFormat(StrEnum):
    """Formats of a post-mortem."""

    MARKDOWN = "md"
    HTML = "html"
    DOCX = "docx"
    PDF = "pdf"


def format_of(path: Path) -> ReportFormat:
    """Format by suffix. Raises UsageError for one that is not known."""
    suffix = path.suffix.lower().lstrip(".")
    wanted = {"markdown": "md", "htm": "html"}.get(suffix, suffix)
    try:
        return ReportFormat(wanted)
    except ValueError:
        known = ", ".join(f".{f.value}" for f in ReportFormat)
        raise UsageError(
            f"{path}: no report format ends in '.{suffix}'; use one of {known}"
        ) from None


def render_report(report: Report, form: ReportFormat) -> bytes:
    """The report in one format."""
    if form is ReportFormat.MARKDOWN:
        from firstfault.postmortem.markdown import write_markdown

        return write_markdown(report).encode()
    if form is ReportFormat.HTML:
        from firstfault.postmortem.web import write_html

        return write_html(report).encode()
    if form is ReportFormat.DOCX:
        from firstfault.postmortem.word import write_docx

        return write_docx(report)
    from firstfault.postmortem.pdf import write_pdf

    return write_pdf(report)
