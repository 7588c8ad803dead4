"""How are follow-up questions answered without a model? From the diagnosis, the evidence, the pages.

Every sentence quotes something: a citation of the diagnosis, lines of the evidence that hold the
question's own words, or a passage of the knowledge base. What nothing covers is said to be open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from firstfault.conversation.answerer import Question
from firstfault.conversation.particulars import answer_particular
from firstfault.conversation.sources import Sources
from firstfault.grounding.quotes import quote_holds
from firstfault.incidents.events import AnswerPart, Progress
from firstfault.investigation.diagnosis import Citation, CitationKind, Diagnosis
from firstfault.knowledge_base.search import Found, SearchIndex, open_index, search_pages
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Verdict
from firstfault_tools.log.window import read_window

PassageSearch = Callable[[str, int], Sequence[Found]]
COVERED = 0.35
"""Share of the question's words that a page explains, from which on it is taken for an answer."""
NO_RULE = (
    "There is no answer to this by rule. Ask for the fix, the cause, the place, other causes, the order of "
    "events, a rank or a line, or use the words of a message; a model can answer more (docs/model.md)."
)
_FOR_MODEL = expression(r"(?i)\s*/(?:preview|send|approve|reject)\b")
NO_MODEL = "/preview, /send, /approve and /reject are for a model, and none is set (docs/model.md)."
MAX_GREP_LINES, MAX_HITS, MAX_QUOTE = 200_000, 6, 600
_LINE = expression(r"(?i)\bline\s+(\d{1,9})\b(?:\s+(?:of|in)\s+(\S+))?")
_TERM = expression(
    r'"([^"]{3,80})"|`([^`]{3,80})`|'
    r"\b(?=[\w./:-]{4,80})(\w[\w./:-]*[\d_:/][\w./:-]*\w|\w*[a-z][A-Z]\w*|[A-Z]{2,}[a-z]\w*)"
)
"""Quoted words, and words that look like names: with digits, `_`, `/`, `:` or mixed case."""
_ACTS = expression(
    r"(?i)\bfix|\bcollect|command|repair|mitigat|what (?:should|can|do) (?:i|we)|\bline\s+\d"
)
_ASKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("fix", expression(
        r"(?i)\bfix|\bsolv|\bresolve|what (?:should|can|do) (?:i|we)|command|repair|mitigat|avoid|get rid|"
        r"how (?:do|can|to)\b[^?]{0,30}\b(?:it|this|that)\b|\bre(?:start|sume|try|run)"
    )),
    ("where", expression(r"(?i)\bwhich (?:rank|host|node|gpu|machine)|\bwhere\b|\bwho\b|drain")),
    ("well", expression(r"(?i)\bhealthy\b|\bok(?:ay)?\b|\bfine\b|\bnormal\b|harmless|\bsafe\b|dangerous|verdict")),
    ("sure", expression(r"(?i)\bsure\b|certain|confiden|prove|wrong|disprove|evidence for")),
    ("other", expression(r"(?i)\bother (?:cause|explan|hypothes)|could it be|instead|rule out|alternativ|not the")),
    ("next", expression(r"(?i)\bcollect|what (?:else|next)|need to (?:see|know)|artefact|artifact|missing")),
    ("chain", expression(r"(?i)what happened|timeline|\border\b|sequence|after(?:wards)?\b|cascade|then\b")),
    ("why", expression(r"(?i)\bwhy\b|cause|reason|what does (?:it|this|that|all) mean|explain")),
)  # fmt: skip


@cache
def _index() -> SearchIndex:
    return open_index(vectors=False)


def search_lexically(query: str, limit: int) -> Sequence[Found]:
    """Passages by shared words; needs no vectors."""
    return _index().search(query, limit)


