"""Which host is set up differently from its peers: PFC, DSCP trust, MTU, RoCE GIDs, memory lock?

Reads the same command pasted for several hosts: `mlnx_qos`, `ip link`, `ibv_devinfo`, `show_gids`,
`ulimit -l`. A setting must be alike on all hosts of a job; the host that differs prints no error itself.
The GID that NCCL was told to use must be one that other hosts can reach: no link-local row, no absent one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import (
    Category,
    Confidence,
    Evidence,
    Finding,
    Level,
    Strength,
    Together,
)
from firstfault_tools.hardware.excerpt import (
    QUOTES_PER_FINDING,
    NumberedLine,
    keep_marked,
    keep_near,
    quote_line,
)
from firstfault_tools.hardware.host_sections import Section, looks_like_host, split_sections
from firstfault_tools.log.logs import Logs

BESIDE = ("GID_INDEX", "GID[", "local GID index", "fe80:", ":ffff:")

GATE = (
    "PFC configuration", "trust state", " mtu ", "mtu=", "/mtu", "active_mtu:", "cma_roce_mode", "Global tclass",
    "max locked memory", "open files ", "DEV     PORT", "rx_discards_phy",
)  # fmt: skip
MARKERS = GATE
MOST_HOSTS = 4_096

_TRUST = expression(r"Priority trust state:\s*(?P<value>\w+)")
_ENABLED = expression(r"^\s*enabled\s+(?P<flags>[01](?:\s+[01]){7})\s*$")
_LINK_MTU = expression(r"^\s*\d+: (?P<device>[\w.@-]+): <[^>]*> mtu (?P<value>\d{3,5})\b")
_IFCONFIG = expression(r"^(?P<device>[\w.-]+): flags=\d+<[^>]*>\s+mtu (?P<value>\d{3,5})\b")
_SYS_MTU = expression(r"/sys/class/net/(?P<device>[\w.-]+)/mtu:(?P<value>\d{3,5})\b")
_INLINE_MTU = expression(
    r"^(?P<host>[\w.-]{2,62})[:,|]?\s+(?:(?P<device>(?:en|eth|ib|bond)[\w.-]*)[:,|]?\s+)?mtu[ =:]+(?P<value>\d{3,5})\b"
)
_ACTIVE_MTU = expression(r"^\s*active_mtu:\s+(?P<value>\d{3,4})\b")
_TCLASS = expression(r"Global tclass=(?P<value>\d+)")
_LOCKED = expression(r"max locked memory\s+\(kbytes, -l\)\s+(?P<value>\w+)")
_OPEN_FILES = expression(r"open files\s+\(-n\)\s+(?P<value>\w+)")
_GID = expression(
    r"^(?P<device>\w+)\s+\d+\s+(?P<value>\d{1,3})\s+[0-9a-f:]{30,}\s+\d+\.\d+\.\d+\.\d+\s+v2\b"
)
_DROPS = expression(r"rx_discards_phy:\s*(?P<value>\d+)")
_NUMBER = expression(r"^\s*(?P<value>\d{3,5})\s*$")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value on one host."""

    name: str
    value: str
    host: str
    place: NumberedLine


_WORDS = {
    "pfc": ("PFC (priority flow control) is on for", "the lossless class of RoCE is not protected there, so its packets are dropped and the peers run out of retries"),
    "trust": ("the QoS trust mode is", "DSCP marks of RoCE packets are not honoured there, so they leave the lossless class and are dropped"),
    "mtu": ("the interface MTU is", "packets of full size are lost towards the host with the smaller one"),
    "active_mtu": ("the RDMA MTU (active_mtu) is", "large RDMA messages are lost or refused"),
    "tclass": ("the RoCE traffic class is", "its packets travel in another class than those of the peers"),
    "memlock": ("the locked-memory limit is", "RDMA memory registration fails where it is too low"),
    "nofile": ("the open-file limit (ulimit -n) is", "sockets and files run out there (Too many open files) while the peers have room"),
    "gid": ("the RoCE v2 address is at GID index", "one NCCL_IB_GID_INDEX does not fit all hosts"),
}  # fmt: skip

