"""How does a report look in a browser or pasted into a wiki? One HTML file, made from the Markdown."""

from __future__ import annotations

from html import escape

from firstfault.investigation.diagnosis import CitationKind
from firstfault.postmortem.markdown import write_markdown
from firstfault.postmortem.report import Report

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_BOX = '<li class="box"><input type="checkbox" aria-label="done"> '
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; }
th, td { border-bottom: 1px solid #8884; padding: .35rem .6rem; text-align: left; vertical-align: top; overflow-wrap: break-word; }
th, td:first-child { overflow-wrap: normal; hyphens: none; } li.box { list-style: none; margin-left: -1.2rem; }
pre:has(code.language-chart) { white-space: pre; font-size: min(.85rem, 2.6vw); }
th { background: #8881; } thead:has(th:empty) { display: none; } thead:has(th:empty) + tbody td:first-child { font-weight: 600; width: 30%; }
pre { background: #8881; padding: .6rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print { body { max-width: none; margin: 0; } h2 { break-after: avoid; } }
"""


def write_body(report: Report) -> str:
    """The report as HTML without scripts; raw HTML in log lines is shown, not run."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    # only addresses of cited pages are links, and nothing is fetched: log lines may hold Markdown
    parser.disable(["image", "link", "reference"])
    pages = {c.url for c in report.citations if c.url and c.kind is CitationKind.PAGE}
    parser.validateLink = lambda url: url in pages  # type: ignore[method-assign]
    # brackets of a quoted line are escaped, so that no line can make a box
    return str(parser.render(write_markdown(report))).replace("<li>[ ] ", _BOX)


def write_html(report: Report) -> str:
    """The report as one HTML file."""
    body = write_body(report)
    title = escape(f"Post-mortem: {report.title}")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
