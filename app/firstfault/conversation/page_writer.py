"""How is a page put together for one question? The statement that answers it first, then what stands around it.

The first sentence answers: a command to a "how do I", yes, no or only if to a "should I", the first step to a
"what do I do", the cause to a "why".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache

from firstfault.conversation.asked import Asked
from firstfault.conversation.blocks import write_block
from firstfault.conversation.glossary import explain_terms
from firstfault.conversation.sources import Sources
from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.knowledge_base.statements import Statement, cut_statements, sentences, split_item
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.page import FIX_FOR_GOOD, FIX_NOW, Page, bullets

WHY, CONFIRM, NOT, PREVENT = "Why it happens", "How to confirm", "What it is not", "Prevent"
HARMLESS, SYMPTOMS = "Why it is harmless", "Symptoms"
MAX_SECTION = 1_200
WORDS_SHARE = 0.15
"""What all of the question's words add to a cosine; chosen on evals/questions/dev2.yaml."""
FEW_WORDS = 2
_FORBIDS = expression(r"(?i)^(?:never\b|do not\b|don't\b|avoid\b)")
_LIMITS = expression(r"(?i)^only\b|\bonly (?:where|if|when|after|with|for)\b|\bunless\b|\bexcept\b")
_VARIABLE = expression(r"\b([A-Z]{2,12}_[A-Z0-9_]{2,60})\b")
_XID = expression(r"(?i)\bxid\s?(?:code |error )?(\d{1,3})\b")
_CHECKS = expression(
    r"(?i)\b(?:check|confirm|find out|verify|see|tell|know) (?:if|whether|that|for|the)\b|"
    r"\bhow (?:do|can|to|should) ?(?:i|we)? (?:check|confirm|verify|tell)\b"
)
_FENCE = expression(r"(?m)^\s*```")


@dataclass(frozen=True, slots=True)
class PageWriter:
    """Sections of one page for one question. near: statement id -> cosine with it; weak: only the closest page."""

    page: Page
    asked: Asked
    sources: Sources
    near: Mapping[str, float] = field(default_factory=dict)
    weak: bool = False

    def write(self) -> str:
        """The whole answer."""
        blocks = _ASSEMBLE.get(self.asked.intent, _find)(self)
        first = [*say_xids(self.asked.text), *_say_variables(self.asked.text), *_define(self.asked)]
        blocks = [*first, *blocks]
        if self.weak:
            blocks = [f'The closest I have is the page "{self.page.title}".', *blocks]
        return "\n\n".join(dict.fromkeys(b for b in blocks if b))

    def mark(self, heading: str, quote: str, source: str = "") -> str:
        shown, url = heading or "Summary", source or self.page.url
        return self.sources.add(
            Citation(0, CitationKind.PAGE, quote, page=self.page.id, heading=shown, url=url)
        )

    def lead(self) -> str:
        """The page's first paragraph."""
        text = self.page.summary
        return f"{text} {self.mark('', text)}" if text else ""

    def section(self, heading: str, title: str = "") -> str:
        """A section, commands included, with its mark; its last items are left out where it is long."""
        section = self.page.section(heading)
        if section is None:
            return ""
        text = section.text
        if len(text) > MAX_SECTION:
            cut = text.rfind("\n- ", 0, MAX_SECTION)
            text = text[:cut] if cut > 200 else text
        quote = _first_line(text)
        head = f"**{title or heading}** {self.mark(heading, quote)}" if heading else ""
        return f"{head}\n\n{text}".strip()

    def best(self, headings: Sequence[str], with_command: bool = False) -> Statement | None:
        """The statement below these headings that is nearest to the question."""
        wanted = set(tokenize(self.asked.text))
        known = set(tokenize(f"{self.page.title} {' '.join(self.page.tags)}"))
        scored = []
        for number, statement in enumerate(cut_statements(self.page)):
            if statement.heading not in headings or (with_command and not statement.command):
                continue
            own = set(tokenize(f"{statement.words} {statement.command}"))
            words = len(wanted & own - known) + 0.3 * len(wanted & own & known)
            share = WORDS_SHARE * words / max(len(wanted), 1)
            score = self.near.get(statement.id, 0.0) + share if self.near else words
            scored.append((score, -number, statement))
        if not scored:
            return None
        score, _, statement = max(scored, key=lambda s: s[:2])
        return statement if score > 0 or with_command else None

    def say(self, statement: Statement) -> str:
        """A statement with its mark and its command."""
        block = f"\n\n{write_block(statement.command)}" if statement.command else ""
        words = statement.words.rstrip(":")
        words += "" if words.endswith((".", "!", "?")) else "."
        return f"{words} {self.mark(statement.heading, statement.words)}{block}"


def _how_to(w: PageWriter) -> list[str]:
    found = w.best((CONFIRM,), with_command=True) if _CHECKS.search(w.asked.text) else None
    found = found or w.best((CONFIRM, FIX_NOW, FIX_FOR_GOOD, PREVENT))
    if found is None:
        return [w.lead(), w.section(FIX_NOW) or w.section(CONFIRM)]
    return [w.say(found), w.section(found.heading) if not found.command else "", w.lead()]


def _should(w: PageWriter) -> list[str]:
    """The nearest rule of the page, with yes, no or only if where its wording says so."""
    if w.page.benign:
        return [f"No action is needed: this is harmless. {w.lead()}", w.section(HARMLESS)]
    found = w.best((NOT, FIX_FOR_GOOD, FIX_NOW, PREVENT, WHY, ""))
    if found is None:
        return [f"It depends on what you find. {w.lead()}", w.section(FIX_NOW), w.section(NOT)]
    word = "Only if. " if _LIMITS.search(found.words) else "No. " if _FORBIDS.match(found.words) else ""  # fmt: skip
    return [word + w.say(found), w.lead(), w.section(NOT) if found.heading != NOT else ""]


