"""What of an incident does the model see at first? Small logs whole, long ones by the lines that decide.

Every line stands once; whatever else speaks of it names it by its id. What is left out is counted, and
the tools read it on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from firstfault.agent.context import CHARS_PER_TOKEN, TurnContext
from firstfault.agent.selection import choose_lines
from firstfault.agent.tools.knowledge import search
from firstfault.agent.untrusted import make_plain, make_plain_block
from firstfault.conversation.walk import Walk
from firstfault.grounding.items import Item
from firstfault.investigation.diagnosis import CitationKind, Diagnosis
from firstfault_tools.expressions import expression
from firstfault_tools.hardware.bus import call_gpu
from firstfault_tools.log.window import read_window

WHOLE_BYTES = 12_000
"""Logs of an incident are shown whole up to this size, all together."""
SHARE = 0.4
"""Share of the context that the lines of the logs may take."""
MAX_FILES, LEAST_ROOM = 40, 500
MAX_PAGES, MAX_FIXES = 4, 7
MOST_TOLD = 2_400
"""Characters of an answer by rule that the model sees."""
_CARETS = expression(r"^(?:\[[^\]]{1,20}\]:?)?[\s^~=_*#-]{1,400}$")
"""Rulers and the marks below a line of source: they say nothing that the lines do not."""
_MARKS = expression(r"\s?\[\d{1,3}\]")


def read_prompt(name: str) -> str:
    """Text of one prompt file."""
    return files("firstfault.agent").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


def shows_whole(context: TurnContext) -> bool:
    """Every line of the incident's logs fits into the first message."""
    paths = [p for p in context.question.artefacts.values() if is_text(p)]
    return sum(p.stat().st_size for p in paths) <= min(WHOLE_BYTES, _room(context))


def is_text(path: Path) -> bool:
    """The file holds lines that a person could read."""
    with path.open("rb") as stream:
        return b"\0" not in stream.read(4_096)


def write_view(context: TurnContext, walk: Walk) -> str:
    """The incident as the first message, fenced as data."""
    blocks = [b for b in _blocks(context, walk) if b]
    return "<data>\n" + "\n\n".join(blocks) + "\n</data>"


def write_told(context: TurnContext, texts: Sequence[str]) -> str:
    """What rules answer, and where there is no incident the passages that may hold the answer."""
    item = context.book.add_rules(_MARKS.sub("", "\n".join(texts))[:MOST_TOLD])
    context.book.show([item])
    text = context.veil.hide(make_plain_block(item.text))
    blocks = [f"{read_prompt('instead')}\n<data>\n{item.id} | {text}\n</data>"]
    if context.question.diagnosis is None:
        blocks.append(search(context, context.question.text[:300])[0])
    return "\n\n".join(blocks)


def _room(context: TurnContext) -> int:
    return int(context.endpoint.limits.context_tokens * CHARS_PER_TOKEN * SHARE)


def _blocks(context: TurnContext, walk: Walk) -> Iterator[str]:
    diagnosis = context.question.diagnosis
    hide = context.veil.hide
    yield from _write_logs(context)
    if diagnosis is None:
        yield "No evidence was given; there is only the question."
    else:
        yield hide(_write_reading(context, diagnosis))
        yield context.veil.cover(_write_fixes(diagnosis))
        yield _write_pages(context, diagnosis)
    said = [
        f"The person {f'answered ({x.phase.value})' if x.phase is not None else 'says'}: {make_plain(x.text, 300)}"
        for x in walk.statements[-4:]
    ]
    yield hide("\n".join(said))
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
            f"Answered: {make_plain_block(_shorten(_MARKS.sub('', exchange.answer)))}"
        )


def _shorten(text: str, most: int = 1_800) -> str:
    """Beginning and end: the rules speak first and the model last."""
    return text if len(text) <= most else f"{text[: most // 3]}\n…\n{text[-2 * most // 3 :]}"


