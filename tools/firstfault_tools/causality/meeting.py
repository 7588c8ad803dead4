"""Why did the processes not meet at the store: a false address, nobody who hosts it, a node that came late?

"Could not reach the master" tells the victim's side. Why stands elsewhere: in the address itself (a number, a
node list, a variable left unexpanded), in what the master's name resolves to, in what another node was
still doing when the wait ran out, or in the store's own count of who joined.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from time import gmtime, strftime

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.master_address import explain_address
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Finding, Level
from firstfault_tools.hardware.host_sections import read_sign
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.scan import make_line

NOT_MET = frozenset(
    {
        *("store-clients-missing", "store-connect-timeout", "rendezvous-timeout"),
        *("rendezvous-connection", "rendezvous-closed", "master-port-in-use"),
        *("store-wait-timeout", "store-get-timeout", "gloo-timeout", "nccl-bootstrap-connect"),
        *("store-name-unresolved", "master-name-unresolved-at-start", "store-connect-refused-retry", "master-host-not-found"),
    }
)  # fmt: skip
"""Signatures of nodes that did not meet."""

MOST_LINES = 50_000
COUNT_SIGNATURE = "signature.store-clients-missing"
_FILE = expression(r"file://(?P<path>/[\w./-]{1,200})")
_TOLD = expression(
    r"(?:connect to|network address(?:es)? of|attempt to connect to an IPv[46] address of) (?:any network address of )?"
    r"\((?P<address>[^()]{1,200}?),\s*(?P<port>\d{1,5})\)"
)
_SET = expression(
    r"\b(?:MASTER_ADDR|master_addr|master-addr|rdzv_endpoint|rdzv-endpoint|main_process_ip)['\"]?\s*[=: ]\s*['\"]?(?P<address>[^\s'\",]{1,200})"
)


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The reason why processes did not meet, where the logs show one."""
    counted = _count_joined(incident, findings)
    live = [f for f in findings if not f.facts.get("survived")]
    failed = [f for f in live if f.kind.removeprefix("signature.") in NOT_MET]
    if not failed or any(r.trained() for r in incident.progress.values()):
        return counted
    looks = [_odd_address, _find_unhosted, _find_unrecognised, _find_waiting_pod]
    deep = (Level.CAUSE, Level.FAILURE)
    if all(f in failed or f.level not in deep or f in counted for f in live):
        looks.append(_find_late)
    for look in looks:
        found = look(incident, failed)
        if found is not None:
            return [*counted, found]
    return counted


def find_place(digest: FileDigest, text: str, line: Line, homes: Mapping[str, str]) -> str:
    """Node that wrote a line: its label, the host of the file's prompts, else the file."""
    label = _LABEL.match(text)
    if label is not None and _RANK_LABEL.match(label["place"]) is None:
        return label["place"]
    return line.speaker.host or homes.get(digest.file) or digest.file


_LABEL = expression(r"^\s*\[(?P<place>[A-Za-z][\w.]*(?:-[\w.]+)*)\]:?\s")
_RANK_LABEL = expression(
    r"(?i)^(?:rank|default|gpu|info|warn(?:ing)?|error|debug|critical|c10d|rank_?)\W?\d*$"
)


