"""How far did each rank get in setting up NCCL, over which network, with whose settings?

Reads the lines that NCCL_DEBUG=INFO prints (NVIDIA/nccl src/init.cc, bootstrap.cc, transport/*.cc,
misc/param.cc). They say which rank stopped at which stage of the set-up, whether traffic between
nodes goes over OFI, InfiniBand or plain sockets, and which variables only some hosts have set.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntEnum

from firstfault_tools.collectives.environment import Setting, known_variables, lint_environment
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Json, Level

MAX_PROCESSES = 100_000
_LINE = expression(
    r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,9}):\d{1,9} \[(?P<dev>-?\d{1,3})\] "
    r"(?:\S+ )?NCCL (?P<kind>INFO|WARN|VERSION) (?P<text>.*)"
)
_VERSION = expression(r"NCCL version (\d+\.\d+\.\d+\S*)")
_INTERFACE = expression(r"Bootstrap ?: Using ([\w.-]+):(\S+?)<")
_NETWORK = expression(r"Using network (.+?)\s*$")
_COMM = expression(
    r"comm 0x[0-9a-f]+ rank (?P<rank>\d{1,7}) n[rR]anks (?P<size>\d{1,7}).*?"
    r"(?:commId (?P<id>0x[0-9a-f]+) )?- (?P<what>Init START|Init COMPLETE)"
)
_NODES = expression(r"comm 0x[0-9a-f]+ rank \d+ nRanks \d+ nNodes (\d{1,6})")
_CHANNEL = expression(
    r"Channel \d+(?:/\d+)? ?: \d+\[\w+\] -> \d+\[\w+\].* via (P2P|SHM|NET|NVLS|COLLNET)/?(\w*)"
)
_SETTING = expression(r"\b(NCCL_[A-Z0-9_]{2,60}) set by environment to (\S+)")
_REACHED = expression(r"(?P<bootstrap>Bootstrap timings)|^(?:Trees \[|Channel |Setting affinity)")
_PLUGIN_MISSING = expression(
    r"NET/Plugin.*(?:No plugin found|Could not find)|NET/OFI.*(?:failed|No eligible)"
)
_SIZES = "collective mismatch error"


class Stage(IntEnum):
    """Stages of one process's set-up, in order."""

    LOADED = 0
    INTERFACE = 1
    NETWORK = 2
    INIT_STARTED = 3
    BOOTSTRAPPED = 4
    TOPOLOGY = 5
    COMPLETE = 6


_STAGE_NAMES = {
    Stage.LOADED: "loading the library",
    Stage.INTERFACE: "choosing the network plugin",
    Stage.NETWORK: "starting the communicator",
    Stage.INIT_STARTED: "the bootstrap (meeting the other ranks over TCP)",
    Stage.BOOTSTRAPPED: "exchanging the topology",
    Stage.TOPOLOGY: "connecting the channels",
    Stage.COMPLETE: "nothing: it completed",
}


@dataclass(slots=True)
class Communicator:
    """One communicator: which ranks began and completed its set-up, with the lines that say so."""

    size: int
    began: dict[int, tuple[int, str, str]] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Survey:
    """All that NCCL's lines say. Keys of `stages` are host and process."""

    file: str
    versions: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    interfaces: dict[str, str] = field(default_factory=dict)
    networks: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    stages: dict[tuple[str, str], Stage] = field(default_factory=dict)
    owners: dict[int, tuple[str, str]] = field(default_factory=dict)
    communicators: dict[str, Communicator] = field(default_factory=dict)
    nodes: int = 0
    channels: Counter[str] = field(default_factory=Counter)
    settings: dict[str, dict[str, Setting]] = field(default_factory=lambda: defaultdict(dict))
    plugin_missing: tuple[int, str] | None = None
    size_mismatch: tuple[int, str] | None = None


def analyse_nccl_info(lines: Iterable[tuple[int, str]], file: str) -> tuple[Finding, ...]:
    """Findings from a log's numbered lines (1-based). Lines without `NCCL` cost one search each.

    Never raises on any text.
    """
    return report(survey_lines(lines, file))


