"""What is the first fault, in one sentence, and how sure is that? The card everything else supports."""

from __future__ import annotations

from html import escape

from firstfault.investigation.diagnosis import Diagnosis
from firstfault.ui.marks import icon, link_marks, mark_text, sentence
from firstfault.ui.words import CONFIDENCE, HEALTHY_CONFIDENCE, VERDICTS, name_category
from firstfault_tools.findings import Verdict

LONG_CAUSE = 150


def write_verdict(diagnosis: Diagnosis) -> str:
    """The card as HTML."""
    look = VERDICTS[diagnosis.verdict]
    citations = {c.n: c for c in diagnosis.citations}
    cause = diagnosis.root_cause
    rest = diagnosis.explanation
    marks = ""
    if rest.startswith(cause):
        rest = rest[len(cause) :].lstrip()
        taken = 0
        while rest[taken : taken + 1] == "[" and "]" in rest[taken:]:
            taken = rest.index("]", taken) + 1
        marks, rest = mark_text(rest[:taken], citations), rest[taken:].lstrip(" .")
    elif diagnosis.hypotheses:
        marks = link_marks(diagnosis.hypotheses[0].for_[:3], citations)
    size = ' class="long"' if len(cause) > LONG_CAUSE else ""
    category = name_category(diagnosis.category) if diagnosis.verdict is not Verdict.HEALTHY else ""
    why = f'<p class="why">{mark_text(rest, citations)}</p>' if rest.strip() else ""
    return (
        f'<section class="ff ff-verdict {look.tone}" aria-label="Verdict">'
        f'<div class="top"><span class="word">{icon(look.icon)} {look.word}</span>'
        f'<span class="cat">{escape(category)}</span></div>'
        f"<h2{size}>{mark_text(sentence(cause), citations)}{marks}</h2>{why}"
        f"{_confidence(diagnosis)}{_facts(diagnosis)}</section>"
    )


def _confidence(diagnosis: Diagnosis) -> str:
    reason = CONFIDENCE[diagnosis.confidence]
    if diagnosis.verdict is Verdict.HEALTHY:
        reason = HEALTHY_CONFIDENCE
    rivals = len(diagnosis.hypotheses) - 1
    if rivals > 0:
        reason += f"; {rivals} other explanation{'s are' if rivals > 1 else ' is'} weighed below"
    word = diagnosis.confidence.value.capitalize()
    return f'<p class="conf"><b>{word}</b>: {escape(reason)}.</p>'


def _facts(diagnosis: Diagnosis) -> str:
    rows: list[tuple[str, str, bool]] = []
    if diagnosis.first_failing_rank is not None:
        rows.append(("First failing rank", str(diagnosis.first_failing_rank), False))
    if diagnosis.host:
        rows.append(("Host", diagnosis.host, False))
    if diagnosis.gpu:
        rows.append(("GPU", diagnosis.gpu, False))
    if diagnosis.first_line is not None:
        line = diagnosis.first_line
        rows.append(("First line", f"{line.file}:{line.line}" if line.line else line.file, True))
    if diagnosis.signature and diagnosis.verdict is not Verdict.HEALTHY:
        rows.append(("Recognised by", diagnosis.signature, True))
    if not rows:
        return ""
    items = "".join(
        f"<div><dt>{name}</dt><dd{' class=mono' if mono else ''}>{escape(value)}</dd></div>"
        for name, value, mono in rows
    )
    return f'<dl class="ff-facts">{items}</dl>'
