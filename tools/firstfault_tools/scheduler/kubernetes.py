"""What did Kubernetes do to the pods: killed for memory, evicted, preempted, never scheduled?

Reads `kubectl describe pod`, `kubectl get events`, `kubectl get pods` and `kubectl describe node`, saved
or pasted into a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact, known
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import (
    NumberedLine,
    keep_near,
    quote_line,
    read_lines,
)
from firstfault_tools.placement.pods import family_of
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.scheduler.kubernetes_description import (
    COMMAND,
    NAME,
    find_containers,
    make_finding,
)
from firstfault_tools.scheduler.kubernetes_reasons import (
    explain_reason,
    name_pod,
    say_reason,
)

# Without one of these nothing is found; "Reason:" and "Exit Code:" alone are too common in logs.
GATE = (
    "OOMKilled",
    "Last State:",
    "Exit Code:",
    "Evicted",
    "FailedScheduling",
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "NodeNotReady",
    "Preempt",
    "DeadlineExceeded",
    "BackoffLimitExceeded",
    "NodeShutdown",
    "TaintManagerEviction",
    "UnexpectedAdmissionError",
    "ContainerStatusUnknown",
    "CreateContainerConfigError",
    "CreateContainerError",
    "SystemOOM",
    "OOMKilling",
    "DiskPressure",
    "MemoryPressure",
    "NodeLost",
    "InvalidDiskCapacity",
    "Unhealthy",
    "Failed to pull image",
)
MARKERS = GATE

_EVENT = expression(
    r"^\s*(?:(?P<seen>\d+[smhd][\dsmhd]*|<unknown>|<invalid>)(?: \(x\d+ over \S+\))?\s+)?(?P<type>Warning|Normal)\s+"
    r"(?P<reason>[A-Z]\w{2,60})\s+(?P<rest>\S.*)$"
)
_OBJECT = expression(
    r"^(?P<kind>pod|node|job|pods|nodes|Pod|Node|Job|pytorchjob|statefulset)/(?P<name>[\w.-]{1,253})\s+(?P<message>.*)$"
)
_DESCRIBE_EVENT = expression(
    r"^(?P<age>\S+(?: \(x(?P<times>\d+) over [^)]+\))?)\s+(?P<source>[\w.-]+(?:, [\w.-]+)?)\s{2,}(?P<message>.*)$"
)
_READY = expression(r"^\s*(?P<pod>[a-z0-9][\w.-]+)\s+(?P<ready>\d+)/(?P<all>\d+)\s+Running\b")
_POD_ROW = expression(
    r"^(?:(?P<namespace>[a-z0-9][\w.-]*)\s+)?(?P<pod>[a-z0-9][a-z0-9.-]{1,252})\s+(?P<ready>\d+/\d+)\s+"
    r"(?P<status>[A-Za-z:]+[\w:/]*)\s+(?P<restarts>\d+)(?:\s+\((?P<ago>[^)]*)\))?\s+(?P<age>\d+[smhdy]\w*)"
    r"(?:\s+(?P<ip>[\d.]+|<none>)\s+(?P<node>\S+))?"
)


def find_in_lines(lines: Sequence[NumberedLine], file: str) -> tuple[Finding, ...]:
    """Findings about pods and nodes among numbered lines of any text."""
    near_all = lines
    lines = keep_near(lines, MARKERS, before=80, after=40)
    if not lines:
        return ()
    findings: list[Finding] = []
    findings.extend(find_containers(lines, file))
    findings.extend(_find_events(lines, file))
    findings.extend(_find_rows(lines, file))
    return tuple(weigh_strangers(drop_repeats(findings), near_all))


def weigh_strangers(
    findings: Sequence[Finding], lines: Sequence[NumberedLine]
) -> tuple[Finding, ...]:
    """Pods of somebody else, and pods that wait beside one that was taken down, are no causes."""
    struck = any(f.kind in _STRIKES and f.level is Level.CAUSE for f in findings)
    families = _find_families(lines)
    out = []
    for finding in findings:
        pod = finding.pod
        stranger = pod is not None and families and family_of(pod) not in families
        waits = finding.kind in _WAITS and struck
        out.append(replace(finding, level=Level.CONTEXT) if stranger or waits else finding)
    return tuple(out)


def _find_families(lines: Sequence[NumberedLine]) -> set[str]:
    """Base names of the pods of this job: those that wrote lines, or that a command asks about."""
    found: set[str] = set()
    for _, line in lines:
        if named := _LABELLED.match(line):
            found.add(family_of(named["pod"]))
        elif "kubectl" in line:
            found |= {family_of(m["pod"]) for m in _ASKED.finditer(line)}
            found |= {family_of(m["pod"]) for m in COMMAND.finditer(line)}
        elif name := NAME.match(line):
            found.add(family_of(name["name"]))
        else:
            row = _POD_ROW.match(line.strip())
            if row is not None and row["status"] == "Running" and _TRAINS.search(row["pod"]):
                found.add(family_of(row["pod"]))
    return found


_LABELLED = expression(
    r"^(?:\[pod/)?(?P<pod>[a-z0-9][a-z0-9.-]{2,200}-\d{1,5})(?:/[\w.-]+\]| [\w.-]+)? .{0,40}?(?:\[rank|step|epoch|iter|loss|NCCL)"
)
_ASKED = expression(
    r"\b(?:logs|exec|get pods? )\s+(?:-\S+ (?:[\w=-]+ )?)*(?P<pod>[a-z0-9][a-z0-9.-]+-[a-z0-9-]+)\b",
    short=0,
)
_TRAINS = expression(r"worker|master|trainer|launcher|-head|train")
_WAITS = frozenset({"kubernetes.unschedulable", "kubernetes.crash_loop", "kubernetes.image"})
_STRIKES = frozenset(
    f"kubernetes.{kind}"
    for kind in ("preempted", "evicted", "tainted", "oom_killed", "node_shutdown", "node_not_ready")
)


def drop_repeats(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """A pod's block, its event and its table row tell the same thing: the first one stays."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for finding in findings:
        container = finding.text(Fact.CONTAINER)
        key = (finding.kind, finding.pod, finding.text(Fact.NODE), container)
        loose = key[:2]
        if key in seen or (loose in seen and not container):
            continue
        seen.update((key, loose))
        kept.append(finding)
    return tuple(kept)