def survey_lines(lines: Iterable[tuple[int, str]], file: str) -> Survey:
    """Facts of every NCCL line, ungraded."""
    survey = Survey(file)
    for number, line in lines:
        if "NCCL" not in line:
            continue
        match = _LINE.search(line[:2000])
        if match is None:
            if found := _VERSION.search(line[:2000]):
                survey.versions.setdefault("", (found[1], number, line.strip()[:400]))
            continue
        if len(survey.stages) < MAX_PROCESSES:
            _take(survey, number, line.strip()[:400], match)
            if _SIZES in match["text"] and survey.size_mismatch is None:
                survey.size_mismatch = (number, line.strip()[:400])
    return survey


def _take(survey: Survey, number: int, line: str, match: re.Match[str]) -> None:
    host, text = match["host"], match["text"]
    key = (host, match["pid"])
    stage = survey.stages.get(key, Stage.LOADED)
    if found := _COMM.search(text):
        stage = max(stage, _join(survey, number, line, key, found))
    elif found := _CHANNEL.search(text):
        via = f"{found[1]}/{found[2]}" if found[1] == "NET" else found[1]
        survey.channels[via] += 1
        stage = max(stage, Stage.TOPOLOGY)
    elif found := _SETTING.search(text):
        setting = Setting(found[1], found[2].rstrip("."), survey.file, number, line, host)
        survey.settings[found[1]].setdefault(host, setting)
    elif found := _INTERFACE.search(text):
        survey.interfaces.setdefault(host, f"{found[1]} {found[2]}")
        stage = max(stage, Stage.INTERFACE)
    elif found := _NETWORK.search(text):
        survey.networks.setdefault(host, (found[1], number, line))
        stage = max(stage, Stage.NETWORK)
    elif found := _NODES.search(text):
        survey.nodes = max(survey.nodes, int(found[1]))
        stage = max(stage, Stage.TOPOLOGY)
    elif found := _VERSION.search(text):
        survey.versions.setdefault(host, (found[1], number, line))
    elif found := _REACHED.search(text):
        stage = max(stage, Stage.BOOTSTRAPPED if found["bootstrap"] else Stage.TOPOLOGY)
    elif _PLUGIN_MISSING.search(text):
        survey.plugin_missing = survey.plugin_missing or (number, line)
    survey.stages[key] = stage


def _join(
    survey: Survey, number: int, line: str, key: tuple[str, str], found: re.Match[str]
) -> Stage:
    rank, size = int(found["rank"]), int(found["size"])
    identity = found["id"] or _begun_as(survey, rank, size) or f"size {size}"
    comm = survey.communicators.setdefault(identity, Communicator(size))
    largest = max(c.size for c in survey.communicators.values())
    if size == largest:
        survey.owners[rank] = key
    if found["what"] == "Init COMPLETE":
        comm.completed.add(rank)
        comm.began.setdefault(rank, (number, line, key[0]))
        return Stage.COMPLETE
    comm.began[rank] = (number, line, key[0])
    return Stage.INIT_STARTED


def _begun_as(survey: Survey, rank: int, size: int) -> str | None:
    """The communicator that a rank began last; the line of its completion may leave out the id."""
    begun = (i for i, c in survey.communicators.items() if c.size == size and rank in c.began)
    return next((i for i in reversed(list(begun)) if rank not in survey.communicators[i].completed), None)  # fmt: skip


def report(survey: Survey) -> tuple[Finding, ...]:
    """Findings of a survey: what stopped, what differs, what is set, how it is connected."""
    if not survey.stages:
        return ()
    findings = [
        *_stopped(survey),
        *_versions(survey),
        *_differences(survey),
        *_fallback(survey),
        *lint_environment(s for by_host in survey.settings.values() for s in by_host.values()),
    ]
    return (*findings, *_overview(survey))


