"""Which row of the GID table NCCL uses, and whether other hosts can reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.finding_roles import FindingRole
from firstfault_tools.findings import Category, Finding, Level
from firstfault_tools.hardware.host.host_settings import find_in_incident
from firstfault_tools.log.scan import build_set, scan_file

FAILED = Finding(
    "signature.ib-modify-qp",
    "x",
    Level.CAUSE,
    Category.COMMUNICATION,
    roles=frozenset({FindingRole.RDMA}),
)
TABLE = [
    "GID[  0]:  fe80:0000:0000:0000:0ac0:ebff:feda:0001, RoCE v1",
    "GID[  1]:  fe80::ac0:ebff:feda:1, RoCE v2",
    "GID[  3]:  ::ffff:10.0.0.5, RoCE v2",
]


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["NCCL_IB_GID_INDEX set by environment to 1.", *TABLE], "network.gid_link_local"),
        (["export NCCL_IB_GID_INDEX=7", *TABLE], "network.gid_absent"),
        (["export NCCL_IB_GID_INDEX=3", *TABLE], None),
        (TABLE, None),
        (["export NCCL_IB_GID_INDEX=7"], None),
        (["next state RTR, local GID index 1, local GID fe80::1, remote GID fe80::2"], "network.gid_link_local"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("trouble", [True, False])
def test_the_row_in_use(tmp_path: Path, lines: list[str], kind: str | None, trouble: bool) -> None:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    signatures = build_set(())
    made = LogIncident((scan_file(path, "log.txt", signatures),), signatures)
    found = [f.kind for f in find_in_incident(made, [FAILED] if trouble else [])]
    assert found == ([kind] if kind is not None and trouble else [])
