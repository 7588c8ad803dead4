"""What does a careful investigator write down? Hypotheses with for, against and test; whys; echoes.

All of it by rule from the diagnosis, so it is there without a model too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstfault.agent.dialogue import Dialogue
from firstfault.incidents.verdicts import say_related
from firstfault.investigation.diagnosis import ChainRole, Diagnosis
from firstfault.investigation.knowledge import Knowledge
from firstfault_tools.findings import Confidence, Verdict

if TYPE_CHECKING:
    from firstfault.incidents.records import Related


@dataclass(frozen=True, slots=True)
class HypothesisRow:
    """One cause on the board. Numbers are citations of the diagnosis; `said` is the person's word on it."""

    cause: str
    confidence: Confidence
    for_: tuple[int, ...]
    against: tuple[int, ...]
    test: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """One step down. `citations` empty and `open` True where the evidence stops."""

    question: str
    answer: str
    citations: tuple[int, ...]
    open: bool = False


def list_hypotheses(diagnosis: Diagnosis, dialogue: Dialogue) -> tuple[HypothesisRow, ...]:
    """The board, best first; what a person ruled out is marked, never dropped."""
    tests = [f"{a.what}: {a.command}" for a in diagnosis.next_artefacts]
    out = []
    for place, hypothesis in enumerate(diagnosis.hypotheses):
        said = next(
            (c.text for c in dialogue.corrections if hypothesis.category in c.categories), ""
        )
        test = (
            diagnosis.disproof if place == 0 else (tests[(place - 1) % len(tests)] if tests else "")
        )
        out.append(
            HypothesisRow(
                hypothesis.root_cause, hypothesis.confidence, hypothesis.for_, hypothesis.against, test, said
            )
        )  # fmt: skip
    return tuple(out)


def ask_whys(diagnosis: Diagnosis, knowledge: Knowledge) -> tuple[Why, ...]:
    """From what people saw to the first fault and, where a page quote says so, beneath it.

    Each answer carries a citation. The first one without ends the chain: it says what to collect.
    """
    if diagnosis.verdict not in (Verdict.FAULT, Verdict.WARNING) or not diagnosis.hypotheses:
        return ()
    main = diagnosis.hypotheses[0]
    by_place = {(c.file, c.line): c.n for c in diagnosis.citations if c.line}
    out: list[Why] = []
    seen = [link for link in diagnosis.cascade if link.role is not ChainRole.INITIATING]
    for link in (
        *[x for x in seen if x.role is ChainRole.TEARDOWN][:1],
        *[x for x in seen if x.role is ChainRole.CASCADE][:1],
    ):
        number = by_place.get((link.file, link.line))
        if number is not None:
            who = f"rank {link.rank}" if link.rank is not None else "the launcher"
            asked = "Why did the run end?" if not out else f"Why did {who} report this?"
            out.append(Why(asked, " ".join(link.text.split())[:240], (number,)))
    if main.for_:
        asked = f"Why did that happen{f' on rank {diagnosis.first_failing_rank}' if diagnosis.first_failing_rank is not None else ''}?"
        out.append(Why(asked, diagnosis.root_cause, main.for_[:2]))
    page = _page_quote(diagnosis, knowledge)
    if page is not None and main.confidence in (Confidence.CONFIRMED, Confidence.LIKELY):
        out.append(Why("Why can that happen?", page[0], (page[1],)))
    ask = diagnosis.next_artefacts[0] if diagnosis.next_artefacts else None
    last = (
        f"The evidence stops here. Collect: {ask.what} (`{ask.command}`)."
        if ask is not None
        else "The evidence stops here; what lies beneath is known to those who set the run up."
    )
    out.append(Why("And why was that so?", last, (), True))
    return tuple(out[:5]) if out[-1] in out[:5] else (*out[:4], out[-1])


def find_echoes(diagnosis: Diagnosis, related: Sequence[Related]) -> str:
    """One sentence on earlier incidents; empty when there are none."""
    return say_related(tuple(related), diagnosis)


def write_board(diagnosis: Diagnosis, dialogue: Dialogue, knowledge: Knowledge) -> str:
    """Board and whys as Markdown; marks are the diagnosis' own numbers."""
    rows = []
    for row in list_hypotheses(diagnosis, dialogue):
        marks = "".join(f"[{n}]" for n in row.for_) or "nothing quotable"
        against = "".join(f"[{n}]" for n in row.against)
        rows.append(
            f"- **{row.confidence.value}**: {row.cause}; for {marks}"
            + (f"; against {against}" if against else "")
            + (f"; you said: {row.said}" if row.said else "")
            + (f". Test: {row.test}" if row.test else ".")
        )
    whys = [
        f"{n}. {w.question} {w.answer} {''.join(f'[{c}]' for c in w.citations)}".rstrip()
        for n, w in enumerate(ask_whys(diagnosis, knowledge), 1)
    ]
    parts = ["**Hypotheses**\n\n" + "\n".join(rows)] if rows else []
    parts += ["**Five whys**\n\n" + "\n".join(whys)] if whys else []
    return "\n\n".join(parts)


def _page_quote(diagnosis: Diagnosis, knowledge: Knowledge) -> tuple[str, int] | None:
    for citation in diagnosis.citations:
        if citation.page and citation.page in knowledge.pages:
            page = knowledge.pages[citation.page]
            if citation.heading in ("", None, page.title):
                return citation.quote, citation.n
    return None
