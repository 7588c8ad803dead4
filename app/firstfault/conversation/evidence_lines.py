"""Which lines of the evidence does a question name, by number or by their own words?"""

from __future__ import annotations

from firstfault.conversation.answerer import Question
from firstfault.conversation.blocks import write_quote
from firstfault.conversation.sources import Sources
from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault_tools.expressions import expression
from firstfault_tools.log.window import read_window

MAX_GREP_LINES, MAX_HITS, MAX_QUOTE = 200_000, 6, 600
_TERM = expression(
    r'"([^"]{3,80})"|`([^`]{3,80})`|'
    r"\b(?=[\w./:-]{4,80})(\w[\w./:-]{0,79}[\d_:/][\w./:-]{0,79}\w|\w*[a-z][A-Z]\w*|[A-Z]{2,}[a-z]\w*)"
)
"""Quoted words, and words that look like names: with digits, `_`, `/`, `:` or mixed case."""


def answer_line(question: Question, number: int, file: str, sources: Sources) -> str:
    """A line and its neighbours; '' where no file has it."""
    hits = _read_line(question, number, file)
    wanted = next((h for h in hits if h.line == number), None)
    if wanted is None:
        return ""
    return f"Line {number} of {wanted.file} and its neighbours:\n\n" + _show(hits, sources)


def answer_words(question: Question, sources: Sources) -> str:
    """Lines that hold the names in the question; '' where none does."""
    hits = _grep(question)
    return "Lines of the evidence that hold these words:\n\n" + _show(hits, sources) if hits else ""


def find_names(text: str) -> list[str]:
    """Words of a question that look like names of hosts, devices, files or messages, in small letters."""
    return list(dict.fromkeys(next(g for g in m if g).lower() for m in _TERM.findall(text)))[:6]


def _show(hits: list[Citation], sources: Sources) -> str:
    return "\n".join(
        f"- {h.file}:{h.line} {sources.add(h)}\n{write_quote(h.quote, 2)}" for h in hits
    )


def _read_line(question: Question, number: int, name: str) -> list[Citation]:
    for file, path in question.artefacts.items():
        if name and name not in file:
            continue
        window = read_window(path, number - 1, number + 1)
        if any(n == number for n, _ in window):
            return [
                Citation(0, CitationKind.LOG, text[:MAX_QUOTE], file=file, line=n)
                for n, text in window
                if text.strip()
            ]
    return []


def _grep(question: Question) -> list[Citation]:
    terms = find_names(question.text)
    if not terms:
        return []
    scored: list[tuple[int, int, Citation]] = []
    order = 0
    for file, path in question.artefacts.items():
        for first in range(1, MAX_GREP_LINES, 2_000):
            if question.is_stopped():
                return []
            window = read_window(path, first, first + 1_999)
            for number, text in window:
                count = sum(t in text.lower() for t in terms)
                if count:
                    order += 1
                    quote = Citation(0, CitationKind.LOG, text[:MAX_QUOTE], file=file, line=number)
                    scored.append((-count, order, quote))
            if len(window) < 2_000 or len(scored) > 5_000:
                break
    scored.sort(key=lambda s: s[:2])
    return sorted((s[2] for s in scored[:MAX_HITS]), key=lambda c: (c.file or "", c.line or 0))