def find_homes(incident: LogIncident) -> dict[str, str]:
    """Host of each file whose shell prompts all name the same one."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for count, (digest, _, text) in enumerate(incident.lines_with(("# ", "$ "))):
        if count >= MOST_LINES:
            break
        sign = read_sign(text[:400])
        if sign is not None and sign[0] is not None:
            hosts[digest.file].add(sign[0])
    return {file: next(iter(names)) for file, names in hosts.items() if len(names) == 1}


# --- the address itself ---------------------------------------------------------------------------


def _odd_address(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """An address of the master that cannot mean what its owner hopes."""
    seen: set[str] = set()
    marks = ("connect to", "network address", "MASTER_ADDR", "aster_addr", "aster-addr", "rdzv")
    for count, (digest, number, text) in enumerate(incident.lines_with(marks)):
        if count >= MOST_LINES:
            break
        for pattern in (_TOLD, _SET):
            for match in pattern.finditer(text[:2000]):
                address = match["address"].strip()
                if address in seen or (pattern is _SET and text[: match.start()].count("#")):
                    continue
                seen.add(address)
                why = explain_address(address)
                if why is None or (pattern is _SET and "$" in address):
                    continue
                line = make_line(digest.file, number, text, digest.year)
                return _describe(
                    f"the master address is {address!r}: {why}",
                    [line, *_quote_resolved(incident, address, line)],
                    Category.ENVIRONMENT,
                )
    return None


def _quote_resolved(incident: LogIncident, address: str, first: Line) -> list[Line]:
    """Lines that show what a numeric name became."""
    if not address.isdecimal():
        return []
    word = str(IPv4Address(int(address[:12])))
    found = incident.lines_with((word,))
    lines = (make_line(d.file, n, t, d.year) for d, n, t in found if word in t)
    line = next((one for one in lines if one.number != first.number), None)
    return [line] if line is not None else []


# --- nobody hosts the store -----------------------------------------------------------------------

_ENDPOINT = expression(
    r"rdzv[-_]endpoint['\"]?\s*[=: ]\s*['\"]?(?P<host>\d{1,3}(?:\.\d{1,3}){3})(?::(?P<port>\d+))?"
)
_OWN = expression(
    r"(?:^|\s)(?P<nic>[a-z][\w.@-]{0,30})\s+(?:UP|UNKNOWN)\s+(?P<address>\d{1,3}(?:\.\d{1,3}){3})/\d{1,2}\b|"
    r"\binet (?:addr:)?(?P<inet>\d{1,3}(?:\.\d{1,3}){3})\b"
)
_RESOLVED = expression(
    r"^\s*(?P<address>\d{1,3}(?:\.\d{1,3}){3})(?:\s+(?P<name>[A-Za-z][\w.-]*))?\s*"
)
_ASKS_NAME = expression(
    r"hostname -[iI]\b|getent (?:a?hosts\w*) \"?(?:\$\(|`)hostname|getent a?hosts\w* (?P<name>[\w.-]+)"
)
_LISTENING = expression(r"hosts the TCP store|server socket has started to listen|LISTEN\s+\d")
LOOKED_ROUND = 6


def _find_unhosted(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """c10d: the node that owns the endpoint's address does not find it under its own host name."""
    for digest, number, text in incident.lines_with(("rdzv",)):
        match = _ENDPOINT.search(text)
        if match is None or match["host"].startswith("127."):
            continue
        endpoint = match["host"]
        owner = _find_owner(incident, endpoint)
        if owner is None or any(
            _LISTENING.search(t)
            for _, _, t in incident.lines_with(("hosts the TCP store", "to listen"))
        ):
            continue
        own, nic, line = owner
        resolved = _find_resolved(incident, own, endpoint)
        if resolved is None:
            continue
        address, name, place = resolved
        via = f" (interface {nic})" if nic else ""
        port = match["port"] or "29400"
        return _describe(
            f"no node hosts the store of the rendezvous: {name or own} has the endpoint's address {endpoint}{via}, but its "
            f"host name resolves to {address}, another interface, so torchrun does not recognise the endpoint as this "
            f"machine (is_host is false), all nodes connect as clients and nobody listens on port {port}; name the "
            "endpoint by a host name that resolves to this address, correct /etc/hosts, or set "
            "--rdzv-conf is_host=true on this node",
            [place, line, make_line(digest.file, number, text, digest.year)],
            Category.ENVIRONMENT,
        )
    return None


_NAMED = expression(
    r"rdzv[-_]endpoint['\"]?\s*[=: ]\s*['\"]?(?P<host>[A-Za-z][\w-]*(?:\.[\w-]+)+)(?::(?P<port>\d+))?"
)


