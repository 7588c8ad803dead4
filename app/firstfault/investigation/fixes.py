"""Which fixes may be shown? Those of the finding's page, with a log quote and a page quote each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from firstfault.grounding.advice import objections, raises_timeout
from firstfault.investigation.citations import CitationBook
from firstfault.investigation.diagnosis import Fix
from firstfault.investigation.examination import Examination
from firstfault.investigation.headline import STEM
from firstfault.investigation.in_force import is_in_force
from firstfault.investigation.knowledge import Knowledge
from firstfault.investigation.scheduler import advised_for, keep_lines, suits
from firstfault.investigation.stack import FrameworkTable
from firstfault.investigation.verdict import ACCOUNTED
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Finding
from firstfault_tools.kind_pages import fix_of_kind
from firstfault_tools.knowledge.page import Fix as PageFix
from firstfault_tools.knowledge.page import FixKind, Page

MAX_IMMEDIATE, MAX_STRUCTURAL = 6, 3
LEAST_LABEL = 2
"""Words of a label that must all be found: one alone ("Loss", "Megatron") is in most logs."""

LEAST_SHARED, MUCH_MORE = 4, 4
"""Words of its own that a fix must share with the finding, and how many times more than the first of the page. Of
1,099 dev cases the first fix changes in 23: in 19 for the better, in 3 for the worse."""

MOST_COMPARED = 300
KIB_PER_GIB = 1 << 20
HEADROOM = 1.25
"""By how much a limit that was met is raised: what more would have been needed was never measured."""

_CAPTURE = expression(r"(?<![$\w])\{([a-z_]+)\}")
_LABEL = expression(r"([A-Z][A-Za-z0-9 -]{3,40}): ")
"""Words before a fix that say for which of the page's causes it is: `Evicted for storage: ...`."""

_WORD = expression(r"[A-Za-z][A-Za-z_]{3,}")
_COMMON = expression(
    r"(?i)(?:ranks?|with|from|that|this|which|than|same|have|been|where|other|between|before|after|until|every|into|each|"
    r"must|only|then|when|data|model|train|training|while|their|there|them|does|node|host|start|again)$"
)
"""Words that are in most fixes and tell nothing of a cause."""


def choose_fixes(
    examination: Examination,
    finding: Finding,
    knowledge: Knowledge,
    book: CitationBook,
    log_citations: Sequence[int],
    lines: str,
    schedulers: Sequence[str],
) -> tuple[Fix, ...]:
    """Fixes for one finding, none of another framework. Without a log citation or a page there are none.

    lines: what shows on what the job runs, as `stack.read_lines` gives it.
    """
    page = knowledge.pages.get(finding.page or "")
    if page is None or page.benign or not log_citations:
        return ()
    out: list[Fix] = []
    counts = {FixKind.IMMEDIATE: 0, FixKind.STRUCTURAL: 0}
    limits = {FixKind.IMMEDIATE: MAX_IMMEDIATE, FixKind.STRUCTURAL: MAX_STRUCTURAL}
    known = _values(finding)
    usable = [f for f in page.fixes if _values_known(f, known) and _is_for(f, schedulers)]
    # what holds anywhere comes before what is for a scheduler that nothing shows
    usable.sort(key=lambda f: not schedulers and bool(advised_for(f.text)))
    table = knowledge.frameworks
    owned = any(_owners(f, table) or table.has_heads(f.command or "") for f in usable)
    used = table.shown(lines) if owned else frozenset()
    fitting = list(_fitting(usable, used, table))
    ordered, named = put_named_first(fitting, finding, _named_fix(examination, finding))
    ordered, named = _put_last_in_force(ordered, named, lines)
    if named is None and page.settled:
        named = ordered[0] if ordered else None
    labels: set[str] = set()
    for fix in ordered:
        label = _LABEL.match(fix.text)
        if label is not None and label[1] in labels:
            continue
        if counts[fix.kind] >= limits[fix.kind]:
            continue
        if objections(fix.text, fix.command, knowledge.variables):
            continue
        number = book.cite_page(page, fix.heading, _quotable(fix.quote, page, fix.heading))
        if number is None:
            continue
        counts[fix.kind] += 1
        labels |= {label[1]} if label is not None else set()
        out.append(
            Fix(
                text=_fill(fix.text, known),
                kind=fix.kind.value,
                changes_state=fix.changes_state,
                citations=(log_citations[0], number),
                command=_fill(fix.command, known) if fix.command else None,
                own=fix is named,
                shown=fix is named and fix.text.startswith(finding.text(Fact.FIX) or "\0"),
                worked_if=_fill(fix.worked_if, known),
            )
        )
    out.sort(key=lambda f: (f.kind == FixKind.STRUCTURAL.value, raises_timeout(f.text)))
    return tuple(out)


def _put_last_in_force(
    fixes: list[PageFix], named: PageFix | None, lines: str
) -> tuple[list[PageFix], PageFix | None]:
    """What the run has set already helps nobody: it comes after the others, and is no fix of this mechanism."""
    first = named or (fixes[0] if fixes else None)
    if first is None or not is_in_force(first.command or "", lines):
        return fixes, named
    head, label, _ = first.text.partition(": ")
    left = [f for f in fixes if f is not first]
    kin = [f for f in left if label and f.text.startswith(f"{head}: ")]
    return [*kin, *(f for f in left if f not in kin), first], kin[0] if kin else None