def _normal(w: PageWriter) -> list[str]:
    if w.page.benign:
        return [f"Yes, this is harmless. {w.lead()}", w.section(HARMLESS)]
    fact = w.best((NOT, WHY, CONFIRM, "", SYMPTOMS))
    said = w.say(fact) if fact is not None else ""
    if w.weak or not _names_title(w):
        return [said or "The pages do not say whether that is normal.", w.lead(), w.section(NOT)]
    return [f"Not something to ignore. {said or w.lead()}", w.lead(), w.section(CONFIRM)]


def _names_title(w: PageWriter) -> bool:
    """The question names what the page is about, so the page's own judgement is the answer."""
    about = set(tokenize(f"{w.page.title} {' '.join(w.page.tags)}"))
    return len(about & set(tokenize(w.asked.text))) >= 2


def _what_do(w: PageWriter) -> list[str]:
    if w.page.benign:
        return [f"Nothing needs to be done. {w.lead()}", w.section(HARMLESS)]
    fixes = w.page.section(FIX_NOW)
    if fixes is None:
        return [w.lead(), w.section(CONFIRM)]
    first = next(iter(bullets(fixes.text)), None)
    lead = split_item(first)[0] if first else ""
    opening = f"First: {lead} {w.mark(FIX_NOW, lead)}" if lead else ""
    return [opening, w.section(FIX_NOW), w.lead(), w.section(CONFIRM)]


def _which(w: PageWriter) -> list[str]:
    found = w.best((FIX_FOR_GOOD, FIX_NOW, CONFIRM, WHY, PREVENT, "", SYMPTOMS, NOT))
    return [w.say(found) if found else "", w.lead(), w.section(WHY)]


def _why(w: PageWriter) -> list[str]:
    if w.page.benign:
        return [w.lead(), w.section(HARMLESS)]
    return [w.lead(), w.section(WHY), w.section(FIX_NOW, "What to do")]


def _how_much(w: PageWriter) -> list[str]:
    wanted = set(tokenize(w.asked.text))
    best: tuple[float, str, str] | None = None
    for section in w.page.sections:
        for sentence in sentences(section.text):
            if not re.search(r"\d", sentence):
                continue
            score = len(wanted & set(tokenize(sentence)))
            if best is None or score > best[0]:
                best = (score, section.heading, sentence)
    if best is None or not best[0]:
        return [w.lead(), w.section(WHY)]
    return [f"{best[2]} {w.mark(best[1], best[2])}", w.lead()]


def _what_is(w: PageWriter) -> list[str]:
    return [w.lead(), w.section(WHY) or w.section(HARMLESS), w.section(FIX_NOW, "What to do")]


def _find(w: PageWriter) -> list[str]:
    """A symptom told rather than asked for: what it is, what to do, how to confirm."""
    name = w.page.title[:1].lower() + w.page.title[1:] if w.page.title[1:2].islower() else w.page.title  # fmt: skip
    opening = "" if w.weak or w.asked.is_question else f"This sounds like: {name}. "
    return [opening + w.lead(), w.section(FIX_NOW, "What to do") or w.section(HARMLESS), w.section(CONFIRM)]  # fmt: skip


_ASSEMBLE: dict[str, Callable[[PageWriter], list[str]]] = {
    "how_to": _how_to,
    "should": _should,
    "normal": _normal,
    "what_do": _what_do,
    "which": _which,
    "why_general": _why,
    "how_much": _how_much,
    "what_is": _what_is,
}


def _say_variables(text: str) -> list[str]:
    """What is known of the environment variables that a question names."""
    from firstfault_tools.collectives.environment import known_variables

    out = []
    for name in dict.fromkeys(_VARIABLE.findall(text)):
        known = known_variables().get(name)
        if known is not None:
            instead = f"Instead: {known.instead}." if known.instead else ""
            said = (f"{name} is read by {known.reader}.", _capital(known.note), instead)
            out.append(" ".join(p for p in said if p))
    return out


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def _define(asked: Asked) -> list[str]:
    """The glossary's sentence, where a term alone is asked for."""
    if asked.intent != "what_is" or len(set(tokenize(asked.text))) > FEW_WORDS:
        return []
    return explain_terms(asked.text)[:1]


@cache
def _xids() -> dict[int, dict[str, str]]:
    from firstfault.paths import knowledge_folder
    from firstfault_tools.knowledge.pack import read_yaml

    rows = read_yaml((knowledge_folder() / "xids.yaml").read_text(encoding="utf-8"))["xids"]
    return {row["code"]: row for row in rows}


def say_xids(text: str) -> list[str]:
    """What the catalogue says of each Xid that is named."""
    rows = [_xids()[int(c)] for c in dict.fromkeys(_XID.findall(text)) if int(c) in _xids()]
    return [
        f"Xid {row['code']} is: {row['meaning']}. NVIDIA's immediate action: {row['immediate']}; "
        f"then: {row['then']}. In practice: {row['reading']}."
        for row in rows
    ]


def _first_line(text: str) -> str:
    """The first sentence-like piece of a section, as it stands there."""
    line = next((x for x in text.split("\n") if x.strip() and not _FENCE.match(x)), "")
    return re.sub(r"^(?:[-*]|\d{1,2}\.) ", "", line.strip())
