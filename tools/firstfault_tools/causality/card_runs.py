"""Does a fault follow one physical GPU from run to run, whichever rank sits on it?

An illegal access or an internal error of a library is the program's own as a rule: it strikes whoever
runs that code. Where the cards were given to the ranks in another order and the fault moved with one
card, the card is broken, not the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level
from firstfault_tools.log.digest import FileDigest
from firstfault_tools.log.prefix import read_prefix

KIND = "hardware.fault_follows_gpu"
PAGE = "gpu-drain-reset-replace"
MOST_LINES = 20_000

_ORDER = expression(
    r"\b(?:CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES)['\"]?\s*[=:]\s*['\"]?(?P<list>\d{1,2}(?:,\s?\d{1,2})+)"
)
_FAULT = expression(
    r"(?i)CUDA error|cuDNN error|CUBLAS_STATUS_|CUDNN_STATUS_|illegal memory access|misaligned address|unspecified launch failure|"
    r"uncorrectable|hardware (?:stack|exception)|HIP error|NaN detected|mismatch in (?:check|result)"
)
_DEVICE = expression(r"(?i)\b(?:local[_ ]rank|cuda:|gpu|device)[ :=]{0,2}(?P<device>\d{1,2})\b")
_LOSS = expression(r"\bloss\b['\"]?\s*[:=]?\s*\d")
_PROGRAMS = (Category.CODE_BUG, None)


@dataclass(frozen=True, slots=True)
class Run:
    """One launch: its cards in the order of the ranks, the rank that failed first, whether steps were made."""

    cards: tuple[int, ...]
    place: Evidence
    rank: int | None = None
    fault: Evidence | None = None
    steps: int = 0

    @property
    def card(self) -> int | None:
        if self.rank is None or self.rank >= len(self.cards):
            return None
        return self.cards[self.rank]


def follow_card(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with the card named where the fault went with it from rank to rank."""
    faults = [f for f in findings if f.has(FindingRole.GPU_FAULT) and _is_grave(f)]
    runs = [r for d in incident.digests for r in _read_runs(d)] if faults else []
    failed = [r for r in runs if r.card is not None]
    if len({r.rank for r in failed}) < 2 or len({r.card for r in failed}) != 1:
        return list(findings)
    follows = [
        replace(f, level=Level.SYMPTOM, rank=None)
        if _is_grave(f) and (f in faults or f.category in _PROGRAMS)
        else f
        for f in findings
    ]
    return [_tell_card(runs, failed, faults), *follows]


def _is_grave(finding: Finding) -> bool:
    return finding.level in (Level.CAUSE, Level.FAILURE)


def _tell_card(runs: Sequence[Run], failed: Sequence[Run], faults: Sequence[Finding]) -> Finding:
    """Whom the card struck in which run, and that runs without it train."""
    card = failed[0].card
    spared = [r for r in runs if card not in r.cards and r.fault is None and r.steps >= 2]
    addressed = [f for f in faults if f.pci_address]
    addresses = {f.pci_address for f in addressed}
    address = addresses.pop() if len(addresses) == 1 else None
    seats = ", ".join(f"rank {r.rank} in run {runs.index(r) + 1}" for r in failed)
    title = (
        f"The fault follows one physical GPU, index {card}"
        + (f" (PCI {address}, where every Xid is)" if address else "")
        + f": it struck {seats}, always the rank on this card, while the other cards ran the same code"
        + ("; without this card the run trains" if spared else "")
        + ". The card is faulty (hardware), not the program or its data"
    )
    return Finding(
        kind=KIND,
        title=title,
        level=Level.CAUSE,
        category=Category.HARDWARE,
        evidence=(
            *(e for r in failed[:3] for e in (r.place, r.fault) if e is not None),
            *[e for f in addressed for e in f.evidence[:2]][:2],
            *(r.place for r in spared[:1]),
        ),
        gpu=f"GPU {card}",
        page=PAGE,
        facts={"gpu_index": card, "pci_address": address or "", "runs": len(failed)},
    )


def _read_runs(digest: FileDigest) -> list[Run]:
    runs: list[Run] = []
    for number, text in digest.kept[:MOST_LINES]:
        if "VISIBLE_DEVICES" in text and (order := _ORDER.search(text[:1000])) is not None:
            cards = tuple(int(c) for c in order["list"].split(","))
            runs.append(Run(cards, Evidence(digest.file, number, text.strip()[:300])))
        elif runs and runs[-1].fault is None:
            last = runs[-1]
            if _FAULT.search(text[:600]):
                rank = _rank_in(text)
                if rank is not None:
                    quote = Evidence(digest.file, number, text.strip()[:300], rank)
                    runs[-1] = replace(last, rank=rank, fault=quote)
            elif "loss" in text and _LOSS.search(text[:400]):
                runs[-1] = replace(last, steps=last.steps + 1)
    return runs


def _rank_in(text: str) -> int | None:
    speaker = read_prefix(text)[0]
    if speaker.rank is not None:
        return speaker.rank
    device = _DEVICE.search(text)
    return int(device["device"]) if device is not None else None
