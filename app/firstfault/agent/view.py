"""What of an incident does the model see at first? A bounded view: verdict, chain, windows, counts.

Logs are never sent whole and never summarised by a model. What is left out is counted, and the tools
read it on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from firstfault.agent.context import CHARS_PER_TOKEN, TurnContext
from firstfault.agent.dialogue import Dialogue, describe
from firstfault.agent.untrusted import make_plain, make_plain_block
from firstfault.investigation.diagnosis import CitationKind, Diagnosis
from firstfault_tools.log.window import read_window

AROUND = 3
MAX_WINDOWS = 6
SHARE = 0.4
"""Share of the context that the view may take."""


def read_prompt(name: str) -> str:
    """Text of one prompt file."""
    return files("firstfault.agent").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


def write_view(context: TurnContext, dialogue: Dialogue) -> str:
    """The incident as the first message, fenced as data."""
    limit = int(context.endpoint.limits.context_tokens * CHARS_PER_TOKEN * SHARE)
    out: list[str] = []
    used = 0
    left_out = 0
    for block in _blocks(context, dialogue):
        if used + len(block) > limit:
            left_out += 1
            continue
        out.append(block)
        used += len(block) + 2
    if left_out:
        out.append(f"({left_out} more blocks left out to keep this short; the tools show them)")
    return "<data>\n" + "\n\n".join(out) + "\n</data>"


def _blocks(context: TurnContext, dialogue: Dialogue) -> Iterator[str]:
    diagnosis = context.question.diagnosis
    hide = context.veil.hide
    if diagnosis is None:
        yield "No evidence was given; there is only the question."
    else:
        yield hide(_verdict(diagnosis))
        yield "Evidence of the diagnosis:\n" + "\n".join(
            context.show(context.book.items[f"E{c.n}"]) for c in diagnosis.citations
        )
        yield from _chain(context, diagnosis)
        yield hide(_rest(diagnosis))
    names = [
        f"F{n} {hide(make_plain(name, 120))}"
        for n, name in enumerate(context.question.artefacts, 1)
    ]
    if names:
        more = f"\n({len(names) - 40} more)" if len(names) > 40 else ""
        yield "Files:\n" + "\n".join(names[:40]) + more
    yield hide("State of the investigation:\n" + describe(dialogue))
    if context.related:
        yield hide(
            "Earlier incidents:\n" + "\n".join(
                f"- {make_plain(r.title, 120)}: {make_plain(r.root_cause, 160)}"
                + (" (same host)" if r.same_host else "")
                + (" (same GPU)" if r.same_gpu else "")
                + (" (same fault)" if r.same_signature else "")
                for r in context.related[:6]
            )
        )  # fmt: skip
    for exchange in context.question.earlier[-3:]:
        yield hide(
            f"Asked before: {make_plain(exchange.question, 400)}\n"
            f"Answered: {make_plain_block(exchange.answer, 1_200)}"
        )
    if diagnosis is not None:
        yield from _windows(context, diagnosis)


def _verdict(diagnosis: Diagnosis) -> str:
    where = [
        f"rank {diagnosis.first_failing_rank}" if diagnosis.first_failing_rank is not None else "",
        f"host {diagnosis.host}" if diagnosis.host else "",
        f"GPU {diagnosis.gpu}" if diagnosis.gpu else "",
    ]
    main = diagnosis.hypotheses[0].for_ if diagnosis.hypotheses else ()
    category = diagnosis.category.value if diagnosis.category else "none"
    return (
        f"Published verdict: {diagnosis.verdict.value}; category {category}; "
        f"confidence {diagnosis.confidence.value}; at {', '.join(w for w in where if w) or 'no single place'}\n"
        f"Cause: {make_plain(diagnosis.root_cause)}\n"
        f"It stands on: {', '.join(f'E{n}' for n in main) or 'nothing quotable'}\n"
        f"It would be wrong if: {make_plain(diagnosis.disproof)}"
    )


def _chain(context: TurnContext, diagnosis: Diagnosis) -> Iterator[str]:
    lines = []
    for link in diagnosis.cascade[:16]:
        if link.file and link.line:
            item = context.book.add_line(link.file, link.line, link.text)
            lines.append(f"{link.role.value}: {context.show(item)}")
    if lines:
        yield "Chain of events:\n" + "\n".join(lines)


def _rest(diagnosis: Diagnosis) -> str:
    receipt = diagnosis.input
    seen = len(receipt.ranks_seen)
    missing = [
        r for r in range(min(receipt.world_size or 0, 4_096)) if r not in set(receipt.ranks_seen)
    ]
    parts = [
        f"Read: {receipt.lines_read} of {receipt.lines_total} lines, {len(receipt.files)} file(s); "
        f"{seen} rank(s) seen" + (f" of {receipt.world_size}" if receipt.world_size else "")
        + (f"; not seen: {', '.join(map(str, missing[:16]))}" if seen and missing else ""),
    ]  # fmt: skip
    parts += [
        f"Other cause in play: {make_plain(h.root_cause)} ({h.confidence.value}; for "
        f"{', '.join(f'E{n}' for n in h.for_)})"
        for h in diagnosis.hypotheses[1:]
    ]
    parts += [f"Fix shown already: {make_plain(f.text, 240)}" for f in diagnosis.fixes[:6]]
    parts += [f"Asked for already: {make_plain(a.what, 160)}" for a in diagnosis.next_artefacts]
    return "\n".join(parts)


def _windows(context: TurnContext, diagnosis: Diagnosis) -> Iterator[str]:
    done: set[tuple[str, int]] = set()
    for citation in diagnosis.citations:
        if len(done) >= MAX_WINDOWS:
            return
        path = context.question.artefacts.get(citation.file or "")
        if citation.kind is not CitationKind.LOG or path is None or not citation.line:
            continue
        if any(f == citation.file and abs(n - citation.line) <= AROUND for f, n in done):
            continue
        done.add((citation.file or "", citation.line))
        rows = read_window(path, citation.line - AROUND, citation.line + AROUND)
        items = [context.book.add_line(citation.file or "", n, t) for n, t in rows if t.strip()]
        yield f"Around E{citation.n}:\n" + "\n".join(context.show(i) for i in items)
