"""What did the GPUs do by dcgm-exporter's metrics, as an answer of Prometheus (`/api/v1/query_range`) holds them?

Format: https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries (matrix; an instant query's
vector is read as well), names of the fields: https://github.com/NVIDIA/dcgm-exporter default-counters.csv. The
series of each host are judged as `nvidia-smi dmon` would be; an Xid is told with the meaning of its code.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from firstfault_tools.dataclass import dataclass
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.hardware.gpu.dmon import MAX_GPUS, DmonSeries, check_dmon
from firstfault_tools.hardware.gpu.xid_catalogue import explain_xid
from firstfault_tools.hardware.host_name import say_host
from firstfault_tools.registry import Artefact, Reader, Reading

MAX_BYTES = 256 * 1024 * 1024
MAX_SERIES, MAX_SAMPLES = 100_000, 20_000
COLUMNS = {
    "DCGM_FI_DEV_GPU_UTIL": ("sm", 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm", 100.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("mem", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("gtemp", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("pwr", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("pclk", 1.0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("dbecc", 1.0),
}
"""Columns of dmon that stand for a field, and the factor to their unit."""
COUNTERS = {"DCGM_FI_DEV_THERMAL_VIOLATION": "tviol"}
"""Counters since the driver was loaded: what they grew by counts."""
XID = "DCGM_FI_DEV_XID_ERRORS"
HOSTS = ("Hostname", "hostname", "node", "kubernetes_node", "instance")


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one GPU: (time, value) in order."""

    name: str
    host: str
    gpu: int
    samples: tuple[tuple[float, float], ...]

    def quote(self, file: str, at: int) -> Evidence:
        """A sample in the words of PromQL; an answer of one line has no line to point at."""
        time, value = self.samples[at]
        when = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = f'{self.name}{{Hostname="{self.host}",gpu="{self.gpu}"}} {value:g} @ {when}'
        return Evidence(file, 0, text, host=self.host or None, time=time)


def recognise(name: str, head: bytes) -> bool:
    """An answer with a matrix or a vector that holds fields of DCGM."""
    start = head.lstrip()[:1] == b"{"
    return start and b'"resultType"' in head and b"DCGM_FI_" in head


def read(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings over all hosts. Raises UnreadableArtefact where an answer is none."""
    findings: list[Finding] = []
    count = 0
    for artefact in artefacts:
        by_host: dict[str, list[Series]] = defaultdict(list)
        for one in _series(_load(artefact)):
            count += 1
            by_host[one.host].append(one)
        for host, own in by_host.items():
            found = (*_xids(own, artefact.name), *check_dmon(_as_dmon(own), artefact.name))
            findings += [_on_host(f, host) for f in found]
    return Reading(tuple(findings), {"series": count})


def _load(artefact: Artefact) -> Any:
    try:
        content = json.loads(artefact.data(MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise UnreadableArtefact(
            f"{artefact.name}: no JSON ({error}); save the answer of /api/v1/query_range again"
        ) from error
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        raise UnreadableArtefact(
            f"{artefact.name}: no answer of Prometheus (data.result is missing)"
        )
    return data["result"]


def _series(results: list[Any]) -> Iterator[Series]:
    for item in results[:MAX_SERIES]:
        metric = item.get("metric") if isinstance(item, dict) else None
        if not isinstance(metric, dict) or not str(metric.get("gpu", "")).isdecimal():
            continue
        gpu = int(str(metric["gpu"])[:6])
        raw = item.get("values") or [item.get("value")]
        samples = tuple(s for pair in raw[:MAX_SAMPLES] if (s := _sample(pair)) is not None)
        if samples and gpu < MAX_GPUS:
            yield Series(str(metric.get("__name__", "")), _host(metric), gpu, samples)


def _sample(pair: object) -> tuple[float, float] | None:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return None
    try:
        time, value = float(pair[0]), float(pair[1])
    except (TypeError, ValueError):
        return None
    return (time, value) if value == value else None


def _host(metric: Mapping[str, object]) -> str:
    named = next((str(metric[name]) for name in HOSTS if metric.get(name)), "")
    return named.split(":", 1)[0][:120]


def _as_dmon(own: list[Series]) -> list[DmonSeries]:
    """Series of one host as dmon's samples: one for each time, by GPU."""
    rows: dict[int, dict[float, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for one in own:
        if one.name in COLUMNS:
            column, factor = COLUMNS[one.name]
            for time, value in one.samples:
                rows[one.gpu][time].setdefault(column, value * factor)
        elif one.name in COUNTERS:
            first = one.samples[0][1]
            for time, value in one.samples:
                rows[one.gpu][time][COUNTERS[one.name]] = max(0.0, value - first)
    found = []
    for gpu in sorted(rows):
        series = DmonSeries(gpu)
        for time in sorted(rows[gpu]):
            values = rows[gpu][time]
            series.samples.append(values)
            when = datetime.fromtimestamp(time, UTC).strftime("%H:%M:%SZ")
            shown = " ".join(f"{k}={v:g}" for k, v in values.items())
            series.lines.append((0, f"gpu {gpu} at {when}: {shown}"))
        found.append(series)
    return found


def _xids(own: list[Series], file: str) -> list[Finding]:
    """The last Xid of each GPU, which the exporter keeps as a value until the next one."""
    found = []
    for one in own:
        first = next((i for i, (_, value) in enumerate(one.samples) if value > 0), None)
        if one.name != XID or first is None:
            continue
        code = int(one.samples[first][1])
        meaning = explain_xid(code)
        found.append(
            Finding(
                kind="hardware.xid",
                title=f"Xid {code} on GPU {one.gpu}: {meaning.name}; {meaning.now}".rstrip("; "),
                level=meaning.level,
                category=meaning.category,
                evidence=(one.quote(file, first),),
                gpu=f"GPU {one.gpu}",
                page=meaning.page,
                facts={"xid": code, "gpu_index": one.gpu},
                time=one.samples[first][0],
            )
        )
    return found


def _on_host(finding: Finding, host: str) -> Finding:
    if not host or finding.host:
        return finding
    return replace(finding, host=host, title=say_host(finding, host))


SIGNS = ("DCGM_FI_",)

READER = Reader(
    name="prometheus_dcgm",
    summary="GPU metrics of dcgm-exporter in an answer of Prometheus (range query)",
    recognise=recognise,
    read=read,
)