@dataclass(frozen=True)
class RuleAnswerer:
    """Answers by rule; the same question on the same evidence gives the same answer."""

    search: PassageSearch = search_lexically
    repeatable: bool = True
    explains: bool = False

    def explain(self, question: Question) -> Iterator[AnswerPart | Progress]:
        """Nothing beyond the diagnosis itself."""
        return iter(())

    def answer(self, question: Question) -> Iterator[AnswerPart | Progress]:
        """One part: what the diagnosis says, what the lines say, what the pages say."""
        sources = Sources()
        blocks: list[str] = []
        if _FOR_MODEL.match(question.text):
            yield AnswerPart(NO_MODEL, ())
            return
        if question.diagnosis is not None:
            if not _ACTS.search(question.text):
                blocks += answer_particular(question, question.diagnosis, sources)
            if blocks:
                yield AnswerPart("\n\n".join(blocks), tuple(sources.citations))
                return
            blocks += _from_diagnosis(question, question.diagnosis, sources)
        if question.artefacts:
            yield Progress("evidence", "looking for the question's words in the evidence")
            blocks += _from_lines(question, sources)
        yield Progress("knowledge", "searching the knowledge base")
        blocks = self._add_pages(question, sources, blocks)
        if not blocks:
            blocks = [
                "Nothing in the evidence or the knowledge base answers this. Add the log or artefact "
                "it is about, or ask with the words of the message itself."
            ]
        yield AnswerPart("\n\n".join(blocks), tuple(sources.citations))

    def _add_pages(self, question: Question, sources: Sources, blocks: list[str]) -> list[str]:
        """`blocks` with what the pages say: to the question itself, else about the fault."""
        covered = dict(search_pages(question.text, 10))
        hits = list(self.search(question.text, 3))
        about = question.diagnosis
        if about is None:
            sure = max(covered.values(), default=0.0) >= COVERED / 2
            title = "From the knowledge base:" if sure else (
                "No page clearly answers this; the nearest passages of the knowledge base:"
            )  # fmt: skip
            return [*blocks, *_quote_pages(question, hits, sources, title)]
        # of a question of one word, any page with that word explains all
        few = bool(blocks) and len(set(tokenize(question.text))) < 2
        hits = [] if few else [h for h in hits if covered.get(h.page, 0.0) >= COVERED]
        found = _quote_pages(question, hits, sources, "From the knowledge base:")
        if blocks or found:
            return [*blocks, *found]
        cited = {c.page for c in about.citations if c.page}
        hits = [h for h in self.search(f"{question.text} {about.root_cause}", 3) if h.page in cited]
        return [
            NO_RULE,
            *_quote_pages(question, hits, sources, "The knowledge base on this fault:"),
        ]


def _quote_pages(
    question: Question, hits: Sequence[Found], sources: Sources, title: str
) -> list[str]:
    lines = []
    for found in hits:
        page = question.knowledge.pages.get(found.page)
        section = (
            page.section("" if found.heading == "Summary" else found.heading) if page else None
        )
        quote = _lead(found.passage)
        if page is None or section is None or not quote_holds(quote, section.text):
            continue
        mark = sources.add(
            Citation(0, CitationKind.PAGE, quote, page=page.id, heading=found.heading, url=page.url)
        )
        lines.append(f"- **{found.title}**, {found.heading}: {' '.join(quote.split())} {mark}")
    return [f"{title}\n\n" + "\n".join(lines)] if lines else []


def _from_diagnosis(question: Question, diagnosis: Diagnosis, sources: Sources) -> list[str]:
    asked = [name for name, pattern in _ASKS if pattern.search(question.text)]
    blocks = []
    for name in asked[:2]:
        text = _SECTIONS[name](diagnosis, sources)
        if text:
            blocks.append(text)
    return blocks


def _say_fixes(diagnosis: Diagnosis, sources: Sources) -> str:
    if not diagnosis.fixes:
        return "No fix is shown, since no cause is established with a page to cite."
    out = []
    for fix in diagnosis.fixes[:5]:
        command = f"\n  ```bash\n  {fix.command}\n  ```" if fix.command else ""
        label = " (changes state)" if fix.changes_state else ""
        out.append(f"- {fix.text}{label} {sources.marks(fix.citations, diagnosis)}{command}")
    return "What helps, most urgent first:\n\n" + "\n".join(out)


def _say_where(diagnosis: Diagnosis, sources: Sources) -> str:
    places = [
        f"rank {diagnosis.first_failing_rank}" if diagnosis.first_failing_rank is not None else "",
        f"host {diagnosis.host}" if diagnosis.host else "",
        (diagnosis.gpu if diagnosis.gpu.startswith(("GPU", "PCI")) else f"GPU {diagnosis.gpu}")
        if diagnosis.gpu
        else "",
    ]
    named = ", ".join(p for p in places if p)
    main = diagnosis.hypotheses[0].for_[:2] if diagnosis.hypotheses else ()
    if named:
        words = ("rank", "host", "GPU")
        unknown = " or ".join(w for w, p in zip(words, places, strict=True) if not p)
        rest = f" The evidence names no {unknown}." if unknown else ""
        return f"The first fault lies at {named} {sources.marks(main, diagnosis)}.{rest}"
    return "The evidence singles out no rank, host or GPU." + (
        f" What it does show: {diagnosis.root_cause} {sources.marks(main, diagnosis)}."
        if main
        else ""
    )


