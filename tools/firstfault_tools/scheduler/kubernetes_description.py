"""What does `kubectl describe pod` say of how containers and their pod ended?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from datetime import UTC, datetime

from firstfault_tools.dataclass import dataclass
from firstfault_tools.expressions import expression
from firstfault_tools.facts import Fact, known
from firstfault_tools.findings import Evidence, Finding
from firstfault_tools.hardware.excerpt import NumberedLine, quote_line
from firstfault_tools.scheduler.kubernetes_reasons import (
    ReasonMeaning,
    explain_exit,
    explain_reason,
    name_pod,
    say_reason,
)

COMMAND = expression(r"kubectl\b.*?\bdescribe\s+(?:pods?|po)[/ ]+(?P<pod>[a-z0-9][\w.-]{0,252})")
_PROMPT = expression(r"^\s*(?:\$|#|\S+[@:]\S*[$#])\s")
NAME = expression(r"^Name:\s+(?P<name>[a-z0-9][\w.-]{0,252})\s*$")
_FIELD = expression(r"^(?P<indent>\s*)(?P<key>[A-Za-z][\w ./-]{0,60}?):\s*(?P<value>.*?)\s*$")


@dataclass(slots=True)
class Container:
    """State of one container while its block is read."""

    pod: str | None = None
    node: str | None = None
    name: str | None = None
    reason: str | None = None
    memory_limit: str | None = None
    restarts: str | None = None
    ended: list[Ended] = field(default_factory=list)


@dataclass(slots=True)
class Ended:
    """One `Terminated` or `Waiting` block."""

    when: str
    number: int
    text: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    finished: str | None = None
    message: str | None = None

    def note(self, key: str, value: str, number: int, line: str) -> bool:
        """Take a field of the block; False where it is none that says how it ended."""
        if key == "Reason" and not self.reason:
            self.reason, self.number, self.text = value, number, line
        elif key == "Exit Code" and value.lstrip("-").isdecimal():
            self.exit_code = int(value[:6])
        elif key == "Signal" and value.isdecimal():
            self.signal = int(value[:4])
        elif key == "Finished":
            self.finished = value
        elif key == "Message":
            self.message = value
        else:
            return False
        return True


@dataclass(slots=True)
class _PodReader:
    """Reads `kubectl describe pod`. current: the container whose block is read; told: the pod's own end."""

    file: str
    found: list[Finding] = field(default_factory=list)
    current: Container = field(default_factory=Container)
    told: Finding | None = None
    in_limits: bool = False

    def begin(self, container: Container) -> None:
        """Describe the container that was read, and read this one."""
        self.found.extend(describe_container(self.current, self.file))
        self.current = container

    def read(self, number: int, line: str) -> None:
        """Take one line: a heading, or a field of the block it stands in."""
        if "kubectl" in line and (command := COMMAND.search(line)):
            self.begin(Container(pod=command["pod"]))
        elif name := NAME.match(line):
            self.begin(Container(pod=name["name"]))
        elif _PROMPT.match(line) and self.current.ended:
            self.begin(Container())
        elif part := _FIELD.match(line):
            key, value, indent = part["key"], part["value"], len(part["indent"])
            if key in ("State", "Last State"):
                self._begin_state(key, value, number, line)
            elif not value and 0 < indent <= 2 and key not in _SECTIONS:
                self.begin(Container(pod=self.current.pod, node=self.current.node, name=key))
            elif not (self.current.ended and self.current.ended[-1].note(key, value, number, line)):
                self._note(key, value, indent, number, line)

    def _begin_state(self, key: str, value: str, number: int, line: str) -> None:
        if key == "State" and self.current.ended:
            self.begin(Container(pod=self.current.pod, node=self.current.node))
        if value in ("Terminated", "Waiting"):
            self.current.ended.append(Ended(key, number, line))

    def _note(self, key: str, value: str, indent: int, number: int, line: str) -> None:
        current = self.current
        if key == "Node" and not indent:
            current.node = value.split("/")[0] or None
        elif key == "Restart Count":
            current.restarts = value
        elif key in ("Limits", "Requests"):
            self.in_limits = key == "Limits"
        elif key == "memory" and self.in_limits:
            current.memory_limit = value
        elif not indent:
            self._note_pod(key, value, number, line)

    def _note_pod(self, key: str, value: str, number: int, line: str) -> None:
        if key == "Message" and self.told and self.found and self.found[-1] is self.told:
            said = quote_line(self.file, number, line, host=self.told.host)
            self.found[-1] = _add_message(self.told, value, said)
        elif key in ("Reason", "Status") and value in _ENDS_OF_PODS:
            self.found.extend(_describe_pod(self.current, value, number, line, self.file))
            self.told = self.found[-1] if self.found else None