def _find_unrecognised(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """c10d: the endpoint's name is another form of this host's own name, which is not taken for the same."""
    if not any(f.kind.endswith(("rendezvous-connection", "store-connect-timeout")) for f in failed):
        return None
    for digest, number, text in incident.lines_with(("rdzv",)):
        match = _NAMED.search(text)
        if match is None:
            continue
        own = find_homes(incident).get(digest.file, "")
        short = match["host"].split(".")[0]
        if own not in (short, match["host"]):
            continue
        for place, at, listed in incident.lines_with((short,)):
            names = listed.split("#")[0].split()
            full = next((n for n in names[1:] if n.startswith(f"{match['host']}.")), None)
            if full is None or names[0].count(".") != 3 or short not in names:
                continue
            return _describe(
                f"no node hosts the store of the rendezvous: the endpoint {match['host']} is this node {own} itself, but "
                f"torchrun compares it with the host name ({short}) and the full name ({full}) and recognises neither "
                "(is_host is false), so all nodes connect as clients and nobody listens; use the host name or full name as "
                "endpoint, or --rdzv-conf is_host=true on this node",
                [
                    make_line(digest.file, number, text, digest.year),
                    make_line(place.file, at, listed, place.year),
                ],
                Category.ENVIRONMENT,
            )
    return None


def _find_owner(incident: LogIncident, address: str) -> tuple[str, str, Line] | None:
    """(file, interface, line) where a listing of interfaces shows the address."""
    for digest, number, text in incident.lines_with((address,)):
        for match in _OWN.finditer(text[:400]):
            if address in (match["address"], match["inet"]):
                return (
                    digest.file,
                    match["nic"] or "",
                    make_line(digest.file, number, text, digest.year),
                )
    return None


def _find_resolved(incident: LogIncident, file: str, endpoint: str) -> tuple[str, str, Line] | None:
    """(address, name, line) of what the host's own name resolves to in that file, if not the endpoint."""
    digest = incident.digest_of(file)
    asked = 0
    for number, text in digest.kept:
        if _ASKS_NAME.search(text[:400]) is not None:
            asked = number
            continue
        if not asked or number - asked > LOOKED_ROUND:
            continue
        match = _RESOLVED.match(text[:200])
        if match is None:
            continue
        rest = text.split()
        if endpoint in rest:
            return None
        return match["address"], match["name"] or "", make_line(file, number, text, digest.year)
    return None


# --- a pod that does not run yet ------------------------------------------------------------------

_POD = expression(
    r"^\s*(?P<pod>[a-z0-9][a-z0-9.-]{2,200})\s+\d+/\d+\s+(?P<status>ContainerCreating|PodInitializing|Pending|Init:\d+/\d+|"
    r"ImagePullBackOff|ErrImagePull)\s+\d+\s"
)
_WHY = expression(
    r"\s(?P<why>Pulling|FailedScheduling|FailedMount|FailedAttachVolume|Failed|BackOff)\s"
)


def _find_waiting_pod(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """A listing of pods shows that the master's pod had not started when the others looked for it."""
    words = ("ContainerCreating", "PodInitializing", "Pending", "Init:", "ImagePull")
    for digest, number, text in incident.lines_with(words):
        match = _POD.match(text[:400])
        if match is None or not _is_master(match["pod"]):
            continue
        line = make_line(digest.file, number, text, digest.year)
        events = [
            make_line(d.file, n, t, d.year)
            for d, n, t in incident.lines_with(
                ("Pulling ", "FailedScheduling", "FailedMount", "BackOff")
            )
            if _WHY.search(t)
        ]
        reason = " ".join(events[0].text.split())[:160] if events else ""
        return _describe(
            f"the master pod {match['pod']} is not running yet ({match['status']}{f'; {reason}' if reason else ''}), so its name "
            "does not resolve and nothing listens there, and the workers that started before it fail; let workers wait for the "
            "master (init container, restartPolicy OnFailure) or start all pods together (gang scheduling)",
            [line, *events[:1], make_line_of(incident, failed[0])],
            Category.SCHEDULER,
        )
    return None


def make_line_of(incident: LogIncident, finding: Finding) -> Line:
    """The first quoted line of a finding."""
    evidence = finding.evidence[0]
    digest = incident.digest_of(evidence.file)
    return make_line(evidence.file, evidence.line, evidence.text, digest.year)


# --- a node that came late ------------------------------------------------------------------------


@cache
def _activities() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """(what a node does, words that show it), most telling first."""
    raw = json.loads((Path(__file__).parent / "before_launch.json").read_text(encoding="utf-8"))
    return tuple((row["means"], re.compile(row["words"])) for row in raw["rows"])


_STARTED = expression(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|deepspeed|composer)\s|MASTER_ADDR=|Initializing distributed|"
    r"Starting elastic_operator|init_process_group|server socket|init_distributed|hosts the TCP store"
)
_WAITED = expression(
    r"(?:timed out after|within|timeout[ =:]+) ?(?P<value>\d+(?:\.\d+)?) ?(?P<unit>ms|s|seconds|minutes)?"
)
_HEAD = expression(
    r"^\s*(?:\[[^\]]{1,64}\]:?\s*)?(?:[A-Za-z][\w.-]*[:|]\s+)?(?:\[?20\d\d\S+[T ]?\d\d:\S+\s?)?"
)
"""Label and time in front of what was said."""

_AT_START = frozenset(
    {
        *(
            "store-clients-missing",
            "store-connect-timeout",
            "rendezvous-timeout",
            "rendezvous-connection",
        ),
        *(
            "store-name-unresolved",
            "master-name-unresolved-at-start",
            "store-connect-refused-retry",
        ),
    }
)
"""Signatures of processes that had not met yet; a wait for a key of the store may be of any time."""

LONGEST_WAIT_S = 3600.0


@dataclass(slots=True)
class _Node:
    """What one node printed: work before its launcher, its launch, and its failure to connect."""

    doing: list[tuple[str, Line]]
    started: Line | None = None
    last: Line | None = None


def _find_late(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """A node that was still installing, copying or pulling when the others gave up."""
    homes = find_homes(incident)
    nodes: dict[str, _Node] = {}
    victims: dict[str, Line] = {}
    lost = {
        (e.file, e.line)
        for f in failed
        if f.kind.removeprefix("signature.") in _AT_START
        for e in f.evidence
    }
    for digest, number, text in _timed_lines(incident):
        line = make_line(digest.file, number, text, digest.year)
        if line.time is None:
            continue
        place = find_place(digest, text, line, homes)
        node = nodes.setdefault(place, _Node([]))
        node.last = line
        if (digest.file, number) in lost or "client socket has timed out" in text:
            victims.setdefault(place, line)
        elif _STARTED.search(text[:1000]):
            node.started = node.started or line
        else:
            said = _HEAD.sub("", text[:1000])
            what = next((w for w, pattern in _activities() if pattern.search(said)), None)
            if what is not None:
                node.doing.append((what, line))
    if not victims or len(nodes) < 2:
        return None
    first = min(victims.values(), key=lambda v: v.time or 0.0)
    gave_up = first.time or 0.0
    files = {digest.file for digest in incident.digests}
    for place, node in nodes.items():
        # unlabelled lines between labelled ones are anybody's
        if place in files and any(v.file == place for v in victims.values()):
            continue
        if place in victims or (node.started is not None and (node.started.time or 0) < gave_up):
            continue
        busy = [
            (w, b) for w, b in node.doing if gave_up - LONGEST_WAIT_S < (b.time or 0) < gave_up + 1
        ]
        later = [b for _, b in node.doing if (b.time or 0) >= gave_up]
        if not busy or (
            node.started is None and not later and len(nodes) > 2 and not _is_master(place)
        ):
            continue
        return _describe_late(place, busy[-1], node, victims, first)
    return None


def _timed_lines(incident: LogIncident) -> Iterator[tuple[FileDigest, int, str]]:
    for count, (digest, number, text) in enumerate(incident.lines_with((":",))):
        if count >= MOST_LINES:
            return
        yield digest, number, text


def _is_master(place: str) -> bool:
    return (
        re.search(r"(?i)master|head|launcher|(?:node|worker|rank)[-_.]?0+(?:\D|$)", place)
        is not None
    )


def _describe_late(
    place: str, busy: tuple[str, Line], node: _Node, victims: dict[str, Line], first: Line
) -> Finding:
    what, line = busy
    wait = _WAITED.search(first.text)
    span = f" after {wait['value']} {wait['unit'] or 's'}" if wait is not None else ""
    told = _TOLD.search(first.text)
    where = f" on {told['address']}:{told['port']}" if told is not None else ""
    started = (
        f"its own launcher started at {_clock(node.started)} only"
        if node.started is not None
        else "its own launcher is not seen to start at all"
    )
    who = ", ".join(sorted(victims)[:4])
    role = (
        "the master node " if _is_master(place) and not place.lower().startswith("master") else ""
    )
    return _describe(
        f"{role}{place} was late: it was still {what} at {_clock(line)}, when {who} gave up{span} ({_clock(first)}); "
        f"{started}, so nothing listened{where} before; install and copy everything before the start (in the image), let "
        "the nodes wait for each other, or raise the limit of the rendezvous itself "
        "(a timeout of the process group does not count here)",
        [line, first, *([node.started] if node.started is not None else [])],
        Category.ENVIRONMENT,
    )


def _clock(line: Line) -> str:
    return strftime("%H:%M:%S", gmtime(line.time or 0.0))


# --- the store's own count ------------------------------------------------------------------------


def _count_joined(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """One finding where a store counted more processes than the job has.

    More than the world size means that the file of a `file://` rendezvous was not removed after a crash,
    or that two jobs use one master address and port.
    """
    for finding in findings:
        joined, world = (str(finding.facts.get(k) or "") for k in ("joined", "world"))
        if finding.kind != COUNT_SIGNATURE or finding.facts.get("survived"):
            continue
        if not (joined.isdecimal() and world.isdecimal() and int(joined) > int(world)):
            continue
        found = (
            (match["path"], make_line(digest.file, number, text, digest.year))
            for digest, number, text in incident.lines_with(("file://",))
            if (match := _FILE.search(text)) is not None
        )
        path, line = next(found, ("", None))
        why = (
            f"the rendezvous file {path} is left over from an earlier run that crashed (stale file); remove it before "
            "each start, or use tcp:// or env://"
            if path
            else "two jobs use the same master address and port, or processes of an earlier run still hold the store"
        )
        evidence = (*finding.evidence[:2], *((line.evidence(),) if line is not None else ()))
        return [
            Finding(
                kind="store.too_many",
                title=f"{joined} processes joined a store of a job of {world}: {why}",
                level=Level.CAUSE,
                category=Category.SCHEDULER if not path else Category.ENVIRONMENT,
                confidence=Confidence.LIKELY,
                evidence=evidence,
                page="rendezvous-failed",
                facts={"survived": False, "joined": int(joined), "world": int(world)},
            )
        ]
    return []


def _describe(title: str, lines: Sequence[Line], category: Category) -> Finding:
    return Finding(
        kind="launch.meeting",
        title=title,
        level=Level.CAUSE,
        category=category,
        confidence=Confidence.CONFIRMED,
        evidence=tuple(line.evidence() for line in lines[:4]),
        page="rendezvous-failures",
        facts={"survived": False, "specificity": 2000},
    )