def _write_logs(context: TurnContext) -> Iterator[str]:
    named = list(context.question.artefacts.items())
    text = [(name, path) for name, path in named if is_text(path)]
    whole = shows_whole(context)
    room = max(LEAST_ROOM, min(WHOLE_BYTES, _room(context)) // max(1, len(text)))
    cited = _cited_lines(context.question.diagnosis)
    for name, path in named[:MAX_FILES]:
        head = f"{context.alias(name)} {context.veil.hide(make_plain(name, 120))}"
        if (name, path) not in text:
            yield f"{head}: {path.stat().st_size} bytes, not text; what tools read in it stands below"
            continue
        rows = [(n, t, 0) for n, t in read_window(path, 1, 2_000)] if whole else [(c.line, c.text, c.alike) for c in choose_lines(path, cited.get(name, ()), room)]  # fmt: skip
        lines = []
        items: list[Item] = []
        for number, line, alike in rows:
            if not line.strip() or _CARETS.match(line):
                continue
            items.append(context.book.add_line(name, number, line))
            more = f" [+{alike} lines like this one]" if alike > 0 else ""
            lines.append(f"{number} {context.veil.hide(make_plain(line))}{more}")
        context.book.show(items)
        how = "whole" if whole else f"{len(lines)} lines chosen of {path.stat().st_size} bytes; grep and window read the rest"  # fmt: skip
        yield f"{head} ({how}):\n" + "\n".join(lines)
    if len(named) > MAX_FILES:
        yield f"({len(named) - MAX_FILES} more files; overview lists them)"


def _cited_lines(diagnosis: Diagnosis | None) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    if diagnosis is None:
        return out
    places = [(c.file, c.line) for c in diagnosis.citations if c.kind is CitationKind.LOG]
    places += [(link.file, link.line) for link in diagnosis.cascade[:16]]
    for file, line in places:
        if file and line:
            out.setdefault(file, []).append(line)
    return out


def _write_reading(context: TurnContext, diagnosis: Diagnosis) -> str:
    """What tools concluded, by ids wherever a line already stands above."""
    ids = context.book.by_citation

    def named(numbers: tuple[int, ...]) -> str:
        return ", ".join(ids[n] for n in numbers if n in ids and "#" not in ids[n]) or "no line"

    where = [
        diagnosis.place if diagnosis.place != diagnosis.host else f"host {diagnosis.host}",
        call_gpu(diagnosis.gpu),
    ]
    main = diagnosis.hypotheses[0].for_ if diagnosis.hypotheses else ()
    category = diagnosis.category.value if diagnosis.category else "none"
    rows = [
        f"Reading of the tools: {diagnosis.verdict.value}, {category}, {diagnosis.confidence.value}, "
        f"{', '.join(w for w in where if w) or 'no single place'}: {make_plain(diagnosis.root_cause, 400)} "
        f"(stands on {named(main)})"
    ]
    rows += [
        f"Other cause in play: {make_plain(h.root_cause, 240)} ({h.confidence.value}; {named(h.for_)})"
        for h in diagnosis.hypotheses[1:4]
    ]
    rows += _write_results(context)
    receipt = diagnosis.input
    if receipt.world_size:
        seen = set(receipt.ranks_seen)
        missing = [r for r in range(min(receipt.world_size, 4_096)) if r not in seen]
        rows.append(
            f"Ranks that speak: {len(seen)} of {receipt.world_size}"
            + (f"; silent: {', '.join(map(str, missing[:16]))}" if seen and missing else "")
        )
    rows += [f"Not read: {make_plain(s.what, 80)} ({make_plain(s.why, 100)})" for s in receipt.skipped[:5]]  # fmt: skip
    return "\n".join(rows)


def _write_fixes(diagnosis: Diagnosis) -> str:
    """Fixes that are shown, by number. Their words are those of public pages."""
    return "\n".join(
        f"Fix {n} shown: {_cut_words(f.text)}" for n, f in enumerate(diagnosis.fixes[:MAX_FIXES], 1)
    )


def _cut_words(text: str, most: int = 130) -> str:
    plain = make_plain(text, 1_000)
    return plain if len(plain) <= most else plain[:most].rsplit(" ", 1)[0] + " …"


def _write_results(context: TurnContext) -> list[str]:
    """Findings of the tools that stand in no line of a log."""
    out, items = [], []
    for identity in dict.fromkeys(context.book.by_citation.values()):
        item = context.book.items[identity]
        shown = context.book.find(identity) is not None
        if "#" in identity or shown or not item.text.strip():
            continue
        items.append(item)
        out.append(context.show(item)[:500])
    context.book.show(items)
    return out


def _write_pages(context: TurnContext, diagnosis: Diagnosis) -> str:
    """Pages that may describe the cause: titles only; `read_page` reads them."""
    wanted = f"{context.question.text[:300]} {diagnosis.root_cause}"
    known = context.question.knowledge.pages
    ids = [c.page for c in diagnosis.citations if c.page]
    ids += [f.page for f in context.search(wanted, MAX_PAGES)]
    rows = [
        f"- {page}: {known[page].title} ({known[page].category.value if known[page].category else 'method'})"
        for page in list(dict.fromkeys(ids))[: MAX_PAGES + 1]
        if page in known
    ]
    return "Pages that may fit:\n" + "\n".join(rows) if rows else ""
