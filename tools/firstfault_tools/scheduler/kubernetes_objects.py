"""What do pods and events say in `kubectl get ... -o json` or `-o yaml`?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Finding
from firstfault_tools.hardware.excerpt import NumberedLine, read_lines
from firstfault_tools.registry import Artefact, Reader, Reading
from firstfault_tools.scheduler.kubernetes import drop_repeats
from firstfault_tools.scheduler.kubernetes_description import (
    Container,
    Ended,
    describe_container,
    make_finding,
)
from firstfault_tools.scheduler.kubernetes_reasons import explain_reason, name_pod, say_reason

MAX_BYTES = 32 * 1024 * 1024
MAX_YAML = 4 * 1024 * 1024
MAX_OBJECTS = 20_000
_KINDS = rb"List|PodList|EventList|Pod|Event|Job|PyTorchJob|Node"
_JSON = expression(rb'"kind"\s*:\s*"(?:' + _KINDS + rb')"')
_YAML = expression(rb"(?m)^apiVersion:\s*\S")


def recognise_objects(name: str, head: bytes) -> bool:
    """Objects as the API server writes them, JSON or YAML."""
    start = head.lstrip()[:1]
    if start == b"{":
        return b'"apiVersion"' in head and _JSON.search(head) is not None
    status = b"\nstatus:" in head or b"containerStatuses:" in head or b"items:" in head[:400]
    return _YAML.match(head.lstrip()) is not None and status


def read_objects(artefacts: tuple[Artefact, ...]) -> Reading:
    """Findings of all pods and events. Raises UnreadableArtefact where a file is no such object."""
    findings: list[Finding] = []
    objects = 0
    for artefact in artefacts:
        lines = read_lines(artefact)
        for item in _items(_load(artefact)):
            objects += 1
            if objects > MAX_OBJECTS:
                break
            findings.extend(_read_object(item, lines, artefact.name))
    return Reading(tuple(drop_repeats(findings)), {"objects": min(objects, MAX_OBJECTS)})


def _load(artefact: Artefact) -> Any:
    data = artefact.data(MAX_BYTES)
    try:
        if data.lstrip()[:1] == b"{":
            return json.loads(data)
        if len(data) > MAX_YAML:
            raise UnreadableArtefact(f"{artefact.name}: YAML over 4 MiB; save it with -o json")
        return _load_yaml(data, artefact.name)
    except (ValueError, RecursionError) as error:
        raise UnreadableArtefact(
            f"{artefact.name}: not whole ({type(error).__name__}); save the kubectl output again"
        ) from error


def _load_yaml(data: bytes, name: str) -> Any:
    import yaml

    # An alias can make a small file huge when walked; kubectl writes none.
    if re.search(rb"(?m)(?:^|[:\-]\s)\s*\*\w", data):
        raise UnreadableArtefact(f"{name}: YAML aliases are not read; save it with -o json")
    try:
        return yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise UnreadableArtefact(f"{name}: no YAML ({type(error).__name__})") from error


def _items(root: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(root, dict):
        items = root.get("items")
        for item in items if isinstance(items, list) else [root]:
            if isinstance(item, dict):
                yield item


def _map(value: Any, key: str) -> Mapping[str, Any]:
    inner = value.get(key) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, dict) else {}


def _text(value: Any, limit: int = 253) -> str | None:
    return value[:limit] if isinstance(value, str) and value else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_object(
    item: Mapping[str, Any], lines: Sequence[NumberedLine], file: str
) -> list[Finding]:
    if "involvedObject" in item or "regarding" in item:
        return _read_event(item, lines, file)
    if "containerStatuses" in _map(item, "status") or item.get("kind") == "Pod":
        return _read_pod(item, lines, file)
    return []


def _place(lines: Sequence[NumberedLine], owner: str | None, word: str) -> NumberedLine:
    """The line that holds `word`, the nearest to a line with the owner's name."""
    names = [i for i, (_, line) in enumerate(lines) if owner and owner in line]
    hits = [i for i, (_, line) in enumerate(lines) if word in line]
    if not hits:
        return lines[names[0]] if names else (0, word)
    if not names:
        return lines[hits[0]]
    best = min(hits, key=lambda i: min(abs(i - name) for name in names[:50]))
    return lines[best]


def _read_pod(item: Mapping[str, Any], lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    pod = _text(_map(item, "metadata").get("name"))
    spec, status = _map(item, "spec"), _map(item, "status")
    node = _text(spec.get("nodeName"))
    limits = (
        {
            _text(one.get("name")): _text(_map(_map(one, "resources"), "limits").get("memory"), 40)
            for one in spec.get("containers") or ()
            if isinstance(one, dict)
        }
        if isinstance(spec.get("containers"), list)
        else {}
    )
    found: list[Finding] = []
    reason = _text(status.get("reason"), 60)
    meaning = explain_reason(reason) if reason else None
    if reason and meaning:
        message = _text(status.get("message"), 300)
        title = say_reason(name_pod(pod), meaning, reason, message)
        place = (file, *_place(lines, pod, reason))
        found.append(make_finding(meaning, title, place, pod=pod, node=node, reason=reason))
    for key in ("initContainerStatuses", "containerStatuses"):
        states = status.get(key)
        for one in states if isinstance(states, list) else ():
            if isinstance(one, dict):
                found.extend(_read_container(one, (pod, node), limits, lines, file))
    return found


def _read_container(
    one: Mapping[str, Any],
    owner: tuple[str | None, str | None],
    limits: Mapping[str | None, str | None],
    lines: Sequence[NumberedLine],
    file: str,
) -> list[Finding]:
    name = _text(one.get("name"))
    restarts = _number(one.get("restartCount"))
    container = Container(
        pod=owner[0],
        node=owner[1],
        name=name,
        memory_limit=limits.get(name),
        restarts=None if restarts is None or restarts < 0 else str(restarts),
    )
    for when in ("state", "lastState"):
        state = _map(one, when)
        ended, waiting = _map(state, "terminated"), _map(state, "waiting")
        told = ended or waiting
        reason = _text(told.get("reason"), 60) or ""
        if not told:
            continue
        number, line = _place(lines, owner[0], reason or "exitCode")
        container.ended.append(
            Ended(
                when,
                number,
                line,
                reason,
                exit_code=_number(ended.get("exitCode")),
                signal=_number(ended.get("signal")),
                finished=_text(ended.get("finishedAt"), 40),
                message=_text(told.get("message"), 300),
            )
        )
    return describe_container(container, file)


def _read_event(item: Mapping[str, Any], lines: Sequence[NumberedLine], file: str) -> list[Finding]:
    target = _map(item, "involvedObject") or _map(item, "regarding")
    reason = _text(item.get("reason"), 60)
    meaning = explain_reason(reason) if reason else None
    if reason is None or meaning is None:
        return []
    name = _text(target.get("name"))
    on_node = target.get("kind") == "Node"
    node = name if on_node else _text(_map(item, "source").get("host"))
    message = _text(item.get("message") or item.get("note"), 300) or ""
    who = f"Node {node}" if on_node else name_pod(name)
    title = say_reason(who, meaning, reason, message)
    place = (file, *_place(lines, name, reason))
    pod = None if on_node else name
    return [make_finding(meaning, title, place, pod=pod, node=node, reason=reason, message=message)]


SIGNS = ("apiVersion",)

READER = Reader(
    name="kubernetes_objects",
    summary="kubectl get -o json or yaml: ended containers, evicted pods, events",
    recognise=recognise_objects,
    read=read_objects,
)
