"""Is an NVLink down, slow or failing? From `nvidia-smi nvlink --status` and `nvidia-smi nvlink -e`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.hardware.excerpt import NumberedLine, keep_near, quote_line, read_lines
from firstfault_tools.hardware.host_name import attach_host
from firstfault_tools.registry import Artefact, Reader, Reading

GATE = ("Link 0: ",)
MARKERS = GATE
MAX_GPUS, MAX_LINKS = 1024, 64
MANY_ERRORS = 1000
_GPU = expression(r"^GPU (?P<index>\d{1,4}): \S")
_STATUS = expression(
    r"^\s+Link (?P<link>\d{1,3}): (?:(?P<rate>\d{1,4}(?:\.\d{1,4})?) GB/s|<(?P<off>inactive)>)\s*$"
)
_ERRORS = expression(
    r"^\s+Link (?P<link>\d{1,3}): (?P<kind>Replay|Recovery|CRC) Errors: (?P<count>\d{1,18})\s*$"
)


@dataclass(slots=True)
class Links:
    """Links of one GPU. rates: GB/s one way by link, None where inactive. errors: by link and kind."""

    index: int
    rates: dict[int, float | None] = field(default_factory=dict)
    errors: dict[tuple[int, str], int] = field(default_factory=dict)
    lines: dict[tuple[int, str], NumberedLine] = field(default_factory=dict)

    @property
    def active(self) -> int:
        """Number of links that carry traffic."""
        return sum(rate is not None for rate in self.rates.values())


def read_links(lines: Sequence[NumberedLine]) -> list[Links]:
    """Links by GPU, in order of index."""
    found: dict[int, Links] = {}
    current: Links | None = None
    for number, line in lines:
        gpu = _GPU.match(line)
        if gpu is not None:
            index = int(gpu["index"])
            current = found.setdefault(index, Links(index)) if index < MAX_GPUS else None
            continue
        status = _STATUS.match(line)
        told = status or _ERRORS.match(line)
        if current is None or told is None or int(told["link"]) >= MAX_LINKS:
            continue
        link = int(told["link"])
        if status is not None:
            current.rates[link] = None if status["off"] else float(status["rate"])
            current.lines[link, "status"] = (number, line)
        else:
            current.errors[link, told["kind"]] = int(told["count"])
            current.lines[link, told["kind"]] = (number, line)
    return [found[index] for index in sorted(found) if found[index].rates or found[index].errors]


def check_links(gpus: Sequence[Links], file: str) -> tuple[Finding, ...]:
    """Inactive and slow links against those of the same board, and error counters."""
    listed = [gpu for gpu in gpus if gpu.rates]
    most = max((gpu.active for gpu in listed), default=0)
    usual = Counter(rate for gpu in listed for rate in gpu.rates.values() if rate).most_common(1)
    findings: list[Finding] = []
    for gpu in listed:
        findings.extend(_find_inactive(gpu, most, file))
        if usual:
            findings.extend(_find_slow(gpu, usual[0][0], file))
    for gpu in gpus:
        findings.extend(_find_errors(gpu, file))
    if gpus and not findings:
        findings.append(_summarise(gpus, listed, most, file))
    return tuple(findings)


def _find_inactive(gpu: Links, most: int, file: str) -> Iterator[Finding]:
    """Links of a GPU that are off while another GPU has more."""
    off = sorted(link for link, rate in gpu.rates.items() if rate is None)
    if not off or gpu.active >= most:
        return
    whole = gpu.active == 0
    title = (
        f"all {len(off)} NVLinks are inactive while other GPUs have {most}"
        if whole
        else f"NVLink {_join(off)} inactive, {gpu.active} of {most} links work"
    )
    level = Level.CAUSE if whole else Level.FAILURE
    facts: dict[str, Json] = {
        "inactive": list(off),
        "active": gpu.active,
        "usual": most,
        "explains": {"slow": 0.75},
    }
    yield _make(gpu, (off[0], "status"), "nvlink_inactive", title, level, file, facts)


def _find_slow(gpu: Links, usual: float, file: str) -> Iterator[Finding]:
    for link, rate in sorted(gpu.rates.items()):
        if rate and rate < 0.9 * usual:
            title = f"NVLink {link} runs at {rate:g} GB/s, the others at {usual:g}"
            facts: dict[str, Json] = {"rate_gbs": rate, "explains": {"slow": 0.75}}
            yield _make(gpu, (link, "status"), "nvlink_slow", title, Level.FAILURE, file, facts)


def _find_errors(gpu: Links, file: str) -> Iterator[Finding]:
    """Any recovery of a link, and very many errors of another kind."""
    for (link, kind), count in sorted(gpu.errors.items()):
        if count and (kind == "Recovery" or count >= MANY_ERRORS):
            full = " (the counter is full)" if count == 65535 else ""
            title = f"NVLink {link}: {count} {kind.lower()} errors{full}"
            facts: dict[str, Json] = {"link": link, "errors": count, "counter": kind.lower()}
            yield _make(gpu, (link, kind), "nvlink_errors", title, Level.FAILURE, file, facts)


def _join(links: Sequence[int]) -> str:
    return ", ".join(map(str, links[:8])) + (", ..." if len(links) > 8 else "")


def _make(
    gpu: Links,
    key: tuple[int, str],
    kind: str,
    title: str,
    level: Level,
    file: str,
    facts: dict[str, Json],
) -> Finding:
    return Finding(
        kind=f"hardware.{kind}",
        title=f"GPU {gpu.index}: {title}",
        level=level,
        category=Category.HARDWARE,
        confidence=Confidence.CONFIRMED if level is Level.CAUSE else Confidence.LIKELY,
        evidence=(quote_line(file, *gpu.lines[key]),),
        gpu=f"GPU {gpu.index}",
        facts={"gpu_index": gpu.index, **facts},
    )


def _summarise(gpus: Sequence[Links], listed: Sequence[Links], most: int, file: str) -> Finding:
    first = gpus[0]
    if listed and most == 0:
        title = (
            f"NVLink: no link of {len(listed)} GPU(s) is active; normal without bridges or switches"
        )
    elif listed:
        title = f"NVLink: {most} active links on each of {len(listed)} GPU(s)"
    else:
        title = (
            f"NVLink: no recovery errors on {len(gpus)} GPU(s), other counters below {MANY_ERRORS}"
        )
    return Finding(
        kind="hardware.nvlink_state",
        title=title,
        level=Level.CONTEXT,
        confidence=Confidence.CONFIRMED,
        evidence=(quote_line(file, *next(iter(first.lines.values()))),),
        facts={"gpus": len(gpus), "active_links": most},
    )


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """NVLink findings of output pasted into any text."""
    near = keep_near(lines, MARKERS, before=1, after=3 * MAX_LINKS)
    return tuple(check_links(read_links(near), file)) if near else ()


def recognise_nvlink(name: str, head: bytes) -> bool:
    """Saved output: a GPU's name with its UUID, links below it."""
    text = head[:4096].decode("utf-8", errors="replace").lstrip()
    return _GPU.match(text) is not None and "(UUID: " in text[:300] and "Link 0: " in text


def read_nvlink(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of every saved output."""
    findings: list[Finding] = []
    for artefact in artefacts:
        found = check_links(read_links(read_lines(artefact)), artefact.name)
        findings.extend(attach_host(tuple(found), artefact.name))
    return Reading(tuple(findings), {"files": [artefact.name for artefact in artefacts]})


SIGNS = ("(UUID: ",)

READER = Reader(
    name="nvlink",
    summary="nvidia-smi nvlink --status and -e: inactive, slow and failing links",
    recognise=recognise_nvlink,
    read=read_nvlink,
)
