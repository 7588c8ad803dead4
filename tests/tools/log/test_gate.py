from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row
from tests.tools.log.samples import HEALTHY, matching_lines, signature_set

from firstfault_tools.log.gate import VAIN_OPENINGS, GateBook, OpenGate, cut_tail
from firstfault_tools.log.literals import required_literals


@each_row(
    ("pattern", "literals"),
    [
        ("CUDA out of memory", {("CUDA out of memory", False)}),
        (r"\bDisk quota exceeded$", {("Disk quota exceeded", False)}),
        (
            r"(?:No space left|quota exceeded)",
            {("No space left", False), ("quota exceeded", False)},
        ),
        (r"(?i)segfault at \d+", {("segfault at ", True)}),
        (r"(?i:oom)-killer \d+", {("-killer ", False)}),
        (r"Caught (?:Index|Key)Error in", {("Caught Index", False), ("Caught Key", False)}),
        (r"(?:abcdefgh)*\d+", None),
        (r"(?:abcdefgh)+\d+", {("abcdefgh", False)}),
        (r"\d+ of \d+", None),
        (r"loss: \d+", None),
        (r"[Cc]heckpoint\w+ is broken now", {(" is broken now", False)}),
    ],
)
def test_literals_of_a_pattern(pattern: str, literals: set[tuple[str, bool]] | None) -> None:
    found = required_literals(pattern)
    assert (set(found) if found is not None else None) == literals


@settings(deadline=None)
@given(st.data())
def test_every_match_holds_a_literal(data: st.DataObject) -> None:
    """Soundness: whatever a pattern matches holds one of its literals."""
    pattern = data.draw(
        st.sampled_from([p for p in signature_set().patterns if required_literals(p) is not None])
    )
    try:
        text = data.draw(st.from_regex(re.compile(pattern, re.ASCII)))
    except (re.error, ValueError):
        return
    literals = required_literals(pattern)
    assert literals is not None
    assert any(
        (literal.lower() in text.lower()) if any_case else (literal in text)
        for literal, any_case in literals
    )


def test_gate_opens_for_every_sample() -> None:
    """No sample that a pattern matches is stopped, in whatever state the gate is."""
    signatures = signature_set()
    book = GateBook(signatures.patterns)
    opened = OpenGate(book)
    for line in HEALTHY * VAIN_OPENINGS:  # teaches the gate what is ordinary here
        raw = line.encode()
        while (place := opened.current.search(raw)) is not None:
            found = signatures.match(raw)
            before = (len(opened.settled), book.hot)
            opened.note_vain(raw[place[0] : place[1]], found.patterns if found else ())
            if (len(opened.settled), book.hot) == before:
                break
    missed = []
    for line in matching_lines():
        found = signatures.match(line.encode())
        if found is None or set(found.patterns) <= opened.settled:
            continue
        if opened.current.search(line.encode()) is None:
            missed.append(line)
    assert missed == []


def test_ordinary_lines_match_no_signature() -> None:
    """A failure or cause pattern that matches step lines costs every scan and raises false alarms."""
    signatures = signature_set()
    offending = {}
    for line in HEALTHY:
        found = signatures.match(line.encode())
        for index in found.signatures if found else ():
            signature = signatures.signatures[index]
            if signature.level.value not in ("benign", "context"):
                offending.setdefault(signature.id, []).append(line[:80])
    assert offending == {}


def test_gate_learns_what_is_ordinary() -> None:
    """After a few vain openings ordinary lines pass without a look."""
    signatures = signature_set()
    opened = OpenGate(GateBook(signatures.patterns))
    line = b"INFO checkpoint: PytorchStreamReader is idle, iteration   12/ 500 | lm loss: 2.0 |"
    for _ in range(200):
        place = opened.current.search(line)
        if place is None:
            break
        found = signatures.match(line)
        opened.note_vain(line[place[0] : place[1]], found.patterns if found else ())
    else:
        pytest.fail("the gate still opens for a line that told nothing 200 times")


@each_row(
    ("pattern", "tail"),
    [
        (r"(?i)\bscale\b.{0,60}?= ?0\b.{0,40}(?:nan|inf)\b", r"(?i)(?:nan|inf)\b"),
        (
            r"iteration +(?P<at>\d+) \|.*\bnorm: +(?P<value>nan|inf)\b",
            r"(?P<value>nan|inf)\b",
        ),
        (r"loss: (?:0\.0|nan)\b", None),  # 0.0 is an ordinary value
        (r"loss: (?:nan)", None),  # also the start of a word
        (r"norm (?:nan)\b|loss", None),
        (r"[(|] loss (?:nan)\b", r"(?:nan)\b"),
        (r"loss \d", None),
    ],
)
def test_end_of_a_pattern_that_wants_no_number(pattern: str, tail: str | None) -> None:
    assert cut_tail(pattern) == (pattern if tail is None else tail)


def test_every_match_holds_the_end() -> None:
    """Soundness of the quick look: no sample that a pattern matches is passed over for its end."""
    cut = [p for p in signature_set().patterns if cut_tail(p) != p]
    told = [(p, line) for line in matching_lines() for p in cut if re.search(p, line)]
    assert len(cut) > 2
    assert told
    assert [(p, line) for p, line in told if re.search(cut_tail(p), line) is None] == []
