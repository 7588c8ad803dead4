"""kubectl output, saved and pasted: states, events, rows, the public incident, damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.excerpt import number_lines
from firstfault_tools.knowledge.pack import read_yaml
from firstfault_tools.registry import Artefact
from firstfault_tools.scheduler import kubernetes
from firstfault_tools.scheduler.kubernetes_reasons import explain_reason, load_reasons, say_reason

CASE = Path("/work/shared/cases/public/comm-26-efa-qpn-error-is-oomkilled-peer.yaml")
POD = """Name:             trainer-5
Namespace:        ml
Node:             gpu-9/10.0.0.9
Status:           {status}
{extra}Containers:
  pytorch:
    Container ID:  containerd://x
    State:          {state}
      Reason:       {reason}
      Exit Code:    {code}
      Finished:     Mon, 06 May 2024 20:31:10 +0000
    Ready:          False
    Restart Count:  {restarts}
    Limits:
      memory:  512Gi
    Requests:
      memory:  500Gi
Events:
  Type     Reason            Age                  From               Message
  ----     ------            ----                 ----               -------
{events}
"""


def find(text: str) -> tuple[Finding, ...]:
    return kubernetes.find_in_lines(number_lines(text), "log")


def pod(**change: object) -> str:
    fields = {
        "status": "Failed", "extra": "", "state": "Terminated", "reason": "Completed", "code": 0,
        "restarts": 0, "events": "",
    }  # fmt: skip
    return POD.format(**{**fields, **change})


@each_row(
    ("reason", "code", "kind", "level", "category"),
    [
        ("OOMKilled", 137, "oom_killed", Level.CAUSE, Category.OOM),
        ("Error", 137, "sigkill", Level.FAILURE, None),
        ("Error", 1, "exited", Level.SYMPTOM, Category.CODE_BUG),
        ("Error", 139, "crashed", Level.FAILURE, Category.CODE_BUG),
        ("Error", 143, "sigterm", Level.SYMPTOM, Category.SCHEDULER),
        ("ContainerCannotRun", 127, "container_config", Level.CAUSE, Category.ENVIRONMENT),
    ],
)
def test_how_a_container_ended(
    reason: str, code: int, kind: str, level: Level, category: Category | None
) -> None:
    text = pod(reason=reason, code=code)
    assert kubernetes.recognise_kubernetes("x", text.encode())
    (found,) = find(text)
    assert (found.kind, found.level, found.category) == (f"kubernetes.{kind}", level, category)
    assert found.host == "gpu-9"
    assert found.facts["pod"] == "trainer-5"
    assert found.facts["container"] == "pytorch"
    assert found.page


def test_a_pod_that_ended_well_says_nothing() -> None:
    assert find(pod()) == ()


def test_memory_limit_is_named_only_for_a_memory_kill() -> None:
    assert "512Gi" in find(pod(reason="OOMKilled", code=137))[0].title
    assert "512Gi" not in find(pod(reason="Error", code=137))[0].title


@pytest.mark.skipif(not CASE.is_file(), reason="cases are not here")
def test_the_public_incident_names_the_killed_peer() -> None:
    log = read_yaml(CASE.read_text(encoding="utf-8"))["log"]
    (found,) = find(log)
    assert (found.kind, found.level) == ("kubernetes.oom_killed", Level.CAUSE)
    assert found.facts["pod"] == "nccl-worker-1"
    assert found.facts["memory_limit"] == "8000Mi"
    assert log.split("\n")[found.evidence[0].line - 1].strip() == found.evidence[0].text


EVENTS = """LAST SEEN   TYPE      REASON             OBJECT          MESSAGE
2m          Warning   FailedScheduling   pod/trainer-3   0/8 nodes are available: 8 Insufficient nvidia.com/gpu.
5m12s       Warning   Evicted            pod/trainer-4   The node was low on resource: ephemeral-storage.
9m          Normal    NodeNotReady       node/gpu-7      Node gpu-7 status is now: NodeNotReady
9m          Normal    Scheduled          pod/trainer-6   Successfully assigned
"""


def test_events() -> None:
    assert kubernetes.recognise_kubernetes("x", EVENTS.encode())
    found = find("epoch 3\n" + EVENTS)
    assert [(f.kind, f.facts.get("pod"), f.host) for f in found] == [
        ("kubernetes.unschedulable", "trainer-3", "trainer-3"),
        ("kubernetes.evicted", "trainer-4", "trainer-4"),
        ("kubernetes.node_not_ready", None, "gpu-7"),
    ]


def test_a_pod_that_started_after_all_only_waited() -> None:
    late = (
        EVENTS
        + "1m          Normal    Started            pod/trainer-3   Started container pytorch\n"
    )
    waited = next(f for f in find(late) if f.kind == "kubernetes.unschedulable")
    assert waited.level is Level.CONTEXT


def test_rows_of_get_pods() -> None:
    text = (
        "NAME        READY   STATUS             RESTARTS        AGE   IP           NODE\n"
        "trainer-0   0/1     OOMKilled          1 (3m ago)      3h    10.1.2.3     gpu-3\n"
        "trainer-1   1/1     Running            0               3h    10.1.2.4     gpu-4\n"
        "trainer-2   0/1     Init:ErrImagePull  0               3h\n"
    )
    assert kubernetes.recognise_kubernetes("x", text.encode())
    assert [(f.kind, f.host) for f in find(text)] == [
        ("kubernetes.oom_killed", "gpu-3"),
        ("kubernetes.image", "trainer-2"),
    ]


def test_a_block_an_event_and_a_row_of_one_kill_are_one_finding() -> None:
    events = "  Warning  OOMKilling  3m2s (x5 over 10m)  kubelet  Memory cgroup out of memory"
    assert len(find(pod(reason="OOMKilled", code=137, events=events))) == 1


def test_reasons_are_complete() -> None:
    assert all(m.reading and m.kind for m in load_reasons().values())


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_no_damage_breaks_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([pod(reason="OOMKilled", code=137), EVENTS]))
    cut = data.draw(st.integers(0, len(base)))
    end = data.draw(st.integers(cut, len(base)))
    text = base[:cut] + data.draw(st.text(max_size=12)) + base[end:]
    path = tmp_path_factory.mktemp("k8s") / "x"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    artefact = Artefact("x", path)
    assert kubernetes.READER.recognise("x", artefact.head()) in (True, False)
    assert kubernetes.READER.read((artefact,)).data["files"] == ["x"]


TAKEN = (
    "36m  Warning  FailedScheduling  pod/canary-0  0/4 nodes are available: 4 Insufficient nvidia.com/gpu.\n"
    "31m  Normal   Preempted         pod/job-worker-5  Preempted by pod 7f0b on node n8\n"
)


def test_pods_that_wait_beside_a_preempted_one_are_no_cause() -> None:
    levels = {f.facts.get("pod"): f.level for f in find(TAKEN)}
    assert levels == {"canary-0": Level.CONTEXT, "job-worker-5": Level.CAUSE}


def test_pods_of_somebody_else_are_no_cause() -> None:
    rows = "job-worker-0  1/1  Running  0  5h\ndatasync-9x  0/1  CrashLoopBackOff  9  26m\n"
    assert [f.level for f in find(rows)] == [Level.CONTEXT]
    own = "job-worker-0  1/1  Running  0  5h\njob-worker-1  0/1  CrashLoopBackOff  9  26m\n"
    assert [f.level for f in find(own)] == [Level.SYMPTOM]


@each_row(("ready", "level"), [("1/1", Level.CONTEXT), ("0/1", Level.SYMPTOM)])
def test_a_probe_that_failed_while_the_pod_came_up(ready: str, level: Level) -> None:
    lines = [
        "$ kubectl get pods",
        "NAME                 READY   STATUS    RESTARTS       AGE",
        f"pre-train-master-0   {ready}     Running   0              160m",
        "$ kubectl describe pod pre-train-master-0 | tail -5",
        "  Warning  Unhealthy  158m  kubelet  Startup probe failed: dial tcp 10.244.3.9:29400: connect: connection refused",
    ]
    found = kubernetes.find_in_lines(list(enumerate(lines, 1)), "kubectl.txt")
    assert [f.level for f in found if f.kind == "kubernetes.probe_failed"] == [level]


@each_row(
    ("message", "said"),
    [
        (
            "0/32 nodes are available: 1 node(s) had untolerated taint {gone: }, 31 Insufficient nvidia.com/gpu.",
            "31 of 32 nodes: Insufficient nvidia.com/gpu, and 1: had untolerated taint {gone: }",
        ),
        ("0/8 nodes are available: 8 Insufficient nvidia.com/gpu.", "all 8 nodes: Insufficient nvidia.com/gpu"),
    ],
)  # fmt: skip
def test_numbers_of_the_scheduler_count_nodes_and_every_reason_is_said(
    message: str, said: str
) -> None:
    meaning = explain_reason("FailedScheduling")
    assert meaning is not None
    told = say_reason("Pod x", meaning, "FailedScheduling", message)
    assert told == f"Pod x: no node could take the pod, {said} (FailedScheduling)"