def _is_for(fix: PageFix, schedulers: Sequence[str]) -> bool:
    """Words and command of the fix can be followed on what the job runs on."""
    left = not fix.command or keep_lines(fix.command, schedulers) != ""
    return left and suits(fix.text, schedulers)


def _fitting(
    fixes: Sequence[PageFix], used: Collection[str], table: FrameworkTable
) -> Iterator[PageFix]:
    """Those of no framework or of the run's own, in the order of the page; what is of a fabric or framework that
    nothing shows comes after what holds on any."""
    fitting = [(fix, of) for fix in fixes if table.fits(of := _owners(fix, table), used)]
    fitting.sort(key=lambda pair: bool(pair[1]) and not pair[1] & set(used))
    for fix, _ in fitting:
        yield (
            replace(fix, command=table.keep_lines(fix.command, used) or None)
            if fix.command and table.has_heads(fix.command)
            else fix
        )


def _owners(fix: PageFix, table: FrameworkTable) -> frozenset[str]:
    """Whose advice it is; a command with lines for several is everybody's."""
    command = fix.command or ""
    return table.owners(fix.text if table.has_heads(command) else f"{fix.text}\n{command}")


def put_named_first(
    fixes: Sequence[PageFix], finding: Finding, begins: str = ""
) -> tuple[list[PageFix], PageFix | None]:
    """The fixes with that one first which is of what was found, and that one where there is one.

    A page holds fixes for several causes of one kind; its order tells which is the commonest, not which is this one.
    Labels that the finding bears out in full come before what the data of its kind name (begins: how that fix begins),
    and this before a fix whose own words, which no other of the page uses, the finding shares. What accounts for a
    finding lies deeper than what it says itself, unless its kind names the fix.
    """
    now = [fix for fix in fixes if fix.kind is FixKind.IMMEDIATE]
    itself, _, deeper = finding.title.partition(ACCOUNTED)
    labels = [(fix, words) for fix in now if len(words := _label(fix)) >= LEAST_LABEL]
    labelled = [fix for fix, words in labels if words <= _told(finding, itself)]
    if deeper and not begins:
        labelled = [fix for fix, words in labels if words <= _stems(deeper)] or labelled
    if begins and (finding.text(Fact.FIX) or not labelled):
        labelled = [f for f in now if f.text.startswith(begins)][:1]
    if labelled:
        return [*labelled, *(fix for fix in fixes if fix not in labelled)], labelled[0]
    named = _find_shared(now, finding)
    if named is None:
        return list(fixes), None
    return [named, *(fix for fix in fixes if fix is not named)], named


def _find_shared(fixes: Sequence[PageFix], finding: Finding) -> PageFix | None:
    """The fix whose own words the finding shares, where these are many more than those of the first."""
    told = [_stems(fix.text) for fix in fixes]
    quoted = finding.evidence[0].text[:MOST_COMPARED] if finding.evidence else ""
    found = _stems(f"{finding.title} {quoted}")
    uses = Counter(word for words in told for word in words)
    shares = [sum(1 for word in words & found if uses[word] == 1) for words in told]
    most = max(shares, default=0)
    if most < LEAST_SHARED or most < MUCH_MORE * shares[0]:
        return None
    return fixes[shares.index(most)]


def _named_fix(examination: Examination, finding: Finding) -> str:
    """How the fix begins that the finding itself, its signature, or the table of kinds names."""
    if shown := finding.text(Fact.FIX):
        return shown
    wanted = finding.kind.removeprefix("signature.")
    if wanted == finding.kind:
        return fix_of_kind(finding.kind)
    known = examination.logs.signatures.find(wanted)
    return known.fix if known is not None else ""


def has_label(text: str) -> bool:
    """The fix says for which of its page's causes it is."""
    return _LABEL.match(text) is not None


def _label(fix: PageFix) -> set[str]:
    found = _LABEL.match(fix.text)
    return _stems(found[1]) if found is not None else set()


def _told(finding: Finding, title: str) -> set[str]:
    """Words of all that the finding says of itself: its sentence, its lines, and the names it took out of them."""
    facts = " ".join(v for v in finding.facts.values() if isinstance(v, str))
    lines = " ".join(e.text[:MOST_COMPARED] for e in finding.evidence)
    return _stems(f"{title} {lines} {facts}")


def _stems(text: str) -> set[str]:
    words = (word for token in _WORD.findall(text) for word in token.split("_"))
    return {w.lower()[:STEM] for w in words if len(w) >= STEM - 2 and not _COMMON.match(w)}


def _quotable(quote: str, page: Page, heading: str) -> str:
    """The fix's own sentence as it stands on the page."""
    return quote if page.section(heading) is not None else ""


def _values(finding: Finding) -> dict[str, str]:
    """What the incident says for {captures} of a page, with what follows from a limit that was met."""
    values = {k: str(v) for k, v in finding.facts.items() if isinstance(v, (str, int)) and v != ""}
    limit = finding.whole(Fact.LIMIT_KIB)
    if limit:
        gib = limit / KIB_PER_GIB
        values |= {"limit_gib": f"{gib:g}", "more_gib": f"{math.ceil(gib * HEADROOM)}"}
    return values


def _values_known(fix: PageFix, values: Mapping[str, str]) -> bool:
    """Every value that the fix names is known: one with a blank in it is no advice."""
    return set(_CAPTURE.findall(f"{fix.text}\n{fix.command or ''}")) <= values.keys()


def _fill(text: str, values: Mapping[str, str]) -> str:
    """{captures} in a page's fix become the incident's values."""
    return _CAPTURE.sub(lambda m: values.get(m[1], m[0]), text)
