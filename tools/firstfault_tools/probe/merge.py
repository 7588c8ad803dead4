"""Which node or GPU is the odd one out over many probes, and which is below what its card promises?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from firstfault_tools.dataclass import dataclass
from firstfault_tools.facts import Fact
from firstfault_tools.findings import Category, Confidence, Finding, Json, Level
from firstfault_tools.hardware.excerpt import quote_line
from firstfault_tools.hardware.outliers import Outlier, find_low
from firstfault_tools.probe.cards import find_card, find_floor
from firstfault_tools.probe.history import read_kernel_logs
from firstfault_tools.probe.records import ProbeRecord


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A GPU, a pair of GPUs, or a node (gpu None)."""

    host: str
    gpu: int | None = None
    peer: int | None = None

    @property
    def label(self) -> str:
        """`GPU 1 on node-7`."""
        if self.gpu is None:
            return self.host
        if self.peer is not None:
            return f"GPU {self.gpu} to GPU {self.peer} on {self.host}"
        return f"GPU {self.gpu} on {self.host}"


@dataclass(frozen=True, slots=True)
class Metric:
    """How one kind of record becomes comparable numbers. least: relative loss that counts."""

    test: str
    value: str
    name: Callable[[ProbeRecord], str]
    unit: str
    words: str
    least: float
    category: Category = Category.HARDWARE
    per_host: bool = False


def _fixed(name: str) -> Callable[[ProbeRecord], str]:
    return lambda _record: name


