"""What followed the first fault, line by line and rank by rank? The chain of events of a verdict.

Of each kind of message a few lines come first; then one line of every further rank that says the same, so that what
counts or draws the ranks has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from firstfault.investigation.diagnosis import ChainLink, ChainRole
from firstfault.investigation.examination import Examination
from firstfault.investigation.verdict import Judgement
from firstfault_tools.causality.attribution import rank_of
from firstfault_tools.findings import Evidence, Finding, Level
from firstfault_tools.log.digest import Hit

MOST_LINKS, MOST_OF_A_KIND = 24, 3
MOST_RANKS = 64
"""Further ranks of which a line is kept; all of them are counted."""

MOST_TEXT = 400


def link_events(examination: Examination, judgement: Judgement) -> tuple[ChainLink, ...]:
    """The lines of the chain: the first fault, what followed from it, and the shutdown."""
    chain, lead = examination.chain, judgement.finding
    if lead is not None and lead.level is Level.BENIGN:
        return ()
    leads = lead is not None and chain.first is not None and lead.kind == chain.first.kind
    told = [_link(e, ChainRole.INITIATING) for e in _odd(lead)[:1]] if leads and lead else []
    own = {(link.file, link.line) for link in told}
    later = [(f, role) for role, findings in _followed(examination) for f in findings]
    for finding, role in later:
        told += [
            _link(e, role) for e in _odd(finding)[:MOST_OF_A_KIND] if (e.file, e.line) not in own
        ]
    told = told[:MOST_LINKS]
    seen = {(link.rank, link.role) for link in told}
    more: list[ChainLink] = []
    for finding, role in later:
        for evidence in _of_each_rank(examination, finding):
            if (evidence.rank, role) not in seen and (evidence.file, evidence.line) not in own:
                seen.add((evidence.rank, role))
                more.append(_link(evidence, role))
    return (*told, *more[:MOST_RANKS])


def list_followers(examination: Examination, own: int | None) -> tuple[int, ...]:
    """All ranks that report what followed from the fault, without the one at fault."""
    found: set[int] = set()
    for finding in examination.chain.cascade:
        ranks = finding.facts.get("ranks") if finding.kind.startswith("signature.") else None
        found |= {r for r in ranks if isinstance(r, int)} if isinstance(ranks, list) else set()
        found |= {e.rank for e in _odd(finding) if e.rank is not None}
    return tuple(sorted(found - {own}))


def _followed(examination: Examination) -> Iterable[tuple[ChainRole, Sequence[Finding]]]:
    yield ChainRole.CASCADE, examination.chain.cascade
    yield ChainRole.TEARDOWN, examination.chain.teardown


def _odd(finding: Finding | None) -> list[Evidence]:
    """What a finding quotes of the trouble itself: rows to compare with are no part of the chain."""
    return [e for e in finding.evidence if not e.usual] if finding is not None else []


def _of_each_rank(examination: Examination, finding: Finding) -> list[Evidence]:
    """The first line of every rank that matched the finding's signature."""
    known = examination.logs.signatures.signatures
    first: dict[int, Hit] = {}
    for digest in examination.logs.digests:
        for hit in digest.hits:
            if finding.kind != f"signature.{known[hit.index].id}":
                continue
            rank = rank_of(examination.logs, hit.line)
            if rank is not None:
                first.setdefault(rank, hit)
    return [replace(hit.line.evidence(), rank=rank) for rank, hit in sorted(first.items())]


def _link(evidence: Evidence, role: ChainRole) -> ChainLink:
    return ChainLink(evidence.rank, evidence.line, role, evidence.text[:MOST_TEXT], evidence.file)