def _read_subject(rest: str, pod: str | None) -> tuple[str | None, str | None, str]:
    """Pod or node that an event is about, and what it says. pod: the one described above it."""
    if target := _OBJECT.match(rest):
        if target["kind"].lower().startswith("node"):
            return None, target["name"], target["message"]
        return target["name"], None, target["message"]
    told = _DESCRIBE_EVENT.match(rest)
    return pod, None, told["message"] if told else rest


def _find_events(lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    found: list[Finding] = []
    started: set[str | None] = set()
    pulls: dict[str | None, list[NumberedLine]] = {}
    pod: str | None = None
    for number, line in lines:
        if "kubectl" in line and (command := COMMAND.search(line)):
            pod = command["pod"]
        elif name := NAME.match(line):
            pod = name["name"]
        if "Warning" not in line and "Normal" not in line:
            continue
        event = _EVENT.match(line)
        if event is None:
            continue
        rest = event["rest"]
        if event["reason"] == "Started":
            target = _OBJECT.match(rest)
            started.add(target["name"] if target else pod)
        subject, node, message = _read_subject(rest, pod)
        if _PULLS.match(message):
            pulls.setdefault(subject, []).append((number, line))
        meaning = explain_reason(event["reason"])
        if meaning is None:
            continue
        who = f"Node {node}" if node else name_pod(subject)
        title = say_reason(who, meaning, event["reason"], message)
        found.append(
            make_finding(
                meaning,
                title,
                (file, number, line),
                pod=subject,
                node=node,
                reason=event["reason"],
                message=message,
            )
        )
    found += [_tell_late_pull(p, rows, file) for p, rows in pulls.items() if p in started]
    rows = [m for _, line in lines if "Running" in line and (m := _READY.match(line))]
    ready = {row["pod"] for row in rows if row["ready"] == row["all"]}
    return [_weigh_ready(_weigh_started(finding, started), ready) for finding in found]


_PULLS = expression(
    r"(?:Failed to pull|Back-off pulling) image |Error: (?:ErrImagePull|ImagePullBackOff)\b"
)


def _tell_late_pull(pod: str | None, rows: Sequence[NumberedLine], file: str) -> Finding:
    """A pod that started after all only waited for its image: the pull is tried again."""
    return Finding(
        kind="kubernetes.image_late",
        title=f"{name_pod(pod)}: the image was pulled only after another try; it started later",
        level=Level.CONTEXT,
        category=Category.ENVIRONMENT,
        evidence=tuple(quote_line(file, *row) for row in rows),
        facts=known(pod=pod),
    )


def _weigh_started(finding: Finding, started: set[str | None]) -> Finding:
    """A pod that started after all only waited: scheduling and mounting are tried again."""
    waited = finding.kind in ("kubernetes.unschedulable", "kubernetes.mount", "kubernetes.sandbox")
    if waited and finding.pod in started:
        title = f"{finding.title}; it started later"
        return replace(finding, level=Level.CONTEXT, title=title)
    return finding


def _weigh_ready(finding: Finding, ready: set[str]) -> Finding:
    """A probe that failed while the container came up: all containers of the pod are ready and run."""
    if finding.kind != "kubernetes.probe_failed" or finding.pod not in ready:
        return finding
    title = f"{finding.title}; the pod is ready and runs since"
    return replace(finding, level=Level.CONTEXT, title=title)


def _find_rows(lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    found: list[Finding] = []
    for number, line in lines:
        if "/" not in line:
            continue
        row = _POD_ROW.match(line.strip())
        if row is None:
            continue
        status = row["status"].removeprefix("Init:")
        meaning = explain_reason(status)
        if meaning is None:
            continue
        node = row["node"] if row["node"] and row["node"] != "<none>" else None
        place = f" on {node}" if node else ""
        title = f"Pod {row['pod']}{place}: {meaning.reading} ({status}, {row['restarts']} restarts)"
        found.append(
            make_finding(
                meaning, title, (file, number, line), pod=row["pod"], node=node, reason=status
            )
        )
    return found


def recognise_kubernetes(name: str, head: bytes) -> bool:
    """Saved kubectl output by its fixed headings."""
    text = head[:8192].decode("utf-8", errors="replace").lstrip()
    if text.startswith("Name:") and (
        "Namespace:" in text or "Containers:" in text or "Kubelet" in text
    ):
        return True
    first = text.split("\n", 1)[0]
    events = first.startswith(("LAST SEEN", "NAMESPACE")) and "REASON" in first
    pods = first.startswith(("NAME ", "NAMESPACE ")) and "READY" in first and "RESTARTS" in first
    return events or pods


def read_kubernetes(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of every saved kubectl output."""
    findings: list[Finding] = []
    for artefact in artefacts:
        findings.extend(find_in_lines(read_lines(artefact), artefact.name))
    return Reading(tuple(findings), {"files": [artefact.name for artefact in artefacts]})


SIGNS = ("Namespace:", "Containers:", "Kubelet", "LAST SEEN", "NAMESPACE", "RESTARTS")

READER = Reader(
    name="kubernetes",
    summary="kubectl describe, get events, get pods: memory kills, evictions, preemption, scheduling, images",
    recognise=recognise_kubernetes,
    read=read_kubernetes,
    # saved output often goes on with a log or another command
    owns=False,
)