METRICS = (
    Metric(
        "gemm",
        "rate_tflops",
        lambda r: f"gemm_{r.values.get('dtype')}_{r.values.get('size')}_tflops",
        "TFLOP/s",
        "matrix product",
        0.10,
    ),
    Metric(
        "copy", "rate_read_write_gbs", _fixed("copy_read_write_gbs"), "GB/s", "memory copy", 0.10
    ),
    Metric(
        "host_link", "host_to_device_gbs", _fixed("host_to_device_gbs"), "GB/s", "host to GPU", 0.20
    ),
    Metric(
        "host_link", "device_to_host_gbs", _fixed("device_to_host_gbs"), "GB/s", "GPU to host", 0.20
    ),
    Metric("peer", "rate_gbs", lambda r: "peer_gbs", "GB/s", "peer copy", 0.20),
    Metric(
        "all_reduce",
        "bus_bandwidth_gbs",
        lambda r: f"all_reduce_{r.values.get('size_mib')}mib_{r.values.get('ranks')}ranks_gbs",
        "GB/s",
        "all-reduce bus bandwidth",
        0.20,
        Category.COMMUNICATION,
        per_host=True,
    ),
    Metric(
        "storage",
        "read_mbs",
        lambda r: f"storage_read_mbs:{r.values.get('path')}",
        "MB/s",
        "storage read",
        0.50,
        Category.PERFORMANCE,
    ),
    Metric(
        "loader",
        "rate_batches_per_s",
        _fixed("loader_batches_per_s"),
        "batches/s",
        "data loader",
        0.50,
        Category.PERFORMANCE,
    ),
)
SKEW_LIMIT_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Findings and the table behind them: metric -> place -> value."""

    findings: tuple[Finding, ...]
    table: dict[str, dict[str, float]]
    hosts: tuple[str, ...]


def compare_nodes(records: Sequence[ProbeRecord]) -> Comparison:
    """Compare all nodes with each other and with their cards; states and failures come first."""
    findings: list[Finding] = []
    findings.extend(_report_failures(records))
    findings.extend(read_kernel_logs(records))
    names = _name_cards(records)
    table: dict[str, dict[str, float]] = {}
    seen: dict[tuple[Place, str], Finding] = {}
    for metric in METRICS:
        for name, (values, witness) in _collect(records, metric).items():
            table[name] = {
                place.label: value for place, value in sorted(values.items(), key=_order)
            }
            if metric.test == "peer" and not _is_alike(values):
                continue
            for odd in find_low(values, metric.least):
                finding = _describe_odd(odd, name, metric, witness[odd.key], len(values), names)
                key = (odd.key, metric.test)
                # One finding a test is enough: the first shape, unless another is hit much harder.
                if key not in seen or _loss(finding) > _loss(seen[key]) + 10:
                    seen[key] = finding
            for place, value in values.items():
                low = _check_card(place, value, name, metric, witness[place], names)
                if low is not None and (place, metric.test) not in seen:
                    seen[place, metric.test] = low
    findings.extend(_join_busy(records, list(seen.values())))
    findings.extend(_check_skew(records))
    hosts = tuple(sorted({record.host for record in records}))
    findings.append(_summarise(records, hosts, findings))
    return Comparison(tuple(findings), table, hosts)


def _order(item: tuple[Place, float]) -> tuple[str, int, int]:
    place = item[0]
    return (
        place.host,
        -1 if place.gpu is None else place.gpu,
        -1 if place.peer is None else place.peer,
    )


def _join_busy(records: Sequence[ProbeRecord], rates: list[Finding]) -> list[Finding]:
    """A GPU that is slow because somebody else uses it: the use is the cause, the rate its sign."""
    joined = list(rates)
    for record in records:
        if record.test != "busy":
            continue
        place = Place(record.host, record.gpu_index)
        signs = [f for f in joined if f.host == place.host and f.gpu == f"GPU {place.gpu}"]
        slow = [f for f in signs if f.kind in ("probe.odd_one_out", "probe.below_published")]
        why = (record.reason or "in use").split(";")[0]
        title = f"{place.label} is in use by another process ({why})"
        if slow:
            title += f", which explains its rate: {slow[0].predicate}"
        level = Level.CAUSE if slow else Level.CONTEXT
        users = record.values.get("processes")
        if isinstance(users, list) and users:
            title += f"; on it: {', '.join(str(user) for user in users[:4])}"
        facts: dict[str, Json] = {
            "utilisation_percent": record.number("utilisation_percent"),
            "memory_used_mib": record.number("memory_used_mib"),
            "refused": record.status == "refused",
        }
        busy = _make(
            record, "busy", title, level, Category.PERFORMANCE, Confidence.CONFIRMED, facts
        )
        joined = [replace(f, level=Level.SYMPTOM) if f in slow else f for f in joined]
        joined.insert(0, busy)
    return joined


def _collect(
    records: Sequence[ProbeRecord], metric: Metric
) -> dict[str, tuple[dict[Place, float], dict[Place, ProbeRecord]]]:
    found: dict[str, tuple[dict[Place, float], dict[Place, ProbeRecord]]] = {}
    for record in records:
        value = record.number(metric.value) if record.test == metric.test else None
        if value is None or record.status != "ok":
            continue
        peer = record.values.get("to_gpu") if metric.test == "peer" else None
        place = Place(
            record.host,
            None if metric.per_host else record.gpu_index,
            peer if isinstance(peer, int) else None,
        )
        values, witness = found.setdefault(metric.name(record), ({}, {}))
        # A repeated measurement counts once, with its best reading: disturbances only slow down.
        if place not in values or value > values[place]:
            values[place], witness[place] = value, record
    return found


def _is_alike(values: dict[Place, float]) -> bool:
    """Whether slow pairs are odd: in a partial mesh every GPU has some by design."""
    fastest = max(values.values())
    slow = [place for place, value in values.items() if value < 0.6 * fastest]
    everyone = {(place.host, place.gpu) for place in values}
    touched = {(place.host, gpu) for place in slow for gpu in (place.gpu, place.peer)}
    return len(everyone) <= 2 or not everyone <= touched


def _name_cards(records: Sequence[ProbeRecord]) -> dict[tuple[str, int], str]:
    names: dict[tuple[str, int], str] = {}
    for record in records:
        name = record.values.get("name")
        if (
            record.test in ("health", "start")
            and record.gpu_index is not None
            and isinstance(name, str)
        ):
            names[record.host, record.gpu_index] = name
    return names


def _make(
    record: ProbeRecord,
    kind: str,
    title: str,
    level: Level,
    category: Category | None,
    confidence: Confidence,
    facts: dict[str, Json],
) -> Finding:
    gpu = f"GPU {record.gpu_index}" if record.gpu_index is not None else None
    return Finding(
        kind=f"probe.{kind}",
        title=title,
        level=level,
        category=category,
        confidence=confidence,
        evidence=(
            quote_line(
                record.file, record.line, record.text, host=record.host, time=record.at_unix_s
            ),
        ),
        rank=record.rank,
        host=record.host,
        gpu=gpu,
        time=record.at_unix_s,
        facts=facts,
    )


def _loss(finding: Finding) -> float:
    return finding.number(Fact.BELOW_PERCENT) or 0.0


def _describe_odd(
    odd: Outlier[Place],
    name: str,
    metric: Metric,
    record: ProbeRecord,
    count: int,
    names: dict[tuple[str, int], str],
) -> Finding:
    against = f"median of {count}" if odd.z is not None else f"best of {count}"
    busy = record.values.get("spread_percent")
    title = (
        f"{odd.key.label}: {metric.words} {odd.value:g} {metric.unit}, {100 * odd.below:.0f} % below "
        f"the {against} ({odd.reference:g})"
    )
    card = names.get((odd.key.host, odd.key.gpu)) if odd.key.gpu is not None else None
    facts: dict[str, Json] = {
        "metric": name,
        "value": odd.value,
        "reference": odd.reference,
        "below_percent": round(100 * odd.below, 1),
        "compared": count,
        "z": round(odd.z, 1) if odd.z is not None else None,
        "card": card,
        "spread_percent": busy,
    }
    sure = Confidence.CONFIRMED if odd.z is not None else Confidence.LIKELY
    found = _make(record, "odd_one_out", title, Level.CAUSE, metric.category, sure, facts)
    return replace(found, subject=odd.key.label)


def _check_card(
    place: Place,
    value: float,
    name: str,
    metric: Metric,
    record: ProbeRecord,
    names: dict[tuple[str, int], str],
) -> Finding | None:
    if place.gpu is None:
        return None
    card = find_card(names.get((place.host, place.gpu), ""))
    if card is None:
        return None
    nvlink = metric.test == "peer" and record.values.get("peer_access") is True
    floor = find_floor(card, "peer_nvlink" if nvlink else name)
    if floor is None or value >= floor[0]:
        return None
    title = (
        f"{place.label}: {metric.words} {value:g} {metric.unit}, {100 * value / floor[1]:.0f} % of the "
        f"published {floor[1]:g} for {card.name}"
    )
    facts: dict[str, Json] = {
        "metric": name,
        "value": value,
        "published": floor[1],
        "below_percent": round(100 * (1 - value / floor[1]), 1),
        "card": card.name,
        "source": card.source,
    }
    found = _make(
        record, "below_published", title, Level.FAILURE, metric.category, Confidence.LIKELY, facts
    )
    return replace(found, subject=place.label)


def _report_failures(records: Sequence[ProbeRecord]) -> list[Finding]:
    found = []
    for record in records:
        where = Place(record.host, record.gpu_index).label
        why = record.reason or record.status
        if record.status == "timeout":
            title = f"{where} did not finish the {record.test} test: {why}"
            found.append(
                _make(
                    record, "timeout", title, Level.CAUSE, Category.HARDWARE, Confidence.LIKELY, {}
                )
            )
        elif record.status == "failed":
            level = Level.SYMPTOM if "ended after" in why or "not run" in why else Level.CAUSE
            title = f"{where} failed the {record.test} test: {why}"
            found.append(
                _make(record, "failed", title, level, Category.HARDWARE, Confidence.LIKELY, {})
            )
        elif record.status == "ok":
            found.extend(_report_state(record, where))
    return found


_STATES: tuple[tuple[str, str, Callable[[Json], bool], str, Level], ...] = (
    ("health", "ecc_uncorrected", lambda v: _above(v, 0), "uncorrectable memory errors: {0:g}", Level.CAUSE),
    ("health", "row_remap_pending", lambda v: v == "Yes", "a row remap waits for a reset", Level.CAUSE),
    ("health", "row_remap_failure", lambda v: v == "Yes", "a row remap failed", Level.CAUSE),
    ("health", "recovery_action", lambda v: v not in ("None", "N/A"), "recovery action {0}", Level.CAUSE),
    ("health", "fabric_state", lambda v: v not in ("Completed", "N/A", "Not Supported"), "fabric {0}", Level.CAUSE),
    ("memory", "wrong_words", lambda v: _above(v, 0), "{0:g} words read back wrong", Level.CAUSE),
    ("port", "state", lambda v: isinstance(v, str) and "ACTIVE" not in v, "port state {0}", Level.FAILURE),
    ("fabric_manager", "state", lambda v: v in ("failed", "inactive"), "Fabric Manager is {0}", Level.FAILURE),
)  # fmt: skip
_THROTTLES = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "sw_thermal_slowdown",
    "hw_power_brake_slowdown",
)


def _above(value: Json, limit: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > limit


def _report_state(record: ProbeRecord, where: str) -> list[Finding]:
    found = []
    for test, key, bad, words, level in _STATES:
        value = record.values.get(key)
        if record.test != test or value is None or not bad(value):
            continue
        device = record.values.get("device")
        subject = f"{where} {device}" if isinstance(device, str) else where
        title = f"{subject}: {words.format(value)}"
        found.append(
            _make(record, key, title, level, Category.HARDWARE, Confidence.CONFIRMED, {key: value})
        )
    width, most = record.number("pcie_width"), record.number("pcie_width_max")
    if record.test == "health" and width and most and width < most:
        title = f"{where}: PCIe link {width:.0f} lanes wide of {most:.0f}"
        facts: dict[str, Json] = {"lanes": width}
        found.append(
            _make(
                record,
                "pcie_width",
                title,
                Level.FAILURE,
                Category.HARDWARE,
                Confidence.CONFIRMED,
                facts,
            )
        )
    reasons = record.values.get("active_reasons")
    if isinstance(reasons, list):
        bad_reasons = [reason for reason in reasons if reason in _THROTTLES]
        if bad_reasons:
            title = f"{where} is slowed down: {', '.join(str(reason) for reason in bad_reasons)}"
            found.append(
                _make(
                    record,
                    "throttled",
                    title,
                    Level.CAUSE,
                    Category.PERFORMANCE,
                    Confidence.CONFIRMED,
                    {"reasons": bad_reasons},
                )
            )
    return found


def _check_skew(records: Sequence[ProbeRecord]) -> list[Finding]:
    found = []
    for record in records:
        key = {"skew": "offset_to_rank0_ms", "clock": "offset_ms"}.get(record.test)
        offset = record.number(key) if key else None
        if offset is not None and abs(offset) > SKEW_LIMIT_MS:
            title = f"{record.host}: clock {abs(offset) / 1e3:.1f} s {'ahead' if offset > 0 else 'behind'}"
            facts: dict[str, Json] = {"offset_ms": offset}
            found.append(
                _make(
                    record,
                    "clock_skew",
                    title,
                    Level.CONTEXT,
                    Category.ENVIRONMENT,
                    Confidence.CONFIRMED,
                    facts,
                )
            )
    return found


def _summarise(
    records: Sequence[ProbeRecord], hosts: Sequence[str], findings: Sequence[Finding]
) -> Finding:
    gpus = {(r.host, r.gpu_index) for r in records if r.gpu_index is not None}
    absent = sorted({r.test for r in records if r.status == "unavailable"})
    bad = sum(f.level in (Level.CAUSE, Level.FAILURE) for f in findings)
    title = f"Probe of {len(hosts)} node(s), {len(gpus)} GPU(s): " + (
        f"{bad} finding(s)" if bad else "nothing odd" if gpus else "no GPU was seen or measured"
    )
    if absent:
        title += f"; not available here: {', '.join(absent)}"
    first = records[0]
    return _make(
        first,
        "summary",
        title,
        Level.CONTEXT,
        None,
        Confidence.CONFIRMED,
        {"nodes": len(hosts), "gpus": len(gpus), "not_available": list(absent)},
    )
