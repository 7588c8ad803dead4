"""Pods and events as objects: the same findings as from the printed form, whatever the encoding."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstfault_tools.errors import ToolError, UnreadableArtefact
from firstfault_tools.findings import Category, Finding
from firstfault_tools.registry import Artefact
from firstfault_tools.scheduler.kubernetes_objects import READER

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pretrain-worker-3", "namespace": "ml"},
    "spec": {
        "nodeName": "gx-07",
        "containers": [{"name": "train", "resources": {"limits": {"memory": "64Gi"}}}],
    },
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "train",
                "restartCount": 2,
                "state": {"running": {"startedAt": "2026-03-10T02:50:00Z"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "OOMKilled",
                        "finishedAt": "2026-03-10T02:47:40Z",
                    }
                },
            }
        ],
    },
}
HEALTHY = {
    **POD,
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "train", "state": {"running": {}}}],
    },
}
EVICTED = {
    **POD,
    "status": {"phase": "Failed", "reason": "Evicted", "message": "low on ephemeral-storage"},
}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "involvedObject": {"kind": "Pod", "name": "pretrain-worker-5"},
    "type": "Warning",
    "reason": "FailedScheduling",
    "message": "0/8 nodes are available: 8 Insufficient nvidia.com/gpu.",
}


def as_list(*items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def read(folder: Path, text: str, name: str = "pods.json") -> tuple[Finding, ...]:
    path = folder / "x"
    path.write_text(text)
    artefact = Artefact(name, path)
    assert READER.recognise(name, artefact.head())
    return READER.read((artefact,)).findings


@pytest.mark.parametrize(
    "write",
    [lambda o: json.dumps(o, indent=2), lambda o: yaml.safe_dump(json.loads(json.dumps(o)))],
)
def test_a_killed_container_with_its_limit(tmp_path: Path, write: Any) -> None:
    (found,) = read(tmp_path, write(as_list(HEALTHY, POD)))
    assert (found.kind, found.category, found.host) == (
        "kubernetes.oom_killed",
        Category.OOM,
        "gx-07",
    )
    assert "64Gi" in found.title
    assert found.facts["restarts"] == 2
    assert "OOMKilled" in found.evidence[0].text
    assert found.page


def test_evicted_and_unschedulable(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(as_list(EVICTED, EVENT), indent=1))
    assert [f.facts["reason"] for f in found] == ["Evicted", "FailedScheduling"]
    assert found[1].facts["pod"] == "pretrain-worker-5"


def test_a_healthy_pod_has_no_finding(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps(HEALTHY)) == ()


@pytest.mark.parametrize(
    "text", ['{"apiVersion": "v1", "kind": "Pod"', "apiVersion: v1\nstatus:\n a: &x [1]\n b: *x\n"]
)
def test_broken_or_aliased_text_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnreadableArtefact):
        read(tmp_path, text)


def test_other_json_is_left_alone() -> None:
    assert not READER.recognise("config.json", b'{"model_type": "llama", "kind": "x"}')
    assert not READER.recognise("a.yaml", b"apiVersion: v2\nname: chart\n")


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_odd_values_raise_tool_errors_only(tmp_path: Path, data: st.DataObject) -> None:
    odd = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=2)
    )
    root = json.loads(json.dumps(as_list(POD, EVICTED, EVENT)))
    for _ in range(data.draw(st.integers(1, 4))):
        node: Any = root
        while isinstance(node, dict | list) and node:
            key = data.draw(
                st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node)))
            )
            if data.draw(st.booleans()) or not isinstance(node[key], dict | list):
                node[key] = data.draw(odd)
                break
            node = node[key]
    path = tmp_path / "x"
    path.write_text(json.dumps(root))
    with contextlib.suppress(ToolError):
        READER.read((Artefact("x", path),))
