"""How much of the step is pipeline bubble, by the batch sizes that a run prints?

With p stages and m microbatches a 1F1B schedule idles (p-1)/(m+p-1) of the step; v virtual stages
divide it (arXiv 2104.04473). Reads Megatron's, NeMo's, DeepSpeed's and torchtitan's argument names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from firstfault_tools.averages import median
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Confidence, Evidence, Finding, Level
from firstfault_tools.hardware.excerpt import keep_marked, quote_line
from firstfault_tools.log.logs import Logs

BESIDE = ("pipe", "num_stages", "pp_size", "icrobatches")

MARKERS = ("batch", "pipe", "virtual", "data_parallel", "data-parallel", "stages", "accumulation", "TFLOP", "elapsed time per")  # fmt: skip
_SEP = r"['\"]?\s*(?:\.{2,}|[:=]|to constant|is)?\s*['\"]?"
_KEYS = {
    "pp": expression(rf"(?i)\b(?:pipeline[_-](?:model[_-])?parallel[_-](?:size|degree)|pipe_parallel_size|pp_size|num_stages){_SEP}\s?(\d{{1,4}})\b"),
    "m": expression(rf"(?i)\b(?:number of microbatches|num_micro_?batches|pipeline_parallel_microbatches|n_microbatches){_SEP}\s?(\d{{1,6}})\b"),
    "gbs": expression(rf"(?i)\bglobal[_ -]batch[_ -]size{_SEP}\s?(\d{{1,7}})\b"),
    "mbs": expression(rf"(?i)\bmicro[_ -]batch[_ -]size{_SEP}\s?(\d{{1,6}})\b"),
    "dp": expression(rf"(?i)\bdata[_ -]parallel[_ -](?:size|degree){_SEP}\s?(\d{{1,5}})\b"),
    "v": expression(rf"(?i)\bvirtual_pipeline_model_parallel_size{_SEP}\s?(\d{{1,3}})\b"),
    "vl": expression(rf"(?i)\bnum_layers_per_virtual_pipeline_stage{_SEP}\s?(\d{{1,3}})\b"),
    "layers": expression(rf"(?i)\bnum_layers{_SEP}\s?(\d{{1,4}})\b"),
}  # fmt: skip
_RATE = expression(r"(?i)(?:TFLOP/s/GPU\)|TFLOPs?)\s*[:=]\s*(\d+(?:\.\d+)?)")
LEAST_SHARE, MUCH = 0.2, 0.15


@dataclass(slots=True)
class Layout:
    """What one log prints of its layout, with the places. rate: printed TFLOP/s per GPU."""

    file: str
    values: dict[str, int] = field(default_factory=dict)
    places: dict[str, tuple[int, str]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    rate_place: tuple[int, str] | None = None

    @property
    def stages(self) -> int:
        return self.values.get("pp", 0)

    @property
    def microbatches(self) -> int:
        """Microbatches of one pipeline in a step, 0 where they cannot be told."""
        if m := self.values.get("m"):
            return m
        gbs, dp, mbs = (self.values.get(k, 0) for k in ("gbs", "dp", "mbs"))
        return gbs // (dp * mbs) if gbs and dp and mbs else 0

    @property
    def virtual(self) -> int:
        """Virtual stages of a rank; 1 without interleaving."""
        if v := self.values.get("v"):
            return v
        per, layers = self.values.get("vl", 0), self.values.get("layers", 0)
        return max(1, layers // (self.stages * per)) if per and layers and self.stages else 1

    @property
    def bubble(self) -> float:
        """Idle share of the step; 0 where unknown or without a pipeline."""
        p, m = self.stages, self.microbatches * self.virtual
        return (p - 1) / (m + p - 1) if p > 1 and m > 0 else 0.0


def read_layout(lines: Sequence[tuple[int, str]], file: str) -> Layout:
    """First value of each size that the log prints."""
    out = Layout(file)
    for number, text in keep_marked(lines, MARKERS)[:20_000]:
        part = text[:4000]
        for key, pattern in _KEYS.items():
            if key not in out.values and (found := pattern.search(part)):
                out.values[key] = int(found[1])
                out.places[key] = (number, text)
        if len(out.rates) < 200 and (rate := _RATE.search(part)):
            out.rates.append(float(rate[1]))
            out.rate_place = (number, text)
    return out


def find_in_incident(incident: Logs, findings: Sequence[Any]) -> tuple[Finding, ...]:
    """The layout with the largest bubble; a failure where another run shows what it costs."""
    layouts = []
    for digest in incident.digests[:8]:
        if not keep_marked(digest.kept, BESIDE):
            continue
        layout = read_layout(digest.kept, digest.file)
        if layout.bubble > 0:
            layouts.append(layout)
    if not layouts:
        return ()
    worst = max(layouts, key=lambda one: one.bubble)
    if worst.bubble < LEAST_SHARE:
        return ()
    best = min(layouts, key=lambda one: one.bubble)
    finding = _describe(worst)
    if worst.bubble - best.bubble >= MUCH and worst.rates and best.rates:
        ratio = median(worst.rates[1:] or worst.rates) / median(best.rates[1:] or best.rates)
        wanted = (1 - worst.bubble) / (1 - best.bubble)
        if abs(ratio / wanted - 1) <= 0.15:
            finding = replace(
                finding,
                title=f"{finding.title}; {best.file} has {best.microbatches} microbatches for {best.stages} stages, {best.bubble:.1%}: "
                f"the rates differ by {ratio:.2f} as the bubbles say ({wanted:.2f}), so nodes and fabric are alike",
                level=Level.FAILURE,
                confidence=Confidence.LIKELY,
                evidence=(*finding.evidence, *_quotes(best)[:2]),
            )
    return (finding,)


def _quotes(one: Layout) -> tuple[Evidence, ...]:
    places = [one.places[k] for k in ("m", "gbs", "pp") if k in one.places]
    if one.rate_place is not None:
        places.append(one.rate_place)
    return tuple(quote_line(one.file, n, t) for n, t in dict.fromkeys(places))


def _describe(one: Layout) -> Finding:
    p, m, v = one.stages, one.microbatches, one.virtual
    batch = f"global batch {one.values['gbs']} leaves " if "gbs" in one.values else ""
    formula = f"(p-1)/(m+p-1) = {p - 1}/{m + p - 1}" if v == 1 else f"(p-1)/(v m+p-1) with v = {v}"
    return Finding.of_slowness(
        kind="setting.pipeline_bubble",
        title=f"pipeline bubble: {batch}{m} microbatches for {p} pipeline stages, so {formula} = {one.bubble:.0%} of every step is idle on every rank ({one.file})",
        evidence=_quotes(one),
        weight=round(one.bubble, 3),
        facts={"stages": p, "microbatches": m, "bubble_share": round(one.bubble, 4)},
    )