def _stopped(survey: Survey) -> list[Finding]:
    """Communicators that nobody completed. One that anybody completed was met by all its ranks."""
    findings = []
    for identity, comm in survey.communicators.items():
        if comm.completed or not comm.began:
            continue
        absent = [r for r in range(min(comm.size, 1_000_000)) if r not in comm.began]
        first = min(comm.began.values())
        quotes = [
            Evidence(survey.file, n, t, rank=r, host=h)
            for r, (n, t, h) in sorted(comm.began.items())[:8]
        ]
        label = f"the NCCL communicator of {comm.size} ranks (commId {identity})"
        if absent and len(absent) <= len(comm.began) * 3:
            shown = ", ".join(map(str, absent[:8])) + (" ..." if len(absent) > 8 else "")
            title = (
                f"{label} never came up: rank {shown} never began its set-up, {len(comm.began)} did"
            )
            rank = absent[0] if len(absent) == 1 else None
            level, confidence = Level.FAILURE, Confidence.LIKELY
        else:
            stage, rank = _slowest(survey, comm)
            title = f"{label} never came up: {len(comm.began)} ranks began; the slowest stopped in {stage}"
            level, confidence = Level.SYMPTOM, Confidence.POSSIBLE
        facts: dict[str, Json] = {
            "ranks_began": len(comm.began),
            "ranks_expected": comm.size,
            "absent_ranks": absent[:64],
            "communicator": identity,
        }
        findings.append(
            Finding(
                kind="nccl.init_stopped",
                title=title,
                level=level,
                category=Category.COMMUNICATION,
                confidence=confidence,
                evidence=tuple(quotes) or (Evidence(survey.file, first[0], first[1]),),
                rank=rank,
                facts=facts,
            )
        )
    return findings


def _slowest(survey: Survey, comm: Communicator) -> tuple[str, int | None]:
    stages = {r: survey.stages[survey.owners[r]] for r in comm.began if r in survey.owners}
    if not stages:
        return "its set-up", None
    least = min(stages.values())
    late = [r for r, s in stages.items() if s is least]
    alone = late[0] if len(late) == 1 and len(stages) > 1 else None
    return _STAGE_NAMES[least], alone


def _versions(survey: Survey) -> list[Finding]:
    by_version: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    for host, (version, number, line) in survey.versions.items():
        if host:
            by_version[version].append((host, number, line))
    if len(by_version) < 2:
        return []
    parts = "; ".join(f"{v} on {places[0][0]}" for v, places in sorted(by_version.items()))
    return [
        Finding(
            kind="nccl.versions_differ",
            title=f"the hosts load different NCCL versions: {parts}",
            level=Level.FAILURE,
            category=Category.ENVIRONMENT,
            evidence=tuple(
                Evidence(survey.file, p[0][1], p[0][2], host=p[0][0]) for p in by_version.values()
            ),
        )
    ]


@dataclass(frozen=True, slots=True)
class _Difference:
    """A variable that must be alike on all hosts and is not. unset: hosts that do not print it."""

    name: str
    by_host: Mapping[str, Setting]
    unset: frozenset[str]

    @property
    def conflicts(self) -> bool:
        """Two hosts print different values."""
        return len({s.value for s in self.by_host.values()}) > 1

    def tell(self) -> str:
        """Its values with their hosts."""
        values = ", ".join(f"{s.value} on {h}" for h, s in sorted(self.by_host.items())[:4])
        unset = f", not set on {', '.join(sorted(self.unset)[:4])}" if self.unset else ""
        return f"{self.name} is {values}{unset}"


