"""What is looked at next where a check speaks against the explanation? A rival, another check of its page, else what to collect.

Card and conversation name the same, in few words.
"""

from __future__ import annotations

from collections.abc import Mapping

from firstfault.investigation.diagnosis import Diagnosis, Hypothesis
from firstfault.investigation.headline import lower_first, shorten_clause
from firstfault_tools.expressions import expression
from firstfault_tools.knowledge.page import CONFIRM, Page, bullets

MOST_WORDS = 12
COLLECT = "collect next: "
NOT_IT = "What it is not"
SEE_PAGE = f"compare “{NOT_IT}” on the page of this fault"
_END = expression(r"(?:[:.;] |[:.;]$|, (?:and|or|so|while|where)\b| \(|```).*")
"""Where the first clause of an item ends."""
LEAST_WORDS = 3
"""Words of an item below which it names nothing that can be done."""


def name_alternative(diagnosis: Diagnosis, pages: Mapping[str, Page], done: str) -> str:
    """What is looked at where the check `done` speaks against the leading explanation; '' where nothing is known."""
    rivals = list_rivals(diagnosis)
    if rivals:
        return _fit("next suspect: ", shorten_clause(rivals[0].root_cause, 70))
    page = _find_page(diagnosis, pages)
    if page is not None and (check := _other_check(page, done)):
        return _fit("check next: ", check)
    wanted = [a for a in diagnosis.next_artefacts if not is_same(a.what, done)]
    own = [a for a in wanted if a.of_fault]
    if not own and page is not None and page.section(NOT_IT) is not None:
        return SEE_PAGE
    return next((_fit(COLLECT, _clause(a.what)) for a in (*own, *wanted)), "")


def list_rivals(diagnosis: Diagnosis) -> list[Hypothesis]:
    """Other explanations that nothing has refuted."""
    return [h for h in diagnosis.hypotheses[1:] if h.for_ or not h.against]


def list_mistaken(diagnosis: Diagnosis, pages: Mapping[str, Page]) -> tuple[Page, list[str]] | None:
    """The page of the explanation, and what it says that the fault is not; None where no page says it."""
    page = _find_page(diagnosis, pages)
    section = page.section(NOT_IT) if page is not None else None
    if page is None or section is None:
        return None
    return page, [" ".join(x.strip() for x in item) for item in bullets(section.text)]


def _find_page(diagnosis: Diagnosis, pages: Mapping[str, Page]) -> Page | None:
    """The page of the leading explanation, or the one that the verdict cites."""
    lead = diagnosis.hypotheses[0].page if diagnosis.hypotheses else ""
    return pages.get(lead or diagnosis.cited_page)


def _other_check(page: Page, done: str) -> str:
    """The next item of the page's checks that is not the one that was done."""
    section = page.section(CONFIRM)
    items = bullets(section.text) if section is not None else []
    told = [_clause(item[0]) for item in items]
    left = [t for t in told if not is_same(t, done) and len(t.split()) >= LEAST_WORDS]
    return left[0] if left and len(told) > 1 else ""


def _clause(text: str) -> str:
    """The first clause of an item; the whole item where that would cut what it quotes."""
    short = _END.sub("", text.strip()).strip()
    return short if short.count("`") % 2 == 0 else text.strip()


def is_same(one: str, other: str) -> bool:
    """Two items ask for the same, one perhaps with more words."""
    one, other = one.lower().rstrip(".:"), other.lower().rstrip(".:")
    return bool(one) and (one in other or other.startswith(one))


def _fit(head: str, text: str) -> str:
    """Head and text in at most MOST_WORDS words."""
    words = text.strip().rstrip(".").split()
    room = MOST_WORDS - len(head.split())
    short = " ".join(words[:room]).rstrip(",;:") + (" …" if len(words) > room else "")
    return head + (short if head == COLLECT else lower_first(short))
