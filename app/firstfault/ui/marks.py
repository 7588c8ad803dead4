"""How does text become safe HTML with numbered marks that open their source?

Everything that comes from logs, pages or people is escaped here; Markdown is rendered with raw HTML
switched off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault_tools.expressions import expression

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_MARK = expression(r"\[(\d{1,3})\]")
_FENCE = expression(r"^```[^\n]*\n(.*?)^```[ \t]*$", re.M | re.S)
_TICKS = expression(r"`([^`\n]{1,300})`")


_MARKDOWN = expression(r"([\\`*_{}\[\]()$:<>~#|!&+=-])")
_LINKED = expression(r"(?i)(?<=:)(?=\\?//)|(?<=www)(?=\.)|(?=@)|(?<=mailto)(?=:)")
_JOINER = "\u2060"


def plain(text: str) -> str:
    """Text that labels, captions, tooltips and messages show as it is, in one line: they read Markdown.

    Addresses get an invisible joiner inside, since Streamlit makes links of bare ones.
    """
    one_line = " ".join(text.split())
    return _MARKDOWN.sub(r"\\\1", _LINKED.sub(_JOINER, one_line))


def icon(name: str, label: str = "") -> str:
    """Material icon. It is decoration: the word beside it carries the meaning."""
    said = f'<span class="ff-hidden">{escape(label)}</span>' if label else ""
    return f'<span class="ff-icon" aria-hidden="true">{escape(name)}</span>{said}'


def place_of(citation: Citation) -> str:
    """Where a quote stands, as one writes it: file:line, or page and section."""
    if citation.kind is CitationKind.PAGE:
        return f"{citation.page} › {citation.heading or 'Summary'}"
    if citation.line:
        return f"{citation.file}:{citation.line}"
    return str(citation.file or citation.kind.value)


def link_mark(number: int, citations: Mapping[int, Citation], scope: str = "src") -> str:
    """One numbered mark that opens its source in the list `scope`."""
    citation = citations.get(number)
    if citation is None:
        return ""
    kind = "page" if citation.kind is CitationKind.PAGE else "log"
    label = escape(f"Source {number}: {place_of(citation)}", quote=True)
    return (
        f'<a class="ff-mark ff-mark-{kind}" href="#{scope}-{number}" target="_self" '
        f'title="{label}" aria-label="{label}">{number}</a>'
    )


def link_marks(
    numbers: tuple[int, ...], citations: Mapping[int, Citation], scope: str = "src"
) -> str:
    """Several marks in a row."""
    return "".join(link_mark(n, citations, scope) for n in numbers)


def mark_text(text: str, citations: Mapping[int, Citation], scope: str = "src") -> str:
    """Plain text as HTML; `[n]` becomes a mark, `code` becomes code."""
    escaped = _TICKS.sub(r"<code>\1</code>", escape(text, quote=False))
    return _MARK.sub(lambda m: link_mark(int(m[1]), citations, scope), escaped)


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table")
    # whoever writes an address decides where the reader's browser goes: sources are linked beside the text
    return markdown.disable(["image", "link", "autolink", "reference"])


def render_markdown(text: str, citations: Mapping[int, Citation], scope: str = "src") -> str:
    """Markdown of a page or an answer as HTML; `[n]` becomes a mark."""
    rendered = str(_markdown().render(text))
    return _MARK.sub(lambda m: link_mark(int(m[1]), citations, scope) or m[0], rendered)


def split_fences(text: str) -> Iterator[tuple[str, bool]]:
    """Pieces of Markdown as (text, whether it is a command block), in order."""
    at = 0
    for match in _FENCE.finditer(text):
        if text[at : match.start()].strip():
            yield text[at : match.start()], False
        yield match[1].rstrip("\n"), True
        at = match.end()
    if text[at:].strip():
        yield text[at:], False


def sentence(text: str) -> str:
    """Text that begins with a capital unless it begins with a name such as `rank5` or `mlx5_0`."""
    return text[:1].upper() + text[1:] if text[:4].isalpha() or text[:2].isalpha() else text
