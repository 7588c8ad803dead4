"""Plain answers are whole, name known pages, and are found by other words than their own."""

from __future__ import annotations

from firstfault.conversation.asked import Family, load_intents, read_asked
from firstfault.conversation.incident import _TELL
from firstfault.conversation.rulings import find_ruling
from firstfault.knowledge_base.rulings import load_rulings
from firstfault.paths import knowledge_folder
from firstfault_tools.knowledge.page import load_pages


def test_every_ruling_has_a_page_and_an_answer() -> None:
    pages = load_pages(knowledge_folder() / "pages")
    rows = load_rulings(knowledge_folder() / "rulings")
    assert len(rows) > 500
    intents = {i.id for i in load_intents() if i.family is Family.INCIDENT} | _TELL.keys()
    for row in rows:
        assert row.ask, row.id
        if row.intent:
            assert row.intent in intents, row.id
            continue
        assert row.page in pages, row.id
        assert row.say.endswith((".", "`")), row.id
        if row.heading not in ("", "Summary"):
            assert pages[row.page].section(row.heading) is not None, row.id
        assert not row.source or row.source.startswith("https://"), row.id


def test_no_question_is_asked_twice() -> None:
    asked = [a.lower() for r in load_rulings(knowledge_folder() / "rulings") for a in r.ask]
    assert sorted({a for a in asked if asked.count(a) > 1}) == []


def test_a_yes_or_no_question_gets_no_instruction() -> None:
    found = find_ruling(read_asked("should I reset the GPU while the job runs?", False), {})
    assert found is not None
    assert found.say.startswith("Only if")
