"""Which node came late to the rendezvous, and what was it still doing when the others gave up?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import gmtime, strftime

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.causality.launch.master_address import TOLD
from firstfault_tools.causality.launch.unmet import (
    MOST_LINES,
    describe_launch,
    find_homes,
    find_place,
)
from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding
from firstfault_tools.log.digest import FileDigest, Line
from firstfault_tools.log.place import Place
from firstfault_tools.log.scan import make_line

_POD = expression(
    r"^\s*(?P<pod>[a-z0-9][a-z0-9.-]{2,200})\s+\d+/\d+\s+(?P<status>ContainerCreating|PodInitializing|Pending|Init:\d+/\d+|"
    r"ImagePullBackOff|ErrImagePull)\s+\d+\s"
)

_ROW = expression(
    r"^\s*(?P<pod>[a-z0-9][a-z0-9.-]{2,200}-\d{1,5})\s+\d+/\d+\s+(?P<status>Running|Error|CrashLoopBackOff)\s+(?P<restarts>\d{1,4})\b"
)
_WHY = expression(
    r"\s(?P<why>Pulling|FailedScheduling|FailedMount|FailedAttachVolume|Failed|BackOff)\s"
)


def find_waiting_pod(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """A listing of pods shows that the master's pod had not started when the others looked for it."""
    words = ("ContainerCreating", "PodInitializing", "Pending", "Init:", "ImagePull")
    for digest, number, text in incident.lines_with(words):
        match = _POD.match(text[:400])
        if match is None or not _is_master(match["pod"]) or _has_master(incident, match["pod"]):
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
        return describe_launch(
            "meeting",
            f"the master pod {match['pod']} is not running yet ({match['status']}{f'; {reason}' if reason else ''}), so its name "
            "does not resolve and nothing listens there, and the workers that started before it fail; let workers wait for the "
            "master (init container, restartPolicy OnFailure) or start all pods together (gang scheduling)",
            [line, *events[:1], _first_line(incident, failed[0])],
            Category.SCHEDULER,
        )
    return None


def find_restarted(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """One pod was restarted while its siblings ran on: their communicator has no place for a new process."""
    refused = [f for f in failed if any("refused" in e.text for e in f.evidence)]
    if not refused:
        return None
    rows: dict[str, tuple[int, str, Line]] = {}
    for digest, number, text in incident.lines_with(("Running", "Error", "CrashLoopBackOff")):
        match = _ROW.match(text[:300])
        if match is not None:
            line = make_line(digest.file, number, text, digest.year)
            rows[match["pod"]] = (int(match["restarts"]), match["status"], line)
    again = [pod for pod, (count, _, _) in rows.items() if count]
    still = [pod for pod, (count, status, _) in rows.items() if not count and status == "Running"]
    if len(again) != 1 or len(still) < 2 or len(still) + 1 != len(rows):
        return None
    count, _, line = rows[again[0]]
    found = describe_launch(
        "meeting",
        f"pod {again[0]} was restarted {count} times on its own while its {len(still)} peers ran on: the new process is refused "
        "because the peers do not listen for it any more, and a rank cannot join a communicator that is set up; restart all "
        "pods of the job together (elastic launcher, restart policy of the job), and look into the first end of this pod "
        "(kubectl logs --previous)",
        [line, _first_line(incident, refused[0])],
    )
    return replace(found, rank=incident.placement.ranks_of(Place(pod=again[0])).only)


def _has_master(incident: LogIncident, pod: str) -> bool:
    """The pod is the first worker of a job whose master is a pod of its own."""
    base = re.sub(r"worker[-_.]?\d+.*$", "", pod)
    if base == pod:
        return False
    names = (f"{base}master", f"{base}launcher", f"{base}head", f"{base}chief")
    return any(True for _ in incident.lines_with(names))


def _first_line(incident: LogIncident, finding: Finding) -> Line:
    """The first quoted line of a finding."""
    evidence = finding.evidence[0]
    digest = incident.digest_of(evidence.file)
    return make_line(evidence.file, evidence.line, evidence.text, digest.year)


@cache
def _activities() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """(what a node does, words that show it), most telling first."""
    raw = json.loads((Path(__file__).parent / "before_launch.json").read_text(encoding="utf-8"))
    return tuple((row["means"], expression(row["words"])) for row in raw["rows"])


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

LONGEST_WAIT_S = 3600.0


@dataclass(slots=True)
class _Node:
    """What one node printed: work before its launcher, its launch, and its failure to connect."""

    doing: list[tuple[str, Line]]
    started: Line | None = None
    last: Line | None = None

    def has_started(self, by: float) -> bool:
        """Its launcher ran before that time."""
        return self.started is not None and (self.started.time or 0) < by

    def last_work(self, by: float) -> tuple[str, Line] | None:
        """What it was at, shortly before that time."""
        near = [w for w in self.doing if by - LONGEST_WAIT_S < (w[1].time or 0) < by + 1]
        return near[-1] if near else None

    def works_after(self, time: float) -> bool:
        """It goes on with such work."""
        return any((line.time or 0) >= time for _, line in self.doing)


def _read_nodes(
    incident: LogIncident, failed: Sequence[Finding]
) -> tuple[dict[str, _Node], dict[str, Line]]:
    """What each node did, and the line in which one gave up waiting."""
    homes = find_homes(incident)
    nodes: dict[str, _Node] = {}
    victims: dict[str, Line] = {}
    lost = {
        (e.file, e.line) for f in failed if f.has(FindingRole.NOT_MET_AT_START) for e in f.evidence
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
    return nodes, victims


def find_late(incident: LogIncident, failed: Sequence[Finding]) -> Finding | None:
    """A node that was still installing, copying or pulling when the others gave up."""
    nodes, victims = _read_nodes(incident, failed)
    if not victims or len(nodes) < 2:
        return None
    first = min(victims.values(), key=lambda v: v.time or 0.0)
    gave_up = first.time or 0.0
    # unlabelled lines between labelled ones are anybody's
    mixed = {v.file for v in victims.values()} & {digest.file for digest in incident.digests}
    for place, node in nodes.items():
        if place in mixed or place in victims or node.has_started(gave_up):
            continue
        busy = node.last_work(gave_up)
        absent = node.started is None and not node.works_after(gave_up)
        if busy is not None and (not absent or len(nodes) == 2 or _is_master(place)):
            return _describe_late(place, busy, node, victims, first)
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
    told = TOLD.search(first.text)
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
    return describe_launch(
        "meeting",
        f"{role}{place} was late: it was still {what} at {_clock(line)}, when {who} gave up{span} ({_clock(first)}); "
        f"{started}, so nothing listened{where} before",
        [line, first, *([node.started] if node.started is not None else [])],
        Category.ENVIRONMENT,
    )


def _clock(line: Line) -> str:
    return strftime("%H:%M:%S", gmtime(line.time or 0.0))
