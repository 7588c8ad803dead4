"""Does the GID that NCCL was told to use have an address that other hosts can reach?

`NCCL_IB_GID_INDEX` picks a row of the port's GID table. A link-local row (fe80::) is not routed, and a
RoCE v1 row needs one Ethernet segment; the row of the IPv4 address with RoCE v2 is what peers reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from firstfault_tools.causality.incident import LogIncident
from firstfault_tools.expressions import expression
from firstfault_tools.findings import Category, Confidence, Evidence, Finding, Level

MOST_LINES = 2_000
LEAST_ROWS = 2
_TROUBLE = (
    "signature.ib-modify-qp", "signature.ib-modify-qp-invalid", "signature.rdma-device-without-gid",
    "signature.ib-retry-exceeded", "signature.roce-retry-exceeded", "signature.ib-completion-error",
)  # fmt: skip
_SET = expression(
    r"NCCL_IB_GID_INDEX(?:=| set by environment to |['\"]?\s?[:=]\s?['\"]?)(\d{1,3})\b"
)
_USED = expression(r"local GID index (?P<index>\d{1,3}), local GID (?P<gid>[0-9a-fA-F:.]+)")
_ROW = expression(
    r"GID\[\s*(?P<index>\d{1,3})\]:\s*(?P<gid>[0-9a-fA-F:.]{4,})(?:,?\s*RoCE (?P<version>v\d))?|"
    r"^\W{0,3}\w+\s+\d+\s+(?P<index2>\d{1,3})\s+(?P<gid2>[0-9a-f:]{20,})\s+(?:\d+\.\d+\.\d+\.\d+\s+)?(?P<version2>v\d)\b"
)


def find_in_incident(incident: LogIncident, findings: Sequence[Finding]) -> list[Finding]:
    """The GID in use, where its row of the table is link-local and another row is reachable."""
    if not any(f.kind in _TROUBLE and not f.facts.get("survived") for f in findings):
        return []
    used: tuple[str, Evidence] | None = None
    rows: dict[str, tuple[str, str, Evidence]] = {}
    lines = incident.lines_with(("GID_INDEX", "GID[", "local GID index", "fe80:", ":ffff:"))
    for digest, number, text in islice(lines, MOST_LINES):
        quote = Evidence(digest.file, number, text.strip()[:400])
        if (told := _USED.search(text)) is not None:
            used = used or (told["index"], quote)
            rows.setdefault(told["index"], (told["gid"], "", quote))
        elif (chosen := _SET.search(text)) is not None:
            used = used or (chosen[1], quote)
        elif (row := _ROW.search(text)) is not None:
            index = row["index"] or row["index2"]
            rows[index] = (
                row["gid"] or row["gid2"],
                row["version"] or row["version2"] or "",
                quote,
            )
    if used is None:
        return []
    if used[0] not in rows:
        return [_describe_absent(used, rows)] if len(rows) >= LEAST_ROWS else []
    gid, _, place = rows[used[0]]
    if not gid.lower().startswith("fe80"):
        return []
    better = next((i for i, (g, v, _) in rows.items() if ":ffff:" in g.lower() and v == "v2"), None)
    hint = f"; index {better} is the RoCE v2 row of the IPv4 address" if better is not None else ""
    quotes = list(
        dict.fromkeys([used[1], place, *([rows[better][2]] if better is not None else [])])
    )
    return [
        Finding(
            kind="network.gid_link_local",
            title=(
                f"GID index {used[0]} that NCCL uses is a link-local address ({gid}), which is not routed between hosts: "
                f"the RDMA queue pairs cannot be connected{hint}"
            ),
            level=Level.CAUSE,
            category=Category.COMMUNICATION,
            confidence=Confidence.LIKELY,
            evidence=tuple(quotes),
            page="ib-queue-pair",
            facts={"gid_index": used[0], "specificity": 10_000, "starts_at": 1, "survived": False},
        )
    ]


def _describe_absent(
    used: tuple[str, Evidence], rows: dict[str, tuple[str, str, Evidence]]
) -> Finding:
    """The table is shown and has no such row."""
    better = next((i for i, (g, v, _) in rows.items() if ":ffff:" in g.lower() and v == "v2"), None)
    hint = f"; index {better} is the RoCE v2 row of the IPv4 address" if better is not None else ""
    known = sorted(rows, key=int)
    return Finding(
        kind="network.gid_absent",
        title=(
            f"GID index {used[0]} that NCCL was told to use is not in the GID table of the port (it has {known[0]} to {known[-1]}), "
            f"so the RDMA queue pairs cannot be connected: unset NCCL_IB_GID_INDEX or correct it{hint}"
        ),
        level=Level.CAUSE,
        category=Category.ENVIRONMENT,
        confidence=Confidence.LIKELY,
        evidence=(used[1], rows[known[-1]][2]),
        page="ib-queue-pair",
        facts={"gid_index": used[0], "specificity": 10_000, "starts_at": 1, "survived": False},
    )