def _say_verdict(diagnosis: Diagnosis, sources: Sources) -> str:
    main = diagnosis.hypotheses[0].for_[:4] if diagnosis.hypotheses else ()
    words = {
        Verdict.FAULT: "No, there is a fault",
        Verdict.WARNING: "It runs, with a warning",
        Verdict.HEALTHY: "Yes, it looks healthy",
        Verdict.UNKNOWN: "That is open",
    }[diagnosis.verdict]
    marks = sources.marks(main, diagnosis)
    return f"{words} ({diagnosis.confidence.value}): {diagnosis.root_cause} {marks}."


def _say_sure(diagnosis: Diagnosis, sources: Sources) -> str:
    main = diagnosis.hypotheses[0].for_ if diagnosis.hypotheses else ()
    marks = sources.marks(main[:4], diagnosis)
    wrong = f" It would be wrong if: {diagnosis.disproof}" if diagnosis.disproof else ""
    return f"{diagnosis.confidence.value.capitalize()}: {diagnosis.root_cause} {marks}.{wrong}"


def _say_others(diagnosis: Diagnosis, sources: Sources) -> str:
    if len(diagnosis.hypotheses) < 2:
        return "No other cause fits the evidence that was given."
    lines = [
        f"- {h.confidence.value}: {h.root_cause}; for {sources.marks(h.for_, diagnosis)}"
        + (f", against {sources.marks(h.against, diagnosis)}" if h.against else "")
        for h in diagnosis.hypotheses[1:]
    ]
    return "Other causes that fit in part:\n\n" + "\n".join(lines)


def _say_next(diagnosis: Diagnosis, _sources: Sources) -> str:
    if not diagnosis.next_artefacts:
        return "Nothing more is needed for this verdict."
    lines = [
        f"- {a.what}: {a.why}\n  ```bash\n  {a.command}\n  ```" for a in diagnosis.next_artefacts
    ]
    return "What would settle it:\n\n" + "\n".join(lines)


def _say_chain(diagnosis: Diagnosis, sources: Sources) -> str:
    lines = []
    for link in diagnosis.cascade[:8]:
        who = f"rank {link.rank}, " if link.rank is not None else ""
        quote = Citation(0, CitationKind.LOG, link.text, file=link.file, line=link.line)
        mark = sources.add(quote) if link.file and link.line else ""
        lines.append(f"- {link.role.value}: {who}line {link.line} {mark}")
    return "In order of cause:\n\n" + "\n".join(lines) if lines else ""


def _say_why(diagnosis: Diagnosis, sources: Sources) -> str:
    return sources.carry(diagnosis.explanation, diagnosis)


_SECTIONS: dict[str, Callable[[Diagnosis, Sources], str]] = {
    "fix": _say_fixes,
    "where": _say_where,
    "well": _say_verdict,
    "sure": _say_sure,
    "other": _say_others,
    "next": _say_next,
    "chain": _say_chain,
    "why": _say_why,
}


def _from_lines(question: Question, sources: Sources) -> list[str]:
    wanted = _LINE.search(question.text)
    if wanted is not None:
        hits = _read_line(question, int(wanted[1]), (wanted[2] or "").rstrip("?.,"))
        title = "That line and its neighbours:"
    else:
        hits = _grep(question)
        title = "Lines of the evidence that hold these words:"
    if not hits:
        return []
    lines = [
        f"- {h.file}:{h.line} {sources.add(h)}\n  ```text\n  {h.quote.replace('```', '` ` `')}\n  ```"
        for h in hits
    ]
    return [title + "\n\n" + "\n".join(lines)]


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
    terms = list(
        dict.fromkeys(next(g for g in m if g).lower() for m in _TERM.findall(question.text))
    )[:6]
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


def _lead(passage: str) -> str:
    """First paragraph or list item of a passage, short enough to read in a list."""
    text = passage.strip().split("\n\n")[0]
    first, *rest = re.split(r"\n(?=[-*] |```)", text)
    text = re.sub(r"^[-*] ", "", first) if rest or first.startswith(("- ", "* ")) else text
    text = text.split("\n  ```")[0]
    if len(text) <= MAX_QUOTE:
        return text
    cut = text.rfind(". ", 0, MAX_QUOTE)
    return text[: cut + 1] if cut > 100 else text[:MAX_QUOTE]