def _differences(survey: Survey) -> list[Finding]:
    """Variables that must be alike on all hosts and are not."""
    wrong = _read_differences(survey)
    if not wrong:
        return []
    quotes = [
        Evidence(survey.file, s.line, s.text, host=h)
        for difference in wrong[:4]
        for h, s in sorted(difference.by_host.items())[:3]
    ]
    if survey.size_mismatch is not None:
        quotes.append(Evidence(survey.file, *survey.size_mismatch))
    proven = survey.size_mismatch is not None
    # A variable is printed when it is first read, which not every rank needs to do: a value that is
    # merely absent elsewhere proves nothing by itself.
    unproven = Level.FAILURE if any(d.conflicts for d in wrong) else Level.CONTEXT
    parts = "; ".join(d.tell() for d in wrong[:4])
    names: list[Json] = [d.name for d in wrong]
    return [
        Finding(
            kind="nccl.environment_differs",
            title=f"NCCL is configured differently from host to host (a mismatch): {parts}",
            level=Level.CAUSE if proven else unproven,
            category=Category.ENVIRONMENT,
            confidence=Confidence.CONFIRMED if proven else Confidence.POSSIBLE,
            evidence=tuple(quotes),
            facts={"variables": names},
        )
    ]


def _read_differences(survey: Survey) -> list[_Difference]:
    hosts = {h for (h, _), stage in survey.stages.items() if stage >= Stage.INIT_STARTED}
    if len(hosts) < 2:
        return []
    differences = []
    for name, by_host in survey.settings.items():
        variable = known_variables().get(name)
        found = _Difference(name, by_host, frozenset(hosts - by_host.keys()))
        if variable is not None and variable.must_match and (found.unset or found.conflicts):
            differences.append(found)
    return differences


def _fallback(survey: Survey) -> list[Finding]:
    hosts = {h for h, _ in survey.stages}
    if len(hosts) < 2 and survey.nodes < 2:
        return []
    slow = {h: n for h, n in survey.networks.items() if n[0].lower() == "socket"}
    if not slow:
        return []
    host, (_, number, line) = next(iter(slow.items()))
    some = (
        f"{len(slow)} of {len(survey.networks)} hosts"
        if len(slow) < len(survey.networks)
        else "every host"
    )
    quotes = [Evidence(survey.file, number, line, host=host)]
    if survey.plugin_missing is not None:
        quotes.append(Evidence(survey.file, *survey.plugin_missing))
    mixed = len(slow) < len(survey.networks)
    return [
        Finding(
            kind="nccl.socket_fallback",
            title=f"NCCL talks between nodes over TCP sockets on {some}: no RDMA network was found",
            level=Level.FAILURE if mixed else Level.CONTEXT,
            category=Category.ENVIRONMENT if mixed else Category.PERFORMANCE,
            confidence=Confidence.CONFIRMED,
            evidence=tuple(quotes),
            host=host if mixed and len(slow) == 1 else None,
        )
    ]


def _overview(survey: Survey) -> list[Finding]:
    hosts = sorted({h for h, _ in survey.stages})
    versions = sorted({v[0] for h, v in survey.versions.items() if h or len(survey.versions) == 1})
    networks = sorted({n[0] for n in survey.networks.values()})
    complete = sum(stage is Stage.COMPLETE for stage in survey.stages.values())
    place = next(iter(survey.networks.values()), None) or next(iter(survey.versions.values()), None)
    if place is None:
        return []
    begun = any(stage >= Stage.INIT_STARTED for stage in survey.stages.values())
    parts = [
        f"NCCL {', '.join(versions)}" if versions else "NCCL",
        f"network {', '.join(networks)}" if networks else "",
        f"{complete} of {len(survey.stages)} processes completed a set-up" if begun else "",
    ]
    facts: dict[str, Json] = {
        "hosts": hosts[:64],
        "interfaces": dict(list(survey.interfaces.items())[:64]),
        "networks": networks,
        "versions": versions,
        "channels": dict(survey.channels),
        "ranks_to_host": _ranks_to_hosts(survey.owners),
    }
    return [
        Finding(
            kind="nccl.overview",
            title="; ".join(p for p in parts if p),
            level=Level.CONTEXT,
            confidence=Confidence.CONFIRMED,
            evidence=(Evidence(survey.file, place[1], place[2]),),
            facts=facts,
        )
    ]


def _ranks_to_hosts(owners: Mapping[int, tuple[str, str]]) -> dict[str, Json]:
    return {str(rank): host for rank, (host, _) in sorted(owners.items())[:4096]}