_BREAKS = frozenset({"pfc", "trust", "mtu", "active_mtu"})
"""Settings that lose packets when they differ; of the others a difference can be meant."""

_LOCAL = expression(r"^(?:lo|docker|veth|virbr|cali|flannel|cni|tun|br-)")


def read_settings(sections: Iterable[Section]) -> list[Setting]:
    """Settings with the host they belong to."""
    found: list[Setting] = []
    for section in sections:
        for number, line in section.lines:
            found += _read_line(section, number, line)
            if len(found) > MOST_HOSTS * 4:
                return found
    return found


def _find_mtu(command: str, line: str) -> tuple[str, str] | None:
    """(name, value) of the MTU of a device, or of the one whose file the command reads."""
    for pattern in (_LINK_MTU, _IFCONFIG, _SYS_MTU):
        if (mtu := pattern.search(line)) and not _LOCAL.match(mtu["device"]):
            return f"mtu {mtu['device']}", mtu["value"]
    number_only = _NUMBER.match(line) if "/mtu" in command else None
    return ("mtu", number_only["value"]) if number_only is not None else None


def _read_line(section: Section, number: int, line: str) -> list[Setting]:
    if len(line) > 400:
        return []
    place = (number, line)
    if (inline := _INLINE_MTU.match(line)) and looks_like_host(inline["host"]):
        name = f"mtu {inline['device']}" if inline["device"] else "mtu"
        return [Setting(name, inline["value"], inline["host"], place)]
    host = section.host
    if host is None:
        return []
    if trust := _TRUST.search(line):
        return [Setting("trust", trust["value"], host, place)]
    if enabled := _ENABLED.match(line):
        on = [str(i) for i, flag in enumerate(enabled["flags"].split()) if flag == "1"]
        words = f"priority {', '.join(on)}" if on else "no priority"
        return [Setting("pfc", words, host, place)]
    if mtu := _find_mtu(section.command, line):
        return [Setting(*mtu, host, place)]
    for name, pattern in (
        ("active_mtu", _ACTIVE_MTU),
        ("tclass", _TCLASS),
        ("memlock", _LOCKED),
        ("nofile", _OPEN_FILES),
    ):
        if value := pattern.search(line):
            return [Setting(name, value["value"], host, place)]
    if gid := _GID.match(line):
        return [Setting(f"gid {gid['device']}", gid["value"], host, place)]
    return []


def compare_settings(
    settings: Sequence[Setting], drops: dict[str, int], file: str
) -> list[Finding]:
    """One finding for each host that differs from most others, with all that differs there.

    drops: received packets discarded by host, as a witness.
    """
    odd: dict[str, list[tuple[Setting, str, int]]] = defaultdict(list)
    pairs: list[tuple[Setting, Setting]] = []
    for name in dict.fromkeys(s.name for s in settings):
        first: dict[str, Setting] = {}
        for setting in settings:
            if setting.name == name:
                first.setdefault(setting.host, setting)
        values = Counter(s.value for s in first.values())
        if len(values) < 2:
            continue
        if len(first) == 2:
            one, other = first.values()
            pairs.append((one, other))
            continue
        usual, count = values.most_common(1)[0]
        if count * 2 <= len(first):  # no majority: nobody is the odd one
            continue
        for host, setting in first.items():
            if setting.value != usual:
                odd[host].append((setting, usual, count))
    found = [_describe(host, rows, drops, file) for host, rows in odd.items()]
    return [*found, *([_describe_pairs(pairs, file)] if pairs else [])]


