"""Relations from data: which rows hold, what they change, and what a wrong row is called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.rows import each_row

from firstfault_tools.correlation.decisions import Trail
from firstfault_tools.correlation.relations import Match, read_row, relate, relation_rows
from firstfault_tools.errors import UnreadableArtefact
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Evidence, Finding, Level

ROW: dict[str, Any] = {
    "rule": "one", "stage": "s", "relation": "explains", "reason": "because",
    "of": {"kinds": ["a.*"]}, "by": {"kinds": ["b.one"]}, "becomes": "symptom",
}  # fmt: skip


def made(kind: str, level: Level = Level.CAUSE, **more: Any) -> Finding:
    evidence = (Evidence("log", 1, kind),)
    return Finding(kind, kind, level, more.pop("category", None), evidence=evidence, **more)


NODE = made("slurm.node_fail", category=Category.SCHEDULER, host="n1", time=1000.0)
PORT = frozenset({FindingRole.PORT_DOWN})
RETRIES = made("signature.retries", Level.FAILURE, roles=(FindingRole.ALLOCATION_RETRIES,))
PANIC = made("kernel.panic", category=Category.HARDWARE, host="n1.example.com", time=900.0)


@each_row(
    ("of", "by", "given", "level"),
    [
        (NODE, PANIC, "", Level.SYMPTOM),
        (NODE, replace(PANIC, host="n2"), "", Level.CAUSE),
        (NODE, replace(PANIC, host="n1-bmc"), "", Level.SYMPTOM),
        (NODE, replace(PANIC, host=None), "", Level.SYMPTOM),
        (NODE, replace(PANIC, time=1601.0), "", Level.CAUSE),
        (NODE, replace(PANIC, facts={"survived": True}), "", Level.CAUSE),
        (made("kubernetes.node_not_ready"), NODE, "trained", Level.SYMPTOM),
        (made("kubernetes.node_not_ready"), NODE, "", Level.CAUSE),
        (made("hardware.xid", facts={"xid": 43}), made("traceback.x", category=Category.DATA), "", Level.SYMPTOM),
        (made("hardware.xid", facts={"xid": 79}), made("traceback.x", category=Category.DATA), "", Level.CAUSE),
        (made("hardware.xid", facts={"xid": 45}), made("traceback.x", category=Category.SCHEDULER), "", Level.CAUSE),
        (made("kernel.pcie_link_down", host="n1"), made("hardware.xid", host="n1", facts={"xid": 79}), "", Level.SYMPTOM),
        (made("kernel.pcie_link_down", host="n1"), made("hardware.xid", host="n2", facts={"xid": 79}), "", Level.CAUSE),
        (made("kernel.pcie_link_down", host="n1"), made("hardware.xid", host="n1", facts={"xid": 48}), "", Level.CAUSE),
        (made("stacks.data_loader"), made("kernel.nfs_hang", host="n1"), "", Level.SYMPTOM),
        (made("stacks.data_loader", host="n2"), made("kernel.nfs_hang", host="n1"), "", Level.CAUSE),
        (made("signature.p", host="n1", rank=5, roles=PORT), made("kernel.nic_link_down", host="n1", rank=5), "", Level.SYMPTOM),
        (made("signature.p", host="n1", rank=5, roles=PORT, facts={"what": "Cable error"}), made("kernel.nic_link_down", host="n1", rank=5), "", Level.CAUSE),
        (made("signature.p", host="n1", rank=4, roles=PORT), made("kernel.nic_link_down", host="n1", rank=5), "", Level.CAUSE),
        (made("kernel.nfs_hang", host="n1"), made("kernel.nic_link_down", category=Category.COMMUNICATION, host="n1"), "", Level.CONTEXT),
        (made("kernel.nfs_hang", host="n1"), made("hardware.xid", category=Category.HARDWARE, host="n2"), "", Level.CAUSE),
        (made("kernel.nfs_hang", host="n1"), made("hardware.xid", Level.FAILURE, category=Category.HARDWARE, host="n1"), "", Level.CAUSE),
        (made("kernel.nfs_hang", host="n1"), made("traceback.x", category=Category.OOM, host="n1"), "", Level.CAUSE),
        (made("metrics.throughput_drop"), RETRIES, "", Level.SYMPTOM),
        (made("metrics.throughput_drop"), replace(RETRIES, evidence=(Evidence("log", 90, "x"),)), "", Level.CAUSE),
        (made("metrics.throughput_drop"), replace(RETRIES, evidence=(Evidence("other", 1, "x"),)), "", Level.CAUSE),
    ],
)  # fmt: skip
def test_levels(of: Finding, by: Finding, given: str, level: Level) -> None:
    trail = Trail()
    first = relate("levels", [of, by], trail, given=frozenset({given}))[0]
    assert first.level is level
    assert [d.became for d in trail.decisions] == ([first] if level is not of.level else [])


def test_a_write_in_the_background_is_outlived_by_no_step() -> None:
    upload = made("signature.upload", category=Category.CHECKPOINT, facts={"survived": True})
    failed = made("signature.save", Level.FAILURE, category=Category.CHECKPOINT)
    assert not relate("outlived", [upload, failed], Trail())[0].survived
    assert relate("outlived", [upload], Trail())[0].survived
    elsewhere = replace(failed, evidence=(Evidence("other", 1, "x"),))
    assert relate("outlived", [upload, elsewhere], Trail())[0].survived


def test_an_end_is_dropped_where_something_tells_why() -> None:
    end, lost = made("run.ended", Level.SYMPTOM), made("peers.lost", Level.SYMPTOM)
    trail = Trail()
    assert relate("sums", [end, lost], trail) == [lost]
    assert trail.decisions[0].became is None
    assert trail.decisions[0].by is lost
    assert relate("sums", [end], trail) == [end]


def test_a_rank_that_failed_is_absent_for_that() -> None:
    absent = made("collective.never_entered", rank=3)
    failed = made("traceback.unhandled", Level.FAILURE, rank=3)
    other = replace(failed, rank=4)
    assert relate("absence", [absent, failed], Trail())[0].level is Level.SYMPTOM
    assert relate("absence", [absent, other], Trail())[0] is absent


def test_a_role_of_a_signature_and_of_a_kind_match_alike() -> None:
    match = Match(roles=(FindingRole.NODE_LOST,))
    assert match.holds(NODE)
    assert match.holds(made("signature.x", roles=frozenset({FindingRole.NODE_LOST})))
    assert not match.holds(made("signature.x"))


@each_row(
    ("change", "words"),
    [
        ({"relation": "blames"}, "one.*blames"),
        ({"of": {"role": ["x"]}}, "one.*role"),
        ({"of": {"roles": ["lost_pear"]}}, "one.*lost_pear"),
        ({"becomes": "worse"}, "one.*worse"),
        ({"same": ["rack"]}, "one.*rack"),
        ({"then": 1}, "one.*then"),
    ],
)
def test_wrong_words_are_named(change: dict[str, Any], words: str) -> None:
    assert read_row(ROW).rule.name == "one"
    with pytest.raises(UnreadableArtefact, match=words):
        read_row({**ROW, **change})


def test_names_of_rules_are_unique() -> None:
    names = [row.rule.name for row in relation_rows()]
    assert len(names) == len(set(names))