_ENDS_OF_PODS = ("Evicted", "DeadlineExceeded", "Preempting", "NodeShutdown", "Terminated")


def find_containers(lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    """Findings about containers and pods among lines that describe them."""
    reader = _PodReader(file)
    for number, line in lines:
        reader.read(number, line)
    reader.begin(Container())
    return reader.found


def _add_message(finding: Finding, message: str, line: Evidence) -> Finding:
    """The finding about a pod with what the kubelet says of the reason, whose line tells more than the reason's."""
    reason = finding.text(Fact.REASON)
    meaning = explain_reason(reason)
    if meaning is None:
        return finding
    return replace(
        finding,
        title=say_reason(name_pod(finding.pod), meaning, reason, message),
        evidence=(line, *finding.evidence),
        facts={**finding.facts, "message": message[:300]},
    )


_SECTIONS = frozenset({
    "Limits", "Requests", "Environment", "Mounts", "Conditions", "Volumes", "Events", "Labels", "Annotations",
    "Containers", "Init Containers", "IPs", "Args", "Command", "Ports", "Port", "Host Port", "Liveness", "Type",
})  # fmt: skip


def _say_time(stamp: str) -> str:
    """`Mon, 02 Mar 2026 03:12:02 +0000` as the rest of an answer writes a time."""
    try:
        at = datetime.strptime(stamp, "%a, %d %b %Y %H:%M:%S %z").astimezone(UTC)
    except ValueError:
        return stamp
    return f"{at:%d %b %Y, %H:%M:%S} UTC"


def describe_container(container: Container, file: str) -> list[Finding]:
    """One finding for each end of the container that means something."""
    found = []
    for ended in container.ended:
        meaning = _explain(ended)
        if meaning is None:
            continue
        restarts = container.restarts or ""
        facts = known(
            container=container.name or None,
            exit_code=ended.exit_code,
            memory_limit=container.memory_limit or None,
            restarts=int(restarts[:9]) if restarts.isdecimal() else None,
            node=container.node or None,
        )
        facts = {"pod": container.pod, "reason": ended.reason, **facts}
        found.append(
            Finding(
                kind=f"kubernetes.{meaning.kind}",
                title=_tell_end(container, ended, meaning),
                level=meaning.level,
                category=meaning.category,
                confidence=meaning.confidence,
                evidence=(quote_line(file, ended.number, ended.text, host=container.node),),
                host=container.node or container.pod,
                facts=facts,
            )
        )
    return found


def _explain(ended: Ended) -> ReasonMeaning | None:
    """By the reason, else by the exit code: `Error` says nothing that the code does not."""
    meaning = explain_reason(ended.reason) if ended.reason else None
    if meaning is None or ended.reason == "Error":
        return explain_exit(ended.exit_code) or meaning
    return meaning


def _tell_end(container: Container, ended: Ended, meaning: ReasonMeaning) -> str:
    """Which pod on which node ended how and when."""
    node = f" on {container.node}" if container.node else ""
    when = f" at {_say_time(ended.finished)}" if ended.finished else ""
    code = f", exit code {ended.exit_code}" if ended.exit_code is not None else ""
    of_memory = meaning.kind == "oom_killed" and container.memory_limit
    limit = f", memory limit {container.memory_limit}" if of_memory else ""
    return (
        f"Pod {container.pod or 'a pod'}{node}: {meaning.reading}{when} "
        f"({ended.reason or 'terminated'}{code}{limit})"
    )


def _describe_pod(
    container: Container, reason: str, number: int, line: str, file: str
) -> list[Finding]:
    meaning = explain_reason(reason)
    if meaning is None:
        return []
    found = make_finding(
        meaning,
        say_reason(name_pod(container.pod), meaning, reason, None),
        (file, number, line),
        pod=container.pod,
        node=container.node,
        reason=reason,
    )
    return [found]


def make_finding(
    meaning: ReasonMeaning,
    title: str,
    place: tuple[str, int, str],
    *,
    pod: str | None,
    node: str | None,
    reason: str,
    message: str | None = None,
) -> Finding:
    """A finding about a pod or a node. place: file, line number, text of the line."""
    file, number, line = place
    facts = known(
        reason=reason,
        pod=pod or None,
        node=node or None,
        message=message[:300] if message else None,
    )
    evidence: Evidence = quote_line(file, number, line, host=node)
    return Finding(
        kind=f"kubernetes.{meaning.kind}",
        title=title,
        level=meaning.level,
        category=meaning.category,
        confidence=meaning.confidence,
        evidence=(evidence,),
        host=node or pod,
        facts=facts,
    )
