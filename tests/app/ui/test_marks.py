"""Text becomes HTML without becoming markup, and numbers become links."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from firstfault.investigation.diagnosis import Citation, CitationKind
from firstfault.ui.marks import link_mark, mark_text, render_markdown, split_fences

CITATIONS = {
    1: Citation(1, CitationKind.LOG, "boom", file='a"b<.log', line=3),
    2: Citation(2, CitationKind.PAGE, "why", page="cuda-out-of-memory", heading="Fix now"),
}
TAGS = re.compile(r"<(/?[a-zA-Z][^\s>/]*)")


def test_a_number_opens_its_source() -> None:
    assert 'href="#src-1"' in mark_text("it broke [1]", CITATIONS)
    assert "ff-mark-page" in link_mark(2, CITATIONS)


def test_a_number_without_source_says_nothing() -> None:
    assert mark_text("it broke [9]", CITATIONS) == "it broke "


def test_names_in_labels_cannot_close_the_attribute() -> None:
    assert 'a"b<' not in link_mark(1, CITATIONS)


@given(st.text(alphabet=st.sampled_from("<>&\"'/`[]1= abscript"), max_size=80))
def test_plain_text_brings_no_tags(text: str) -> None:
    assert set(TAGS.findall(mark_text(text, CITATIONS))) <= {"a", "/a", "code", "/code"}


@given(st.text(alphabet=st.sampled_from("<>&\"'/`[]()!1=:- \nabscriptjonerr"), max_size=120))
def test_markdown_brings_no_script_and_no_handlers(text: str) -> None:
    shown = render_markdown(text, CITATIONS)
    assert not {"script", "style", "iframe", "object"} & {t.lower() for t in TAGS.findall(shown)}
    assert not re.search(r"<[^>]+\son\w+=", shown)
    assert 'href="javascript:' not in shown.lower()


def test_commands_are_cut_out_of_an_answer() -> None:
    pieces = list(split_fences("Do this:\n\n```bash\ndmesg -T\n```\n\nand look."))
    assert pieces == [("Do this:\n\n", False), ("dmesg -T", True), ("\n\nand look.", False)]