def _describe_pairs(pairs: Sequence[tuple[Setting, Setting]], file: str) -> Finding:
    """Two hosts that differ: which of them is wrong is not said."""
    parts = []
    for one, other in pairs[:4]:
        key, _, device = one.name.partition(" ")
        on = f" on {device}" if device else ""
        words = _WORDS[key][0]
        parts.append(f"{words} {one.value}{on} at {one.host} and {other.value} at {other.host}")
    return _make(
        "the two hosts are set up differently: "
        f"{'; '.join(parts)}: {_WORDS[pairs[0][0].name.partition(' ')[0]][1]}",
        [s for pair in pairs for s in pair],
        None,
        file,
    )


def _make(title: str, settings: Sequence[Setting], host: str | None, file: str) -> Finding:
    evidence: tuple[Evidence, ...] = tuple(
        quote_line(file, *s.place, host=s.host) for s in settings[:QUOTES_PER_FINDING]
    )
    keys = {s.name.partition(" ")[0] for s in settings}
    return Finding(
        kind="network.mtu_differs" if keys <= {"mtu", "active_mtu"} else "network.host_setting",
        title=title,
        level=Level.CAUSE if keys & _BREAKS else Level.FAILURE,
        category=Category.COMMUNICATION,
        confidence=Confidence.CONFIRMED,
        evidence=evidence,
        host=host,
        facts={"settings": [s.name for s in settings]},
    )


def _describe(
    host: str, rows: Sequence[tuple[Setting, str, int]], drops: dict[str, int], file: str
) -> Finding:
    parts, why = [], []
    for setting, usual, count in rows:
        key, _, device = setting.name.partition(" ")
        words, meaning = _WORDS[key]
        parts.append(
            f"{words} {setting.value}{f' on {device}' if device else ''} (the other {count} hosts: {usual})"
        )
        why.append(meaning)
    dropped = f"; {drops[host]:,} received packets were discarded there" if drops.get(host) else ""
    title = f"host {host} is set up differently: {'; '.join(parts)}: {why[0]}{dropped}"
    return _make(title, [s for s, *_ in rows], host, file)


