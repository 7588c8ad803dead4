"""What do the knowledge pages answer? A plain answer where one is near, else the page that fits best, put together for the question.

A page that is only the closest one says so; a question of another field is not answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firstfault.conversation.asked import Asked
from firstfault.conversation.blocks import write_block
from firstfault.conversation.conditions import conditions_of
from firstfault.conversation.glossary import define_each, load_glossary
from firstfault.conversation.page_search import (
    LEAST_SHARE,
    Nearest,
    PageSearch,
    PassageSearch,
    whole_text,
)
from firstfault.conversation.page_writer import CONFIRM, WHY, PageWriter, say_xids
from firstfault.conversation.reply import Reply
from firstfault.conversation.rulings import find_ruling, find_rulings, say_in_form
from firstfault.conversation.sources import Sources
from firstfault.investigation.knowledge import Knowledge
from firstfault.knowledge_base.rulings import Ruling
from firstfault.knowledge_base.tokens import tokenize
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.page import FIX_NOW, Page

__all__ = ["PageSearch", "PassageSearch", "answer_from_pages", "compare_terms"]
COVERED, BESIDE, OF_RUN = 0.35, 0.88, 0.91
"""Share of words, and cosine, from which a page, or a plain answer to a question about the run, is taken for what is meant although an incident is at hand."""
_VERSUS = expression(
    r"(?i)\bdifference between (?:an? |the )?([\w -]{2,30}?) and (?:an? |the )?([\w-]{2,30}(?: [\w-]{2,20})?)|"
    r"([\w-]{2,30}(?: parallel\w*)?) (?:vs\.?|versus) ([\w-]{2,30}(?: parallel\w*)?)"
)
_MEANING = expression(r"(?i)\bmeans?\b|\bwhat(?:.s| is| are)\b")


def answer_from_pages(
    asked: Asked,
    knowledge: Knowledge,
    search: PageSearch,
    sources: Sources,
    beside: bool = False,
    host: str = "",
    of_run: bool = False,
) -> Reply | None:
    """Answer of the page that fits best; None where no page does. beside: an incident could be meant, host: its host;
    of_run: the question speaks of it, so that only a plain answer that is near to it is one."""
    several = _answer_codes(asked, knowledge, search, sources)
    if several is not None:
        return several
    loose = beside and asked.intent in ("find", "which")
    near = search.near_questions(asked.text)
    least, nearest = (COVERED if loose else LEAST_SHARE), max(near.values(), default=0.0)
    found = search.find(asked.text, knowledge.pages, least, nearest)
    rulings = (
        find_rulings(asked, search.near_questions, [f.page for f in found])
        if found or not near
        else []
    )
    rulings = [r for r in rulings if r.page in knowledge.pages]
    if beside and _WHO.search(asked.text) and not (rulings and _asks_who(rulings[0])):
        rulings = []
    compared = compare_terms(asked.text)
    if of_run and (not rulings or nearest < OF_RUN) and not compared:
        return None
    if rulings and (not compared or _is_of_both(rulings[0], asked.text)):
        return _answer_rulings(rulings, knowledge, asked, sources, host)
    if compared:
        return _answer_compared(compared, asked, knowledge, search, sources)
    if not found or (loose and found[0].near and found[0].near < BESIDE):
        return None
    return _answer_page(found, asked, knowledge, search, sources)


_WHO = expression(r"(?i)^\W*(?:and |but |so )?who(?:m|se)?\b")


def _asks_who(ruling: Ruling) -> bool:
    """It is asked for with a person: practice answers no other question of who did something here."""
    return any(_WHO.search(a) for a in ruling.ask)


_CODES = expression(
    r"(?i)\b(?P<kind>xid|sxid|exit ?(?:code|status)s?|signal)\s{0,2}(?P<codes>-?\d{1,3}\b(?:[\s,/]{0,3}(?:vs\.?|versus|or|and)?[\s,/]{1,3}(?:xid )?-?\d{1,3}\b){1,4})"
)


def _answer_codes(
    asked: Asked, knowledge: Knowledge, search: PageSearch, sources: Sources
) -> Reply | None:
    """Several codes held against each other: the plain answer of each; None where one has none."""
    found = _CODES.search(asked.text)
    if found is None:
        return None
    rows = []
    for code in dict.fromkeys(expression(r"-?\d{1,3}").findall(found["codes"])):
        one = replace(asked, text=f"what does {found['kind']} {code} mean")
        ruling = find_ruling(one, search.near_questions(one.text))
        page = knowledge.pages.get(ruling.page) if ruling is not None else None
        if ruling is None or page is None:
            return None
        mark = PageWriter(page, asked, sources).mark("", page.summary, ruling.source)
        rows.append(f"- {found['kind'].capitalize()} {code}: {ruling.say} {mark}")
    return Reply("\n".join(rows), f"knowledge.{asked.intent}")


def _answer_page(
    found: Sequence[Nearest], asked: Asked, knowledge: Knowledge, search: PageSearch, sources: Sources
) -> Reply:  # fmt: skip
    near = search.near_statements(asked.text)
    wanted = conditions_of(asked.text)
    lacks = {f.page: len(wanted - conditions_of(whole_text(knowledge.pages[f.page]))) for f in found}  # fmt: skip
    least = min(lacks.values())
    fitting = [f for f in found if lacks[f.page] == least]
    first = _lead_page(fitting, near) if asked.intent in _OF_STATEMENTS else fitting[0]
    page = knowledge.pages[first.page]
    others = [knowledge.pages[f.page] for f in found if f is not first][:2]
    text = PageWriter(page, asked, sources, near, first.is_weak or least > 0).write()
    return Reply(text, f"knowledge.{asked.intent}", _suggest(page, others, asked))


_OF_STATEMENTS = frozenset(["how_to", "should", "which", "how_much"])
"""Ways of asking that one statement answers, whichever page it stands on."""
AHEAD = 0.015
"""How much nearer a statement of another page found must be, to lead; chosen on evals/questions/dev2.yaml."""


def _lead_page(found: Sequence[Nearest], near: Mapping[str, float]) -> Nearest:
    """The page whose nearest statement is clearly ahead, else the first one."""
    best = {f.page: max((v for i, v in near.items() if i.startswith(f"{f.page}>")), default=0.0) for f in found}  # fmt: skip
    top = max(found, key=lambda f: best[f.page])
    return top if best[top.page] > best[found[0].page] + AHEAD else found[0]


def compare_terms(text: str) -> list[str]:
    """A sentence on each of two terms that are held against each other; empty where one is not known."""
    found = _VERSUS.search(text)
    return define_each(tuple(g.strip(" ?") for g in found.groups() if g)) if found else []


def _is_of_both(ruling: Ruling, text: str) -> bool:
    """The ruling is asked for with both of the terms that are held against each other."""
    found = _VERSUS.search(text)
    terms = [set(tokenize(g)) for g in found.groups() if g] if found is not None else []
    return any(all(t & set(tokenize(a)) for t in terms) for a in ruling.ask)


def _answer_compared(
    terms: Sequence[str], asked: Asked, knowledge: Knowledge, search: PageSearch, sources: Sources
) -> Reply:
    """Both terms, then the page that knows them, where there is one."""
    blocks = ["\n".join(f"- {t}" for t in terms)]
    found = search.find(asked.text, knowledge.pages)
    if not found:
        return Reply(blocks[0], "knowledge.which")
    page = knowledge.pages[found[0].page]
    blocks.append(PageWriter(page, asked, sources).lead())
    return Reply("\n\n".join(b for b in blocks if b), "knowledge.which", _suggest(page, [], asked))


def _answer_rulings(
    rulings: Sequence[Ruling], knowledge: Knowledge, asked: Asked, sources: Sources, host: str = ""
) -> Reply:
    """The plain answer, then that to the other half of the question."""
    page = knowledge.pages[rulings[0].page]
    blocks = _say_ruling(rulings[0], page, asked, sources, host)
    if _MEANING.search(asked.text):
        blocks = [*say_xids(asked.text), *blocks]
    blocks = [*_defined(rulings[0], asked), *blocks]
    for other in rulings[1:]:
        blocks += _say_ruling(other, knowledge.pages[other.page], asked, sources, host)
    return Reply(
        "\n\n".join(dict.fromkeys(b for b in blocks if b)),
        f"knowledge.{asked.intent}",
        _suggest(page, [], asked),
    )


_NODE = expression(r"\bNODE\b")


def _say_ruling(ruling: Ruling, page: Page, asked: Asked, sources: Sources, host: str) -> list[str]:
    """The plain answer with its command, for the host at hand; the section behind it where the ruling names one."""
    writer = PageWriter(page, asked, sources)
    blocks = [f"{say_in_form(ruling, asked.text)} {writer.mark('', page.summary, ruling.source)}"]
    if ruling.run:
        blocks.append(write_block(_NODE.sub(host or "NODE", ruling.run)))
    elif ruling.heading not in ("", "Summary"):
        blocks.append(writer.section(ruling.heading))
    return blocks


_ASKS_WHAT = expression(
    r"(?i)^\W{0,3}what(?:.s| is| are)(?: an?| the)?\s+(?P<term>[\w-]+(?: [\w-]+)?(?: [\w-]+)?)"
)


def _defined(ruling: Ruling, asked: Asked) -> list[str]:
    """The term that the question begins with in one sentence, where the answer found is no answer to "what is"."""
    found = _ASKS_WHAT.search(asked.text)
    if found is None or any(_ASKS_WHAT.search(a) for a in ruling.ask):
        return []
    term = found["term"].lower()
    said = [
        say
        for word, say in load_glossary()
        if (m := word.search(term)) is not None and m.start() == 0
    ]
    return said[:1]


def _suggest(page: Page, others: Sequence[Page], asked: Asked) -> tuple[str, ...]:
    name = page.title[:1].lower() + page.title[1:] if page.title[:2].istitle() else page.title
    out = []
    if asked.intent != "what_do" and page.section(FIX_NOW):
        out.append(f"What do I do about: {name}?")
    if asked.intent not in ("why_general", "what_is") and page.section(WHY):
        out.append(f"Why does it happen: {name}?")
    if asked.intent != "how_to" and page.section(CONFIRM):
        out.append(f"How do I confirm: {name}?")
    return (*out[:2], *(f"What is: {p.title}?" for p in others[:1]))
