"""Does another library of the same process, or an inference engine of the same job, hold the card?

JAX and TensorFlow reserve most of a card at their start; an engine (vLLM, SGLang) reserves its share before
the first step of the training that sits beside it.
"""

from __future__ import annotations

from dataclasses import field, replace

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.memory.oom_books import Books
from firstfault_tools.memory.oom_message import OomMessage
from firstfault_tools.memory.sizes import GIB

_OTHER_LIBRARIES = (
    (
        ("CudaDevice(", "jax", "JAX", "XLA_PYTHON_CLIENT", "jaxlib"),
        "JAX reserves three quarters of the card at its first use; set XLA_PYTHON_CLIENT_PREALLOCATE=false or a "
        "smaller XLA_PYTHON_CLIENT_MEM_FRACTION",
    ),
    (
        ("tensorflow", "TensorFlow", "Created device /job"),
        "TensorFlow reserves the whole card at its start; call tf.config.set_visible_devices([], 'GPU') or set "
        "TF_FORCE_GPU_ALLOW_GROWTH=true",
    ),
    (
        ("vllm", "vLLM", "sglang", "gpu_memory_utilization"),
        "the inference engine reserves its share of the card at its start; lower gpu_memory_utilization",
    ),
)


def begin_title(finding: Finding, message: OomMessage) -> str:
    """What all titles here say first: what could not be allocated, and where."""
    where = f" on rank {finding.rank}" if finding.rank is not None else ""
    size = f"{message.tried / GIB:.2f} GiB"
    return f"GPU out of memory{where}: {size} could not be allocated on GPU {message.gpu}"


def name_library(
    incident: LogIncident, finding: Finding, message: OomMessage, books: Books
) -> Finding:
    """Memory of this process that PyTorch did not take."""
    outside, process = books.non_pytorch or 0, message.process or 0
    told, place = "", None
    for words, reason in _OTHER_LIBRARIES:
        lines = ((d, n, t) for d, n, t in incident.lines_with(words) if "Traceback" not in t)
        if (first := next(lines, None)) is not None:
            told, place = reason, quote_line(first[0].file, first[1], first[2])
            break
    reason = (
        told or "NCCL communicators, CUDA graphs or another CUDA library in the process hold it"
    )
    return replace(
        finding,
        title=f"{begin_title(finding, message)}; of the "
        f"{process / GIB:.1f} GiB this process holds {outside / GIB:.1f} GiB are not PyTorch's: another library in the same "
        f"process took them ({reason})" + finding.parted[1],
        evidence=(*finding.evidence[:3], *((place,) if place is not None else ())),
    )


_SHARES = (
    expression(
        r"(?i)(?:device|gpu) (?P<where>(?:cuda:)?\d{1,2})? ?is also (?:being )?used (?:for|by) (?:the )?train\w*|"
        r"['\"]?vllm_mode['\"]?\s*[=: ]\s*['\"]?colocate|\bcolocat\w+\b[^\n]{0,60}\b(?:vllm|sglang|engine|rollout|train\w*)|\bhybrid[ _]engine\b"
    ),
)
"""The program says itself that its inference engine and the training sit on one card."""

_RESERVED = expression(
    r"gpu_memory_utilization(?: \((?P<share>0?\.\d+|1\.0+)\) = (?P<gib>\d+(?:\.\d+)?) ?GiB|['\"]?\s*[=: ]\s*['\"]?(?P<plain>0?\.\d+))|"
    r"mem_fraction_static['\"]?\s*[=: ]\s*['\"]?(?P<sglang>0?\.\d+)"
)
_CACHE = expression(
    r"(?:reserved for KV Cache is|Available KV cache memory:|KV Cache is allocated\D{0,60}?size:) ?(?P<gib>\d+(?:\.\d+)?) ?Gi?B"
)
_ASLEEP = expression(
    r"(?i)sleep mode freed|fall asleep|engine\w* (?:is )?(?:asleep|sleeping|offloaded)"
)
_OF_ENGINE = expression(r"/(?:vllm|sglang|lmdeploy)/")
_ENGINE_WORDS = (
    *(
        "gpu_memory_utilization",
        "mem_fraction_static",
        "KV Cache",
        "KV cache",
        "also being used",
        "also used",
    ),
    *("colocate", "hybrid engine", "hybrid_engine", "leep"),
)
ENGINE_SHARE = 0.3
"""Share of the card an engine must have reserved to be named as its holder."""


@dataclass(slots=True)
class _Engine:
    """What the lines say of an inference engine. said: that it shares the card; sizes in GiB."""

    share: float = 0.0
    reserved: float | None = None
    cache: float | None = None
    said: Evidence | None = None
    quoted: list[Evidence] = field(default_factory=list)


def _read_engine(incident: LogIncident, place: Evidence) -> _Engine | None:
    """The engine in front of `place`; None where it gave its share back before."""
    engine = _Engine()
    for digest, number, text in incident.lines_with(_ENGINE_WORDS):
        if digest.file == place.file and number >= place.line:
            break
        here = Evidence(digest.file, number, text.strip()[:500])
        if (row := _RESERVED.search(text[:2000])) is not None:
            share = row["share"] or row["plain"] or row["sglang"]
            engine.share = float(share or 0) or engine.share
            if row["gib"]:
                engine.reserved = float(row["gib"])
            if row["gib"] or not engine.quoted:
                engine.quoted = [here]
        elif (block := _CACHE.search(text[:2000])) is not None:
            engine.cache = float(block["gib"])
            engine.quoted.append(here)
        elif engine.said is None and any(p.search(text[:1000]) for p in _SHARES):
            engine.said = here
        elif _ASLEEP.search(text[:400]):
            return None
    return engine


def name_engine(incident: LogIncident, finding: Finding, message: OomMessage) -> Finding | None:
    """An inference engine in the same process as the training, which reserved its share of the card first."""
    engine = _read_engine(incident, finding.evidence[0])
    if engine is None or engine.share < ENGINE_SHARE:
        return None
    reserved, cache, said = engine.reserved, engine.cache, engine.said
    if said is None and cache is None:
        return None
    if said is None and not (message.private_pools or 0):
        return None  # an engine of which nothing says that it sits on this card
    if _raised_by_engine(incident, finding):
        return None
    size = f" = {reserved:.1f} GiB" if reserved is not None else ""
    size += f", {cache:.1f} GiB of it for the KV cache" if cache is not None else ""
    return replace(
        finding,
        title=f"{begin_title(finding, message)}, because the "
        f"inference engine (vLLM or the like) of the same job sits on this GPU too and reserved gpu_memory_utilization {engine.share:g}{size} "
        "before the first step, so training has no room left" + finding.parted[1],
        evidence=(
            *finding.evidence[:2],
            *((said,) if said is not None else ()),
            *engine.quoted[-2:],
        ),
        page="inference-engine-memory",
        facts={**finding.facts, Fact.FIX.value: "Inference engine sits on this GPU"},
    )


def _raised_by_engine(incident: LogIncident, finding: Finding) -> bool:
    """The engine itself found no room: that is its start, not the training beside it."""
    place = finding.evidence[0]
    return any(
        _OF_ENGINE.search(f.path)
        for t in incident.tracebacks
        if t.line.file == place.file and t.line.number == place.line
        for f in t.frames[-6:]
    )