def _read_drops(lines: Sequence[NumberedLine], sections: Sequence[Section]) -> dict[str, int]:
    hosts = {n: s.host for s in sections if s.host for n, _ in s.lines}
    out: dict[str, int] = {}
    for number, line in lines:
        if found := _DROPS.search(line):
            first = line.split()[0].rstrip(":")
            host = first if looks_like_host(first) else hosts.get(number)
            if host and int(found["value"][:15]):
                out[host] = int(found["value"][:15])
    return out


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings of settings pasted for several hosts."""
    if not keep_marked(lines, MARKERS):
        return ()
    every, lines = lines, keep_near(lines, MARKERS, before=120, after=40)
    sections = split_sections(lines)
    settings = read_settings(sections)
    if len({s.host for s in settings}) < 2:
        return ()
    found = compare_settings(settings, _read_drops(lines, sections), file)
    return tuple(_blame_limits(found, every))


def _blame_limits(findings: Iterable[Finding], lines: Sequence[NumberedLine]) -> Iterator[Finding]:
    """A lower limit of open files is the cause where files ran out."""
    ran_out = next((n for n, _ in keep_marked(lines, ("Too many open files",))), None)
    for finding in findings:
        if ran_out is None or finding.names(Fact.SETTINGS)[:1] != ("nofile",):
            yield finding
            continue
        facts = {**finding.facts, "starts_at": ran_out, "survived": False}
        yield replace(
            finding,
            level=Level.CAUSE,
            category=Category.ENVIRONMENT,
            page="file-and-process-limits",
            facts=facts,
            strength=Strength(Together.SETTING),
        )


MOST_GID_LINES = 2_000
LEAST_ROWS = 2
_GID_SET = expression(
    r"NCCL_IB_GID_INDEX(?:=| set by environment to |['\"]?\s?[:=]\s?['\"]?)(\d{1,3})\b"
)
_GID_USED = expression(r"local GID index (?P<index>\d{1,3}), local GID (?P<gid>[0-9a-fA-F:.]+)")
_GID_ROW = expression(
    r"GID\[\s*(?P<index>\d{1,3})\]:\s*(?P<gid>[0-9a-fA-F:.]{4,})(?:,?\s*RoCE (?P<version>v\d))?|"
    r"^\W{0,3}\w+\s+\d+\s+(?P<index2>\d{1,3})\s+(?P<gid2>[0-9a-f:]{20,})\s+(?:\d+\.\d+\.\d+\.\d+\s+)?(?P<version2>v\d)\b"
)


def find_in_incident(incident: Logs, findings: Sequence[Finding]) -> list[Finding]:
    """The GID in use, where its row of the table is link-local and another row is reachable."""
    if not any(f.has(FindingRole.RDMA) and not f.survived for f in findings):
        return []
    used, rows = _read_gids(incident)
    if used is None:
        return []
    if used[0] not in rows:
        return [_describe_absent(used, rows)] if len(rows) >= LEAST_ROWS else []
    gid, _, place = rows[used[0]]
    if not gid.lower().startswith("fe80"):
        return []
    better, hint = _find_reachable(rows)
    return [
        Finding(
            kind="network.gid_link_local",
            title=(
                f"GID index {used[0]} that NCCL uses is a link-local address ({gid}), which is not routed between hosts: "
                f"the RDMA queue pairs cannot be connected{hint}"
            ),
            level=Level.CAUSE,
            category=Category.COMMUNICATION,
            evidence=tuple(dict.fromkeys([used[1], place, *better])),
            facts={"gid_index": used[0], "starts_at": 1, "survived": False},
            strength=Strength(Together.RANKS),
        )
    ]


_GidRows: TypeAlias = dict[str, tuple[str, str, Evidence]]
"""By index: the GID, its RoCE version or nothing, the line."""


def _read_gids(incident: Logs) -> tuple[tuple[str, Evidence] | None, _GidRows]:
    """The index in use, as the first line says it, and the rows of the table."""
    used: tuple[str, Evidence] | None = None
    rows: _GidRows = {}
    lines = incident.lines_with(BESIDE)
    for digest, number, text in islice(lines, MOST_GID_LINES):
        quote = quote_line(digest.file, number, text)
        if (told := _GID_USED.search(text)) is not None:
            used = used or (told["index"], quote)
            rows.setdefault(told["index"], (told["gid"], "", quote))
        elif (chosen := _GID_SET.search(text)) is not None:
            used = used or (chosen[1], quote)
        elif (row := _GID_ROW.search(text)) is not None:
            version = row["version"] or row["version2"] or ""
            rows[row["index"] or row["index2"]] = (row["gid"] or row["gid2"], version, quote)
    return used, rows


def _find_reachable(rows: _GidRows) -> tuple[list[Evidence], str]:
    """The row of the table that should be used, and words for it."""
    for index, (gid, version, place) in rows.items():
        if ":ffff:" in gid.lower() and version == "v2":
            return [place], f"; index {index} is the RoCE v2 row of the IPv4 address"
    return [], ""


def _describe_absent(used: tuple[str, Evidence], rows: _GidRows) -> Finding:
    """The table is shown and has no such row."""
    _, hint = _find_reachable(rows)
    known = sorted(rows, key=int)
    return Finding(
        kind="network.gid_absent",
        title=(
            f"GID index {used[0]} that NCCL was told to use is not in the GID table of the port (it has {known[0]} to {known[-1]}), "
            f"so the RDMA queue pairs cannot be connected: unset NCCL_IB_GID_INDEX or correct it{hint}"
        ),
        level=Level.CAUSE,
        category=Category.ENVIRONMENT,
        evidence=(used[1], rows[known[-1]][2]),
        facts={"gid_index": used[0], "starts_at": 1, "survived": False},
        strength=Strength(Together.RANKS),
    )
